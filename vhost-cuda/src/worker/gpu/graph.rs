// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Graphs and capture: the driver's structures, put together from what the worker knows and taken apart again.
//!
//! Where the driver fills in an enum the structure is spelled again with integers: what a newer driver answers
//! is then a number that nobody knows, not undefined behaviour.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::{null, null_mut};

use cudarc::driver::sys::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS,
    CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUgraphEdgeData,
    CUgraphExecUpdateResultInfo, CUgraphNodeParams, CUlaunchAttribute, CUlaunchAttributeValue,
    CUstreamBatchMemOpParams,
};
use virtio_cuda_protocol::cuda::{
    COPY_ARRAY, COPY_DEVICE, COPY_HOST, CopyEnd, DevicePtr, KernelNode, MemcpyNode, MemoryOperation,
    MemsetNode, NODE_CONDITIONAL, NODE_EMPTY, NODE_EVENT_RECORD, NODE_GRAPH, NODE_HOST, NODE_KERNEL,
    NODE_MEM_ALLOC, NODE_MEM_FREE, NODE_MEMCPY, NODE_MEMSET, NODE_WAIT_EVENT, ParamLayout,
};

use super::{
    CUcontext, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUkernel, CUstream,
    CuResult, CudaError, Driver,
};

/// `CUlaunchAttributeValue`.
pub type AttributeValue = [u8; 64];
/// A function that the driver calls on a thread of its own.
pub type UserFunction = unsafe extern "C" fn(*mut c_void);
/// The same for `cuStreamAddCallback`, with the `CUresult`.
pub type StreamFunction = unsafe extern "C" fn(CUstream, c_int, *mut c_void);

/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const CAPTURE_RELAXED: c_int = 2;
/// `CU_MEMORYTYPE_*`.
const TYPE_HOST: c_uint = 1;
const TYPE_DEVICE: c_uint = 2;
const TYPE_ARRAY: c_uint = 3;
const TYPE_UNIFIED: c_uint = 4;
/// `CU_MEM_ALLOCATION_TYPE_PINNED`, `CU_MEM_LOCATION_TYPE_DEVICE`, `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const ALLOCATION_PINNED: c_uint = 1;
const LOCATION_DEVICE: c_uint = 1;

/// `CUgraphNodeParams`; what lies in `payload` depends on the type.
#[repr(C)]
struct RawNodeParameters {
    kind: c_uint,
    reserved0: [c_int; 3],
    payload: [u64; 29],
    reserved2: i64,
}
const _: () = assert!(size_of::<RawNodeParameters>() == size_of::<CUgraphNodeParams>());

/// `CUDA_KERNEL_NODE_PARAMS`.
#[derive(Clone, Copy)]
#[repr(C)]
struct RawKernel {
    function: CUfunction,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_bytes: c_uint,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
    kernel: CUkernel,
    context: CUcontext,
}
const _: () = assert!(size_of::<RawKernel>() == size_of::<CUDA_KERNEL_NODE_PARAMS>());

#[derive(Clone, Copy)]
#[repr(C)]
struct RawCopyEnd {
    x: usize,
    y: usize,
    z: usize,
    lod: usize,
    memory_type: c_uint,
    host: *mut c_void,
    device: CUdeviceptr,
    array: *mut c_void,
    reserved: *mut c_void,
    pitch: usize,
    height: usize,
}

/// `CUDA_MEMCPY3D`.
#[derive(Clone, Copy)]
#[repr(C)]
struct RawCopy {
    src: RawCopyEnd,
    dst: RawCopyEnd,
    size: [usize; 3],
}
const _: () = assert!(size_of::<RawCopy>() == size_of::<CUDA_MEMCPY3D>());

/// `CUDA_MEMCPY_NODE_PARAMS`.
#[repr(C)]
struct RawCopyNode {
    flags: c_int,
    reserved: c_int,
    context: CUcontext,
    copy: RawCopy,
}

/// `CUDA_HOST_NODE_PARAMS`.
#[repr(C)]
struct RawHost {
    function: UserFunction,
    argument: *mut c_void,
}

