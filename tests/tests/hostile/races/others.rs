// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Surfaces, green contexts, external memory, and objects that are created differently from most of their kind.

use vhost_cuda_tests::frontend::CallParts;
use virtio_cuda_protocol::cuda::{
    AllocationProperties, ArrayDescriptor, Location, Opcode, PoolProperties, ResourceDescriptor,
};

use super::kinds::{
    CODE, EVENT, IT, LEGACY, MODULE, OTHER, SM_RESOURCE, STREAM, UNIT, array, launch, mipmap, of,
    with_function,
};
use super::{ANSWER, FIRST, Kind, TOKEN, Test, pieces, words};
use crate::calls::Session;

pub const ALL: &[Test] = &[
    ("surfaces", surfaces),
    ("arrays_of_surfaces", arrays_of_surfaces),
    ("surface_references", surface_references),
    ("deferred_arrays", deferred_arrays),
    ("deferred_mipmaps", deferred_mipmaps),
    ("sparse_mipmaps", sparse_mipmaps),
    ("green_contexts", green_contexts),
    ("external_memory", external_memory),
    ("shared_events", shared_events),
    ("shareable_pools", shareable_pools),
    ("memory_of_pools", memory_of_pools),
    ("memory_of_streams", memory_of_streams),
    ("functions_in_streams", functions_in_streams),
];

/// `CUDA_ARRAY3D_SURFACE_LDST`, `CUDA_ARRAY3D_SPARSE`, `CUDA_ARRAY3D_DEFERRED_MAPPING`.
const SURFACE: u32 = 2;
const SPARSE: u32 = 0x40;
const DEFERRED: u32 = 0x80;
const DEVICE: Location = Location { kind: 1, id: 0 };
const DESCRIPTION: u64 = 0x30_0000;
const GREEN: u64 = 0x30_0010;
const ALLOCATION: u64 = 0x30_0020;
const REFERENCE: u64 = 0x30_0030;

fn surface(of_array: u64) -> CallParts {
    let resource = ResourceDescriptor { kind: 0, object: of_array, ..ResourceDescriptor::default() };
    pieces(Opcode::cuSurfObjectCreate, &[&of(&resource)])
}

/// The driver chooses their names, so only destructions can race with each other.
fn surfaces(_: &Session) -> Kind {
    Kind {
        once: vec![array(OTHER, 0, SURFACE)],
        make: vec![surface(OTHER)],
        destroy: words(Opcode::cuSurfObjectDestroy, &[ANSWER], &[]),
        ..Kind::default()
    }
}

fn arrays_of_surfaces(_: &Session) -> Kind {
    Kind {
        handles: &["ArrayId"],
        once: vec![
            words(Opcode::cuModuleLoadData, &[MODULE], &[]).bulk(CODE),
            words(Opcode::cuModuleGetSurfRef, &[MODULE, REFERENCE], &[]).bulk(b"image"),
        ],
        make: vec![array(IT, 0, SURFACE)],
        uses: vec![surface(IT), words(Opcode::cuSurfRefSetArray, &[REFERENCE, IT], &[0])],
        destroy: words(Opcode::cuArrayDestroy, &[IT], &[]),
        ..Kind::default()
    }
}

/// They end with their module.
fn surface_references(_: &Session) -> Kind {
    let set = words(Opcode::cuSurfRefSetArray, &[REFERENCE, OTHER], &[0]);
    Kind {
        handles: &["SurfRefId"],
        once: vec![array(OTHER, 0, SURFACE)],
        make: vec![
            words(Opcode::cuModuleLoadData, &[IT], &[]).bulk(CODE),
            words(Opcode::cuModuleGetSurfRef, &[IT, REFERENCE], &[]).bulk(b"image"),
            set.clone(),
        ],
        uses: vec![set, words(Opcode::cuSurfRefGetArray, &[REFERENCE], &[])],
        destroy: words(Opcode::cuModuleUnload, &[IT], &[]),
        every: 8,
        ..Kind::default()
    }
}

fn deferred_arrays(_: &Session) -> Kind {
    Kind {
        handles: &["ArrayId"],
        make: vec![array(IT, 0, DEFERRED)],
        uses: vec![words(Opcode::cuArrayGetMemoryRequirements, &[IT], &[0])],
        destroy: words(Opcode::cuArrayDestroy, &[IT], &[]),
        ..Kind::default()
    }
}

fn deferred_mipmaps(_: &Session) -> Kind {
    Kind {
        handles: &["MipmappedArrayId"],
        make: vec![mipmap(IT, DEFERRED)],
        uses: vec![words(Opcode::cuMipmappedArrayGetMemoryRequirements, &[IT], &[0])],
        destroy: words(Opcode::cuMipmappedArrayDestroy, &[IT], &[]),
        ..Kind::default()
    }
}

fn sparse_mipmaps(_: &Session) -> Kind {
    Kind {
        handles: &["MipmappedArrayId"],
        make: vec![mipmap(IT, SPARSE)],
        uses: vec![words(Opcode::cuMipmappedArrayGetSparseProperties, &[IT], &[])],
        destroy: words(Opcode::cuMipmappedArrayDestroy, &[IT], &[]),
        ..Kind::default()
    }
}

