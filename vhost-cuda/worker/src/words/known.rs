// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words of the call table for results that come from the worker's state instead of the driver.

use virtio_cuda_protocol::cuda::{GraphNodeId, NODE_MEMCPY};

use crate::call::CallContext;
use crate::gpu::{CuResult, RawTensorMap};
use crate::resolve::{Ready, Resolve};

/// See [`kept_flags`].
pub struct KeptFlags;

/// Returns the flags with which the guest created the current context and which the worker does not pass on to the
/// driver. Returns 0 without a context.
pub fn kept_flags() -> KeptFlags {
    KeptFlags
}

impl Resolve<'_, u32> for KeptFlags {
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<u32> {
        Ok(cx.session.contexts.lock().get(cx.context).map_or(0, |context| context.kept_flags))
    }
}

/// See [`known_kind`].
pub struct KnownKind(GraphNodeId);

/// Returns the kind of a node in the guest, if it differs from the driver's. The worker implements some copies by
/// several nodes in a child graph, and the guest sees one copy.
pub fn known_kind(node: GraphNodeId) -> KnownKind {
    KnownKind(node)
}

impl Resolve<'_, Option<u32>> for KnownKind {
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<Option<u32>> {
        Ok(cx.session.graphs.disguised_copy(self.0).map(|_| NODE_MEMCPY))
    }
}

/// Returns a tensor map in the driver's form.
pub fn tensor_map(map: [u8; 128]) -> RawTensorMap {
    RawTensorMap { opaque: map }
}
impl Ready for RawTensorMap {}
