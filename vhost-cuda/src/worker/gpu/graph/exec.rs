// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Executable graphs.

use std::ffi::c_int;
use std::ptr::null_mut;

use cudarc::driver::sys::{CUDA_GRAPH_INSTANTIATE_PARAMS, CUgraphExecUpdateResultInfo};

use super::super::{CUgraph, CUgraphExec, CUgraphNode, CUstream, CuResult, CudaError, Driver};

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

impl Driver {
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
}