fn green_contexts(_: &Session) -> Kind {
    let mut once = with_function();
    once.extend([
        words(Opcode::cuEventCreate, &[EVENT], &[0]),
        words(Opcode::cuDeviceGetDevResource, &[], &[0, SM_RESOURCE]),
        words(Opcode::cuDevResourceGenerateDesc, &[DESCRIPTION], &[]).bulk(&FIRST.to_le_bytes()),
    ]);
    Kind {
        handles: &["ContextId"],
        once,
        make: vec![words(Opcode::cuGreenCtxCreate, &[GREEN, DESCRIPTION], &[0, 1])],
        uses: vec![
            words(Opcode::cuCtxGetDevResource, &[GREEN], &[SM_RESOURCE]),
            words(Opcode::cuCtxRecordEvent, &[GREEN, EVENT], &[]),
            words(Opcode::cuCtxWaitEvent, &[GREEN, EVENT], &[]),
            words(Opcode::cuStreamCreateWithPriority, &[STREAM], &[1, 0]).context(GREEN),
            words(Opcode::cuCtxSynchronize, &[], &[]).context(GREEN),
            words(Opcode::wait_unless_capturing, &[], &[]).context(GREEN),
        ],
        destroy: words(Opcode::cuGreenCtxDestroy, &[GREEN], &[]),
        clean: vec![words(Opcode::cuStreamDestroy_v2, &[STREAM], &[])],
        every: 8,
        ..Kind::default()
    }
}

fn external_memory(_: &Session) -> Kind {
    let properties = AllocationProperties {
        kind: 1,
        handle_types: 1,
        location: DEVICE,
        ..AllocationProperties::default()
    };
    let descriptor = ArrayDescriptor { width: 64, height: 64, depth: 0, format: 0x20, channels: 1, flags: 0 };
    Kind {
        handles: &["ExternalMemoryId"],
        once: vec![
            pieces(Opcode::cuMemCreate, &[&of(&ALLOCATION), &of(&UNIT), &of(&properties), &[0; 8]]),
            words(Opcode::cuMemExportToShareableHandle, &[ALLOCATION], &[]),
        ],
        make: vec![pieces(Opcode::cuImportExternalMemory, &[&of(&IT), &TOKEN, &of(&UNIT)])],
        uses: vec![
            words(Opcode::cuExternalMemoryGetMappedBuffer, &[IT, 0, 4096], &[]),
            pieces(
                Opcode::cuExternalMemoryGetMappedMipmappedArray,
                &[&of(&IT), &[0; 8], &of(&descriptor), &of(&1u32), &of(&OTHER)],
            ),
        ],
        destroy: words(Opcode::cuDestroyExternalMemory, &[IT], &[]),
        clean: vec![words(Opcode::cuMipmappedArrayDestroy, &[OTHER], &[])],
        ..Kind::default()
    }
}

fn shared_events(_: &Session) -> Kind {
    /// `CU_EVENT_DISABLE_TIMING` and `CU_EVENT_INTERPROCESS`.
    const SHARED: u32 = 2 | 4;
    Kind {
        handles: &["EventId"],
        make: vec![words(Opcode::cuEventCreate, &[IT], &[SHARED])],
        uses: vec![words(Opcode::cuIpcGetEventHandle, &[IT], &[])],
        destroy: words(Opcode::cuEventDestroy_v2, &[IT], &[]),
        ..Kind::default()
    }
}

fn pool(opcode: Opcode, name: u64) -> CallParts {
    let properties = PoolProperties { kind: 1, location: DEVICE, max_bytes: 0, usage: 0 };
    pieces(opcode, &[&of(&name), &of(&properties)])
}

fn shareable_pools(_: &Session) -> Kind {
    Kind {
        handles: &["MemoryPoolId"],
        make: vec![pool(Opcode::pool_create_shareable, IT)],
        uses: vec![words(Opcode::cuMemPoolExportToShareableHandle, &[IT], &[])],
        destroy: words(Opcode::cuMemPoolDestroy, &[IT], &[]),
        ..Kind::default()
    }
}

/// A pool that is destroyed lives on until its memory is freed.
fn memory_of_pools(_: &Session) -> Kind {
    Kind {
        handles: &["MemoryPoolId"],
        make: vec![pool(Opcode::cuMemPoolCreate, IT)],
        uses: vec![words(Opcode::cuMemAllocFromPoolAsync, &[64, IT, LEGACY], &[])],
        destroy: words(Opcode::cuMemPoolDestroy, &[IT], &[]),
        every: 16,
        ..Kind::default()
    }
}

fn memory_of_streams(_: &Session) -> Kind {
    Kind {
        handles: &["StreamId"],
        once: vec![pool(Opcode::cuMemPoolCreate, OTHER)],
        make: vec![
            words(Opcode::cuStreamCreateWithPriority, &[IT], &[1, 0]),
            words(Opcode::cuMemAllocAsync, &[64, IT], &[]),
        ],
        uses: vec![
            words(Opcode::cuMemFreeAsync, &[ANSWER, IT], &[]),
            words(Opcode::cuMemAllocFromPoolAsync, &[64, OTHER, IT], &[]),
        ],
        destroy: words(Opcode::cuStreamDestroy_v2, &[IT], &[]),
        clean: vec![words(Opcode::cuMemFreeAsync, &[ANSWER, LEGACY], &[])],
        ..Kind::default()
    }
}

/// Functions of the program, which the guest never runs here: an input that is captured becomes a node.
fn functions_in_streams(_: &Session) -> Kind {
    const RELAXED: u32 = 2;
    let mut once = with_function();
    once.push(words(Opcode::cuStreamCreateWithPriority, &[STREAM], &[1, 0]));
    Kind {
        handles: &["StreamId"],
        once,
        make: vec![
            words(Opcode::cuStreamCreateWithPriority, &[IT], &[1, 0]),
            words(Opcode::cuStreamBeginCapture_v2, &[IT], &[RELAXED]),
            launch(super::kinds::FUNCTION, IT),
        ],
        uses: vec![words(Opcode::cuLaunchHostFunc, &[IT, 77], &[]), launch(super::kinds::FUNCTION, IT)],
        destroy: words(Opcode::cuStreamDestroy_v2, &[IT], &[]),
        ..Kind::default()
    }
}
