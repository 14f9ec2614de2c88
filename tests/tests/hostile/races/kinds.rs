// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Objects that are destroyed by themselves or with their module, library, array or context.

use vhost_cuda_tests::frontend::CallParts;
use virtio_cuda_protocol::cuda::{
    AllocationProperties, ArrayDescriptor, Box3, COPY_ARRAY, COPY_DEVICE, CopyEnd, DevicePtr, FIRST_VARIABLE,
    LaunchShape, Location, MemoryOperation, Opcode, PoolProperties, ResourceDescriptor, TextureDescriptor,
    ViewDescriptor, Wire,
};

use super::{ANSWER, FIRST, Kind, Test, pieces, words};
use crate::calls::{CONTEXT, Session, encoded};

pub const ALL: &[Test] = &[
    ("streams", streams),
    ("events", events),
    ("modules", modules),
    ("functions", functions),
    ("libraries", libraries),
    ("managed_libraries", managed_libraries),
    ("kernels", kernels),
    ("arrays", arrays),
    ("sparse_arrays", sparse_arrays),
    ("mipmaps", mipmaps),
    ("levels", levels),
    ("textures", textures),
    ("texture_references", texture_references),
    ("references_to_memory", references_to_memory),
    ("references_to_mipmaps", references_to_mipmaps),
    ("pools", pools),
    ("allocations", allocations),
    ("links", links),
    ("links_with_input", links_with_input),
    ("completed_links", completed_links),
    ("contexts", contexts),
    ("streams_of_contexts", streams_of_contexts),
    ("primary_context", primary_context),
];

/// Names that the tests use: objects that are created and destroyed, and those that stay.
pub const IT: u64 = 0x10_0000;
pub const OTHER: u64 = 0x10_0010;
pub const STREAM: u64 = 0x10_0020;
pub const EVENT: u64 = 0x10_0030;
pub const MODULE: u64 = 0x10_0040;
pub const FUNCTION: u64 = 0x10_0050;
const CREATED: u64 = 0x10_0060;
/// `CU_STREAM_LEGACY`.
pub const LEGACY: u64 = 1;
pub const CODE: &[u8] = b".version 8.0\n.target sm_80\n.address_size 64\n.visible .global .texref line;\n\
    .visible .global .surfref image;\n.visible .global .u32 variable;\n.visible .entry k()\n{\nret;\n}\n";
/// With a managed variable.
const MANAGED: &[u8] = b".version 8.0\n.target sm_80\n.address_size 64\n\
    .visible .global .attribute(.managed) .u32 shared;\n.visible .entry k()\n{\nret;\n}\n";
/// `CU_AD_FORMAT_FLOAT`.
const FLOAT: u32 = 0x20;

pub fn of<T: Wire>(value: &T) -> Vec<u8> {
    encoded(value).expect("a short structure")
}

/// A launch of one thread.
pub fn launch(function: u64, stream: u64) -> CallParts {
    let shape = LaunchShape { grid: [1; 3], block: [1; 3], ..LaunchShape::default() };
    pieces(Opcode::cuLaunchKernel, &[&of(&function), &of(&stream), &of(&shape)])
}

/// Creates a kernel without parameters.
pub fn with_function() -> Vec<CallParts> {
    vec![
        words(Opcode::cuModuleLoadData, &[MODULE], &[]).bulk(CODE),
        words(Opcode::cuModuleGetFunction, &[MODULE, FUNCTION], &[]).bulk(b"k"),
    ]
}