/// `CUDA_MEMSET_NODE_PARAMS_v2`.
#[repr(C)]
struct RawMemsetNode {
    memset: RawMemset,
    context: CUcontext,
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[derive(Clone, Copy)]
#[repr(C)]
struct RawMemset {
    dst: CUdeviceptr,
    pitch: usize,
    value: c_uint,
    element_bytes: c_uint,
    width: usize,
    height: usize,
}
const _: () = assert!(size_of::<RawMemset>() == size_of::<CUDA_MEMSET_NODE_PARAMS>());

/// `CUDA_MEM_ALLOC_NODE_PARAMS`.
#[derive(Clone, Copy)]
#[repr(C)]
struct RawMemAlloc {
    allocation_type: c_uint,
    handle_types: c_uint,
    location_type: c_uint,
    location_id: c_int,
    pool_rest: [u64; 9],
    access: *const c_void,
    access_count: usize,
    bytes: usize,
    dptr: CUdeviceptr,
}
const _: () = assert!(size_of::<RawMemAlloc>() == size_of::<CUDA_MEM_ALLOC_NODE_PARAMS>());

/// `CUDA_CONDITIONAL_NODE_PARAMS`.
#[repr(C)]
struct RawConditional {
    handle: u64,
    kind: c_uint,
    size: c_uint,
    graphs: *mut CUgraph,
    context: CUcontext,
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[repr(C)]
struct RawInstantiate {
    flags: u64,
    upload: CUstream,
    error_node: CUgraphNode,
    result: c_int,
}
const _: () = assert!(size_of::<RawInstantiate>() == size_of::<CUDA_GRAPH_INSTANTIATE_PARAMS>());

/// `CUgraphExecUpdateResultInfo`.
#[repr(C)]
struct RawUpdate {
    result: c_int,
    error_node: CUgraphNode,
    error_from_node: CUgraphNode,
}
const _: () = assert!(size_of::<RawUpdate>() == size_of::<CUgraphExecUpdateResultInfo>());

/// One kind of `CUstreamBatchMemOpParams`.
#[repr(C)]
struct RawMemoryOperation {
    operation: c_uint,
    /// The flags of operations without an address.
    short_flags: c_uint,
    address: CUdeviceptr,
    value: u64,
    flags: c_uint,
    alias: CUdeviceptr,
    rest: u64,
}
const _: () = assert!(size_of::<RawMemoryOperation>() == size_of::<CUstreamBatchMemOpParams>());

/// `CUlaunchAttribute` with an id that may be newer than cudarc.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct RawLaunchAttribute {
    id: c_uint,
    pad: c_uint,
    value: AttributeValue,
}
const _: () = assert!(size_of::<RawLaunchAttribute>() == size_of::<CUlaunchAttribute>());
const _: () = assert!(size_of::<AttributeValue>() == size_of::<CUlaunchAttributeValue>());
const _: () = assert!(size_of::<CUgraphEdgeData>() == 8);

/// An attribute as the driver takes it.
pub(super) fn launch_attribute(id: u32, value: &AttributeValue) -> RawLaunchAttribute {
    RawLaunchAttribute { id, pad: 0, value: *value }
}

/// Nodes at the other ends of edges, with the `CUgraphEdgeData` of each.
#[derive(Debug, Default)]
pub struct Links {
    /// The nodes.
    pub nodes: Vec<CUgraphNode>,
    /// As many edges.
    pub edges: Vec<[u8; 8]>,
}

impl Links {
    /// None if no edge says more than that it is one: older drivers know no others.
    fn edges(&self) -> *const CUgraphEdgeData {
        let plain = self.edges.iter().all(|edge| *edge == [0; 8]);
        if plain { null() } else { self.edges.as_ptr().cast() }
    }
    fn nodes(&self) -> *const CUgraphNode {
        if self.nodes.is_empty() { null() } else { self.nodes.as_ptr() }
    }
}

/// A node's parameters, checked and resolved.
#[derive(Debug)]
pub enum NodeParameters {
    /// Function or kernel (the other is null), its shape and packed parameters.
    Kernel(CUfunction, CUkernel, KernelNode, Vec<u8>),
    /// A copy whose ends the GPU reaches; arrays by the driver's handles.
    Memcpy(MemcpyNode, CUcontext),
    /// A fill.
    Memset(MemsetNode, CUcontext),
    /// A function and its argument.
    Host(UserFunction, u64),
    /// A graph to copy.
    Graph(CUgraph),
    /// Nothing.
    Empty,
    /// An event to wait for.
    WaitEvent(CUevent),
    /// An event to record.
    RecordEvent(CUevent),
    /// Bytes, and the device.
    MemAlloc(u64, c_int),
    /// The address.
    MemFree(CUdeviceptr),
    /// Handle, kind and number of graphs.
    Conditional(u64, u32, u32, CUcontext),
}

/// What an added node answers beside itself.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The address of an allocation.
    pub dptr: CUdeviceptr,
    /// The graphs of a conditional node.
    pub graphs: Vec<CUgraph>,
}

