// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What nodes are added and changed with.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::{null, null_mut};

use cudarc::driver::sys::{CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_MEM_ALLOC_NODE_PARAMS, CUgraphNodeParams};
use virtio_cuda_protocol::cuda::{
    KernelNode, MemcpyNode, MemoryOperation, MemsetNode, NODE_BATCH_MEM_OP, NODE_CONDITIONAL, NODE_EMPTY,
    NODE_EVENT_RECORD, NODE_GRAPH, NODE_HOST, NODE_KERNEL, NODE_MEM_ALLOC, NODE_MEM_FREE, NODE_MEMCPY,
    NODE_MEMSET, NODE_WAIT_EVENT,
};

use super::super::raw::{RawMemoryOperation, RawMemset};
use super::super::{CUcontext, CUdeviceptr, CUevent, CUfunction, CUgraph, CUkernel};
use super::UserFunction;
use super::capture::raw_operations;
use super::copy::{RawCopyNode, RawMemsetNode, raw_copy};
use super::kernel::RawKernel;

/// `CU_MEM_ALLOCATION_TYPE_PINNED`, `CU_MEM_LOCATION_TYPE_DEVICE`, `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const ALLOCATION_PINNED: c_uint = 1;
const LOCATION_DEVICE: c_uint = 1;

/// `CUgraphNodeParams`; what lies in `payload` depends on the type.
#[repr(C)]
pub(super) struct RawNodeParameters {
    pub(super) kind: c_uint,
    pub(super) reserved0: [c_int; 3],
    pub(super) payload: [u64; 29],
    pub(super) reserved2: i64,
}
const _: () = assert!(size_of::<RawNodeParameters>() == size_of::<CUgraphNodeParams>());

/// `CUDA_HOST_NODE_PARAMS`.
#[repr(C)]
struct RawHost {
    function: UserFunction,
    argument: *mut c_void,
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct RawMemAlloc {
    pub(super) allocation_type: c_uint,
    pub(super) handle_types: c_uint,
    pub(super) location_type: c_uint,
    pub(super) location_id: c_int,
    pub(super) pool_rest: [u64; 9],
    pub(super) access: *const c_void,
    pub(super) access_count: usize,
    pub(super) bytes: usize,
    pub(super) dptr: CUdeviceptr,
}
const _: () = assert!(size_of::<RawMemAlloc>() == size_of::<CUDA_MEM_ALLOC_NODE_PARAMS>());

/// `CUDA_BATCH_MEM_OP_NODE_PARAMS`.
#[repr(C)]
pub(super) struct RawBatch {
    pub(super) context: CUcontext,
    pub(super) count: c_uint,
    pub(super) operations: *mut RawMemoryOperation,
    pub(super) flags: c_uint,
}
const _: () = assert!(size_of::<RawBatch>() == size_of::<CUDA_BATCH_MEM_OP_NODE_PARAMS>());

/// `CUDA_CONDITIONAL_NODE_PARAMS`.
#[repr(C)]
pub(super) struct RawConditional {
    pub(super) handle: u64,
    pub(super) kind: c_uint,
    pub(super) size: c_uint,
    pub(super) graphs: *mut CUgraph,
    pub(super) context: CUcontext,
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
    /// No semaphores of other APIs, to signal or to wait for by the kind of the node.
    Semaphores(u32),
    /// Bytes, and the device.
    MemAlloc(u64, c_int),
    /// The address.
    MemFree(CUdeviceptr),
    /// Waits for and writes of values, and flags.
    MemoryOperations(Vec<MemoryOperation>, u32, CUcontext),
    /// Handle, kind and number of graphs.
    Conditional(u64, u32, u32, CUcontext),
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

impl NodeParameters {
    /// Hands the driver's form of the parameters to `body`.
    pub(super) fn with_raw<T>(&mut self, body: impl FnOnce(&mut RawNodeParameters) -> T) -> T {
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
            Self::Semaphores(kind) => body(&mut RawNodeParameters::new(*kind)),
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
            Self::MemoryOperations(operations, flags, context) => {
                let mut raw = raw_operations(operations);
                let (count, operations) = (raw.len() as c_uint, raw.as_mut_ptr());
                let batch = RawBatch { context: *context, count, operations, flags: *flags };
                body(&mut RawNodeParameters::with(NODE_BATCH_MEM_OP, batch))
            }
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