fn streams(session: &Session) -> Kind {
    let mut once = with_function();
    once.push(words(Opcode::cuEventCreate, &[EVENT], &[0]));
    once.push(words(Opcode::cuStreamCreateWithPriority, &[STREAM], &[1, 0]));
    let memory = session.memory;
    Kind {
        handles: &["StreamId"],
        once,
        make: vec![words(Opcode::cuStreamCreateWithPriority, &[IT], &[1, 0])],
        uses: vec![
            words(Opcode::cuStreamQuery, &[IT], &[]),
            words(Opcode::cuStreamSynchronize, &[IT], &[]),
            words(Opcode::cuStreamGetFlags, &[IT], &[]),
            words(Opcode::cuStreamGetPriority, &[IT], &[]),
            words(Opcode::cuStreamGetId, &[IT], &[]),
            words(Opcode::cuStreamIsCapturing, &[IT], &[]),
            words(Opcode::cuStreamGetAttribute, &[IT], &[1]),
            words(Opcode::cuStreamCopyAttributes, &[STREAM, IT], &[]),
            words(Opcode::cuEventRecordWithFlags, &[EVENT, IT], &[0]),
            words(Opcode::cuStreamWaitEvent, &[IT, EVENT], &[0]),
            launch(FUNCTION, IT),
            words(Opcode::cuMemcpyHtoDAsync_v2, &[memory, IT], &[]).bulk(&[1; 64]),
            words(Opcode::cuMemcpyDtoHAsync_v2, &[memory, IT], &[]).wants(64),
            words(Opcode::cuMemcpyAsync, &[memory, memory + 64, 64, IT], &[]),
            words(Opcode::memcpy_wait, &[memory, memory + 64, 64, IT], &[]),
            pieces(Opcode::cuMemsetD8Async, &[&of(&memory), &[1], &of(&64u64), &of(&IT)]),
            pieces(Opcode::cuMemsetD16Async, &[&of(&memory), &of(&1u16), &of(&64u64), &of(&IT)]),
            pieces(Opcode::cuMemsetD32Async, &[&of(&memory), &of(&1u32), &of(&64u64), &of(&IT)]),
            fill_box(Opcode::cuMemsetD2D8Async, memory, &[1]),
            fill_box(Opcode::cuMemsetD2D16Async, memory, &of(&1u16)),
            fill_box(Opcode::cuMemsetD2D32Async, memory, &of(&1u32)),
            words(Opcode::cuMemAllocAsync, &[64, IT], &[]),
            pieces(Opcode::cuStreamSetAttribute, &[&of(&IT), &of(&SYNCHRONIZATION), &AUTOMATIC]),
            words(Opcode::cuStreamBatchMemOp_v2, &[IT], &[0]).bulk(&of(&written(memory))),
            launch_with_attributes(Opcode::cuLaunchKernelEx, FUNCTION, IT),
            pieces(
                Opcode::memcpy_box,
                &[&of(&end_of(memory)), &of(&end_of(memory + 64)), &of(&ROW), &of(&IT)],
            ),
        ],
        destroy: words(Opcode::cuStreamDestroy_v2, &[IT], &[]),
        ..Kind::default()
    }
}

/// `CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY`, and `CU_SYNC_POLICY_AUTO` as the value of an attribute.
const SYNCHRONIZATION: i32 = 3;
const AUTOMATIC: [u8; 64] = {
    let mut value = [0; 64];
    value[0] = 1;
    value
};
const ROW: Box3 = Box3 { width: 16, height: 1, depth: 1 };

fn end_of(memory: u64) -> CopyEnd {
    CopyEnd { kind: COPY_DEVICE, address: DevicePtr(memory), ..CopyEnd::default() }
}

/// Fills two rows of two elements.
fn fill_box(opcode: Opcode, memory: u64, value: &[u8]) -> CallParts {
    let sizes = [of(&2u64), of(&2u64)].concat();
    pieces(opcode, &[&of(&memory), &of(&64u64), value, &sizes, &of(&IT)])
}

/// Writes a value of 32 bits.
fn written(memory: u64) -> MemoryOperation {
    const WRITE_VALUE_32: u32 = 2;
    MemoryOperation { operation: WRITE_VALUE_32, address: DevicePtr(memory), ..MemoryOperation::default() }
}

/// A launch of one thread with no attributes.
fn launch_with_attributes(opcode: Opcode, function: u64, stream: u64) -> CallParts {
    let shape = LaunchShape { grid: [1; 3], block: [1; 3], ..LaunchShape::default() };
    pieces(opcode, &[&of(&function), &of(&stream), &of(&shape), &of(&0u32)])
}

