// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Executable graphs, attributes of kernel nodes, memory of graphs, user objects.

use std::ptr::null_mut;

use virtio_cuda_protocol::cuda::{CallbackId, GraphExecId, GraphId, GraphNodeId, StreamId, UserObjectId};

use super::graph::end_leases;
use super::stream::{attribute_for_driver, attribute_for_guest};
use crate::worker::call::CallContext;
use crate::worker::callbacks::destroy_user_object;
use crate::worker::exec_callbacks;
use crate::worker::gpu::{AttributeValue, CUgraphNode, CuResult, CudaError};
use crate::worker::objects::{Entry, Kind};

/// `CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH`.
const DEVICE_LAUNCH: u64 = 4;

/// Makes a graph executable.
pub fn cuGraphInstantiateWithParams(
    cx: &mut CallContext<'_>,
    exec: GraphExecId,
    graph: GraphId,
    flags: u64,
    upload: StreamId,
) -> CuResult<(i32, i32, GraphNodeId)> {
    let graphs = &cx.session.graphs;
    graphs.check_exec_name(exec)?;
    match cx.gpu().instantiate(graphs.graph(graph)?, flags, cx.resolve(upload)?) {
        Ok(raw) => {
            graphs.add_exec(exec, raw, graph);
            Ok((0, 0, GraphNodeId(0)))
        }
        Err((error, result, node)) => Ok((error.0, result, graphs.name_node(node, graph))),
    }
}

/// Makes a graph executable, without telling what is wrong if it cannot be.
pub fn cuGraphInstantiateWithFlags(
    cx: &mut CallContext<'_>,
    exec: GraphExecId,
    graph: GraphId,
    flags: u64,
) -> CuResult<()> {
    let graphs = &cx.session.graphs;
    graphs.check_exec_name(exec)?;
    let (raw,) = cx.gpu().cuGraphInstantiateWithFlags(graphs.graph(graph)?, flags)?;
    graphs.add_exec(exec, raw, graph);
    Ok(())
}

/// Makes a graph executable that device code launches, too.
pub fn graph_instantiate_for_device(
    cx: &mut CallContext<'_>,
    graph: GraphId,
    flags: u64,
    upload: StreamId,
    with_params: u32,
) -> CuResult<(GraphExecId, i32, i32, GraphNodeId)> {
    if flags & DEVICE_LAUNCH == 0 {
        return Err(CudaError::INVALID_VALUE);
    }
    let graphs = &cx.session.graphs;
    let made = if with_params != 0 {
        cx.gpu().instantiate(graphs.graph(graph)?, flags, cx.resolve(upload)?)
    } else {
        let made = cx.gpu().cuGraphInstantiateWithFlags(graphs.graph(graph)?, flags);
        made.map(|(raw,)| raw).map_err(|error| (error, 0, null_mut()))
    };
    match made {
        Ok(raw) => match graphs.add_device_exec(raw, graph) {
            Ok(exec) => Ok((exec, 0, 0, GraphNodeId(0))),
            Err(error) => {
                cx.gpu().cuGraphExecDestroy(raw)?;
                Err(error)
            }
        },
        Err((error, result, node)) => {
            let node = shown(cx, graph, node);
            Ok((GraphExecId(0), error.0, result, graphs.name_node(node, graph)))
        }
    }
}

/// The node that the guest knows for one that the driver names: some copies are graphs of several nodes there.
fn shown(cx: &CallContext<'_>, graph: GraphId, node: CUgraphNode) -> CUgraphNode {
    let holds = |outer: CUgraphNode| {
        let inner = cx
            .gpu()
            .cuGraphChildGraphNodeGetGraph(outer)
            .and_then(|(inner,)| cx.gpu().graph_nodes(inner, false));
        inner.is_ok_and(|nodes| nodes.contains(&node))
    };
    let copies = cx.session.graphs.disguised_in(graph);
    copies.into_iter().map(|(outer, _)| outer).find(|outer| holds(*outer)).unwrap_or(node)
}

/// Destroys an executable graph.
pub fn cuGraphExecDestroy(cx: &mut CallContext<'_>, exec: GraphExecId) -> CuResult<()> {
    let (raw, leases) = cx.session.graphs.remove_exec(exec)?;
    end_leases(cx, leases);
    let own = cx.session.exec_callbacks.dropped(exec);
    let destroyed = cx.gpu().cuGraphExecDestroy(raw);
    exec_callbacks::retire(cx, own);
    destroyed
}

/// Executes a graph in stream order.
pub fn cuGraphLaunch(cx: &mut CallContext<'_>, exec: GraphExecId, stream: StreamId) -> CuResult<()> {
    exec_callbacks::launch(cx, exec, stream)
}

/// Flags of an executable graph.
pub fn cuGraphExecGetFlags(cx: &mut CallContext<'_>, exec: GraphExecId) -> CuResult<(u64,)> {
    cx.gpu().cuGraphExecGetFlags(cx.session.graphs.exec(exec)?)
}

/// Gives a graph's parameters to an executable graph.
pub fn cuGraphExecUpdate_v2(
    cx: &mut CallContext<'_>,
    exec: GraphExecId,
    graph: GraphId,
) -> CuResult<(i32, i32, GraphNodeId, GraphNodeId)> {
    let graphs = &cx.session.graphs;
    let (outcome, result, node, from) = cx.gpu().update(graphs.exec(exec)?, graphs.graph(graph)?);
    let (node, from) = (graphs.name_node(node, graph), graphs.name_node(from, graph));
    if outcome.is_ok() {
        // The functions of the graph are in their place.
        let own = cx.session.exec_callbacks.dropped(exec);
        exec_callbacks::retire(cx, own);
    }
    Ok((outcome.err().map_or(0, |error| error.0), result, node, from))
}

