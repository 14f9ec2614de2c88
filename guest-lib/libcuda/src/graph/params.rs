// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Conversion of node parameters between their C structures and the wire.

use cuda_abi::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_CONDITIONAL_NODE_PARAMS, CUDA_EXT_SEM_NODE_PARAMS,
    CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1, CUDA_MEM_ALLOC_NODE_PARAMS,
    CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUmemAccessDesc, CUmemLocation, CUmemPoolProps,
};
use virtio_cuda_client::CudaError;
use virtio_cuda_client::protocol::{
    CallbackId, ChildGraphNode, ConditionalNode, DevicePtr, EventId, EventNode, FunctionId, GraphId,
    HostNode, KernelNode, MemAllocNode, MemFreeNode, MemsetNode, NODE_BATCH_MEM_OP, NODE_CONDITIONAL,
    NODE_EMPTY, NODE_EVENT_RECORD, NODE_GRAPH, NODE_HOST, NODE_KERNEL, NODE_MEM_ALLOC, NODE_MEM_FREE,
    NODE_MEMCPY, NODE_MEMSET, NODE_SEMAPHORES_SIGNAL, NODE_SEMAPHORES_WAIT, NODE_WAIT_EVENT,
};
use virtio_cuda_client::touched::graphs_use_events;

use crate::entry::Api;
use crate::ffi::{HostPtr, In};
use crate::handles::{Kind, new_handle};
use crate::launch;
use crate::memory::nodes::copy::{NodeCopy, copies};
use crate::state::callbacks::Callback;
use crate::stream::callback_thread;
use crate::stream::values;
use crate::wire::put;

/// `CU_MEM_ALLOCATION_TYPE_PINNED`
const ALLOCATION_PINNED: u32 = 1;
/// `CU_MEM_LOCATION_TYPE_*`.
const LOCATION_DEVICE: u32 = 1;
const LOCATION_HOST: u32 = 2;
/// `CU_MEM_ACCESS_FLAGS_PROT_*`.
const ACCESS_NONE: u32 = 0;
const ACCESS_READ: u32 = 1;
const ACCESS_READ_WRITE: u32 = 3;

/// The offset of the parameters in `CUgraphNodeParams`, and of a copy's description in its parameters.
pub const PAYLOAD_OFFSET: usize = 16;
const COPY_OFFSET: usize = 16;

/// Sizes of `CUgraphNodeParams` in words: all of it, the words before the payload, and the payload words that each kind
/// uses. All other words must be zero.
const GENERAL_WORDS: usize = 32;
const PAYLOAD_WORD: usize = 2;
const fn used_words(kind: u32) -> Option<usize> {
    Some(match kind {
        NODE_KERNEL => 9,
        NODE_MEMCPY => 27,
        NODE_MEMSET => 6,
        NODE_HOST | NODE_GRAPH => 2,
        NODE_EMPTY => 0,
        NODE_WAIT_EVENT | NODE_EVENT_RECORD | NODE_MEM_FREE => 1,
        NODE_MEM_ALLOC => 15,
        NODE_BATCH_MEM_OP | NODE_CONDITIONAL => 4,
        NODE_SEMAPHORES_SIGNAL | NODE_SEMAPHORES_WAIT => 3,
        _ => return None,
    })
}

/// Refuses a `CUgraphNodeParams` of an unknown kind, or with reserved words that are not zero.
pub fn check_general(kind: u32, params: HostPtr) -> Result<(), CudaError> {
    let used = used_words(kind).ok_or(CudaError::INVALID_VALUE)?;
    // SAFETY: a `CUgraphNodeParams` has so many words.
    let words = unsafe { params.as_in::<[u64; GENERAL_WORDS]>() }.get()?;
    let reserved = [words[0] >> 32, words[1], if kind == NODE_MEMCPY { words[PAYLOAD_WORD] } else { 0 }];
    let rest = &words[PAYLOAD_WORD + used..];
    if reserved.iter().chain(rest).all(|&word| word == 0) { Ok(()) } else { Err(CudaError::INVALID_VALUE) }
}

/// Encoded parameters.
#[derive(Debug, Default)]
pub struct Encoded {
    /// The bytes in the row's format.
    pub bytes: Vec<u8>,
    /// The bytes before the values of a kernel's parameters. A driver that has accepted these once, and as many values, accepts other
    /// values, too. 0 for other kinds.
    pub fixed_bytes: usize,
    /// For a child graph: the number of the work in it, if that is known. A driver that has accepted a graph of this work once accepts
    /// others.
    pub work: Option<[u8; 8]>,
    /// Callbacks that were registered for them. They are removed if the call fails.
    pub callbacks: Vec<CallbackId>,
    /// Handles created for the graphs of a conditional node.
    pub graphs: Vec<u64>,
}