fn events(_: &Session) -> Kind {
    Kind {
        handles: &["EventId"],
        once: vec![words(Opcode::cuStreamCreateWithPriority, &[STREAM], &[1, 0])],
        make: vec![
            words(Opcode::cuEventCreate, &[IT], &[0]),
            words(Opcode::cuEventRecordWithFlags, &[IT, STREAM], &[0]),
            words(Opcode::cuStreamSynchronize, &[STREAM], &[]),
        ],
        uses: vec![
            words(Opcode::cuEventQuery, &[IT], &[]),
            words(Opcode::cuEventSynchronize, &[IT], &[]),
            words(Opcode::cuEventRecordWithFlags, &[IT, STREAM], &[0]),
            words(Opcode::cuStreamWaitEvent, &[STREAM, IT], &[0]),
            words(Opcode::cuEventElapsedTime_v2, &[IT, IT], &[]),
            words(Opcode::cuCtxRecordEvent, &[CONTEXT, IT], &[]),
            words(Opcode::cuCtxWaitEvent, &[CONTEXT, IT], &[]),
        ],
        destroy: words(Opcode::cuEventDestroy_v2, &[IT], &[]),
        ..Kind::default()
    }
}

fn modules(_: &Session) -> Kind {
    Kind {
        handles: &["ModuleId"],
        make: vec![words(Opcode::cuModuleLoadData, &[IT], &[]).bulk(CODE)],
        uses: vec![
            words(Opcode::cuModuleGetFunction, &[IT, OTHER], &[]).bulk(b"k"),
            words(Opcode::cuModuleGetGlobal_v2, &[IT], &[]).bulk(b"variable"),
            words(Opcode::cuModuleGetTexRef, &[IT, OTHER], &[]).bulk(b"line"),
            words(Opcode::cuModuleGetSurfRef, &[IT, OTHER], &[]).bulk(b"image"),
            words(Opcode::module_function_names, &[IT], &[]).wants(64),
        ],
        destroy: words(Opcode::cuModuleUnload, &[IT], &[]),
        every: 8,
        ..Kind::default()
    }
}

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const DYNAMIC_SHARED: i32 = 8;
/// A texture reference that stays.
const REFERENCE: u64 = 0x10_0070;

fn clusters(opcode: Opcode) -> CallParts {
    let shape = LaunchShape { grid: [1; 3], block: [1; 3], ..LaunchShape::default() };
    pieces(opcode, &[&of(&OTHER), &of(&shape), &of(&0u32)])
}

fn functions(session: &Session) -> Kind {
    Kind {
        once: vec![
            words(Opcode::cuTexRefCreate, &[REFERENCE], &[]),
            words(Opcode::cuTexRefSetFormat, &[REFERENCE], &[FLOAT, 1]),
            reads_memory(REFERENCE, session.memory),
        ],
        handles: &["FunctionId"],
        make: vec![
            words(Opcode::cuModuleLoadData, &[IT], &[]).bulk(CODE),
            words(Opcode::cuModuleGetFunction, &[IT, OTHER], &[]).bulk(b"k"),
        ],
        uses: vec![
            launch(OTHER, LEGACY),
            launch_with_attributes(Opcode::cuLaunchKernelEx, OTHER, LEGACY),
            pieces(Opcode::cuFuncGetAttribute, &[&of(&0i32), &of(&OTHER)]),
            pieces(Opcode::cuFuncSetAttribute, &[&of(&OTHER), &of(&DYNAMIC_SHARED), &of(&1024i32)]),
            words(Opcode::cuFuncSetCacheConfig, &[OTHER], &[1]),
            words(Opcode::function_layout, &[OTHER], &[]).wants(64),
            pieces(
                Opcode::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
                &[&of(&OTHER), &of(&32i32), &of(&0u64), &of(&0u32)],
            ),
            pieces(
                Opcode::cuOccupancyMaxPotentialBlockSizeWithFlags,
                &[&of(&OTHER), &of(&0u64), &of(&0i32), &of(&0u32)],
            ),
            words(Opcode::cuOccupancyAvailableDynamicSMemPerBlock, &[OTHER], &[1, 32]),
            clusters(Opcode::cuOccupancyMaxActiveClusters),
            clusters(Opcode::cuOccupancyMaxPotentialClusterSize),
            pieces(Opcode::cuParamSetTexRef, &[&of(&OTHER), &of(&-1i32), &of(&REFERENCE)]),
        ],
        destroy: words(Opcode::cuModuleUnload, &[IT], &[]),
        every: 8,
        ..Kind::default()
    }
}

