// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words of the call table for results that come from the worker's state instead of the driver.

use virtio_cuda_protocol::cuda::{FunctionId, GraphNodeId, NODE_MEMCPY};

use crate::call::CallContext;
use crate::gpu::{CUgraph, Code, CuResult, RawDevResource, RawTensorMap};
use crate::objects::Kind;
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

/// See [`graph_of`].
pub struct GraphOf(GraphNodeId);

/// The graph that a node is in.
pub fn graph_of(node: GraphNodeId) -> GraphOf {
    GraphOf(node)
}

impl Resolve<'_, CUgraph> for GraphOf {
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<CUgraph> {
        cx.session.graphs.graph_of(cx.held(), self.0)
    }
}

/// See [`code`].
pub struct CodeOf(FunctionId);

/// A function or kernel, by which of the two it is.
pub fn code(function: FunctionId) -> CodeOf {
    CodeOf(function)
}

impl Resolve<'_, Code> for CodeOf {
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<Code> {
        let object = cx.session.objects.functions.get(self.0.0)?;
        Ok(match object.kind() {
            Kind::Kernel => Code::Kernel(cx.held().keep(object)),
            Kind::Plain => Code::Function(cx.held().keep(object)),
        })
    }
}

/// See [`resource`].
pub struct KnownResource(u64);

/// The resource of a device that has this name.
pub fn resource(name: u64) -> KnownResource {
    KnownResource(name)
}

impl Resolve<'_, RawDevResource> for KnownResource {
    fn resolve(self, cx: &CallContext<'_>) -> CuResult<RawDevResource> {
        cx.session.resources.get(self.0)
    }
}

/// Returns a tensor map in the driver's form.
pub fn tensor_map(map: [u8; 128]) -> RawTensorMap {
    RawTensorMap { opaque: map }
}
impl Ready for RawTensorMap {}
