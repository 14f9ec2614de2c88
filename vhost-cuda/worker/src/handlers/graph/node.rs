// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Nodes of graphs: checks the guest's parameters and reports those of existing nodes.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use virtio_cuda_protocol::cuda::{
    ArrayId, BatchMemOpNode, COPY_ARRAY, COPY_HOST, CallbackId, ChildGraphNode, ConditionalNode, CopyEnd,
    DeviceOrdinal, DevicePtr, EventNode, FunctionId, GraphExecId, GraphId, GraphNodeId, HostNode, KernelNode,
    MemAllocNode, MemFreeNode, MemcpyNode, MemoryOperation, MemsetNode, NODE_BATCH_MEM_OP, NODE_CONDITIONAL,
    NODE_EMPTY, NODE_EVENT_RECORD, NODE_GRAPH, NODE_HOST, NODE_KERNEL, NODE_LINK_BYTES, NODE_MEM_ALLOC,
    NODE_MEM_FREE, NODE_MEMCPY, NODE_MEMSET, NODE_SEMAPHORES_SIGNAL, NODE_SEMAPHORES_WAIT, NODE_WAIT_EVENT,
    ParamLayout, Reader,
};

use crate::call::CallContext;
use crate::gpu::{
    CUarray, CUfunction, CUgraph, CUgraphNode, CUkernel, CUuserObject, Code, CuResult, CudaError, Edges,
    InGraph, Links, NodeParameters, UserFunction,
};
use crate::handlers::graph::end_leases;
use crate::handlers::graph::exec::MOVE;
use crate::handlers::graph::own_functions;
use crate::memory::allocations::Origin;
use crate::memory::pools;
use crate::memory::quota;
use crate::objects::graphs::Lease;
use crate::objects::{Kind, Object};
use crate::run::callbacks::{run_node, tie_ended, tie_node, untie};
use crate::words::MAX_PARAM_BYTES;
use crate::words::contents::{bulk, encode, links, take};
use crate::words::values::memory_operations;

