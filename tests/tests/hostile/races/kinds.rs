// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Objects that are destroyed by themselves or with their module, library, array or context.

use anyhow::Result;
use vhost_cuda_tests::frontend::CallParts;
use virtio_cuda_protocol::cuda::{
    AllocationProperties, ArrayDescriptor, Box3, COPY_ARRAY, CopyEnd, DevicePtr, LaunchShape, Location,
    Opcode, PoolProperties, ResourceDescriptor, TextureDescriptor, ViewDescriptor, Wire,
};

use super::{ANSWER, Kind, pieces, race, words};
use crate::Target;
use crate::calls::{CONTEXT, Session, encoded};

/// A test and its name.
type Test = (&'static str, fn(&mut Target) -> Result<()>);

pub const ALL: &[Test] = &[
    ("streams", |target| race(target, streams)),
    ("events", |target| race(target, events)),
    ("modules", |target| race(target, modules)),
    ("functions", |target| race(target, functions)),
    ("libraries", |target| race(target, libraries)),
    ("kernels", |target| race(target, kernels)),
    ("arrays", |target| race(target, arrays)),
    ("sparse_arrays", |target| race(target, sparse_arrays)),
    ("mipmaps", |target| race(target, mipmaps)),
    ("levels", |target| race(target, levels)),
    ("textures", |target| race(target, textures)),
    ("texture_references", |target| race(target, texture_references)),
    ("pools", |target| race(target, pools)),
    ("allocations", |target| race(target, allocations)),
    ("links", |target| race(target, links)),
    ("contexts", |target| race(target, contexts)),
    ("streams_of_contexts", |target| race(target, streams_of_contexts)),
    ("primary_context", |target| race(target, primary_context)),
];

/// Names that the tests give: objects that come and go, and those that stay.
pub const IT: u64 = 0x10_0000;
const OTHER: u64 = 0x10_0010;
const STREAM: u64 = 0x10_0020;
const EVENT: u64 = 0x10_0030;
const MODULE: u64 = 0x10_0040;
pub const FUNCTION: u64 = 0x10_0050;
const CREATED: u64 = 0x10_0060;
/// `CU_STREAM_LEGACY`.
const LEGACY: u64 = 1;
const CODE: &[u8] = b".version 8.0\n.target sm_80\n.address_size 64\n.visible .global .texref line;\n\
    .visible .global .u32 variable;\n.visible .entry k()\n{\nret;\n}\n";

fn of<T: Wire>(value: &T) -> Vec<u8> {
    encoded(value).expect("a short structure")
}

/// A launch of one thread.
pub fn launch(function: u64, stream: u64) -> CallParts {
    let shape = LaunchShape { grid: [1; 3], block: [1; 3], ..LaunchShape::default() };
    pieces(Opcode::cuLaunchKernel, &[&of(&function), &of(&stream), &of(&shape)])
}

/// Makes a kernel without parameters.
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
        ],
        destroy: words(Opcode::cuStreamDestroy_v2, &[IT], &[]),
        ..Kind::default()
    }
}

fn events(_: &Session) -> Kind {
    Kind {
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
        ],
        destroy: words(Opcode::cuEventDestroy_v2, &[IT], &[]),
        ..Kind::default()
    }
}

fn modules(_: &Session) -> Kind {
    Kind {
        make: vec![words(Opcode::cuModuleLoadData, &[IT], &[]).bulk(CODE)],
        uses: vec![
            words(Opcode::cuModuleGetFunction, &[IT, OTHER], &[]).bulk(b"k"),
            words(Opcode::cuModuleGetGlobal_v2, &[IT], &[]).bulk(b"variable"),
            words(Opcode::cuModuleGetTexRef, &[IT, OTHER], &[]).bulk(b"line"),
            words(Opcode::module_function_names, &[IT], &[]).wants(64),
        ],
        destroy: words(Opcode::cuModuleUnload, &[IT], &[]),
        every: 8,
        ..Kind::default()
    }
}

fn functions(_: &Session) -> Kind {
    Kind {
        make: vec![
            words(Opcode::cuModuleLoadData, &[IT], &[]).bulk(CODE),
            words(Opcode::cuModuleGetFunction, &[IT, OTHER], &[]).bulk(b"k"),
        ],
        uses: vec![
            launch(OTHER, LEGACY),
            pieces(Opcode::cuFuncGetAttribute, &[&of(&0i32), &of(&OTHER)]),
            words(Opcode::function_layout, &[OTHER], &[]).wants(64),
        ],
        destroy: words(Opcode::cuModuleUnload, &[IT], &[]),
        every: 8,
        ..Kind::default()
    }
}

fn libraries(_: &Session) -> Kind {
    Kind {
        make: vec![words(Opcode::cuLibraryLoadData, &[IT], &[]).bulk(CODE)],
        uses: vec![
            words(Opcode::cuLibraryGetKernelCount, &[IT], &[]),
            words(Opcode::cuLibraryGetKernel, &[IT, OTHER], &[]).bulk(b"k"),
            words(Opcode::cuLibraryGetGlobal, &[IT], &[]).bulk(b"variable"),
            words(Opcode::cuLibraryGetModule, &[IT, OTHER], &[]),
            words(Opcode::library_kernel_names, &[IT], &[]).wants(64),
        ],
        destroy: words(Opcode::cuLibraryUnload, &[IT], &[]),
        every: 8,
        ..Kind::default()
    }
}

