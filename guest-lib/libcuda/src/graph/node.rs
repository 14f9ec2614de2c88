// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Nodes: adding them, querying and changing their parameters.

use cuda_abi::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_CONDITIONAL_NODE_PARAMS, CUDA_HOST_NODE_PARAMS,
    CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1, CUDA_MEM_ALLOC_NODE_PARAMS,
};
use cuda_abi::{CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS};
use virtio_cuda_client::protocol::{
    CallbackId, DevicePtr, EventNode, FunctionId, GraphExecId, GraphId, GraphNodeId, HostNode, KernelNode,
    MemAllocNode, MemcpyNode, MemsetNode, NODE_BATCH_MEM_OP, NODE_CONDITIONAL, NODE_EMPTY, NODE_EVENT_RECORD,
    NODE_GRAPH, NODE_HOST, NODE_KERNEL, NODE_MEM_ALLOC, NODE_MEM_FREE, NODE_MEMCPY, NODE_MEMSET,
    NODE_WAIT_EVENT, Reader, Wire,
};
use virtio_cuda_client::touched::graphs_use_events;
use virtio_cuda_client::{CudaError, calls};

use crate::entry::Api;
use crate::entry_points;
use crate::ffi::{HostPtr, In, Out};
use crate::graph::params::{
    Encoded, Form, PAYLOAD_OFFSET, allocation_of_node, check_general, encode, kernel, memset_of_node,
};
use crate::handles::{Kind, new_handle};
use crate::memory::nodes::copy;
use crate::state::callbacks::Callback;
use crate::state::modules::functions::Owner;
use crate::stream::values;
use crate::wire::{links_in, take};

/// Room for the parameters of a node. A kernel's packed block is the longest.
const PARAMETER_ROOM: usize = 32 << 10;

/// The dependencies of a new node.
#[derive(Clone, Copy)]
pub struct Links {
    nodes: In<u64>,
    edges: Option<In<[u8; 8]>>,
    count: usize,
}

impl Links {
    /// Returns dependencies without edge data.
    pub fn plain(nodes: In<u64>, count: usize) -> Self {
        Self { nodes, edges: None, count }
    }
}

/// The parameters of a node as the program passes them.
#[derive(Clone, Copy)]
pub struct NodeParams {
    kind: u32,
    at: HostPtr,
    form: Form,
}

impl NodeParams {
    /// Returns parameters in the kind's own structure.
    pub fn own(kind: u32, at: HostPtr) -> Self {
        Self { kind, at, form: Form::Own }
    }
}

/// Adds a node with encoded parameters. Returns its handle and, for an allocation, the address.
fn add_encoded(
    api: Api,
    graph: u64,
    links: Links,
    kind: u32,
    encoded: &Encoded,
) -> Result<(u64, u64), CudaError> {
    api.driver.retraced.forget(graph);
    let add = || {
        let mut bytes = links_in(links.nodes, links.edges, links.count)?;
        bytes.extend_from_slice(&encoded.bytes);
        let node = new_handle(Kind::Node);
        let links = u32::try_from(links.count).map_err(|_| CudaError::INVALID_VALUE)?;
        let mut call = api.call().input(&bytes);
        let dptr = calls::graph_add_node(&mut call, GraphId(graph), GraphNodeId(node), kind, links)?;
        Ok((node, dptr.0))
    };
    add().inspect_err(|_| encoded.forget(api))
}

/// Refuses the payload of a node that requires a context and has none.
fn check_context(kind: u32, params: HostPtr) -> Result<(), CudaError> {
    // SAFETY: the payload of a conditional node is this structure; that of operations on memory begins with the
    // context.
    let (conditional, context) =
        unsafe { (params.as_in::<CUDA_CONDITIONAL_NODE_PARAMS>(), params.as_in::<u64>()) };
    match kind {
        NODE_CONDITIONAL if conditional.get()?.context == 0 => Err(CudaError::INVALID_CONTEXT),
        NODE_BATCH_MEM_OP if context.get()? == 0 => Err(CudaError::INVALID_VALUE),
        _ => Ok(()),
    }
}