impl Encoded {
    /// Returns that on which the driver's acceptance depends, for kernels and child graphs; nothing if that is not known.
    pub fn fixed(&self) -> &[u8] {
        self.work.as_ref().map_or(&self.bytes[..self.fixed_bytes], |work| work)
    }

    /// Removes the callbacks after a failed call.
    pub fn forget(&self, api: Api) {
        for &id in &self.callbacks {
            api.driver.callbacks.remove(id);
        }
    }
}

/// The form of parameters: the kind's own structure, or the payload of `CUgraphNodeParams`, where some differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The kind's own structure.
    Own,
    /// The payload of `CUgraphNodeParams`.
    Payload,
}

/// Reads the structure that equals or begins the parameters of a node.
///
/// # Safety
/// CUDA's documentation requires the program to pass a `T` for a node of this kind.
unsafe fn read<T: Copy>(params: HostPtr) -> Result<T, CudaError> {
    // SAFETY: `# Safety` promises that the program passes a `T`, as `as_in` demands.
    unsafe { params.as_in::<T>() }.get()
}

/// Encodes the parameters of a node of `kind`.
pub fn encode(api: Api, kind: u32, params: HostPtr, form: Form) -> Result<Encoded, CudaError> {
    if params.address() == 0 && kind != NODE_EMPTY {
        return Err(CudaError::INVALID_VALUE);
    }
    let mut encoded = Encoded::default();
    let bytes = &mut encoded.bytes;
    match kind {
        NODE_KERNEL => {
            // SAFETY: this is the structure of the kind.
            let params = unsafe { read::<CUDA_KERNEL_NODE_PARAMS>(params) }?;
            encoded.fixed_bytes = kernel(api, &params.v1, params.kernel, bytes)?;
        }
        NODE_MEMCPY => {
            // SAFETY: a payload of this kind has the copy there.
            let at = if form == Form::Payload { unsafe { params.offset(COPY_OFFSET) } } else { params };
            // SAFETY: this is the structure of the kind.
            let params = unsafe { read::<CUDA_MEMCPY3D>(at) }?;
            // Unlike a copy in a stream, a node must have something to copy.
            if !copies(&params) {
                return Err(CudaError::INVALID_VALUE);
            }
            let copy = NodeCopy::from_params(api, &params)?;
            encoded.callbacks.extend([copy.node.before, copy.node.after]);
            put(&copy.node, bytes)?;
        }
        NODE_MEMSET => {
            // SAFETY: this is the structure of the kind.
            let params = unsafe { read::<CUDA_MEMSET_NODE_PARAMS>(params) }?;
            let dst = api.device_place(params.dst).device().ok_or(CudaError::INVALID_VALUE)?;
            let node = MemsetNode {
                dst: DevicePtr(dst),
                pitch: params.pitch as u64,
                value: params.value,
                element_bytes: params.element_bytes,
                width: params.width as u64,
                height: params.height as u64,
            };
            put(&node, bytes)?;
        }
        NODE_HOST => {
            // SAFETY: this is the structure of the kind.
            let params = unsafe { read::<CUDA_HOST_NODE_PARAMS>(params) }?;
            let function = params.function.ok_or(CudaError::INVALID_VALUE)?;
            let callback = callback_thread::register(api, Callback::Host(function, params.argument))?;
            put(&HostNode { callback }, bytes)?;
            encoded.callbacks.push(callback);
        }
        NODE_GRAPH => {
            // SAFETY: the structure of the kind begins with the graph.
            let graph = GraphId(unsafe { read(params) }?);
            put(&ChildGraphNode { graph }, bytes)?;
            encoded.work = api.driver.retraced.work(graph.0).map(u64::to_le_bytes);
        }
        NODE_EMPTY => {}
        NODE_WAIT_EVENT | NODE_EVENT_RECORD => {
            // SAFETY: the structure of the kind is an event.
            let event = unsafe { read::<u64>(params) }?;
            if event == 0 {
                return Err(CudaError::INVALID_VALUE);
            }
            graphs_use_events();
            if kind == NODE_EVENT_RECORD {
                // From now on, launches of graphs record the event.
                api.driver.events.recorded_by_graphs(event);
            }
            put(&EventNode { event: EventId(event) }, bytes)?;
        }
        NODE_MEM_ALLOC => {
            // SAFETY: this is the structure of the kind.
            let params = unsafe { read::<CUDA_MEM_ALLOC_NODE_PARAMS>(params) }?;
            // Supported: CU_MEM_ALLOCATION_TYPE_PINNED or _MANAGED on CU_MEM_LOCATION_TYPE_DEVICE, without export.
            let CUmemLocation { kind: location, id } = params.pool.location;
            match (params.pool.kind, params.pool.handle_types, location) {
                (1 | 2, 0, 1) => {}
                // Exported allocations, host or NUMA locations, or managed memory at another location.
                (1, 1, 1) | (1, 0, 2 | 3) | (2, 0, 0 | 2 | 3) => return Err(CudaError::NOT_SUPPORTED),
                _ => return Err(CudaError::INVALID_VALUE),
            }
            let devices = &api.driver.devices;
            let device = devices.check(id).map_err(|_| CudaError::INVALID_VALUE)?;
            // SAFETY: the program promises an array of as many descriptions as the structure says.
            let accesses = unsafe { In::<CUmemAccessDesc>::at_address(params.access) };
            for index in 0..params.access_count {
                let CUmemAccessDesc { location, flags } = accesses.at(index)?;
                match (location.kind, flags) {
                    (LOCATION_DEVICE, _) if devices.check(location.id).is_err() => {
                        return Err(CudaError::INVALID_DEVICE);
                    }
                    (LOCATION_DEVICE, ACCESS_READ_WRITE) if location.id == id => {}
                    // The host's access does not concern the device.
                    (LOCATION_HOST, _) => {}
                    // Access by another device, or less than full access.
                    (LOCATION_DEVICE, ACCESS_NONE | ACCESS_READ | ACCESS_READ_WRITE) => {
                        return Err(CudaError::NOT_SUPPORTED);
                    }
                    _ => return Err(CudaError::INVALID_VALUE),
                }
            }
            put(&MemAllocNode { bytes: params.bytes as u64, device: device.on_wire() }, bytes)?;
        }
        NODE_MEM_FREE => {
            // SAFETY: the structure of the kind is an address.
            let dptr = DevicePtr(unsafe { read(params) }?);
            put(&MemFreeNode { dptr }, bytes)?;
        }
        NODE_BATCH_MEM_OP => {
            // SAFETY: this is the structure of the kind.
            let params = unsafe { read::<CUDA_BATCH_MEM_OP_NODE_PARAMS>(params) }?;
            values::put_node(api, &params, bytes)?;
        }
        NODE_CONDITIONAL => {
            // SAFETY: this is the structure of the kind.
            let params = unsafe { read::<CUDA_CONDITIONAL_NODE_PARAMS>(params) }?;
            put(&ConditionalNode { handle: params.handle, kind: params.kind, graphs: params.size }, bytes)?;
            // The device checks the limit. Here it only bounds the memory that a wrong number can take.
            for _ in 0..params.size.min(64) {
                let name = new_handle(Kind::Graph);
                put(&GraphId(name), bytes)?;
                encoded.graphs.push(name);
            }
        }
        NODE_SEMAPHORES_SIGNAL | NODE_SEMAPHORES_WAIT => {
            // There are no semaphores of other APIs, but a node without semaphores is valid. NVIDIA's driver accepts
            // any semaphores, and crashes when the graph is launched.
            // SAFETY: this is the structure of the kind.
            if unsafe { read::<CUDA_EXT_SEM_NODE_PARAMS>(params) }?.count != 0 {
                return Err(CudaError::INVALID_VALUE);
            }
        }
        _ => return Err(CudaError::NOT_SUPPORTED),
    }
    Ok(encoded)
}

