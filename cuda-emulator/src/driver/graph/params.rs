// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The C structures of node parameters.

use std::ffi::c_void;

use cuda_abi::{CUDA_MEMCPY3D, CUmemAccessDesc, CUmemPoolProps};

use crate::driver::context::CUcontext;
use crate::driver::device::CUdeviceptr;
use crate::driver::event::CUevent;
use crate::driver::ffi::In;
use crate::driver::module::function::{CUfunction, CUkernel};
use crate::driver::pool::PoolProperties as _;
use crate::driver::stream::HostFunction;
use crate::driver::stream::mem_op::MemOp;

use super::CUgraph;

/// CUgraphNodeType
pub(super) const KERNEL: u32 = 0;
pub(super) const MEMCPY: u32 = 1;
pub(super) const MEMSET: u32 = 2;
pub(super) const HOST: u32 = 3;
pub(super) const GRAPH: u32 = 4;
pub(super) const EMPTY: u32 = 5;
pub(super) const WAIT_EVENT: u32 = 6;
pub(super) const EVENT_RECORD: u32 = 7;
pub(super) const SEMAPHORES_SIGNAL: u32 = 8;
pub(super) const SEMAPHORES_WAIT: u32 = 9;
pub(super) const MEM_ALLOC: u32 = 10;
pub(super) const MEM_FREE: u32 = 11;
pub(super) const BATCH_MEM_OP: u32 = 12;
pub(super) const CONDITIONAL: u32 = 13;

/// CUDA_KERNEL_NODE_PARAMS_v1
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KernelParamsV1 {
    pub(super) function: CUfunction,
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) shared: u32,
    pub(super) params: In<*const c_void>,
    pub(super) extra: In<*mut c_void>,
}

/// CUDA_KERNEL_NODE_PARAMS_v2 and _v3
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KernelParams {
    pub(super) first: KernelParamsV1,
    pub(super) kernel: CUkernel,
    pub(super) context: CUcontext,
}

/// CUDA_MEMCPY_NODE_PARAMS
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemcpyParams {
    pub(super) flags: i32,
    pub(super) reserved: i32,
    pub(super) context: CUcontext,
    pub(super) copy: CUDA_MEMCPY3D,
}

/// CUDA_HOST_NODE_PARAMS
#[repr(C)]
#[derive(Clone, Copy)]
pub struct HostParams {
    pub(super) function: HostFunction,
    pub(super) data: *mut c_void,
}

/// CUDA_CHILD_GRAPH_NODE_PARAMS
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ChildParams {
    pub(super) graph: CUgraph,
    pub(super) ownership: u32,
}

/// CUDA_EVENT_RECORD_NODE_PARAMS and CUDA_EVENT_WAIT_NODE_PARAMS
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EventParams {
    pub(super) event: CUevent,
}

/// CUDA_MEM_ALLOC_NODE_PARAMS
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AllocParams {
    pub(super) pool: CUmemPoolProps,
    pub(super) access: In<CUmemAccessDesc>,
    pub(super) access_count: usize,
    pub(super) bytes: usize,
    pub(super) ptr: CUdeviceptr,
}

/// CUDA_MEM_FREE_NODE_PARAMS
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FreeParams {
    pub(super) ptr: CUdeviceptr,
}

/// CUDA_EXT_SEM_SIGNAL_NODE_PARAMS and CUDA_EXT_SEM_WAIT_NODE_PARAMS
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SemaphoreParams {
    semaphores: *const c_void,
    parameters: *const c_void,
    pub(super) count: u32,
}

impl SemaphoreParams {
    /// Of no semaphores.
    pub(super) const NONE: SemaphoreParams =
        SemaphoreParams { semaphores: std::ptr::null(), parameters: std::ptr::null(), count: 0 };
}

/// CUDA_BATCH_MEM_OP_NODE_PARAMS
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BatchParams {
    pub(super) context: CUcontext,
    pub(super) count: u32,
    pub(super) operations: In<MemOp>,
    pub(super) flags: u32,
}

/// CUDA_CONDITIONAL_NODE_PARAMS
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ConditionalParams {
    pub(super) handle: u64,
    pub(super) kind: u32,
    pub(super) size: u32,
    pub(super) graphs: *const CUgraph,
    pub(super) context: CUcontext,
}

/// CUgraphNodeParams; `body` is a union of the above.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NodeParams {
    pub(super) kind: u32,
    pub(super) reserved0: [i32; 3],
    pub(super) body: [u64; 29],
    pub(super) reserved2: u64,
}

// As sizeof() in cuda.h.
const _: () = assert!(size_of::<KernelParamsV1>() == 56 && size_of::<KernelParams>() == 72);
const _: () = assert!(size_of::<MemcpyParams>() == 216);
const _: () = assert!(size_of::<AllocParams>() == 120 && size_of::<BatchParams>() == 32);
const _: () = assert!(size_of::<NodeParams>() == 256);

impl AllocParams {
    /// What a captured cuMemAllocAsync asks for.
    pub(super) fn plain(ordinal: i32, bytes: usize) -> AllocParams {
        let access = In::from_raw(std::ptr::null());
        AllocParams { pool: CUmemPoolProps::of_device(ordinal), access, access_count: 0, bytes, ptr: 0 }
    }
}