/// Adds a node. Results are stored in its parameters.
fn add(api: Api, out: Out<u64>, graph: u64, links: Links, params: NodeParams) -> Result<(), CudaError> {
    let NodeParams { kind, at: params, form } = params;
    // SAFETY: the parameters of a child graph begin with the graph.
    if kind == NODE_GRAPH && params.address() != 0 && unsafe { params.as_in::<u64>() }.get()? == graph {
        return Err(CudaError::NOT_SUPPORTED);
    }
    if form == Form::Payload {
        check_context(kind, params)?;
    }
    let encoded = encode(api, kind, params, form)?;
    out.check().inspect_err(|_| encoded.forget(api))?;
    let (node, dptr) = add_encoded(api, graph, links, kind, &encoded)?;
    match kind {
        NODE_MEM_ALLOC => {
            api.driver.kept.graphs_allocate();
            // SAFETY: the program passes this structure for a node of this kind, to be read and written.
            let place = unsafe { params.as_out::<CUDA_MEM_ALLOC_NODE_PARAMS>() };
            let mut answer = place.get()?;
            api.track_device(dptr, answer.bytes as u64, graph)?;
            answer.dptr = dptr;
            place.set(answer)?;
        }
        NODE_CONDITIONAL => {
            // SAFETY: the program passes this structure for a node of this kind, to be read and written.
            let place = unsafe { params.as_out::<CUDA_CONDITIONAL_NODE_PARAMS>() };
            let mut answer = place.get()?;
            answer.graphs = api.driver.kept.graphs(node, encoded.graphs);
            place.set(answer)?;
        }
        _ => {}
    }
    out.set(node)
}

/// Adds a node with the kind's own structure.
pub fn add_own(
    api: Api,
    out: Out<u64>,
    graph: u64,
    links: Links,
    kind: u32,
    params: HostPtr,
) -> Result<(), CudaError> {
    add(api, out, graph, links, NodeParams::own(kind, params))
}

/// Adds a node whose only parameter is a handle or address.
fn add_word(
    api: Api,
    out: Out<u64>,
    graph: u64,
    links: Links,
    kind: u32,
    word: u64,
) -> Result<(), CudaError> {
    out.check()?;
    if word == 0 {
        return Err(CudaError::INVALID_VALUE);
    }
    if kind == NODE_GRAPH && word == graph {
        return Err(CudaError::NOT_SUPPORTED);
    }
    let (node, _) = add_encoded(api, graph, links, kind, &self::word(api, kind, word))?;
    out.set(node)
}

fn set_encoded(api: Api, node: u64, kind: u32, encoded: &Encoded) -> Result<(), CudaError> {
    let mut call = api.call().input(&encoded.bytes);
    calls::cuGraphNodeSetParams(&mut call, GraphNodeId(node), kind).inspect_err(|_| encoded.forget(api))
}

/// Replaces the parameters of a node.
pub fn set(api: Api, node: u64, kind: u32, params: HostPtr, form: Form) -> Result<(), CudaError> {
    let encoded = encode(api, kind, params, form).map_err(|error| node_first(api, node, kind, error))?;
    set_encoded(api, node, kind, &encoded)
}

/// Returns the error for wrong parameters of a node. An invalid node takes precedence.
fn node_first(api: Api, node: u64, kind: u32, error: CudaError) -> CudaError {
    match calls::cuGraphNodeGetType(&mut api.call(), GraphNodeId(node)) {
        Ok(found) if found == kind => error,
        Ok(_) => CudaError::INVALID_VALUE,
        Err(error) => error,
    }
}

