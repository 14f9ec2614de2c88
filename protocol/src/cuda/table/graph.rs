// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Graphs. Parameters of nodes are bulk data: see [`crate::cuda::graph`].

/// Rows of this area; see [`crate::cuda::table`].
#[doc(hidden)]
#[macro_export]
macro_rules! graph_calls {
    ($next:tt { $($rows:tt)* }) => {
        $crate::next_area! { $next { $($rows)*
            /// Creates an empty graph named `graph`.
            0x0801 create cuGraphCreate(graph: GraphId, flags: u32) -> () [graphs same code];
            /// Destroys a graph with its nodes.
            0x0802 destroy cuGraphDestroy(graph: GraphId) -> () [graphs same code];
            /// Copies a graph. The copy gets the name `clone`.
            0x0803 custom cuGraphClone(clone: GraphId, original: GraphId) -> () [graphs same code];
            /// Bulk out: the names of as many of the `count` nodes as fit; with `roots`, of the nodes without dependencies only.
            0x0804 custom graph_nodes(graph: GraphId, roots: u32) -> (count: u32) [graphs same code];
            /// Bulk out: as many of the `count` [`GraphEdge`]s as fit.
            0x0805 custom cuGraphGetEdges_v2(graph: GraphId) -> (count: u32) [graphs same code];
            /// Bulk in: [`GraphEdge`]s. Adds them.
            0x0806 forward cuGraphAddDependencies_v2(graph: GraphId) -> () [graphs same code] as change_edges(graph, edges(), true);
            /// Bulk in: [`GraphEdge`]s. Removes them.
            0x0807 forward cuGraphRemoveDependencies_v2(graph: GraphId) -> () [graphs same code] as change_edges(graph, edges(), false);
            /// Bulk out: as many of the `count` [`NodeLink`]s as fit: the dependencies of the node, or with `dependents` the
            /// nodes that depend on it.
            0x0808 custom graph_node_links(node: GraphNodeId, dependents: u32) -> (count: u32) [graphs same code];
            /// Removes a node.
            0x0809 destroy cuGraphDestroyNode(node: GraphNodeId) -> () [graphs same code];
            /// `CUgraphNodeType`.
            0x080a forward cuGraphNodeGetType(node: GraphNodeId) -> (kind: u32) [graphs same code]
                as node_kind(node, known_kind(node)) entry last;
            /// The node of `clone` that is the copy of `original`.
            0x080b custom cuGraphNodeFindInClone(original: GraphNodeId, clone: GraphId) -> (node: GraphNodeId) [graphs same code];
            /// The graph in a node.
            0x080c custom cuGraphChildGraphNodeGetGraph(node: GraphNodeId) -> (graph: GraphId) [graphs same code] entry last;
            /// Bulk in: `links` times [`NodeLink`], then the parameters of `kind`. Adds a node named `node`. Returns
            /// the address of an allocating one.
            0x0810 custom graph_add_node(graph: GraphId, node: GraphNodeId, kind: u32, links: u32) -> (dptr: DevicePtr) [graphs same code];
            /// Bulk in: the parameters of `kind`. Replaces those of a node.
            0x0811 custom cuGraphNodeSetParams(node: GraphNodeId, kind: u32) -> () [graphs same code];
            /// Bulk in: the parameters of `kind`. Replaces those of a node in an executable graph.
            0x0812 custom cuGraphExecNodeSetParams(exec: GraphExecId, node: GraphNodeId, kind: u32) -> () [graphs same code may_post];
            /// Bulk out: the parameters of a node of `kind`.
            0x0813 custom graph_node_get_params(node: GraphNodeId, kind: u32) -> () [graphs same code];
            /// Sets an attribute (`CUlaunchAttributeID`) of a kernel node to a `CUlaunchAttributeValue`.
            0x0818 forward cuGraphKernelNodeSetAttribute(node: GraphNodeId, attribute: i32, value: [u8; 64]) -> () [graphs same code]
                as set_node_attribute(attribute, attribute_value(attribute, value), node);
            /// An attribute of a kernel node.
            0x0819 forward cuGraphKernelNodeGetAttribute(node: GraphNodeId, attribute: i32) -> (value: [u8; 64]) [graphs same code]
                as node_attribute(node, attribute) entry last;
            /// Copies all attributes of a kernel node.
            0x081a forward cuGraphKernelNodeCopyAttributes(dst: GraphNodeId, src: GraphNodeId) -> () [graphs same code] entry first;
            /// Makes a graph executable and names that `exec`. `status` is the `CUresult`, `result` the
            /// `CUgraphInstantiateResult`.
            0x0820 custom cuGraphInstantiateWithParams(exec: GraphExecId, graph: GraphId, flags: u64, upload: StreamId) -> (status: i32, result: i32, error_node: GraphNodeId) [graphs same code];
            /// Destroys an executable graph.
            0x0821 destroy cuGraphExecDestroy(exec: GraphExecId) -> () [graphs same code];
            /// Executes a graph in stream order.
            0x0822 custom cuGraphLaunch(exec: GraphExecId, stream: StreamId) -> () [queues_kernel same code_prints may_post];
            /// Uploads an executable graph in stream order.
            0x0823 forward cuGraphUpload(exec: GraphExecId, stream: StreamId) -> () [graphs same code];
            /// Flags that an executable graph was made with.
            0x0824 forward cuGraphExecGetFlags(exec: GraphExecId) -> (flags: u64) [graphs same code] entry last;
            /// Gives all parameters of `graph` to `exec`. `status` is the `CUresult`, `result` the
            /// `CUgraphExecUpdateResult`.
            0x0825 custom cuGraphExecUpdate_v2(exec: GraphExecId, graph: GraphId) -> (status: i32, result: i32, error_node: GraphNodeId, error_from_node: GraphNodeId) [graphs same code];
            /// Switches a node of an executable graph on or off.
            0x0826 forward cuGraphNodeSetEnabled(exec: GraphExecId, node: GraphNodeId, enabled: u32) -> () [graphs same code] entry first;
            /// Returns whether a node of an executable graph is enabled.
            0x0827 forward cuGraphNodeGetEnabled(exec: GraphExecId, node: GraphNodeId) -> (enabled: u32) [graphs same code] entry last;
            /// Makes a graph executable and names that `exec`. The driver is stricter in
            /// `cuGraphInstantiateWithParams`.
            0x0828 custom cuGraphInstantiateWithFlags(exec: GraphExecId, graph: GraphId, flags: u64) -> () [graphs same code];
            /// Makes a graph executable that device code launches, too. `exec` is the driver's own handle, because device
            /// code receives it: at least [`FIRST_WORKER_HANDLE`]. `status`, `result` and `error_node` as for
            /// `cuGraphInstantiateWithParams`, which is called if `with_params` is not 0; else `cuGraphInstantiateWithFlags`.
            0x0829 custom graph_instantiate_for_device(graph: GraphId, flags: u64, upload: StreamId, with_params: u32) -> (exec: GraphExecId, status: i32, result: i32, error_node: GraphNodeId) [graphs special code];
            /// A handle by which device code steers a conditional node.
            0x0830 custom cuGraphConditionalHandleCreate(graph: GraphId, default_value: u32, flags: u32) -> (handle: u64) [graphs same code];
            /// Frees memory that graphs of the device do not use.
            0x0831 forward cuDeviceGraphMemTrim(device: DeviceOrdinal) -> () [graphs same code] entry first;
            /// An attribute of the memory that graphs allocate.
            0x0832 forward cuDeviceGetGraphMemAttribute(device: DeviceOrdinal, attribute: i32) -> (value: u64) [graphs same code]
                as cuDeviceGetGraphMemAttribute(device, graph_memory(attribute));
            /// Sets an attribute of the memory that graphs allocate.
            0x0833 forward cuDeviceSetGraphMemAttribute(device: DeviceOrdinal, attribute: i32, value: u64) -> () [graphs same code]
                as cuDeviceSetGraphMemAttribute(device, graph_memory(attribute), value);
            /// Creates a user object named `object`; `callback` runs after its last reference was released.
            0x0840 custom cuUserObjectCreate(object: UserObjectId, callback: CallbackId, count: u32, flags: u32) -> () [graphs same code];
            /// Takes `count` references.
            0x0841 custom cuUserObjectRetain(object: UserObjectId, count: u32) -> () [graphs same code] entry first;
            /// Gives `count` references back.
            0x0842 custom cuUserObjectRelease(object: UserObjectId, count: u32) -> () [graphs same code] entry first;
            /// Makes the graph own `count` references.
            0x0843 custom cuGraphRetainUserObject(graph: GraphId, object: UserObjectId, count: u32, flags: u32) -> () [graphs same code] entry first;
            /// Takes `count` references from the graph.
            0x0844 custom cuGraphReleaseUserObject(graph: GraphId, object: UserObjectId, count: u32) -> () [graphs same code] entry first;
        } }
    };
}