/// Encodes the parameters of a kernel node. Returns [`Encoded::fixed_bytes`].
pub fn kernel(
    api: Api,
    params: &CUDA_KERNEL_NODE_PARAMS_v1,
    kernel: u64,
    bytes: &mut Vec<u8>,
) -> Result<usize, CudaError> {
    let function = if params.function != 0 { params.function } else { kernel };
    let node = KernelNode {
        function: FunctionId(function),
        grid: params.grid,
        block: params.block,
        shared_bytes: params.shared_bytes,
    };
    put(&node, bytes)?;
    let fixed_bytes = bytes.len();
    // SAFETY: the program promises for both members the same as for the parameters of cuLaunchKernel.
    let (values, extra) = unsafe { (In::at_address(params.params), In::at_address(params.extra)) };
    launch::append_parameters(api, function, values, extra, bytes)?;
    Ok(fixed_bytes)
}

/// Returns the parameters of a fill node.
pub fn memset_of_node(api: Api, node: &MemsetNode) -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS {
        dst: api.program_address(node.dst.0),
        pitch: node.pitch as usize,
        value: node.value,
        element_bytes: node.element_bytes,
        width: node.width as usize,
        height: node.height as usize,
    }
}

/// Returns the parameters of an allocation node.
pub fn allocation_of_node(
    api: Api,
    node: &MemAllocNode,
    dptr: DevicePtr,
) -> Result<CUDA_MEM_ALLOC_NODE_PARAMS, CudaError> {
    let device = api.driver.devices.number_of(node.device.0)?;
    let location = CUmemLocation { kind: LOCATION_DEVICE, id: device };
    let pool = CUmemPoolProps { kind: ALLOCATION_PINNED, location, ..CUmemPoolProps::ZERO };
    let bytes = node.bytes as usize;
    Ok(CUDA_MEM_ALLOC_NODE_PARAMS { pool, bytes, dptr: dptr.0, ..CUDA_MEM_ALLOC_NODE_PARAMS::ZERO })
}
