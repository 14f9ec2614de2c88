// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words of the call table for answers that the worker gives from its own state instead of the driver's.

use virtio_cuda_protocol::cuda::{GraphNodeId, NODE_MEMCPY};

use super::ready;
use crate::worker::call::CallContext;
use crate::worker::gpu::{CuResult, RawTensorMap};
use crate::worker::resolve::Resolve;

/// See [`kept_flags`].
pub struct KeptFlags;

/// The flags with which the guest made the current context and which the worker does not pass on to the driver. 0 without a
/// context.
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

/// The kind that the guest knows of a node, if the driver has another: the worker makes some copies of several nodes, in a child
/// graph, and the guest sees one copy.
pub fn known_kind(node: GraphNodeId) -> KnownKind {
    KnownKind(node)
}

impl Resolve<'_, Option<u32>> for KnownKind {
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<Option<u32>> {
        Ok(cx.session.graphs.disguised_copy(self.0).map(|_| NODE_MEMCPY))
    }
}

/// A tensor map as the driver takes it.
pub fn tensor_map(map: [u8; 128]) -> RawTensorMap {
    RawTensorMap { opaque: map }
}
ready!(RawTensorMap);