/// What `cuStreamGetCaptureInfo` says.
#[derive(Debug)]
pub struct CaptureInfo {
    /// `CUstreamCaptureStatus`.
    pub status: c_int,
    /// Number of the capture.
    pub id: u64,
    /// The graph, if the status is active.
    pub graph: CUgraph,
    /// What comes before the next work.
    pub links: Links,
}

impl RawNodeParameters {
    fn new(kind: u32) -> Self {
        Self { kind, reserved0: [0; 3], payload: [0; 29], reserved2: 0 }
    }

    fn put<T>(&mut self, value: T) {
        const { assert!(size_of::<T>() <= 29 * 8 && align_of::<T>() <= 8) };
        // SAFETY: the payload has room for a `T` and its alignment.
        unsafe { self.payload.as_mut_ptr().cast::<T>().write(value) };
    }

    fn with<T>(kind: u32, value: T) -> Self {
        let mut raw = Self::new(kind);
        raw.put(value);
        raw
    }
}

fn raw_end(end: &CopyEnd) -> RawCopyEnd {
    RawCopyEnd {
        x: end.x as usize,
        y: end.y as usize,
        z: end.z as usize,
        lod: 0,
        // Host memory has an address of the GPU too, and the driver knows which memory is behind it.
        memory_type: match end.kind {
            COPY_DEVICE => TYPE_DEVICE,
            COPY_ARRAY => TYPE_ARRAY,
            _ => TYPE_UNIFIED,
        },
        host: null_mut(),
        device: if end.kind == COPY_ARRAY { 0 } else { end.address.0 },
        array: std::ptr::without_provenance_mut(if end.kind == COPY_ARRAY {
            end.address.0 as usize
        } else {
            0
        }),
        reserved: null_mut(),
        pitch: end.pitch as usize,
        height: end.height as usize,
    }
}

fn end_of(raw: &RawCopyEnd) -> CuResult<CopyEnd> {
    let (kind, address) = match raw.memory_type {
        TYPE_HOST => (COPY_HOST, raw.host as u64),
        TYPE_DEVICE => (COPY_DEVICE, raw.device),
        TYPE_ARRAY => (COPY_ARRAY, raw.array as u64),
        TYPE_UNIFIED => (COPY_HOST, raw.device),
        _ => return Err(CudaError::NOT_SUPPORTED),
    };
    Ok(CopyEnd {
        kind,
        address: DevicePtr(address),
        x: raw.x as u64,
        y: raw.y as u64,
        z: raw.z as u64,
        pitch: raw.pitch as u64,
        height: raw.height as u64,
    })
}

fn raw_copy(node: &MemcpyNode) -> RawCopy {
    let size = [node.size.width as usize, node.size.height as usize, node.size.depth as usize];
    RawCopy { src: raw_end(&node.src), dst: raw_end(&node.dst), size }
}

