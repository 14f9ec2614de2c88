// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parameters for adding and changing nodes.

use std::ffi::{c_int, c_uint, c_void};

use virtio_cuda_protocol::cuda::{
    KernelNode, MemcpyNode, MemoryOperation, MemsetNode, NODE_BATCH_MEM_OP, NODE_CONDITIONAL, NODE_EMPTY,
    NODE_EVENT_RECORD, NODE_GRAPH, NODE_HOST, NODE_KERNEL, NODE_MEM_ALLOC, NODE_MEM_FREE, NODE_MEMCPY,
    NODE_MEMSET, NODE_WAIT_EVENT,
};

use super::super::raw::{
    RawBatch, RawConditional, RawCopyNode, RawHost, RawLocation, RawMemAlloc, RawMemset, RawMemsetNode,
    RawNodeParameters, RawPool,
};
use super::super::{ALLOCATION_PINNED, LOCATION_DEVICE};
use super::super::{CUcontext, CUdeviceptr, CUevent, CUfunction, CUgraph, CUkernel};
use super::capture::raw_operations;
use super::copy::raw_copy;
use super::kernel::with_raw_kernel;

/// A function that the driver calls on one of its own threads.
pub type UserFunction = unsafe extern "C" fn(*mut c_void);

/// A node's parameters, checked and resolved.
#[derive(Debug)]
pub enum NodeParameters {
    /// Function or kernel (the other is null), its shape and packed parameters.
    Kernel(CUfunction, CUkernel, KernelNode, Vec<u8>),
    /// A copy whose ends the GPU can access. Arrays are the driver's handles.
    Memcpy(MemcpyNode, CUcontext),
    /// A fill.
    Memset(MemsetNode, CUcontext),
    /// A function and its argument.
    Host(UserFunction, u64),
    /// A graph to clone.
    Graph(CUgraph),
    /// An empty node.
    Empty,
    /// An event to wait for.
    WaitEvent(CUevent),
    /// An event to record.
    RecordEvent(CUevent),
    /// An empty list of external semaphores, to signal or to wait for by the kind of the node.
    Semaphores(u32),
    /// An allocation: bytes and device.
    MemAlloc(u64, c_int),
    /// The address to free.
    MemFree(CUdeviceptr),
    /// Operations that wait for and write values, and flags.
    MemoryOperations(Vec<MemoryOperation>, u32, CUcontext),
    /// Handle, kind and number of graphs.
    Conditional(u64, u32, u32, CUcontext),
}

/// Returns parameters without a payload.
fn empty(kind: u32) -> RawNodeParameters {
    RawNodeParameters { kind, ..RawNodeParameters::ZERO }
}

/// Returns parameters with this payload.
fn with<T>(kind: u32, value: T) -> RawNodeParameters {
    const { assert!(size_of::<T>() <= 29 * 8 && align_of::<T>() <= 8) };
    let mut raw = empty(kind);
    // SAFETY: the payload has room for a `T` and its alignment.
    unsafe { raw.payload.as_mut_ptr().cast::<T>().write(value) };
    raw
}

impl NodeParameters {
    /// Passes the driver's form of the parameters to `body`.
    pub(super) fn with_raw<T>(&mut self, body: impl FnOnce(&mut RawNodeParameters) -> T) -> T {
        match self {
            Self::Kernel(function, kernel, node, params) => {
                with_raw_kernel(*function, *kernel, node, params, |raw| body(&mut with(NODE_KERNEL, raw)))
            }
            Self::Memcpy(node, context) => body(&mut with(
                NODE_MEMCPY,
                RawCopyNode { context: *context as u64, copy: raw_copy(node), ..RawCopyNode::ZERO },
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
                body(&mut with(NODE_MEMSET, RawMemsetNode { v1: memset, context: *context as u64 }))
            }
            Self::Host(function, data) => {
                let host = RawHost { function: Some(*function), argument: *data as usize };
                body(&mut with(NODE_HOST, host))
            }
            Self::Graph(graph) => body(&mut with(NODE_GRAPH, *graph)),
            Self::Empty => body(&mut empty(NODE_EMPTY)),
            Self::WaitEvent(event) => body(&mut with(NODE_WAIT_EVENT, *event)),
            Self::RecordEvent(event) => body(&mut with(NODE_EVENT_RECORD, *event)),
            Self::Semaphores(kind) => body(&mut empty(*kind)),
            Self::MemAlloc(bytes, device) => body(&mut with(
                NODE_MEM_ALLOC,
                RawMemAlloc {
                    pool: RawPool {
                        kind: ALLOCATION_PINNED,
                        location: RawLocation { kind: LOCATION_DEVICE, id: *device },
                        ..RawPool::ZERO
                    },
                    bytes: *bytes as usize,
                    ..RawMemAlloc::ZERO
                },
            )),
            Self::MemFree(dptr) => body(&mut with(NODE_MEM_FREE, *dptr)),
            Self::MemoryOperations(operations, flags, context) => {
                let mut raw = raw_operations(operations);
                let (count, operations) = (raw.len() as c_uint, raw.as_mut_ptr() as usize);
                let context = *context as u64;
                let batch = RawBatch { context, count, operations, flags: *flags, ..RawBatch::ZERO };
                body(&mut with(NODE_BATCH_MEM_OP, batch))
            }
            Self::Conditional(handle, kind, size, context) => body(&mut with(
                NODE_CONDITIONAL,
                RawConditional {
                    handle: *handle,
                    kind: *kind,
                    size: *size,
                    graphs: 0,
                    context: *context as u64,
                },
            )),
        }
    }
}
