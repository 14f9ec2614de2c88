// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words for what the worker knows: the call's own state, and that of the session.

use virtio_cuda_protocol::cuda::{FunctionId, GraphNodeId, NODE_MEMCPY};

use crate::call::CallContext;
use crate::gpu::{CUcontext, CUgraph, Code, CuResult, Driver, RawDevResource};
use crate::objects::Kind;

/// The current context.
pub fn current_context(cx: &CallContext<'_>) -> CuResult<CUcontext> {
    cx.resolve(cx.context)
}

/// The driver.
pub fn driver(cx: &CallContext<'_>) -> CuResult<&'static Driver> {
    Ok(cx.gpu())
}

/// The driver's version.
pub fn driver_version(cx: &CallContext<'_>) -> CuResult<i32> {
    Ok(cx.gpu().cuDriverGetVersion()?.0)
}

/// The room in the bulk output, in bytes.
pub fn room(cx: &CallContext<'_>) -> CuResult<u64> {
    Ok(cx.bulk_out.room())
}

/// The flags with which the guest created the current context and which the worker does not pass on to the driver. 0
/// without a context.
pub fn kept_flags(cx: &CallContext<'_>) -> CuResult<u32> {
    Ok(cx.session.contexts.lock().get(cx.context).map_or(0, |context| context.kept_flags))
}

/// The kind of a node in the guest, if it differs from the driver's. The worker implements some copies by several nodes in
/// a child graph, and the guest sees one copy.
pub fn known_kind(cx: &CallContext<'_>, node: GraphNodeId) -> CuResult<Option<u32>> {
    Ok(cx.session.graphs.disguised_copy(node).map(|_| NODE_MEMCPY))
}

/// The graph that a node is in.
pub fn graph_of(cx: &CallContext<'_>, node: GraphNodeId) -> CuResult<CUgraph> {
    cx.session.graphs.graph_of(cx.held(), node)
}

/// A function or kernel, by which of the two it is.
pub fn code(cx: &CallContext<'_>, function: FunctionId) -> CuResult<Code> {
    let object = cx.session.objects.functions.get(function.0)?;
    Ok(match object.kind() {
        Kind::Kernel => Code::Kernel(cx.held().keep(object)),
        Kind::Plain => Code::Function(cx.held().keep(object)),
    })
}

/// The resource of a device that has this name.
pub fn resource(cx: &CallContext<'_>, name: u64) -> CuResult<RawDevResource> {
    cx.session.resources.get(name)
}