impl NodeParameters {
    /// Hands the driver's form of the parameters to `body`.
    fn with_raw<T>(&mut self, body: impl FnOnce(&mut RawNodeParameters) -> T) -> T {
        match self {
            Self::Kernel(function, kernel, node, params) => {
                let mut bytes = params.len();
                // CU_LAUNCH_PARAM_BUFFER_POINTER, _BUFFER_SIZE, _END.
                let mut extra: [*mut c_void; 5] = [
                    std::ptr::without_provenance_mut(1),
                    params.as_mut_ptr().cast(),
                    std::ptr::without_provenance_mut(2),
                    (&raw mut bytes).cast(),
                    null_mut(),
                ];
                body(&mut RawNodeParameters::with(
                    NODE_KERNEL,
                    RawKernel {
                        function: *function,
                        grid: node.grid,
                        block: node.block,
                        shared_bytes: node.shared_bytes,
                        parameters: null_mut(),
                        extra: extra.as_mut_ptr(),
                        kernel: *kernel,
                        context: null_mut(),
                    },
                ))
            }
            Self::Memcpy(node, context) => body(&mut RawNodeParameters::with(
                NODE_MEMCPY,
                RawCopyNode { flags: 0, reserved: 0, context: *context, copy: raw_copy(node) },
            )),
            Self::Memset(node, context) => {
                let memset = RawMemset {
                    dst: node.dst.0,
                    pitch: node.pitch as usize,
                    value: node.value,
                    element_bytes: node.element_bytes,
                    width: node.width as usize,
                    height: node.height as usize,
                };
                body(&mut RawNodeParameters::with(NODE_MEMSET, RawMemsetNode { memset, context: *context }))
            }
            Self::Host(function, data) => {
                let argument: *mut c_void = std::ptr::without_provenance_mut(*data as usize);
                body(&mut RawNodeParameters::with(NODE_HOST, RawHost { function: *function, argument }))
            }
            Self::Graph(graph) => body(&mut RawNodeParameters::with(NODE_GRAPH, *graph)),
            Self::Empty => body(&mut RawNodeParameters::new(NODE_EMPTY)),
            Self::WaitEvent(event) => body(&mut RawNodeParameters::with(NODE_WAIT_EVENT, *event)),
            Self::RecordEvent(event) => body(&mut RawNodeParameters::with(NODE_EVENT_RECORD, *event)),
            Self::MemAlloc(bytes, device) => body(&mut RawNodeParameters::with(
                NODE_MEM_ALLOC,
                RawMemAlloc {
                    allocation_type: ALLOCATION_PINNED,
                    handle_types: 0,
                    location_type: LOCATION_DEVICE,
                    location_id: *device,
                    pool_rest: [0; 9],
                    access: null(),
                    access_count: 0,
                    bytes: *bytes as usize,
                    dptr: 0,
                },
            )),
            Self::MemFree(dptr) => body(&mut RawNodeParameters::with(NODE_MEM_FREE, *dptr)),
            Self::Conditional(handle, kind, size, context) => body(&mut RawNodeParameters::with(
                NODE_CONDITIONAL,
                RawConditional {
                    handle: *handle,
                    kind: *kind,
                    size: *size,
                    graphs: null_mut(),
                    context: *context,
                },
            )),
        }
    }
}

/// Runs `body` with the calling thread's capture mode relaxed: calls that the worker makes on its own account
/// must not break a capture that the program has going.
pub fn with_capture_relaxed<T>(gpu: &Driver, body: impl FnOnce() -> T) -> T {
    let mode = gpu.exchange_capture_mode(CAPTURE_RELAXED);
    let result = body();
    if let Ok(mode) = mode {
        let _ = gpu.exchange_capture_mode(mode);
    }
    result
}

impl Driver {
    /// Swaps the calling thread's capture mode.
    pub fn exchange_capture_mode(&self, mode: c_int) -> CuResult<c_int> {
        let mut mode = mode;
        // SAFETY: the pointer is to a local.
        unsafe { self.cuThreadExchangeStreamCaptureMode(&raw mut mode) }?;
        Ok(mode)
    }