/// The maximum number of graphs in a conditional node.
const MAX_CONDITIONAL_GRAPHS: u32 = 64;
/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`.
const NO_DESTRUCTOR_SYNC: u32 = 1;

/// Notifies the guest once nothing references the callback of a node in `graph` any longer. Where the driver
/// cannot do that, the guest remembers the callback until it ends. Returns the object that the graph owns for it.
pub fn tie_callback(cx: &CallContext<'_>, graph: CUgraph, callback: CallbackId) -> Option<CUuserObject> {
    if callback.0 == 0 {
        return None;
    }
    let (gpu, graphs) = (cx.gpu(), &cx.session.graphs);
    let create = || {
        let data = tie_node(callback);
        // SAFETY: the function takes any number.
        let made = unsafe { gpu.cuUserObjectCreate(data, Some(tie_ended), 1, NO_DESTRUCTOR_SYNC) };
        made.map(|(object,)| object).inspect_err(|_| untie(data)).ok()
    };
    if graphs.is_made_again() {
        let object = graphs.shared_tie(callback, create)?;
        return gpu.cuGraphRetainUserObject(graph, object, 1, 0).is_ok().then_some(object);
    }
    let object = create()?;
    if gpu.cuGraphRetainUserObject(graph, object, 1, MOVE).is_err() {
        let _ = gpu.cuUserObjectRelease(object, 1);
        return None;
    }
    Some(object)
}

/// Replaces the function of a node of `graph`, or removes it. The graph no longer needs the earlier function, though
/// executable graphs may.
pub fn replace_function(
    cx: &CallContext<'_>,
    graph: CUgraph,
    node: GraphNodeId,
    callback: Option<CallbackId>,
) {
    let object = callback.and_then(|callback| tie_callback(cx, graph, callback));
    if let Some(earlier) = cx.session.graphs.set_function(node, object) {
        let _ = cx.gpu().cuGraphReleaseUserObject(graph, earlier, 1);
    }
}

/// Checks that one end of a copy lies in the session's memory.
fn check_end(cx: &CallContext<'_>, end: &CopyEnd, node: &MemcpyNode, writes: bool) -> CuResult<()> {
    let size = &node.size;
    let span = || {
        let (width, rows) = (end.x.checked_add(size.width)?, end.y.checked_add(size.height)?);
        // 0 stands for the smallest value that fits.
        let pitch = if end.pitch == 0 { width } else { end.pitch };
        let height = if end.height == 0 { rows } else { end.height };
        let several_rows = size.height > 1 || size.depth > 1 || end.y > 0 || end.z > 0;
        if several_rows && (pitch < width || height < rows) {
            return None;
        }
        let at = |z: u64, y: u64| z.checked_mul(height)?.checked_add(y)?.checked_mul(pitch);
        let start = at(end.z, end.y)?.checked_add(end.x)?;
        let (last_z, last_y) = (end.z.checked_add(size.depth - 1)?, rows - 1);
        let stop = at(last_z, last_y)?.checked_add(width)?;
        Some((end.address.0.checked_add(start)?, stop.checked_sub(start)?))
    };
    let (address, bytes) = span().ok_or(CudaError::INVALID_VALUE)?;
    cx.check_copied(address, bytes, writes)
}

/// Checks a copy. Returns it with the driver's handles of arrays.
fn check_copy(cx: &CallContext<'_>, node: &MemcpyNode) -> CuResult<MemcpyNode> {
    let mut answer = *node;
    let empty = node.size.width == 0 || node.size.height == 0 || node.size.depth == 0;
    for (end, writes) in [(&mut answer.src, false), (&mut answer.dst, true)] {
        if end.kind == COPY_ARRAY {
            // The driver checks the box against the array.
            end.address = DevicePtr(cx.resolve(ArrayId(end.address.0))? as u64);
        } else if !empty {
            // Where nothing is copied, the driver decides.
            check_end(cx, end, node, writes)?;
        }
    }
    Ok(answer)
}

fn check_memset(cx: &CallContext<'_>, node: &MemsetNode) -> CuResult<()> {
    if node.width == 0 || node.height == 0 {
        return Ok(());
    }
    let row = node.width.checked_mul(u64::from(node.element_bytes));
    let length = || (node.height - 1).checked_mul(node.pitch)?.checked_add(row?);
    cx.check_copied(node.dst.0, length().ok_or(CudaError::INVALID_VALUE)?, true)
}

/// Parses the parameters of `kind`, except those of copies with callbacks.
fn parameters(cx: &CallContext<'_>, kind: u32, reader: &mut Reader<'_>) -> CuResult<NodeParameters> {
    let graphs = &cx.session.graphs;
    let context = cx.resolve(cx.context)?;
    Ok(match kind {
        NODE_KERNEL => {
            let node: KernelNode = take(reader)?;
            let params = reader.rest().to_vec();
            if params.len() as u64 > MAX_PARAM_BYTES {
                return Err(CudaError::INVALID_VALUE);
            }
            let object = cx.session.objects.functions.get(node.function.0)?;
            let (function, kernel): (CUfunction, CUkernel) = match object.kind() {
                Kind::Kernel => (std::ptr::null_mut(), cx.held().keep(object)),
                Kind::Plain => (cx.held().keep(object), std::ptr::null_mut()),
            };
            NodeParameters::Kernel(function, kernel, node, params)
        }
        NODE_MEMCPY => {
            let node: MemcpyNode = take(reader)?;
            NodeParameters::Memcpy(check_copy(cx, &node)?, context)
        }
        NODE_MEMSET => {
            let node: MemsetNode = take(reader)?;
            check_memset(cx, &node)?;
            NodeParameters::Memset(node, context)
        }
        NODE_HOST => NodeParameters::Host(run_node, take::<HostNode>(reader)?.callback.0),
        NODE_GRAPH => NodeParameters::Graph(cx.graph(take::<ChildGraphNode>(reader)?.graph)?),
        NODE_EMPTY => NodeParameters::Empty,
        NODE_WAIT_EVENT => NodeParameters::WaitEvent(cx.resolve(take::<EventNode>(reader)?.event)?),
        NODE_EVENT_RECORD => NodeParameters::RecordEvent(cx.resolve(take::<EventNode>(reader)?.event)?),
        NODE_SEMAPHORES_SIGNAL | NODE_SEMAPHORES_WAIT => NodeParameters::Semaphores(kind),
        NODE_MEM_ALLOC => {
            let node: MemAllocNode = take(reader)?;
            NodeParameters::MemAlloc(node.bytes, cx.resolve(node.device)?)
        }
        NODE_MEM_FREE => {
            let node: MemFreeNode = take(reader)?;
            if cx.session.allocations().allocated_at(node.dptr.0)?.origin == Origin::External {
                return Err(CudaError::INVALID_VALUE);
            }
            NodeParameters::MemFree(node.dptr.0)
        }
        NODE_BATCH_MEM_OP => {
            let BatchMemOpNode { flags } = take(reader)?;
            NodeParameters::MemoryOperations(memory_operations(cx, reader.rest())?, flags, context)
        }
        NODE_CONDITIONAL => {
            let node: ConditionalNode = take(reader)?;
            let known = graphs.is_conditional_handle(node.handle);
            if node.graphs == 0 || node.graphs > MAX_CONDITIONAL_GRAPHS || !known {
                return Err(CudaError::INVALID_VALUE);
            }
            NodeParameters::Conditional(node.handle, node.kind, node.graphs, context)
        }
        _ => return Err(CudaError::NOT_SUPPORTED),
    })
}

/// Replaces a callback that a later version of a node no longer needs.
unsafe extern "C" fn nothing(_: *mut std::ffi::c_void) {}

/// The functions of nodes that the program's functions are in.
const OURS: [UserFunction; 2] = [run_node, nothing];

/// Creates a graph of a copy and the callbacks around it. `shape` defines which callbacks must exist.
fn wrap(cx: &CallContext<'_>, copy: &MemcpyNode, shape: &MemcpyNode) -> CuResult<CUgraph> {
    let driver_copy = check_copy(cx, copy)?;
    let context = cx.resolve(cx.context)?;
    let (graph,) = cx.gpu().cuGraphCreate(0)?;
    let host = |callback: CallbackId| match callback.0 {
        0 => NodeParameters::Host(nothing, 0),
        number => NodeParameters::Host(run_node, number),
    };
    let nodes = [
        (shape.before.0 != 0).then(|| host(copy.before)),
        Some(NodeParameters::Memcpy(driver_copy, context)),
        (shape.after.0 != 0).then(|| host(copy.after)),
    ];
    let mut links = Links::default();
    for mut node in nodes.into_iter().flatten() {
        // SAFETY: both ends of the copy were checked above.
        match unsafe { cx.gpu().add_node(graph, &links, &mut node) } {
            Ok((raw, _)) => links = Links { nodes: vec![raw], edges: vec![[0; 8]] },
            Err(error) => {
                let _ = cx.gpu().cuGraphDestroy(graph);
                return Err(error);
            }
        }
    }
    tie_callback(cx, graph, copy.before);
    tie_callback(cx, graph, copy.after);
    Ok(graph)
}

fn has_callbacks(copy: &MemcpyNode) -> bool {
    copy.before.0 != 0 || copy.after.0 != 0
}

/// Adds a copy with callbacks, which is a child graph in the driver.
pub fn add_wrapped_copy(
    cx: &CallContext<'_>,
    graph: CUgraph,
    links: &Links,
    copy: &MemcpyNode,
) -> CuResult<CUgraphNode> {
    let inner = wrap(cx, copy, copy)?;
    // SAFETY: a graph does not refer to memory.
    let made = unsafe { cx.gpu().add_node(graph, links, &mut NodeParameters::Graph(inner)) };
    let _ = cx.gpu().cuGraphDestroy(inner);
    made.map(|(node, _)| node)
}

/// Returns the copy that the bulk parameters describe, if it needs callbacks.
fn wrapped_copy(kind: u32, bytes: &[u8]) -> CuResult<Option<MemcpyNode>> {
    if kind != NODE_MEMCPY {
        return Ok(None);
    }
    let copy: MemcpyNode = take(&mut Reader::new(bytes))?;
    Ok(has_callbacks(&copy).then_some(copy))
}

/// Locks the graphs that a call names, and the one that becomes the child graph.
fn enter_with_inner(
    cx: &CallContext<'_>,
    graphs: &[GraphId],
    nodes: &[GraphNodeId],
    kind: u32,
    parameters: &[u8],
) {
    let inner =
        (kind == NODE_GRAPH).then(|| take::<ChildGraphNode>(&mut Reader::new(parameters)).ok()).flatten();
    let graphs: Vec<GraphId> = graphs.iter().copied().chain(inner.map(|inner| inner.graph)).collect();
    cx.enter(&graphs, nodes);
}

/// Adds a node.
pub fn graph_add_node(
    cx: &mut CallContext<'_>,
    graph: GraphId,
    node: GraphNodeId,
    kind: u32,
    count: u32,
) -> CuResult<(DevicePtr,)> {
    let graphs = &cx.session.graphs;
    let _name = graphs.take_node_name(node)?;
    let bytes = bulk(cx)?;
    let links_bytes = (count as usize).saturating_mul(NODE_LINK_BYTES);
    enter_with_inner(cx, &[graph], &[], kind, bytes.get(links_bytes..).unwrap_or_default());
    let raw_graph = cx.graph(graph)?;
    graphs.changed(graph);
    let mut reader = Reader::new(&bytes);
    let links = links(cx, &mut reader, count as usize)?;
    if let Some(copy) = wrapped_copy(kind, reader.rest())? {
        let raw = add_wrapped_copy(cx, raw_graph, &links, &copy)?;
        graphs.add_node(node, raw, graph, Some(copy));
        return Ok((DevicePtr(0),));
    }
    let mut wanted = parameters(cx, kind, &mut reader)?;
    let home = cx.owner()?;
    if let NodeParameters::MemAlloc(bytes, _) = wanted {
        pools::charge(cx.session, |allocations| allocations.charge(quota::rounded(bytes)))?;
    }
    // SAFETY: `parameters` has checked the memory that they refer to.
    let made = unsafe { cx.gpu().add_node(raw_graph, &links, &mut wanted) };
    let (raw, outcome) = made.inspect_err(|_| {
        if let NodeParameters::MemAlloc(bytes, _) = wanted {
            cx.session.allocations().discharge(quota::rounded(bytes));
        }
    })?;
    graphs.add_node(node, raw, graph, None);
    match wanted {
        NodeParameters::Host(_, callback) => {
            replace_function(cx, raw_graph, node, Some(CallbackId(callback)));
        }
        NodeParameters::MemAlloc(bytes, _) => {
            cx.session.allocations().insert(outcome.dptr, bytes, Origin::GraphNode, home);
            graphs.add_lease(graph, Lease::new(outcome.dptr));
        }
        NodeParameters::Conditional(..) => {
            for raw in outcome.graphs {
                let name = GraphId(take(&mut reader)?);
                let _name = graphs.take_graph_name(name)?;
                graphs.add_graph(cx.held(), name, raw, Some(node));
            }
        }
        _ => {}
    }
    Ok((DevicePtr(outcome.dptr),))
}

/// Replaces a node by another one with the same name and edges.
fn replace(
    cx: &CallContext<'_>,
    node: GraphNodeId,
    add: impl FnOnce(CUgraph, &Links) -> CuResult<(CUgraphNode, Option<MemcpyNode>)>,
) -> CuResult<()> {
    let graphs = &cx.session.graphs;
    let (old, graph, name) = (cx.node(node)?, graphs.graph_of(cx.held(), node)?, graphs.graph_name_of(node)?);
    graphs.check_removable(node)?;
    let (before,) = cx.gpu().node_links(graph, old, false)?;
    let (InGraph { found: to, .. },) = cx.gpu().node_links(graph, old, true)?;
    let (new, copy) = add(graph, &before.found)?;
    let from = vec![new; to.nodes.len()];
    cx.gpu().change_edges(graph, Edges { from, to }, true)?;
    cx.gpu().cuGraphDestroyNode(old)?;
    graphs.remove_node(node)?;
    graphs.add_node(node, new, name, copy);
    Ok(())
}

/// Returns the error for wrong parameters of a node: if the node is of another kind, that error comes first.
fn node_first(cx: &CallContext<'_>, node: GraphNodeId, kind: u32, error: CudaError) -> CudaError {
    let raw = cx.node(node);
    match raw.and_then(|raw| cx.gpu().cuGraphNodeGetType(raw)) {
        Ok((found,)) if found != kind && cx.session.graphs.disguised_copy(node).is_none() => {
            CudaError::INVALID_VALUE
        }
        _ => error,
    }
}

/// Replaces the parameters of a node.
pub fn cuGraphNodeSetParams(cx: &mut CallContext<'_>, node: GraphNodeId, kind: u32) -> CuResult<()> {
    let graphs = &cx.session.graphs;
    let bytes = bulk(cx)?;
    enter_with_inner(cx, &[], &[node], kind, &bytes);
    let raw = cx.node(node)?;
    graphs.node_changed(node);
    if let Some(copy) = wrapped_copy(kind, &bytes)? {
        return replace(cx, node, |graph, links| {
            Ok((add_wrapped_copy(cx, graph, links, &copy)?, Some(copy)))
        });
    }
    let wanted = parameters(cx, kind, &mut Reader::new(&bytes));
    let mut wanted = wanted.map_err(|error| node_first(cx, node, kind, error))?;
    if graphs.disguised_copy(node).is_some() {
        return replace(cx, node, |graph, links| {
            // SAFETY: `parameters` has checked the memory that they refer to.
            Ok((unsafe { cx.gpu().add_node(graph, links, &mut wanted) }?.0, None))
        });
    }
    if kind == NODE_GRAPH {
        graphs.check_replaceable(node)?;
    }
    // SAFETY: `parameters` has checked the memory that they refer to.
    unsafe { cx.gpu().set_node(raw, &mut wanted) }?;
    if let NodeParameters::Host(_, callback) = wanted {
        replace_function(cx, graphs.graph_of(cx.held(), node)?, node, Some(CallbackId(callback)));
    }
    if kind == NODE_GRAPH {
        // The driver may have replaced its child graph by another copy.
        end_leases(cx.session, graphs.remove_inside(node));
    }
    Ok(())
}

/// Replaces the parameters of a node in an executable graph.
pub fn cuGraphExecNodeSetParams(
    cx: &mut CallContext<'_>,
    exec: GraphExecId,
    node: GraphNodeId,
    kind: u32,
) -> CuResult<()> {
    let graphs = &cx.session.graphs;
    let bytes = bulk(cx)?;
    enter_with_inner(cx, &[], &[node], kind, &bytes);
    let raw = cx.node(node)?;
    let raw_exec = cx.resolve(exec)?;
    let disguised = graphs.disguised_copy(node);
    if let (NODE_MEMCPY, Some(shape)) = (kind, disguised) {
        let copy: MemcpyNode = take(&mut Reader::new(&bytes))?;
        let missing = |wanted: CallbackId, there: CallbackId| wanted.0 != 0 && there.0 == 0;
        if missing(copy.before, shape.before) || missing(copy.after, shape.after) {
            return Err(CudaError::NOT_SUPPORTED);
        }
        let inner = wrap(cx, &copy, &shape)?;
        // SAFETY: a graph does not refer to memory.
        let set = unsafe { cx.gpu().set_exec_node(raw_exec, raw, &mut NodeParameters::Graph(inner)) };
        let _ = cx.gpu().cuGraphDestroy(inner);
        if set.is_ok() {
            graphs.set_own(exec, raw, kind, &bytes);
        }
        return set;
    }
    if disguised.is_some() {
        return Err(CudaError::INVALID_VALUE);
    }
    if wrapped_copy(kind, &bytes)?.is_some() {
        // The kind of a node cannot change.
        return Err(CudaError::NOT_SUPPORTED);
    }
    let wanted = parameters(cx, kind, &mut Reader::new(&bytes));
    let mut wanted = wanted.map_err(|error| node_first(cx, node, kind, error))?;
    // SAFETY: `parameters` has checked the memory that they refer to.
    unsafe { cx.gpu().set_exec_node(raw_exec, raw, &mut wanted) }?;
    graphs.set_own(exec, raw, kind, &bytes);
    if let NodeParameters::Host(_, callback) = wanted {
        let earlier = cx.session.exec_callbacks.replaced(exec, node, CallbackId(callback));
        own_functions::retire(cx, earlier);
    }
    Ok(())
}

/// Returns the layout of the parameters of a function or kernel.
fn layout(cx: &CallContext<'_>, function: CUfunction, kernel: CUkernel) -> CuResult<Vec<ParamLayout>> {
    // A driver may return a kernel in place of a function, but a query of the parameters distinguishes them.
    let is_this = |object: &Object| object.is(function) && object.kind() == Kind::Kernel;
    let code = match cx.session.objects.functions.find(is_this) {
        Some(_) => Code::Kernel(function.cast()),
        None if function.is_null() => Code::Kernel(kernel),
        None => Code::Function(function),
    };
    Ok(cx.gpu().parameters(code)?.0)
}

/// Returns the guest's name of the function that a kernel node launches.
fn function_name(cx: &CallContext<'_>, function: CUfunction, kernel: CUkernel) -> CuResult<FunctionId> {
    let functions = &cx.session.objects.functions;
    let by_handle = |raw: CUfunction| functions.find(|object| !raw.is_null() && object.is(raw));
    // The driver may return the function of a kernel that the guest knows.
    let of_kernel = || {
        functions.find(|object| {
            let own = (object.kind() == Kind::Kernel).then(|| cx.gpu().cuKernelGetFunction(object.raw()));
            matches!(own, Some(Ok((own,))) if own == function)
        })
    };
    let found = by_handle(kernel.cast()).or_else(|| by_handle(function)).or_else(of_kernel);
    found.map(FunctionId).ok_or(CudaError::INVALID_VALUE)
}

/// The names and parameters of functions that nodes launch, as far as they were looked up: by the driver's function and kernel.
#[derive(Debug, Default)]
pub struct Known(HashMap<(usize, usize), (FunctionId, Vec<ParamLayout>)>);

impl Known {
    fn find(
        &mut self,
        cx: &CallContext<'_>,
        function: CUfunction,
        kernel: CUkernel,
    ) -> CuResult<&(FunctionId, Vec<ParamLayout>)> {
        Ok(match self.0.entry((function as usize, kernel as usize)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                new.insert((function_name(cx, function, kernel)?, layout(cx, function, kernel)?))
            }
        })
    }
}

/// Checks parameters of a node as if one were added.
pub fn check_parameters(cx: &CallContext<'_>, kind: u32, bytes: &[u8]) -> CuResult<()> {
    match wrapped_copy(kind, bytes)? {
        Some(copy) => check_copy(cx, &copy).map(drop),
        None => parameters(cx, kind, &mut Reader::new(bytes)).map(drop),
    }
}

/// Returns an address that the guest may see: 0 if it does not belong to its session.
fn guest_address(cx: &CallContext<'_>, address: DevicePtr) -> DevicePtr {
    if cx.session.allocations().find(address.0).is_some() { address } else { DevicePtr(0) }
}

/// Returns the parameters of a node.
pub fn graph_node_get_params(cx: &mut CallContext<'_>, node: GraphNodeId, kind: u32) -> CuResult<()> {
    let raw = cx.node(node)?;
    let disguised = cx.session.graphs.disguised_copy(node);
    let answer = described(cx, raw, disguised, kind, &mut Known::default())?;
    cx.bulk_out.put(&answer)
}

/// Returns the parameters of a node of a graph that no other call uses, as `graph_add_node` takes them. `disguised` is the copy that
/// the guest knows it as, if the driver knows it as a child graph.
pub fn described(
    cx: &CallContext<'_>,
    raw: CUgraphNode,
    disguised: Option<MemcpyNode>,
    kind: u32,
    known: &mut Known,
) -> CuResult<Vec<u8>> {
    let gpu = cx.gpu();
    if disguised.is_some() && kind != NODE_MEMCPY {
        return Err(CudaError::INVALID_VALUE);
    }
    Ok(match kind {
        NODE_KERNEL => {
            let (function, kernel, shape, params) = gpu.kernel_node(raw, |function, kernel| {
                known.find(cx, function, kernel).map(|(_, layout)| layout.clone())
            })?;
            let (function, _) = *known.find(cx, function, kernel)?;
            let mut answer = encode(&KernelNode { function, ..shape })?;
            answer.extend_from_slice(&params);
            answer
        }
        NODE_MEMCPY => {
            let mut copy = match disguised {
                Some(copy) => copy,
                None => gpu.memcpy_node(raw)?,
            };
            for end in [&mut copy.src, &mut copy.dst] {
                if end.kind == COPY_ARRAY {
                    // For a copy that is a child graph, this is already the guest's name.
                    if disguised.is_none() {
                        let raw = end.address.0 as CUarray;
                        end.address =
                            DevicePtr(cx.session.objects.arrays.find(|array| array.is(raw)).unwrap_or(0));
                    }
                    continue;
                }
                end.address = guest_address(cx, end.address);
                if let Some(range) = cx.session.allocations().find(end.address.0)
                    && range.origin.is_window()
                {
                    end.kind = COPY_HOST;
                }
            }
            encode(&copy)?
        }
        NODE_MEMSET => {
            let node = gpu.memset_node(raw)?;
            encode(&MemsetNode { dst: guest_address(cx, node.dst), ..node })?
        }
        NODE_HOST => {
            let (function, data) = gpu.host_node(raw)?;
            let is_ours =
                function.is_some_and(|function| OURS.iter().any(|ours| *ours as usize == function as usize));
            if !is_ours {
                // A library's own.
                return Err(CudaError::INVALID_VALUE);
            }
            encode(&HostNode { callback: CallbackId(data) })?
        }
        NODE_WAIT_EVENT | NODE_EVENT_RECORD => {
            let (event,) = if kind == NODE_WAIT_EVENT {
                gpu.cuGraphEventWaitNodeGetEvent(raw)?
            } else {
                gpu.cuGraphEventRecordNodeGetEvent(raw)?
            };
            let event =
                cx.session.objects.events.find(|object| object.is(event)).ok_or(CudaError::INVALID_VALUE)?;
            encode(&event)?
        }
        NODE_MEM_ALLOC => {
            let (bytes, device, dptr) = gpu.mem_alloc_node(raw)?;
            let mut answer = encode(&MemAllocNode { bytes, device: DeviceOrdinal(device as u32) })?;
            answer.extend_from_slice(&encode(&guest_address(cx, DevicePtr(dptr)))?);
            answer
        }
        NODE_BATCH_MEM_OP => {
            let (flags, operations) = gpu.batch_node(raw)?;
            let mut answer = encode(&BatchMemOpNode { flags })?;
            for one in operations {
                let address = guest_address(cx, one.address);
                answer.extend_from_slice(&encode(&MemoryOperation { address, ..one })?);
            }
            answer
        }
        NODE_MEM_FREE => encode(&guest_address(cx, DevicePtr(gpu.cuGraphMemFreeNodeGetParams(raw)?.0)))?,
        _ => return Err(CudaError::NOT_SUPPORTED),
    })
}
