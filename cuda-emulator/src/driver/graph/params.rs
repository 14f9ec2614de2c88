// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kinds of nodes, and their parameters in CUgraphNodeParams.

use std::mem::offset_of;

use cuda_abi::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_CHILD_GRAPH_NODE_PARAMS, CUDA_CONDITIONAL_NODE_PARAMS,
    CUDA_EXT_SEM_NODE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEM_ALLOC_NODE_PARAMS,
    CUDA_MEMCPY_NODE_PARAMS, CUDA_MEMSET_NODE_PARAMS_v2, CUgraphNodeParams,
};

use crate::driver::device::CUdeviceptr;
use crate::driver::event::CUevent;
use crate::driver::ffi::InOut;

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

/// The start of the union with the parameters of each kind, and its end.
const UNION: (usize, usize) =
    (offset_of!(CUgraphNodeParams, payload), offset_of!(CUgraphNodeParams, reserved2));

/// A member of the union.
///
/// # Safety
/// The union of `cuda.h` must have such a member, for which any bytes are valid.
pub(super) unsafe trait Member: Copy {}

// SAFETY: it is there in `cuda.h`, and has integers, handles and pointers in it, any of which may be wrong ones.
unsafe impl Member for CUDA_BATCH_MEM_OP_NODE_PARAMS {}
// SAFETY: as for the first member.
unsafe impl Member for CUDA_CHILD_GRAPH_NODE_PARAMS {}
// SAFETY: as for the first member.
unsafe impl Member for CUDA_CONDITIONAL_NODE_PARAMS {}
// SAFETY: as for the first member.
unsafe impl Member for CUDA_EXT_SEM_NODE_PARAMS {}
// SAFETY: as for the first member.
unsafe impl Member for CUDA_HOST_NODE_PARAMS {}
// SAFETY: as for the first member.
unsafe impl Member for CUDA_KERNEL_NODE_PARAMS {}
// SAFETY: as for the first member.
unsafe impl Member for CUDA_MEM_ALLOC_NODE_PARAMS {}
// SAFETY: as for the first member.
unsafe impl Member for CUDA_MEMCPY_NODE_PARAMS {}
// SAFETY: as for the first member.
unsafe impl Member for CUDA_MEMSET_NODE_PARAMS_v2 {}
// SAFETY: as for the first member.
unsafe impl Member for CUdeviceptr {}
// SAFETY: as for the first member.
unsafe impl Member for CUevent {}

/// Returns the union as one of its members.
pub(super) fn member<T: Member>(params: InOut<CUgraphNodeParams>) -> InOut<T> {
    const { assert!(UNION.0 + size_of::<T>() <= UNION.1) };
    // SAFETY: the union begins there, has such a member (`Member`), and is as valid as the structure that it is in.
    unsafe { params.member(UNION.0) }
}