fn libraries(_: &Session) -> Kind {
    Kind {
        handles: &["LibraryId"],
        make: vec![words(Opcode::cuLibraryLoadData, &[IT], &[]).bulk(CODE)],
        uses: vec![
            words(Opcode::cuLibraryGetKernelCount, &[IT], &[]),
            words(Opcode::cuLibraryGetKernel, &[IT, OTHER], &[]).bulk(b"k"),
            words(Opcode::cuLibraryGetGlobal, &[IT], &[]).bulk(b"variable"),
            words(Opcode::library_variable, &[IT, FIRST_VARIABLE], &[]).bulk(b"variable"),
            words(Opcode::cuLibraryGetModule, &[IT, OTHER], &[]),
            words(Opcode::library_kernel_names, &[IT], &[]).wants(64),
        ],
        destroy: words(Opcode::cuLibraryUnload, &[IT], &[]),
        every: 8,
        ..Kind::default()
    }
}

fn managed_libraries(_: &Session) -> Kind {
    Kind {
        handles: &["LibraryId"],
        make: vec![words(Opcode::cuLibraryLoadData, &[IT], &[]).bulk(MANAGED)],
        uses: vec![words(Opcode::cuLibraryGetManaged, &[IT], &[]).bulk(b"shared")],
        destroy: words(Opcode::cuLibraryUnload, &[IT], &[]),
        every: 8,
        ..Kind::default()
    }
}

fn kernels(_: &Session) -> Kind {
    Kind {
        handles: &["FunctionId", "ModuleId"],
        make: vec![
            words(Opcode::cuLibraryLoadData, &[IT], &[]).bulk(CODE),
            words(Opcode::cuLibraryGetKernel, &[IT, OTHER], &[]).bulk(b"k"),
            words(Opcode::cuLibraryGetModule, &[IT, MODULE], &[]),
        ],
        uses: vec![
            launch(OTHER, LEGACY),
            words(Opcode::cuKernelGetFunction, &[OTHER, FUNCTION], &[]),
            pieces(Opcode::cuKernelGetAttribute, &[&of(&0i32), &of(&OTHER), &of(&0u32)]),
            pieces(
                Opcode::cuKernelSetAttribute,
                &[&of(&DYNAMIC_SHARED), &of(&1024i32), &of(&OTHER), &of(&0u32)],
            ),
            words(Opcode::cuKernelSetCacheConfig, &[OTHER], &[1, 0]),
            words(Opcode::cuModuleGetFunction, &[MODULE, FUNCTION], &[]).bulk(b"k"),
            words(Opcode::function_layout, &[OTHER], &[]).wants(64),
        ],
        destroy: words(Opcode::cuLibraryUnload, &[IT], &[]),
        every: 8,
        ..Kind::default()
    }
}

pub fn array(name: u64, depth: u64, flags: u32) -> CallParts {
    let descriptor = ArrayDescriptor { width: 256, height: 256, depth, format: FLOAT, channels: 1, flags };
    pieces(Opcode::cuArray3DCreate_v2, &[&of(&name), &of(&descriptor)])
}

/// Copies 16 bytes into an array.
fn fill(name: u64) -> CallParts {
    let dst = CopyEnd { kind: COPY_ARRAY, address: DevicePtr(name), ..CopyEnd::default() };
    let size = Box3 { width: 16, height: 1, depth: 1 };
    let bulk = CopyEnd::default();
    pieces(Opcode::memcpy_box, &[&of(&dst), &of(&bulk), &of(&size), &of(&LEGACY)]).bulk(&[1; 16])
}

fn texture(name: u64, kind: u32) -> CallParts {
    let resource = ResourceDescriptor { kind, object: name, ..ResourceDescriptor::default() };
    let none = (TextureDescriptor::default(), ViewDescriptor::default());
    pieces(Opcode::cuTexObjectCreate, &[&of(&resource), &of(&none.0), &of(&none.1)])
}

fn arrays(_: &Session) -> Kind {
    Kind {
        handles: &["ArrayId"],
        once: vec![words(Opcode::cuTexRefCreate, &[OTHER], &[])],
        make: vec![array(IT, 0, 0)],
        uses: vec![fill(IT), words(Opcode::cuTexRefSetArray, &[OTHER, IT], &[1]), texture(IT, 0)],
        destroy: words(Opcode::cuArrayDestroy, &[IT], &[]),
        ..Kind::default()
    }
}

