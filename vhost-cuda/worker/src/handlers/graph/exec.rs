// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Executable graphs, attributes of kernel nodes, memory of graphs, user objects.

use std::ptr::null_mut;
use std::sync::Arc;

use virtio_cuda_protocol::cuda::{CallbackId, GraphExecId, GraphId, GraphNodeId, StreamId, UserObjectId};

use crate::call::CallContext;
use crate::call::lifecycle::{Create, Destroy};
use crate::gpu::{CUgraphExec, CUgraphNode, CuResult, CudaError, InGraph};
use crate::handlers::graph::end_leases;
use crate::handlers::graph::own_functions;
use crate::objects::Object;
use crate::objects::graphs::Taken;
use crate::objects::user_objects::within;
use crate::run::callbacks::{tie_ended, tie_object, untie};

/// `CU_GRAPH_USER_OBJECT_MOVE`.
pub(super) const MOVE: u32 = 1;
/// `CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH`.
const DEVICE_LAUNCH: u64 = 4;

/// Returns the object of an executable graph that was instantiated from `graph` and shares its memory.
fn made(cx: &CallContext<'_>, raw: CUgraphExec, graph: GraphId) -> Arc<Object> {
    let (session, leases) = (cx.session, cx.session.graphs.leases_of(graph));
    Arc::new(cx.made_in(cx.home_of(), raw, move |gpu, raw| {
        end_leases(session, leases);
        gpu.cuGraphExecDestroy(raw)
    }))
}

/// Registers an executable graph under its name.
fn add(cx: &CallContext<'_>, exec: GraphExecId, object: Arc<Object>, graph: GraphId) -> CuResult<()> {
    cx.session.graphs.add_exec(exec, object, graph).map_err(|object| {
        cx.held().keep::<u8>(object);
        CudaError::CONTEXT_IS_DESTROYED
    })
}

/// Instantiates a graph.
pub fn cuGraphInstantiateWithParams(
    cx: &mut CallContext<'_>,
    exec: GraphExecId,
    graph: GraphId,
    flags: u64,
    upload: StreamId,
) -> CuResult<(i32, i32, GraphNodeId)> {
    let graphs = &cx.session.graphs;
    let _name = graphs.take_exec_name(exec)?;
    let upload = cx.resolve(upload)?;
    match cx.gpu().instantiate(cx.graph(graph)?, flags, upload) {
        Ok(raw) => {
            add(cx, exec, made(cx, raw, graph), graph)?;
            Ok((0, 0, GraphNodeId(0)))
        }
        Err((error, result, node)) => Ok((error.0, result, graphs.name_node(node, graph))),
    }
}

/// Instantiates a graph that device code can launch, too.
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
    let upload = if with_params != 0 { Some(cx.resolve(upload)?) } else { None };
    let raw_graph = cx.graph(graph)?;
    let instantiated = match upload {
        Some(upload) => cx.gpu().instantiate(raw_graph, flags, upload),
        None => {
            let made = cx.gpu().cuGraphInstantiateWithFlags(raw_graph, flags);
            made.map(|(raw,)| raw).map_err(|error| (error, 0, null_mut()))
        }
    };
    match instantiated {
        Ok(raw) => match graphs.add_device_exec(made(cx, raw, graph)) {
            Ok(exec) => Ok((exec, 0, 0, GraphNodeId(0))),
            Err((error, exec)) => {
                Object::destroy(exec)?;
                Err(error)
            }
        },
        Err((error, result, node)) => {
            let node = shown(cx, graph, node);
            Ok((GraphExecId(0), error.0, result, graphs.name_node(node, graph)))
        }
    }
}

/// Returns the node that the guest knows for one of the driver's nodes. Some copies are child graphs of several nodes
/// in the driver.
fn shown(cx: &CallContext<'_>, graph: GraphId, node: CUgraphNode) -> CUgraphNode {
    let holds = |outer: CUgraphNode| {
        let inner = cx
            .gpu()
            .cuGraphChildGraphNodeGetGraph(outer)
            .and_then(|(inner,)| cx.gpu().graph_nodes(inner, false));
        inner.is_ok_and(|(nodes,)| nodes.found.contains(&node))
    };
    let copies = cx.session.graphs.disguised_in(graph);
    copies.into_iter().map(|(outer, _)| outer).find(|outer| holds(*outer)).unwrap_or(node)
}

/// Launches a graph in stream order.
pub fn cuGraphLaunch(cx: &mut CallContext<'_>, exec: GraphExecId, stream: StreamId) -> CuResult<()> {
    own_functions::launch(cx, exec, stream)
}