    /// What the stream captures.
    pub fn capture_info(&self, stream: CUstream) -> CuResult<CaptureInfo> {
        let (mut status, mut id, mut graph, mut count) = (0, 0, null_mut(), 0);
        let (mut nodes, mut edges): (*const CUgraphNode, *const CUgraphEdgeData) = (null(), null());
        // SAFETY: all pointers are to locals.
        unsafe {
            self.cuStreamGetCaptureInfo_v3(
                stream,
                &raw mut status,
                &raw mut id,
                &raw mut graph,
                &raw mut nodes,
                &raw mut edges,
                &raw mut count,
            )
        }?;
        let mut links = Links::default();
        // `CU_STREAM_CAPTURE_STATUS_ACTIVE`: only then are the others set.
        if status != 1 {
            return Ok(CaptureInfo { status, id: 0, graph: null_mut(), links });
        }
        if count > 0 && !nodes.is_null() {
            // SAFETY: the driver says that there are so many, good until the next call on the stream; calls on
            // one capturing stream from two threads at once are the program's mistake, and its worker's end.
            links.nodes = unsafe { std::slice::from_raw_parts(nodes, count) }.to_vec();
            links.edges = vec![[0; 8]; count];
            if !edges.is_null() {
                // SAFETY: as above; an edge is 8 bytes.
                links.edges = unsafe { std::slice::from_raw_parts(edges.cast::<[u8; 8]>(), count) }.to_vec();
            }
        }
        Ok(CaptureInfo { status, id, graph, links })
    }

    /// Sets (flag 1) or adds to what the stream's next work depends on.
    pub fn update_capture(&self, stream: CUstream, links: &Links, flags: c_uint) -> CuResult<()> {
        let nodes = links.nodes().cast_mut();
        // SAFETY: as many nodes and edges as said, read only.
        unsafe {
            self.cuStreamUpdateCaptureDependencies_v2(stream, nodes, links.edges(), links.nodes.len(), flags)
        }
    }

    /// Captures into a graph.
    pub fn begin_capture_to(
        &self,
        stream: CUstream,
        graph: CUgraph,
        links: &Links,
        mode: c_uint,
    ) -> CuResult<()> {
        // SAFETY: as many nodes and edges as said.
        unsafe {
            self.cuStreamBeginCaptureToGraph(
                stream,
                graph,
                links.nodes(),
                links.edges(),
                links.nodes.len(),
                mode,
            )
        }
    }

    /// Nodes of a graph, or its roots.
    pub fn graph_nodes(&self, graph: CUgraph, roots: bool) -> CuResult<Vec<CUgraphNode>> {
        let get = |nodes: *mut CUgraphNode, count: &mut usize| {
            // SAFETY: `nodes` is null or has room for `count`.
            unsafe {
                if roots {
                    self.cuGraphGetRootNodes(graph, nodes, count)
                } else {
                    self.cuGraphGetNodes(graph, nodes, count)
                }
            }
        };
        let mut count = 0;
        get(null_mut(), &mut count)?;
        let mut nodes = vec![null_mut(); count];
        if count > 0 {
            get(nodes.as_mut_ptr(), &mut count)?;
        }
        nodes.truncate(count);
        Ok(nodes)
    }

    /// Edges of a graph: both ends and the data.
    pub fn graph_edges(&self, graph: CUgraph) -> CuResult<(Vec<CUgraphNode>, Links)> {
        let mut count = 0;
        // SAFETY: asks for the count only.
        unsafe { self.cuGraphGetEdges_v2(graph, null_mut(), null_mut(), null_mut(), &raw mut count) }?;
        let mut from = vec![null_mut(); count];
        let mut to = Links { nodes: vec![null_mut(); count], edges: vec![[0; 8]; count] };
        if count > 0 {
            // SAFETY: all three have room for `count`.
            unsafe {
                self.cuGraphGetEdges_v2(
                    graph,
                    from.as_mut_ptr(),
                    to.nodes.as_mut_ptr(),
                    to.edges.as_mut_ptr().cast(),
                    &raw mut count,
                )
            }?;
        }
        Ok((from, to))
    }

    /// Adds or removes edges.
    pub fn change_edges(&self, graph: CUgraph, from: &[CUgraphNode], to: &Links, add: bool) -> CuResult<()> {
        let count = from.len().min(to.nodes.len());
        // SAFETY: as many nodes and edges as said.
        unsafe {
            if add {
                self.cuGraphAddDependencies_v2(graph, from.as_ptr(), to.nodes(), to.edges(), count)
            } else {
                self.cuGraphRemoveDependencies_v2(graph, from.as_ptr(), to.nodes(), to.edges(), count)
            }
        }
    }

