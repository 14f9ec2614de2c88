// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Parameters of graph nodes.

use super::{CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUmemPoolProps};
use crate::{CUhostFn, c_structs};

c_structs! {
    /// `CUgraphNodeParams`: a kind, and the parameters of that kind.
    CUgraphNodeParams: 256 {
        /// `CUgraphNodeType`.
        kind: u32,
        /// Zero.
        reserved0: [u32; 3],
        /// The structure of the kind, then zeros.
        payload: [u64; 29],
        /// Zero.
        reserved2: u64,
    }

    /// `CUDA_KERNEL_NODE_PARAMS_v1`: the first fields of all versions.
    CUDA_KERNEL_NODE_PARAMS_v1: 56 {
        /// The function, or NULL for a kernel.
        function: u64,
        /// Blocks.
        grid: [u32; 3],
        /// Threads per block.
        block: [u32; 3],
        /// Bytes of dynamic shared memory.
        shared_bytes: u32,
        /// Padding.
        pad: u32,
        /// Addresses of the parameters' values.
        params: usize,
        /// The other form of parameters: `CU_LAUNCH_PARAM_*` and values.
        extra: usize,
    }

    /// `CUDA_KERNEL_NODE_PARAMS_v2` and `_v3`.
    CUDA_KERNEL_NODE_PARAMS: 72 {
        /// The members of all versions.
        v1: CUDA_KERNEL_NODE_PARAMS_v1,
        /// The kernel, if there is no function.
        kernel: u64,
        /// The context, or NULL for the current one.
        context: u64,
    }

    /// `CUDA_MEMCPY_NODE_PARAMS`.
    CUDA_MEMCPY_NODE_PARAMS: 216 {
        /// Zero.
        flags: i32,
        /// Zero.
        reserved: i32,
        /// The context.
        context: u64,
        /// The copy.
        copy: CUDA_MEMCPY3D,
    }

    /// `CUDA_MEMSET_NODE_PARAMS_v2`.
    CUDA_MEMSET_NODE_PARAMS_v2: 48 {
        /// The members of both versions.
        v1: CUDA_MEMSET_NODE_PARAMS,
        /// The context.
        context: u64,
    }

    /// `CUDA_CHILD_GRAPH_NODE_PARAMS`.
    CUDA_CHILD_GRAPH_NODE_PARAMS: 16 {
        /// The graph.
        graph: u64,
        /// `CUgraphChildGraphNodeOwnership`.
        ownership: u32,
        /// Padding.
        tail_pad: u32,
    }

    /// `CUDA_MEM_ALLOC_NODE_PARAMS`.
    CUDA_MEM_ALLOC_NODE_PARAMS: 120 {
        /// The kind and location of the memory.
        pool: CUmemPoolProps,
        /// The address of an array of `CUmemAccessDesc`.
        access: usize,
        /// Length of the array.
        access_count: usize,
        /// Bytes.
        bytes: usize,
        /// The result: the address of the memory.
        dptr: u64,
    }

    /// `CUDA_EXT_SEM_SIGNAL_NODE_PARAMS` and `CUDA_EXT_SEM_WAIT_NODE_PARAMS`.
    CUDA_EXT_SEM_NODE_PARAMS: 24 {
        /// The address of an array of semaphores.
        semaphores: usize,
        /// The address of an array of their parameters.
        parameters: usize,
        /// The length of both.
        count: u32,
        /// Padding.
        tail_pad: u32,
    }

    /// `CUDA_BATCH_MEM_OP_NODE_PARAMS`.
    CUDA_BATCH_MEM_OP_NODE_PARAMS: 32 {
        /// The context.
        context: u64,
        /// The number of operations.
        count: u32,
        /// Padding.
        pad: u32,
        /// The address of an array of `CUstreamBatchMemOpParams`.
        operations: usize,
        /// Zero.
        flags: u32,
        /// Padding.
        tail_pad: u32,
    }

    /// `CUDA_CONDITIONAL_NODE_PARAMS`.
    CUDA_CONDITIONAL_NODE_PARAMS: 32 {
        /// `CUgraphConditionalHandle`.
        handle: u64,
        /// `CUgraphConditionalNodeType`.
        kind: u32,
        /// The number of graphs.
        size: u32,
        /// The result: the address of an array of the graphs.
        graphs: usize,
        /// The context; required.
        context: u64,
    }
}

/// `CUDA_EXT_SEM_SIGNAL_NODE_PARAMS`.
pub type CUDA_EXT_SEM_SIGNAL_NODE_PARAMS = CUDA_EXT_SEM_NODE_PARAMS;
/// `CUDA_EXT_SEM_WAIT_NODE_PARAMS`.
pub type CUDA_EXT_SEM_WAIT_NODE_PARAMS = CUDA_EXT_SEM_NODE_PARAMS;

/// `CUDA_HOST_NODE_PARAMS`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_HOST_NODE_PARAMS {
    /// The function.
    pub function: CUhostFn,
    /// Its argument.
    pub argument: usize,
}

const _: () = assert!(size_of::<CUDA_HOST_NODE_PARAMS>() == 16);
