// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words for what the worker knows and the driver does not.

use virtio_cuda_protocol::cuda::{GraphNodeId, NODE_MEMCPY};

use super::ready;
use crate::worker::call::CallContext;
use crate::worker::gpu::{CuResult, RawTensorMap};
use crate::worker::resolve::Resolve;

/// Flags of the current context that the driver was not told.
pub struct KeptFlags;

/// Flags of the current context that the driver was not told; none without a context.
pub fn kept_flags() -> KeptFlags {
    KeptFlags
}

impl Resolve<'_, u32> for KeptFlags {
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<u32> {
        Ok(cx.session.contexts.lock().get(cx.context).map_or(0, |context| context.kept_flags))
    }
}

/// The kind of a node that stands for another.
pub struct KnownKind(GraphNodeId);

/// The kind of a node, if it stands for one of another kind: copies that are made of several nodes.
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