fn set_exec_encoded(api: Api, exec: u64, node: u64, kind: u32, encoded: &Encoded) -> Result<(), CudaError> {
    let (kept, bytes) = (&api.driver.kept, encoded.bytes.len());
    let only_values = kept.has_other_values(exec, node, encoded.fixed(), bytes);
    if !only_values {
        kept.exec_changed(exec);
    }
    let mut call = api.call().input(&encoded.bytes).posted_if(only_values);
    calls::cuGraphExecNodeSetParams(&mut call, GraphExecId(exec), GraphNodeId(node), kind)
        .inspect_err(|_| encoded.forget(api))?;
    if !only_values {
        kept.node_set(exec, node, encoded.fixed(), bytes);
    }
    Ok(())
}

/// Sets the parameters of a node in an executable graph.
pub fn set_exec(api: Api, exec: u64, node: u64, params: NodeParams) -> Result<(), CudaError> {
    let NodeParams { kind, at: params, form } = params;
    let encoded = encode(api, kind, params, form).map_err(|error| node_first(api, node, kind, error))?;
    set_exec_encoded(api, exec, node, kind, &encoded)
}

/// Encodes a handle or address as parameters.
fn word(api: Api, kind: u32, word: u64) -> Encoded {
    if let NODE_EVENT_RECORD | NODE_WAIT_EVENT = kind {
        graphs_use_events();
    }
    if kind == NODE_EVENT_RECORD {
        // From now on, launches of graphs record the event.
        api.driver.events.recorded_by_graphs(word);
    }
    let work = if kind == NODE_GRAPH { api.driver.retraced.work(word) } else { None };
    Encoded { bytes: word.to_le_bytes().to_vec(), work: work.map(u64::to_le_bytes), ..Encoded::default() }
}

/// Encodes the first version of a kernel node's parameters.
fn kernel_v1(api: Api, params: In<CUDA_KERNEL_NODE_PARAMS_v1>) -> Result<Encoded, CudaError> {
    let mut encoded = Encoded::default();
    encoded.fixed_bytes = kernel(api, &params.get()?, 0, &mut encoded.bytes)?;
    Ok(encoded)
}

/// Queries the parameters of a node: the structure, and the data that follows it.
fn get<T: Wire>(api: Api, node: u64, kind: u32) -> Result<(T, Vec<u8>), CudaError> {
    let mut room = vec![0u8; PARAMETER_ROOM];
    let mut call = api.call().output(&mut room);
    calls::graph_node_get_params(&mut call, GraphNodeId(node), kind)?;
    let bytes = call.output_bytes();
    let mut reader = Reader::new(&room[..bytes]);
    let value = take(&mut reader)?;
    Ok((value, reader.rest().to_vec()))
}

/// Returns the parameters of a kernel node. Their values stay valid until the node's parameters change.
fn get_kernel(api: Api, node: u64) -> Result<CUDA_KERNEL_NODE_PARAMS, CudaError> {
    let (shape, block): (KernelNode, _) = get(api, node, NODE_KERNEL)?;
    let FunctionId(function) = shape.function;
    let known = api.driver.functions.get(function)?;
    let values = api.driver.kept.values(node, block, known.parameters(api, function)?);
    let is_kernel = matches!(known.owner, Owner::Library(_));
    Ok(CUDA_KERNEL_NODE_PARAMS {
        v1: CUDA_KERNEL_NODE_PARAMS_v1 {
            function: if is_kernel { 0 } else { function },
            grid: shape.grid,
            block: shape.block,
            shared_bytes: shape.shared_bytes,
            // `kept` holds an address per parameter until the node's parameters change.
            params: values,
            ..CUDA_KERNEL_NODE_PARAMS_v1::ZERO
        },
        kernel: if is_kernel { function } else { 0 },
        context: crate::state::contexts::current(),
    })
}

/// Returns the kind and the payload of a `CUgraphNodeParams`.
fn payload(params: HostPtr) -> Result<NodeParams, CudaError> {
    // SAFETY: the program passed a `CUgraphNodeParams`, which begins with its kind.
    let kind = unsafe { params.as_in::<u32>() }.get()?;
    check_general(kind, params)?;
    // SAFETY: the program passed a `CUgraphNodeParams`, which has its payload there.
    let at = unsafe { params.offset(PAYLOAD_OFFSET) };
    Ok(NodeParams { kind, at, form: Form::Payload })
}