fn sparse_arrays(_: &Session) -> Kind {
    Kind {
        handles: &["ArrayId"],
        make: vec![array(IT, 0, 0x40)],
        uses: vec![words(Opcode::cuArrayGetSparseProperties, &[IT], &[])],
        destroy: words(Opcode::cuArrayDestroy, &[IT], &[]),
        ..Kind::default()
    }
}

pub fn mipmap(name: u64, flags: u32) -> CallParts {
    let descriptor = ArrayDescriptor { width: 64, height: 64, depth: 0, format: FLOAT, channels: 1, flags };
    pieces(Opcode::cuMipmappedArrayCreate, &[&of(&name), &of(&descriptor), &of(&2u32)])
}

fn level(of_mipmap: u64, name: u64) -> CallParts {
    pieces(Opcode::cuMipmappedArrayGetLevel, &[&of(&of_mipmap), &of(&0u32), &of(&name)])
}

fn mipmaps(_: &Session) -> Kind {
    Kind {
        handles: &["MipmappedArrayId"],
        once: vec![words(Opcode::cuTexRefCreate, &[REFERENCE], &[])],
        make: vec![mipmap(IT, 0)],
        uses: vec![level(IT, OTHER), words(Opcode::cuTexRefSetMipmappedArray, &[REFERENCE, IT], &[1])],
        destroy: words(Opcode::cuMipmappedArrayDestroy, &[IT], &[]),
        ..Kind::default()
    }
}

fn levels(_: &Session) -> Kind {
    Kind {
        handles: &["ArrayId"],
        make: vec![mipmap(IT, 0), level(IT, OTHER)],
        uses: vec![fill(OTHER), texture(OTHER, 0)],
        destroy: words(Opcode::cuMipmappedArrayDestroy, &[IT], &[]),
        ..Kind::default()
    }
}

fn textures(_: &Session) -> Kind {
    Kind {
        once: vec![array(OTHER, 0, 0)],
        make: vec![texture(OTHER, 0)],
        destroy: words(Opcode::cuTexObjectDestroy, &[ANSWER], &[]),
        ..Kind::default()
    }
}

fn texture_references(_: &Session) -> Kind {
    Kind {
        handles: &["TexRefId"],
        once: [with_function(), vec![array(OTHER, 0, 0)]].concat(),
        make: vec![
            words(Opcode::cuTexRefCreate, &[IT], &[]),
            words(Opcode::cuTexRefSetArray, &[IT, OTHER], &[1]),
        ],
        uses: vec![
            words(Opcode::cuTexRefGetFlags, &[IT], &[]),
            words(Opcode::cuTexRefSetFlags, &[IT], &[1]),
            words(Opcode::cuTexRefSetArray, &[IT, OTHER], &[1]),
            words(Opcode::cuTexRefSetFormat, &[IT], &[FLOAT, 1]),
            words(Opcode::cuTexRefSetAddressMode, &[IT], &[0, 1]),
            words(Opcode::cuTexRefSetFilterMode, &[IT], &[0]),
            words(Opcode::cuTexRefSetMipmapFilterMode, &[IT], &[0]),
            words(Opcode::cuTexRefSetMipmapLevelBias, &[IT], &[0]),
            words(Opcode::cuTexRefSetMipmapLevelClamp, &[IT], &[0, 0]),
            words(Opcode::cuTexRefSetMaxAnisotropy, &[IT], &[1]),
            words(Opcode::cuTexRefSetBorderColor, &[IT], &[0; 4]),
            words(Opcode::cuTexRefGetArray, &[IT], &[]),
            words(Opcode::cuTexRefGetAddressMode, &[IT], &[0]),
            words(Opcode::cuTexRefGetFilterMode, &[IT], &[]),
            words(Opcode::cuTexRefGetFormat, &[IT], &[]),
            words(Opcode::cuTexRefGetMipmapFilterMode, &[IT], &[]),
            words(Opcode::cuTexRefGetMipmapLevelBias, &[IT], &[]),
            words(Opcode::cuTexRefGetMipmapLevelClamp, &[IT], &[]),
            words(Opcode::cuTexRefGetMaxAnisotropy, &[IT], &[]),
            words(Opcode::cuTexRefGetBorderColor, &[IT], &[]),
            pieces(Opcode::cuParamSetTexRef, &[&of(&FUNCTION), &of(&-1i32), &of(&IT)]),
        ],
        destroy: words(Opcode::cuTexRefDestroy, &[IT], &[]),
        ..Kind::default()
    }
}