    /// What a node depends on, or what depends on it.
    pub fn node_links(&self, node: CUgraphNode, dependents: bool) -> CuResult<Links> {
        let get = |nodes: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: &mut usize| {
            // SAFETY: both are null or have room for `count`.
            unsafe {
                if dependents {
                    self.cuGraphNodeGetDependentNodes_v2(node, nodes, edges, count)
                } else {
                    self.cuGraphNodeGetDependencies_v2(node, nodes, edges, count)
                }
            }
        };
        let mut count = 0;
        get(null_mut(), null_mut(), &mut count)?;
        let mut links = Links { nodes: vec![null_mut(); count], edges: vec![[0; 8]; count] };
        if count > 0 {
            get(links.nodes.as_mut_ptr(), links.edges.as_mut_ptr().cast(), &mut count)?;
        }
        Ok(links)
    }

    /// Adds a node.
    ///
    /// # Safety
    ///
    /// The memory that the parameters name belongs to the session.
    pub unsafe fn add_node(
        &self,
        graph: CUgraph,
        links: &Links,
        parameters: &mut NodeParameters,
    ) -> CuResult<(CUgraphNode, Outcome)> {
        parameters.with_raw(|raw| {
            // SAFETY: the parameters and what they point to live across the call, which copies them; memory is
            // the caller's promise.
            let (node,) = unsafe {
                self.cuGraphAddNode_v2(
                    graph,
                    links.nodes(),
                    links.edges(),
                    links.nodes.len(),
                    std::ptr::from_mut(raw).cast(),
                )
            }?;
            let mut outcome = Outcome::default();
            match raw.kind {
                // SAFETY: the payload of this kind is that, and the driver has filled it in.
                NODE_MEM_ALLOC => unsafe {
                    outcome.dptr = raw.payload.as_ptr().cast::<RawMemAlloc>().read().dptr;
                },
                NODE_CONDITIONAL => {
                    // SAFETY: as above.
                    let answer = unsafe { raw.payload.as_ptr().cast::<RawConditional>().read() };
                    if !answer.graphs.is_null() {
                        // SAFETY: an array of the driver's of that size, good as long as the node.
                        let graphs =
                            unsafe { std::slice::from_raw_parts(answer.graphs, answer.size as usize) };
                        outcome.graphs = graphs.to_vec();
                    }
                }
                _ => {}
            }
            Ok((node, outcome))
        })
    }

    /// Replaces the parameters of a node.
    ///
    /// # Safety
    ///
    /// As [`Self::add_node`].
    pub unsafe fn set_node(&self, node: CUgraphNode, parameters: &mut NodeParameters) -> CuResult<()> {
        // SAFETY: as in `add_node`.
        parameters.with_raw(|raw| unsafe { self.cuGraphNodeSetParams(node, std::ptr::from_mut(raw).cast()) })
    }

    /// Replaces the parameters of a node in an executable graph.
    ///
    /// # Safety
    ///
    /// As [`Self::add_node`].
    pub unsafe fn set_exec_node(
        &self,
        exec: CUgraphExec,
        node: CUgraphNode,
        parameters: &mut NodeParameters,
    ) -> CuResult<()> {
        parameters.with_raw(|raw| {
            // SAFETY: as in `add_node`.
            unsafe { self.cuGraphExecNodeSetParams(exec, node, std::ptr::from_mut(raw).cast()) }
        })
    }