entry_points! {
    /// Adds a node of any kind, after edges without data.
    call cuGraphAddNode(api, phGraphNode: Out<u64>, hGraph: u64, dependencies: In<u64>, numDependencies: usize, nodeParams: HostPtr) {
        add(api, phGraphNode, hGraph, Links::plain(dependencies, numDependencies), payload(nodeParams)?)
    }

    /// Adds a node of any kind.
    call cuGraphAddNode_v2(api, phGraphNode: Out<u64>, hGraph: u64, dependencies: In<u64>, dependencyData: In<[u8; 8]>,
        numDependencies: usize, nodeParams: HostPtr) {
        let links = Links { nodes: dependencies, edges: Some(dependencyData), count: numDependencies };
        add(api, phGraphNode, hGraph, links, payload(nodeParams)?)
    }

    /// Adds a node of any kind, as CUDA 13.4 does: parameters may say how an event is recorded, for which 0 is the only value here.
    call cuGraphAddNode_v3(api, phGraphNode: Out<u64>, hGraph: u64, dependencies: In<u64>, dependencyData: In<[u8; 8]>,
        numDependencies: usize, nodeParams: HostPtr) {
        let links = Links { nodes: dependencies, edges: Some(dependencyData), count: numDependencies };
        add(api, phGraphNode, hGraph, links, payload(nodeParams)?)
    }

    /// Sets the parameters of a node of any kind.
    call cuGraphNodeSetParams(api, hNode: u64, nodeParams: HostPtr) {
        let NodeParams { kind, at, form } = payload(nodeParams)?;
        set(api, hNode, kind, at, form)
    }

    /// Sets the parameters of a node of any kind in an executable graph.
    call cuGraphExecNodeSetParams(api, hGraphExec: u64, hNode: u64, nodeParams: HostPtr) {
        set_exec(api, hGraphExec, hNode, payload(nodeParams)?)
    }

    /// Adds a kernel node.
    call cuGraphAddKernelNode(api, phGraphNode: Out<u64>, hGraph: u64, dependencies: In<u64>, numDependencies: usize, nodeParams: In<CUDA_KERNEL_NODE_PARAMS_v1>) {
        let encoded = kernel_v1(api, nodeParams)?;
        let links = Links::plain(dependencies, numDependencies);
        phGraphNode.check()?;
        phGraphNode.set(add_encoded(api, hGraph, links, NODE_KERNEL, &encoded)?.0)
    }

    /// Adds a kernel node.
    call cuGraphAddKernelNode_v2(api, phGraphNode: Out<u64>, hGraph: u64, dependencies: In<u64>, numDependencies: usize, nodeParams: HostPtr) {
        add_own(api, phGraphNode, hGraph, Links::plain(dependencies, numDependencies), NODE_KERNEL, nodeParams)
    }

    /// Returns the launch parameters of a kernel node.
    call cuGraphKernelNodeGetParams(api, hNode: u64, nodeParams: Out<CUDA_KERNEL_NODE_PARAMS_v1>) {
        nodeParams.check()?;
        let params = get_kernel(api, hNode)?;
        let function = if params.v1.function != 0 { params.v1.function } else { params.kernel };
        nodeParams.set(CUDA_KERNEL_NODE_PARAMS_v1 { function, ..params.v1 })
    }

    /// Returns the launch parameters of a kernel node.
    call cuGraphKernelNodeGetParams_v2(api, hNode: u64, nodeParams: Out<CUDA_KERNEL_NODE_PARAMS>) {
        nodeParams.check()?;
        nodeParams.set(get_kernel(api, hNode)?)
    }

    /// Sets the launch parameters of a kernel node.
    call cuGraphKernelNodeSetParams(api, hNode: u64, nodeParams: In<CUDA_KERNEL_NODE_PARAMS_v1>) {
        let encoded = kernel_v1(api, nodeParams).map_err(|error| node_first(api, hNode, NODE_KERNEL, error))?;
        set_encoded(api, hNode, NODE_KERNEL, &encoded)
    }

    /// Sets the launch parameters of a kernel node.
    call cuGraphKernelNodeSetParams_v2(api, hNode: u64, nodeParams: HostPtr) {
        set(api, hNode, NODE_KERNEL, nodeParams, Form::Own)
    }

    /// Sets the launch parameters of a kernel node in an executable graph.
    call cuGraphExecKernelNodeSetParams(api, hGraphExec: u64, hNode: u64, nodeParams: In<CUDA_KERNEL_NODE_PARAMS_v1>) {
        let encoded = kernel_v1(api, nodeParams).map_err(|error| node_first(api, hNode, NODE_KERNEL, error))?;
        set_exec_encoded(api, hGraphExec, hNode, NODE_KERNEL, &encoded)
    }

    /// Sets the launch parameters of a kernel node in an executable graph.
    call cuGraphExecKernelNodeSetParams_v2(api, hGraphExec: u64, hNode: u64, nodeParams: HostPtr) {
        set_exec(api, hGraphExec, hNode, NodeParams::own(NODE_KERNEL, nodeParams))
    }

    /// Adds a copy node.
    call cuGraphAddMemcpyNode(api, phGraphNode: Out<u64>, hGraph: u64, dependencies: In<u64>, numDependencies: usize, copyParams: HostPtr, _ctx: u64) {
        add_own(api, phGraphNode, hGraph, Links::plain(dependencies, numDependencies), NODE_MEMCPY, copyParams)
    }

    /// Returns the parameters of a copy node.
    call cuGraphMemcpyNodeGetParams(api, hNode: u64, nodeParams: Out<CUDA_MEMCPY3D>) {
        nodeParams.check()?;
        let (node, _): (MemcpyNode, _) = get(api, hNode, NODE_MEMCPY)?;
        nodeParams.set(copy::of_node(api, &node))
    }

    /// Sets the parameters of a copy node.
    call cuGraphMemcpyNodeSetParams(api, hNode: u64, nodeParams: HostPtr) {
        set(api, hNode, NODE_MEMCPY, nodeParams, Form::Own)
    }

    /// Sets the parameters of a copy node in an executable graph.
    call cuGraphExecMemcpyNodeSetParams(api, hGraphExec: u64, hNode: u64, copyParams: HostPtr, _ctx: u64) {
        set_exec(api, hGraphExec, hNode, NodeParams::own(NODE_MEMCPY, copyParams))
    }

    /// Adds a fill node.
    call cuGraphAddMemsetNode(api, phGraphNode: Out<u64>, hGraph: u64, dependencies: In<u64>, numDependencies: usize, memsetParams: HostPtr, _ctx: u64) {
        add_own(api, phGraphNode, hGraph, Links::plain(dependencies, numDependencies), NODE_MEMSET, memsetParams)
    }

    /// Returns the parameters of a fill node.
    call cuGraphMemsetNodeGetParams(api, hNode: u64, nodeParams: Out<CUDA_MEMSET_NODE_PARAMS>) {
        nodeParams.check()?;
        let (node, _): (MemsetNode, _) = get(api, hNode, NODE_MEMSET)?;
        nodeParams.set(memset_of_node(api, &node))
    }

    /// Sets the parameters of a fill node.
    call cuGraphMemsetNodeSetParams(api, hNode: u64, nodeParams: HostPtr) {
        set(api, hNode, NODE_MEMSET, nodeParams, Form::Own)
    }

    /// Sets the parameters of a fill node in an executable graph.
    call cuGraphExecMemsetNodeSetParams(api, hGraphExec: u64, hNode: u64, memsetParams: HostPtr, _ctx: u64) {
        set_exec(api, hGraphExec, hNode, NodeParams::own(NODE_MEMSET, memsetParams))
    }

    /// Adds a node that calls a function of the program.
    call cuGraphAddHostNode(api, phGraphNode: Out<u64>, hGraph: u64, dependencies: In<u64>, numDependencies: usize, nodeParams: HostPtr) {
        add_own(api, phGraphNode, hGraph, Links::plain(dependencies, numDependencies), NODE_HOST, nodeParams)
    }

    /// Returns the function of a host node.
    call cuGraphHostNodeGetParams(api, hNode: u64, nodeParams: Out<CUDA_HOST_NODE_PARAMS>) {
        nodeParams.check()?;
        let (HostNode { callback }, _) = get(api, hNode, NODE_HOST)?;
        match api.driver.callbacks.get(callback).as_deref() {
            Some(Callback::Host(function, argument)) => {
                nodeParams.set(CUDA_HOST_NODE_PARAMS { function: Some(*function), argument: *argument })
            }
            _ => Err(CudaError::INVALID_VALUE),
        }
    }

    /// Sets the function of a host node.
    call cuGraphHostNodeSetParams(api, hNode: u64, nodeParams: HostPtr) {
        set(api, hNode, NODE_HOST, nodeParams, Form::Own)
    }

    /// Sets the function of a host node in an executable graph.
    call cuGraphExecHostNodeSetParams(api, hGraphExec: u64, hNode: u64, nodeParams: HostPtr) {
        set_exec(api, hGraphExec, hNode, NodeParams::own(NODE_HOST, nodeParams))
    }

    /// Adds a node that waits for values and writes values.
    call cuGraphAddBatchMemOpNode(api, phGraphNode: Out<u64>, hGraph: u64, dependencies: In<u64>, numDependencies: usize, nodeParams: HostPtr) {
        add_own(api, phGraphNode, hGraph, Links::plain(dependencies, numDependencies), NODE_BATCH_MEM_OP, nodeParams)
    }

    /// Returns the values that a node waits for and writes.
    call cuGraphBatchMemOpNodeGetParams(api, hNode: u64, nodeParams_out: Out<CUDA_BATCH_MEM_OP_NODE_PARAMS>) {
        nodeParams_out.check()?;
        let (head, operations) = get(api, hNode, NODE_BATCH_MEM_OP)?;
        nodeParams_out.set(values::params_of_node(api, hNode, &head, &operations)?)
    }

    /// Sets the values that a node waits for and writes.
    call cuGraphBatchMemOpNodeSetParams(api, hNode: u64, nodeParams: HostPtr) {
        set(api, hNode, NODE_BATCH_MEM_OP, nodeParams, Form::Own)
    }

    /// Sets the values that a node waits for and writes in an executable graph.
    call cuGraphExecBatchMemOpNodeSetParams(api, hGraphExec: u64, hNode: u64, nodeParams: HostPtr) {
        set_exec(api, hGraphExec, hNode, NodeParams::own(NODE_BATCH_MEM_OP, nodeParams))
    }

    /// Adds a child graph node.
    call cuGraphAddChildGraphNode(api, phGraphNode: Out<u64>, hGraph: u64, dependencies: In<u64>, numDependencies: usize, childGraph: u64) {
        add_word(api, phGraphNode, hGraph, Links::plain(dependencies, numDependencies), NODE_GRAPH, childGraph)
    }

    /// Sets the child graph of a node in an executable graph.
    call cuGraphExecChildGraphNodeSetParams(api, hGraphExec: u64, hNode: u64, childGraph: u64) {
        set_exec_encoded(api, hGraphExec, hNode, NODE_GRAPH, &word(api, NODE_GRAPH, childGraph))
    }

    /// Adds an empty node.
    call cuGraphAddEmptyNode(api, phGraphNode: Out<u64>, hGraph: u64, dependencies: In<u64>, numDependencies: usize) {
        phGraphNode.check()?;
        let links = Links::plain(dependencies, numDependencies);
        phGraphNode.set(add_encoded(api, hGraph, links, NODE_EMPTY, &Encoded::default())?.0)
    }

    /// Adds a node that records an event.
    call cuGraphAddEventRecordNode(api, phGraphNode: Out<u64>, hGraph: u64, dependencies: In<u64>, numDependencies: usize, event: u64) {
        add_word(api, phGraphNode, hGraph, Links::plain(dependencies, numDependencies), NODE_EVENT_RECORD, event)
    }

    /// Returns the event that a node records.
    call cuGraphEventRecordNodeGetEvent(api, hNode: u64, event_out: Out<u64>) {
        event_out.check()?;
        event_out.set(get::<EventNode>(api, hNode, NODE_EVENT_RECORD)?.0.event.0)
    }

    /// Sets the event that a node records.
    call cuGraphEventRecordNodeSetEvent(api, hNode: u64, event: u64) {
        set_encoded(api, hNode, NODE_EVENT_RECORD, &word(api, NODE_EVENT_RECORD, event))
    }

    /// Sets the event that a node records in an executable graph.
    call cuGraphExecEventRecordNodeSetEvent(api, hGraphExec: u64, hNode: u64, event: u64) {
        set_exec_encoded(api, hGraphExec, hNode, NODE_EVENT_RECORD, &word(api, NODE_EVENT_RECORD, event))
    }

    /// Adds a node that waits for an event.
    call cuGraphAddEventWaitNode(api, phGraphNode: Out<u64>, hGraph: u64, dependencies: In<u64>, numDependencies: usize, event: u64) {
        add_word(api, phGraphNode, hGraph, Links::plain(dependencies, numDependencies), NODE_WAIT_EVENT, event)
    }

    /// Returns the event that a node waits for.
    call cuGraphEventWaitNodeGetEvent(api, hNode: u64, event_out: Out<u64>) {
        event_out.check()?;
        event_out.set(get::<EventNode>(api, hNode, NODE_WAIT_EVENT)?.0.event.0)
    }

    /// Sets the event that a node waits for.
    call cuGraphEventWaitNodeSetEvent(api, hNode: u64, event: u64) {
        set_encoded(api, hNode, NODE_WAIT_EVENT, &word(api, NODE_WAIT_EVENT, event))
    }

    /// Sets the event that a node waits for in an executable graph.
    call cuGraphExecEventWaitNodeSetEvent(api, hGraphExec: u64, hNode: u64, event: u64) {
        set_exec_encoded(api, hGraphExec, hNode, NODE_WAIT_EVENT, &word(api, NODE_WAIT_EVENT, event))
    }

    /// Adds an allocation node.
    call cuGraphAddMemAllocNode(api, phGraphNode: Out<u64>, hGraph: u64, dependencies: In<u64>, numDependencies: usize, nodeParams: HostPtr) {
        add_own(api, phGraphNode, hGraph, Links::plain(dependencies, numDependencies), NODE_MEM_ALLOC, nodeParams)
    }

    /// Returns the parameters of an allocation node.
    call cuGraphMemAllocNodeGetParams(api, hNode: u64, params_out: Out<CUDA_MEM_ALLOC_NODE_PARAMS>) {
        params_out.check()?;
        let (node, rest): (MemAllocNode, _) = get(api, hNode, NODE_MEM_ALLOC)?;
        params_out.set(allocation_of_node(api, &node, take(&mut Reader::new(&rest))?)?)
    }

    /// Adds a node that frees an allocation.
    call cuGraphAddMemFreeNode(api, phGraphNode: Out<u64>, hGraph: u64, dependencies: In<u64>, numDependencies: usize, dptr: u64) {
        add_word(api, phGraphNode, hGraph, Links::plain(dependencies, numDependencies), NODE_MEM_FREE, dptr)
    }

    /// Returns the address that a node frees.
    call cuGraphMemFreeNodeGetParams(api, hNode: u64, dptr_out: Out<u64>) {
        dptr_out.check()?;
        dptr_out.set(get::<DevicePtr>(api, hNode, NODE_MEM_FREE)?.0.0)
    }
}

const _: () = assert!(size_of::<CallbackId>() == 8);