/// Binds memory to a texture reference.
fn reads_memory(reference: u64, memory: u64) -> CallParts {
    pieces(Opcode::cuTexRefSetAddress_v2, &[&of(&reference), &of(&memory), &of(&1024u64), &of(&1u32)])
}

fn references_to_memory(session: &Session) -> Kind {
    let memory = session.memory;
    let set = reads_memory(IT, memory);
    let sizes = [of(&16u64), of(&16u64)].concat();
    Kind {
        handles: &["TexRefId"],
        make: vec![
            words(Opcode::cuTexRefCreate, &[IT], &[]),
            words(Opcode::cuTexRefSetFormat, &[IT], &[FLOAT, 1]),
            set.clone(),
        ],
        uses: vec![
            set,
            pieces(
                Opcode::cuTexRefSetAddress2D_v3,
                &[&of(&IT), &sizes, &of(&FLOAT), &of(&1u32), &of(&memory), &of(&64u64)],
            ),
            words(Opcode::cuTexRefGetAddress_v2, &[IT], &[]),
        ],
        destroy: words(Opcode::cuTexRefDestroy, &[IT], &[]),
        ..Kind::default()
    }
}

fn references_to_mipmaps(_: &Session) -> Kind {
    let set = words(Opcode::cuTexRefSetMipmappedArray, &[IT, OTHER], &[1]);
    Kind {
        handles: &["TexRefId"],
        once: vec![mipmap(OTHER, 0)],
        make: vec![words(Opcode::cuTexRefCreate, &[IT], &[]), set.clone()],
        uses: vec![set, words(Opcode::cuTexRefGetMipmappedArray, &[IT], &[])],
        destroy: words(Opcode::cuTexRefDestroy, &[IT], &[]),
        ..Kind::default()
    }
}

fn pools(_: &Session) -> Kind {
    let device = Location { kind: 1, id: 0 };
    let properties = PoolProperties { kind: 1, location: device, max_bytes: 0, usage: 0 };
    Kind {
        handles: &["MemoryPoolId"],
        make: vec![pieces(Opcode::cuMemPoolCreate, &[&of(&IT), &of(&properties)])],
        uses: vec![
            words(Opcode::cuMemPoolGetAttribute, &[IT], &[5]),
            words(Opcode::cuMemPoolTrimTo, &[IT, 0], &[]),
            pieces(Opcode::cuMemPoolGetAccess, &[&of(&IT), &of(&device)]),
            pieces(Opcode::cuMemPoolSetAccess, &[&of(&IT), &of(&device), &of(&3u32)]),
            pieces(Opcode::cuMemPoolSetAttribute, &[&of(&IT), &of(&4i32), &of(&0u64)]),
            pieces(Opcode::cuDeviceSetMemPool, &[&of(&0u32), &of(&IT)]),
        ],
        destroy: words(Opcode::cuMemPoolDestroy, &[IT], &[]),
        ..Kind::default()
    }
}

/// The granularity of allocations.
pub const UNIT: u64 = 2 << 20;

fn allocations(_: &Session) -> Kind {
    let device = Location { kind: 1, id: 0 };
    let properties = AllocationProperties {
        kind: 1,
        handle_types: 1,
        location: device,
        ..AllocationProperties::default()
    };
    Kind {
        handles: &["AllocationId"],
        once: vec![words(Opcode::cuMemAddressReserve, &[UNIT, 0, 0, 0], &[])],
        make: vec![pieces(Opcode::cuMemCreate, &[&of(&IT), &of(&UNIT), &of(&properties), &[0; 8]])],
        uses: vec![
            words(Opcode::cuMemGetAllocationPropertiesFromHandle, &[IT], &[]),
            words(Opcode::cuMemExportToShareableHandle, &[IT], &[]),
            words(Opcode::cuMemMap, &[FIRST, UNIT, 0, IT, 0], &[]),
        ],
        clean: vec![words(Opcode::cuMemUnmap, &[FIRST, UNIT], &[])],
        destroy: words(Opcode::cuMemRelease, &[IT], &[]),
        every: 2,
        ..Kind::default()
    }
}