    /// A kernel node: function, kernel (one may be null), shape, and the parameters packed as `layout` says for
    /// the two.
    pub fn kernel_node(
        &self,
        node: CUgraphNode,
        layout: impl FnOnce(CUfunction, CUkernel) -> CuResult<Vec<ParamLayout>>,
    ) -> CuResult<(CUfunction, CUkernel, KernelNode, Vec<u8>)> {
        let mut raw = RawKernel {
            function: null_mut(),
            grid: [0; 3],
            block: [0; 3],
            shared_bytes: 0,
            parameters: null_mut(),
            extra: null_mut(),
            kernel: null_mut(),
            context: null_mut(),
        };
        // SAFETY: the pointer is to a local of that structure.
        unsafe { self.cuGraphKernelNodeGetParams_v2(node, (&raw mut raw).cast()) }?;
        let mut block = Vec::new();
        if !raw.parameters.is_null() {
            for (index, one) in layout(raw.function, raw.kernel)?.iter().enumerate() {
                let end = one.offset as usize + one.bytes as usize;
                block.resize(block.len().max(end), 0);
                // SAFETY: the driver gives a pointer for each parameter, to a value of its size; both belong to
                // the node, which this session does not destroy meanwhile.
                unsafe {
                    let value = raw.parameters.add(index).read().cast::<u8>();
                    if !value.is_null() {
                        let place = block[one.offset as usize..end].as_mut_ptr();
                        std::ptr::copy_nonoverlapping(value, place, one.bytes as usize);
                    }
                }
            }
        } else if !raw.extra.is_null() {
            block = packed_block(raw.extra);
        }
        let shape = KernelNode {
            grid: raw.grid,
            block: raw.block,
            shared_bytes: raw.shared_bytes,
            ..KernelNode::default()
        };
        Ok((raw.function, raw.kernel, shape, block))
    }

    /// A copy node. Addresses are the driver's.
    pub fn memcpy_node(&self, node: CUgraphNode) -> CuResult<MemcpyNode> {
        let mut raw = raw_copy(&MemcpyNode::default());
        // SAFETY: the pointer is to a local of that structure.
        unsafe { self.cuGraphMemcpyNodeGetParams(node, (&raw mut raw).cast()) }?;
        let mut answer =
            MemcpyNode { src: end_of(&raw.src)?, dst: end_of(&raw.dst)?, ..MemcpyNode::default() };
        let [width, height, depth] = raw.size;
        (answer.size.width, answer.size.height, answer.size.depth) =
            (width as u64, height as u64, depth as u64);
        Ok(answer)
    }

    /// A fill node.
    pub fn memset_node(&self, node: CUgraphNode) -> CuResult<MemsetNode> {
        let mut raw = RawMemset { dst: 0, pitch: 0, value: 0, element_bytes: 0, width: 0, height: 0 };
        // SAFETY: the pointer is to a local of that structure.
        unsafe { self.cuGraphMemsetNodeGetParams(node, (&raw mut raw).cast()) }?;
        Ok(MemsetNode {
            dst: DevicePtr(raw.dst),
            pitch: raw.pitch as u64,
            value: raw.value,
            element_bytes: raw.element_bytes,
            width: raw.width as u64,
            height: raw.height as u64,
        })
    }

    /// The argument of a host node's function.
    pub fn host_node(&self, node: CUgraphNode) -> CuResult<u64> {
        let mut raw = CUDA_HOST_NODE_PARAMS { fn_: None, userData: null_mut() };
        // SAFETY: the pointer is to a local.
        unsafe { self.cuGraphHostNodeGetParams(node, &raw mut raw) }?;
        Ok(raw.userData as u64)
    }

    /// Bytes, device and address of an allocating node.
    pub fn mem_alloc_node(&self, node: CUgraphNode) -> CuResult<(u64, c_int, CUdeviceptr)> {
        let mut raw = RawMemAlloc {
            allocation_type: 0,
            handle_types: 0,
            location_type: 0,
            location_id: 0,
            pool_rest: [0; 9],
            access: null(),
            access_count: 0,
            bytes: 0,
            dptr: 0,
        };
        // SAFETY: the pointer is to a local of that structure.
        unsafe { self.cuGraphMemAllocNodeGetParams(node, (&raw mut raw).cast()) }?;
        Ok((raw.bytes as u64, raw.location_id, raw.dptr))
    }

    /// Makes a graph executable. With an error: the `CUgraphInstantiateResult` and the node.
    pub fn instantiate(
        &self,
        graph: CUgraph,
        flags: u64,
        upload: CUstream,
    ) -> Result<CUgraphExec, (CudaError, c_int, CUgraphNode)> {
        let mut raw = RawInstantiate { flags, upload, error_node: null_mut(), result: 0 };
        // SAFETY: the pointer is to a local of that structure.
        let made = unsafe { self.cuGraphInstantiateWithParams(graph, (&raw mut raw).cast()) };
        made.map(|(exec,)| exec).map_err(|error| (error, raw.result, raw.error_node))
    }