/// Whether a node is on.
pub fn cuGraphNodeGetEnabled(
    cx: &mut CallContext<'_>,
    exec: GraphExecId,
    node: GraphNodeId,
) -> CuResult<(u32,)> {
    cx.gpu().cuGraphNodeGetEnabled(cx.session.graphs.exec(exec)?, cx.session.graphs.node(node)?)
}

/// Sets an attribute of a kernel node.
pub fn cuGraphKernelNodeSetAttribute(
    cx: &mut CallContext<'_>,
    node: GraphNodeId,
    attribute: i32,
    value: AttributeValue,
) -> CuResult<()> {
    let value = attribute_for_driver(cx, attribute, value)?;
    cx.gpu().set_node_attribute(cx.session.graphs.node(node)?, attribute, &value)
}

/// An attribute of a kernel node.
pub fn cuGraphKernelNodeGetAttribute(
    cx: &mut CallContext<'_>,
    node: GraphNodeId,
    attribute: i32,
) -> CuResult<(AttributeValue,)> {
    let value = cx.gpu().node_attribute(cx.session.graphs.node(node)?, attribute)?;
    Ok((attribute_for_guest(attribute, value),))
}

/// A handle for a conditional node.
pub fn cuGraphConditionalHandleCreate(
    cx: &mut CallContext<'_>,
    graph: GraphId,
    default_value: u32,
    flags: u32,
) -> CuResult<(u64,)> {
    let (graph, context) = (cx.session.graphs.graph(graph)?, cx.resolve(cx.context)?);
    let (handle,) = cx.gpu().cuGraphConditionalHandleCreate(graph, context, default_value, flags)?;
    cx.session.graphs.add_conditional_handle(handle)?;
    Ok((handle,))
}

/// Frees memory that graphs do not use.
pub fn cuDeviceGraphMemTrim(cx: &mut CallContext<'_>, device: u32) -> CuResult<()> {
    cx.gpu().cuDeviceGraphMemTrim(cx.session.device(device)?)
}

/// An attribute of the memory of graphs. All known ones are 64-bit.
pub fn cuDeviceGetGraphMemAttribute(
    cx: &mut CallContext<'_>,
    device: u32,
    attribute: i32,
) -> CuResult<(u64,)> {
    let (device, mut value) = (cx.session.device(device)?, 0u64);
    // SAFETY: every attribute is a `cuuint64_t`.
    unsafe { cx.gpu().cuDeviceGetGraphMemAttribute(device, attribute, (&raw mut value).cast()) }?;
    Ok((value,))
}

/// Sets an attribute of the memory of graphs.
pub fn cuDeviceSetGraphMemAttribute(
    cx: &mut CallContext<'_>,
    device: u32,
    attribute: i32,
    value: u64,
) -> CuResult<()> {
    let (device, mut value) = (cx.session.device(device)?, value);
    // SAFETY: as above.
    unsafe { cx.gpu().cuDeviceSetGraphMemAttribute(device, attribute, (&raw mut value).cast()) }
}

/// Creates a user object. Its name is that of its destructor, by which it is taken out of the table.
pub fn cuUserObjectCreate(
    cx: &mut CallContext<'_>,
    object: UserObjectId,
    callback: CallbackId,
    count: u32,
    flags: u32,
) -> CuResult<()> {
    if object.0 != callback.0 {
        return Err(CudaError::INVALID_VALUE);
    }
    let reserved = cx.session.objects.user_objects.reserve(object.0)?;
    let data = std::ptr::without_provenance_mut(callback.0 as usize);
    // SAFETY: the function takes any number.
    let (raw,) = unsafe { cx.gpu().cuUserObjectCreate(data, Some(destroy_user_object), count, flags) }?;
    reserved.fill(Entry { raw: raw as usize, context: 0, owner: 0, kind: Kind::Plain });
    Ok(())
}

/// Takes references.
pub fn cuUserObjectRetain(cx: &mut CallContext<'_>, object: UserObjectId, count: u32) -> CuResult<()> {
    cx.gpu().cuUserObjectRetain(cx.resolve(object)?, count)
}

/// Gives references back.
pub fn cuUserObjectRelease(cx: &mut CallContext<'_>, object: UserObjectId, count: u32) -> CuResult<()> {
    cx.gpu().cuUserObjectRelease(cx.resolve(object)?, count)
}

/// Has a graph own references.
pub fn cuGraphRetainUserObject(
    cx: &mut CallContext<'_>,
    graph: GraphId,
    object: UserObjectId,
    count: u32,
    flags: u32,
) -> CuResult<()> {
    cx.gpu().cuGraphRetainUserObject(cx.session.graphs.graph(graph)?, cx.resolve(object)?, count, flags)
}

/// Takes references from a graph.
pub fn cuGraphReleaseUserObject(
    cx: &mut CallContext<'_>,
    graph: GraphId,
    object: UserObjectId,
    count: u32,
) -> CuResult<()> {
    cx.gpu().cuGraphReleaseUserObject(cx.session.graphs.graph(graph)?, cx.resolve(object)?, count)
}