/// Updates an executable graph with a graph's parameters.
pub fn cuGraphExecUpdate_v2(
    cx: &mut CallContext<'_>,
    exec: GraphExecId,
    graph: GraphId,
) -> CuResult<(i32, i32, GraphNodeId, GraphNodeId)> {
    let graphs = &cx.session.graphs;
    let raw_graph = cx.graph(graph)?;
    let (outcome, result, node, from) = cx.gpu().update(cx.resolve(exec)?, raw_graph);
    let (node, from) = (graphs.name_node(node, graph), graphs.name_node(from, graph));
    if outcome.is_ok() {
        graphs.updated(exec, graph);
        end_unused(cx);
        // The functions of the graph replace them.
        let own = cx.session.exec_callbacks.dropped(exec);
        own_functions::retire(cx, own);
    }
    Ok((outcome.err().map_or(0, |error| error.0), result, node, from))
}

/// Switches a node of an executable graph on or off.
pub fn cuGraphNodeSetEnabled(
    cx: &mut CallContext<'_>,
    exec: GraphExecId,
    node: GraphNodeId,
    enabled: u32,
) -> CuResult<()> {
    let raw = cx.node(node)?;
    cx.gpu().cuGraphNodeSetEnabled(cx.resolve(exec)?, raw, enabled)?;
    cx.session.graphs.set_off(exec, raw, enabled == 0);
    Ok(())
}

/// Destroys graphs that the program has destroyed, once no executable graph needs them.
fn end_unused(cx: &CallContext<'_>) {
    for graph in cx.session.graphs.take_unused() {
        let _ = cx.gpu().cuGraphDestroy(graph);
    }
}

/// Creates a user object. It has the name of its destructor, which also removes it from the table.
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
    let gpu = cx.gpu();
    cx.session.objects.user_objects.add(object.0, count, || {
        let data = tie_object(callback);
        // SAFETY: the function takes any number.
        let made = unsafe { gpu.cuUserObjectCreate(data, Some(tie_ended), count, flags) };
        made.map(|(raw,)| raw).inspect_err(|_| untie(data))
    })
}

/// Makes a graph own references to a user object.
pub fn cuGraphRetainUserObject(
    cx: &mut CallContext<'_>,
    graph: GraphId,
    object: UserObjectId,
    count: u32,
    flags: u32,
) -> CuResult<()> {
    let (raw_graph, gpu, graphs) = (cx.graph(graph)?, cx.gpu(), &cx.session.graphs);
    graphs.changed(graph);
    cx.session.objects.user_objects.change(object.0, false, |raw, own| {
        let moves = flags & MOVE != 0;
        if moves && u64::from(count) > own && i32::try_from(count).is_ok() {
            // The program would transfer more references than it holds.
            return Err(CudaError::INVALID_VALUE);
        }
        gpu.cuGraphRetainUserObject(raw_graph, raw, count, flags)?;
        let of_graph = graphs.user_objects(graph, object).saturating_add(count.into());
        graphs.set_user_objects(graph, object, of_graph);
        Ok(if moves { own - own.min(count.into()) } else { own })
    })
}

/// Releases a graph's references to a user object, at most as many as the graph holds. NVIDIA's driver does not check
/// this, and would destroy the object while others still hold references.
///
/// Errors: `CUDA_ERROR_INVALID_VALUE` for a graph to which the program gave no reference.
pub fn cuGraphReleaseUserObject(
    cx: &mut CallContext<'_>,
    graph: GraphId,
    object: UserObjectId,
    count: u32,
) -> CuResult<()> {
    let (raw_graph, gpu, graphs) = (cx.graph(graph)?, cx.gpu(), &cx.session.graphs);
    let of_graph = graphs.user_objects(graph, object);
    if of_graph == 0 {
        return Err(CudaError::INVALID_VALUE);
    }
    graphs.changed(graph);
    cx.session.objects.user_objects.change(object.0, true, |raw, own| {
        let count = within(count, of_graph);
        gpu.cuGraphReleaseUserObject(raw_graph, raw, count)?;
        graphs.set_user_objects(graph, object, of_graph.saturating_sub(count.into()));
        Ok(own)
    })
}

impl Create for GraphExecId {
    type Raw = InGraph<CUgraphExec>;
    type Reserved = Taken<'static>;
    fn reserve(self, cx: &CallContext<'_>) -> CuResult<Taken<'static>> {
        cx.session.graphs.take_exec_name(self)
    }
    fn made(self, cx: &CallContext<'_>, _name: Taken<'static>, raw: Self::Raw) -> CuResult<()> {
        let graph = cx.session.graphs.name_graph(raw.graph, None);
        add(cx, self, made(cx, raw.found, graph), graph)
    }
}

impl Destroy for GraphExecId {
    /// Destroys an executable graph.
    fn destroy(self, cx: &mut CallContext<'_>) -> CuResult<()> {
        let object = cx.session.graphs.remove_exec(self)?;
        let own = cx.session.exec_callbacks.dropped(self);
        let destroyed = Object::destroy(object);
        end_unused(cx);
        own_functions::retire(cx, own);
        destroyed
    }
}