    /// Gives a graph's parameters to an executable graph: outcome, `CUgraphExecUpdateResult`, the two nodes.
    pub fn update(
        &self,
        exec: CUgraphExec,
        graph: CUgraph,
    ) -> (CuResult<()>, c_int, CUgraphNode, CUgraphNode) {
        let mut raw = RawUpdate { result: 0, error_node: null_mut(), error_from_node: null_mut() };
        // SAFETY: the pointer is to a local of that structure.
        let outcome = unsafe { self.cuGraphExecUpdate_v2(exec, graph, (&raw mut raw).cast()) };
        (outcome, raw.result, raw.error_node, raw.error_from_node)
    }

    /// An attribute of a stream.
    pub fn stream_attribute(&self, stream: CUstream, attribute: c_int) -> CuResult<AttributeValue> {
        let mut value = Aligned([0; 64]);
        // SAFETY: the value has the size and alignment of a `CUlaunchAttributeValue`.
        unsafe { self.cuStreamGetAttribute(stream, attribute, (&raw mut value).cast()) }?;
        Ok(value.0)
    }

    /// Sets an attribute of a stream.
    pub fn set_stream_attribute(
        &self,
        stream: CUstream,
        attribute: c_int,
        value: &AttributeValue,
    ) -> CuResult<()> {
        let value = Aligned(*value);
        // SAFETY: as above.
        unsafe { self.cuStreamSetAttribute(stream, attribute, (&raw const value).cast()) }
    }

    /// An attribute of a kernel node.
    pub fn node_attribute(&self, node: CUgraphNode, attribute: c_int) -> CuResult<AttributeValue> {
        let mut value = Aligned([0; 64]);
        // SAFETY: as above.
        unsafe { self.cuGraphKernelNodeGetAttribute(node, attribute, (&raw mut value).cast()) }?;
        Ok(value.0)
    }

    /// Sets an attribute of a kernel node.
    pub fn set_node_attribute(
        &self,
        node: CUgraphNode,
        attribute: c_int,
        value: &AttributeValue,
    ) -> CuResult<()> {
        let value = Aligned(*value);
        // SAFETY: as above.
        unsafe { self.cuGraphKernelNodeSetAttribute(node, attribute, (&raw const value).cast()) }
    }

    /// Waits for and writes values in stream order.
    ///
    /// # Safety
    ///
    /// The addresses belong to the session.
    pub unsafe fn memory_operations(
        &self,
        stream: CUstream,
        operations: &[MemoryOperation],
        flags: c_uint,
    ) -> CuResult<()> {
        let mut raw: Vec<_> = operations
            .iter()
            .map(|one| RawMemoryOperation {
                operation: one.operation,
                short_flags: if one.address.0 == 0 { one.flags } else { 0 },
                address: one.address.0,
                value: one.value,
                flags: one.flags,
                alias: 0,
                rest: 0,
            })
            .collect();
        // SAFETY: as many operations as said; the caller vouches for the addresses.
        unsafe { self.cuStreamBatchMemOp_v2(stream, raw.len() as c_uint, raw.as_mut_ptr().cast(), flags) }
    }
}

#[repr(C, align(8))]
struct Aligned(AttributeValue);

/// The block that an `extra` array of the driver's own names.
fn packed_block(extra: *mut *mut c_void) -> Vec<u8> {
    let (mut address, mut bytes) = (null::<u8>(), 0usize);
    for pair in 0..2 {
        // SAFETY: the array has two pairs, or one and an end, which is 0.
        unsafe {
            match extra.add(2 * pair).read() as usize {
                1 => address = extra.add(2 * pair + 1).read().cast(),
                2 => bytes = extra.add(2 * pair + 1).read().cast::<usize>().read(),
                _ => break,
            }
        }
    }
    if address.is_null() {
        return Vec::new();
    }
    // SAFETY: the node owns a block of that size.
    unsafe { std::slice::from_raw_parts(address, bytes) }.to_vec()
}
