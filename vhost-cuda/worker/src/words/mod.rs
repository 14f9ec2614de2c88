// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The words of the call table: the functions of `as` clauses. Each makes one argument of the driver of several inputs, of
//! the bulk input or of what the worker knows, and checks it.

mod bulk;
pub mod contents;
mod known;
mod launch;
mod memory;
mod shared;
mod texture;
pub mod values;

pub use bulk::{edges, links, name, operations, resources};
pub use known::{
    code, current_context, driver, driver_version, graph_of, kept_flags, known_kind, resource, room,
};
pub use launch::{MAX_PARAM_BYTES, attribute_value, function_attribute, launch, launch_with, no_function};
pub use memory::{granted, memory, one, opaque, private, shareable};
pub use shared::{EMULATED, EMULATED_DESCRIPTOR, handle_with, in_guest, shared_event, shared_pool};
pub use texture::{pitched, rank, shown, surface, tensor_map, texels};

use virtio_cuda_protocol::cuda::{ContextId, DeviceOrdinal};

use super::call::CallContext;
use super::call::lifecycle::Destroy;
use super::gpu::{CuResult, CudaError};

/// The host, as the peer of a device.
const HOST: DeviceOrdinal = DeviceOrdinal(u32::MAX);

/// A peer of a device, `u32::MAX` and `None` for the host.
pub fn host_or(cx: &CallContext<'_>, peer: DeviceOrdinal) -> CuResult<Option<i32>> {
    if peer == HOST { Ok(None) } else { cx.resolve(peer).map(Some) }
}

/// A kind of affinity: by the number of multiprocessors. For other kinds the result would be another structure.
pub fn multiprocessors(_cx: &CallContext<'_>, kind: i32) -> CuResult<i32> {
    if kind == 0 { Ok(0) } else { Err(CudaError::NOT_SUPPORTED) }
}

/// An attribute of the memory that graphs allocate, one of the four whose values are numbers of 64 bits.
pub fn graph_memory(_cx: &CallContext<'_>, attribute: i32) -> CuResult<i32> {
    if (0..=3).contains(&attribute) { Ok(attribute) } else { Err(CudaError::INVALID_VALUE) }
}

/// A green context, which has a name like other contexts.
pub struct GreenContext(pub ContextId);

/// A texture object, by its value.
pub struct TextureObject(pub u64);

impl Destroy for TextureObject {
    fn destroy(self, cx: &mut CallContext<'_>) -> CuResult<()> {
        cx.session.objects.textures.remove(self.0, cx.home())?;
        cx.gpu().cuTexObjectDestroy(self.0)
    }
}

/// A surface object, by its value.
pub struct SurfaceObject(pub u64);

impl Destroy for SurfaceObject {
    fn destroy(self, cx: &mut CallContext<'_>) -> CuResult<()> {
        cx.session.objects.surfaces.remove(self.0, cx.home())?;
        cx.gpu().cuSurfObjectDestroy(self.0)
    }
}