fn kernels(_: &Session) -> Kind {
    Kind {
        make: vec![
            words(Opcode::cuLibraryLoadData, &[IT], &[]).bulk(CODE),
            words(Opcode::cuLibraryGetKernel, &[IT, OTHER], &[]).bulk(b"k"),
            words(Opcode::cuLibraryGetModule, &[IT, MODULE], &[]),
        ],
        uses: vec![
            launch(OTHER, LEGACY),
            words(Opcode::cuKernelGetFunction, &[OTHER, FUNCTION], &[]),
            words(Opcode::cuModuleGetFunction, &[MODULE, FUNCTION], &[]).bulk(b"k"),
            words(Opcode::function_layout, &[OTHER], &[]).wants(64),
        ],
        destroy: words(Opcode::cuLibraryUnload, &[IT], &[]),
        every: 8,
        ..Kind::default()
    }
}

fn array(name: u64, depth: u64, flags: u32) -> CallParts {
    let descriptor = ArrayDescriptor { width: 256, height: 256, depth, format: 0x20, channels: 1, flags };
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
        once: vec![words(Opcode::cuTexRefCreate, &[OTHER], &[])],
        make: vec![array(IT, 0, 0)],
        uses: vec![fill(IT), words(Opcode::cuTexRefSetArray, &[OTHER, IT], &[1]), texture(IT, 0)],
        destroy: words(Opcode::cuArrayDestroy, &[IT], &[]),
        ..Kind::default()
    }
}

fn sparse_arrays(_: &Session) -> Kind {
    Kind {
        make: vec![array(IT, 0, 0x40)],
        uses: vec![words(Opcode::cuArrayGetSparseProperties, &[IT], &[])],
        destroy: words(Opcode::cuArrayDestroy, &[IT], &[]),
        ..Kind::default()
    }
}

fn mipmap(name: u64) -> CallParts {
    let descriptor = ArrayDescriptor { width: 64, height: 64, depth: 0, format: 0x20, channels: 1, flags: 0 };
    pieces(Opcode::cuMipmappedArrayCreate, &[&of(&name), &of(&descriptor), &of(&2u32)])
}

fn level(of_mipmap: u64, name: u64) -> CallParts {
    pieces(Opcode::cuMipmappedArrayGetLevel, &[&of(&of_mipmap), &of(&0u32), &of(&name)])
}

fn mipmaps(_: &Session) -> Kind {
    Kind {
        make: vec![mipmap(IT)],
        uses: vec![level(IT, OTHER)],
        destroy: words(Opcode::cuMipmappedArrayDestroy, &[IT], &[]),
        ..Kind::default()
    }
}

fn levels(_: &Session) -> Kind {
    Kind {
        make: vec![mipmap(IT), level(IT, OTHER)],
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
        once: vec![array(OTHER, 0, 0)],
        make: vec![words(Opcode::cuTexRefCreate, &[IT], &[])],
        uses: vec![
            words(Opcode::cuTexRefGetFlags, &[IT], &[]),
            words(Opcode::cuTexRefSetFlags, &[IT], &[1]),
            words(Opcode::cuTexRefSetArray, &[IT, OTHER], &[1]),
        ],
        destroy: words(Opcode::cuTexRefDestroy, &[IT], &[]),
        ..Kind::default()
    }
}

fn pools(_: &Session) -> Kind {
    let device = Location { kind: 1, id: 0 };
    let properties = PoolProperties { kind: 1, location: device, max_bytes: 0, usage: 0 };
    Kind {
        make: vec![pieces(Opcode::cuMemPoolCreate, &[&of(&IT), &of(&properties)])],
        uses: vec![
            words(Opcode::cuMemPoolGetAttribute, &[IT], &[5]),
            words(Opcode::cuMemPoolTrimTo, &[IT, 0], &[]),
            pieces(Opcode::cuMemPoolGetAccess, &[&of(&IT), &of(&device)]),
        ],
        destroy: words(Opcode::cuMemPoolDestroy, &[IT], &[]),
        ..Kind::default()
    }
}

fn allocations(_: &Session) -> Kind {
    let device = Location { kind: 1, id: 0 };
    let properties = AllocationProperties { kind: 1, location: device, ..AllocationProperties::default() };
    Kind {
        make: vec![pieces(Opcode::cuMemCreate, &[&of(&IT), &of(&(2u64 << 20)), &of(&properties), &[0; 8]])],
        uses: vec![words(Opcode::cuMemGetAllocationPropertiesFromHandle, &[IT], &[])],
        destroy: words(Opcode::cuMemRelease, &[IT], &[]),
        every: 2,
        ..Kind::default()
    }
}

fn links(_: &Session) -> Kind {
    let options = [0; 196];
    let input = pieces(Opcode::cuLinkAddData_v2, &[&of(&IT), &of(&1u32), &of(&0u32), &options]).bulk(CODE);
    Kind {
        make: vec![pieces(Opcode::cuLinkCreate_v2, &[&of(&IT), &options]), input.clone()],
        uses: vec![words(Opcode::cuLinkComplete, &[IT], &[])],
        destroy: words(Opcode::cuLinkDestroy, &[IT], &[]),
        every: 4,
        ..Kind::default()
    }
}

fn context(name: u64) -> CallParts {
    pieces(Opcode::cuCtxCreate_v2, &[&of(&name), &of(&0u32), &of(&0u32)])
}

fn contexts(_: &Session) -> Kind {
    Kind {
        make: vec![context(CREATED)],
        uses: vec![
            words(Opcode::cuCtxGetApiVersion, &[CREATED], &[]),
            words(Opcode::cuCtxGetStreamPriorityRange, &[], &[]).context(CREATED),
            words(Opcode::cuEventCreate, &[IT], &[0]).context(CREATED),
            words(Opcode::cuModuleLoadData, &[IT], &[]).bulk(CODE).context(CREATED),
            words(Opcode::cuCtxSynchronize, &[], &[]).context(CREATED),
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