fn links(_: &Session) -> Kind {
    let options = [0; 196];
    let input = pieces(Opcode::cuLinkAddData_v2, &[&of(&IT), &of(&1u32), &of(&0u32), &options]).bulk(CODE);
    Kind {
        handles: &["LinkId"],
        make: vec![pieces(Opcode::cuLinkCreate_v2, &[&of(&IT), &options])],
        uses: vec![input],
        destroy: words(Opcode::cuLinkDestroy, &[IT], &[]),
        every: 4,
        ..Kind::default()
    }
}

fn links_with_input(session: &Session) -> Kind {
    let links = links(session);
    let uses = vec![words(Opcode::cuLinkComplete, &[IT], &[])];
    Kind { make: [links.make, links.uses].concat(), uses, ..links }
}

fn completed_links(session: &Session) -> Kind {
    let links = links_with_input(session);
    let uses = vec![words(Opcode::link_image, &[IT, 0], &[]).wants(256)];
    Kind { make: [links.make, links.uses].concat(), uses, ..links }
}

fn context(name: u64) -> CallParts {
    pieces(Opcode::cuCtxCreate_v2, &[&of(&name), &of(&0u32), &of(&0u32)])
}

/// `CU_DEV_RESOURCE_TYPE_SM`.
pub const SM_RESOURCE: u32 = 1;

fn contexts(session: &Session) -> Kind {
    let memory = session.memory;
    Kind {
        handles: &["ContextId"],
        make: vec![context(CREATED), words(Opcode::cuEventCreate, &[EVENT], &[0]).context(CREATED)],
        uses: vec![
            words(Opcode::cuCtxGetApiVersion, &[CREATED], &[]),
            words(Opcode::cuCtxGetDevResource, &[CREATED], &[SM_RESOURCE]),
            words(Opcode::cuCtxRecordEvent, &[CREATED, EVENT], &[]),
            words(Opcode::cuCtxWaitEvent, &[CREATED, EVENT], &[]),
            pieces(
                Opcode::cuMemcpyPeer,
                &[&of(&memory), &of(&CREATED), &of(&(memory + 64)), &of(&CONTEXT), &of(&64u64)],
            ),
            words(Opcode::cuCtxGetStreamPriorityRange, &[], &[]).context(CREATED),
            words(Opcode::cuEventCreate, &[IT], &[0]).context(CREATED),
            words(Opcode::cuModuleLoadData, &[IT], &[]).bulk(CODE).context(CREATED),
            words(Opcode::cuCtxSynchronize, &[], &[]).context(CREATED),
            words(Opcode::wait_unless_capturing, &[], &[]).context(CREATED),
        ],
        destroy: words(Opcode::cuCtxDestroy_v2, &[CREATED], &[]),
        every: 8,
        ..Kind::default()
    }
}

fn streams_of_contexts(_: &Session) -> Kind {
    Kind {
        make: vec![
            context(CREATED),
            words(Opcode::cuStreamCreateWithPriority, &[IT], &[1, 0]).context(CREATED),
            words(Opcode::cuEventCreate, &[OTHER], &[0]).context(CREATED),
        ],
        uses: vec![
            words(Opcode::cuStreamQuery, &[IT], &[]),
            words(Opcode::cuStreamSynchronize, &[IT], &[]).context(CREATED),
            words(Opcode::cuEventRecordWithFlags, &[OTHER, IT], &[0]).context(CREATED),
            words(Opcode::cuEventQuery, &[OTHER], &[]),
        ],
        destroy: words(Opcode::cuCtxDestroy_v2, &[CREATED], &[]),
        every: 8,
        ..Kind::default()
    }
}

fn primary_context(_: &Session) -> Kind {
    let retain = pieces(Opcode::cuDevicePrimaryCtxRetain, &[&of(&0u32), &of(&CONTEXT)]);
    let reset = words(Opcode::cuDevicePrimaryCtxReset_v2, &[], &[0]);
    Kind {
        once: vec![reset.clone()],
        make: vec![retain, words(Opcode::cuStreamCreateWithPriority, &[IT], &[1, 0])],
        uses: vec![
            words(Opcode::cuStreamSynchronize, &[IT], &[]),
            words(Opcode::cuEventCreate, &[OTHER], &[0]),
            words(Opcode::cuMemAlloc_v2, &[4096], &[]),
        ],
        destroy: words(Opcode::cuDevicePrimaryCtxRelease_v2, &[], &[0]),
        every: 8,
        ..Kind::default()
    }
}
