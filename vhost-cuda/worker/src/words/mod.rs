// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The words of the call table: the functions of `as` clauses. Each represents one argument of the driver, built from
//! several inputs or from the bulk input. It is looked up and checked when the call is executed.

mod bulk;
pub mod contents;
mod known;
mod launch;
mod memory;
mod shared;
mod texture;
pub mod values;

pub use bulk::{current_context, driver, driver_version, edges, links, name, operations, resources, room};
pub use known::{code, graph_of, kept_flags, known_kind, resource, tensor_map};
pub use launch::{MAX_PARAM_BYTES, attribute_value, function_attribute, launch, launch_with, no_function};
pub use memory::{granted, memory, one, opaque, private, shareable};
pub use shared::{EMULATED, EMULATED_DESCRIPTOR, handle_with, in_guest, shared_event, shared_pool};
pub use texture::{pitched, rank, shown, surface, texels};

use virtio_cuda_protocol::cuda::{ContextId, DeviceOrdinal};

use super::call::CallContext;
use super::gpu::{CuResult, CudaError};
use super::objects::lifecycle::Destroy;
use super::resolve::Resolve;

/// The host, as the peer of a device.
const HOST: DeviceOrdinal = DeviceOrdinal(u32::MAX);

/// A peer of a device; `None` is the host.
pub struct Peer(DeviceOrdinal);

/// A peer of a device, `u32::MAX` for the host.
pub fn host_or(peer: DeviceOrdinal) -> Peer {
    Peer(peer)
}

impl Resolve<'_, Option<i32>> for Peer {
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<Option<i32>> {
        if self.0 == HOST { Ok(None) } else { cx.resolve(self.0).map(Some) }
    }
}

/// A kind of affinity.
pub struct Affinity(i32);

/// A kind of affinity: by the number of multiprocessors.
pub fn multiprocessors(kind: i32) -> Affinity {
    Affinity(kind)
}

impl Resolve<'_, i32> for Affinity {
    fn resolve(self, _cx: &CallContext<'_>) -> CuResult<i32> {
        // For other kinds the result would be another structure.
        if self.0 == 0 { Ok(0) } else { Err(CudaError::NOT_SUPPORTED) }
    }
}

/// An attribute of the memory that graphs allocate.
pub struct GraphMemory(i32);

/// An attribute of the memory that graphs allocate, one of the four whose values are numbers of 64 bits.
pub fn graph_memory(attribute: i32) -> GraphMemory {
    GraphMemory(attribute)
}

impl Resolve<'_, i32> for GraphMemory {
    fn resolve(self, _cx: &CallContext<'_>) -> CuResult<i32> {
        if (0..=3).contains(&self.0) { Ok(self.0) } else { Err(CudaError::INVALID_VALUE) }
    }
}

/// A green context, which has a name like other contexts.
pub struct GreenContext(pub ContextId);

/// A texture object, by its value.
pub struct TextureObject(pub u64);

impl Destroy for TextureObject {
    fn destroy(self, cx: &mut CallContext<'_>) -> CuResult<()> {
        cx.session.objects.textures.remove(self.0)?;
        cx.gpu().cuTexObjectDestroy(self.0)
    }
}

/// A surface object, by its value.
pub struct SurfaceObject(pub u64);

impl Destroy for SurfaceObject {
    fn destroy(self, cx: &mut CallContext<'_>) -> CuResult<()> {
        cx.session.objects.surfaces.remove(self.0)?;
        cx.gpu().cuSurfObjectDestroy(self.0)
    }
}
