// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Executable graphs.

use std::ffi::c_int;

use super::super::raw::{RawInstantiate, RawUpdate};
use super::super::{CUcontext, CUgraph, CUgraphExec, CUgraphNode, CUstream, CuResult, CudaError, Driver};
use super::InGraph;

impl Driver {
    /// Instantiates a graph. Does not report the reason of a failure.
    pub fn instantiate_with_flags(&self, graph: CUgraph, flags: u64) -> CuResult<(InGraph<CUgraphExec>,)> {
        let (found,) = self.cuGraphInstantiateWithFlags(graph, flags)?;
        Ok((InGraph { graph, found },))
    }

    /// Creates a handle for a conditional node of a graph.
    pub fn conditional_handle(
        &self,
        graph: CUgraph,
        context: CUcontext,
        default_value: u32,
        flags: u32,
    ) -> CuResult<(InGraph<u64>,)> {
        let (found,) = self.cuGraphConditionalHandleCreate(graph, context, default_value, flags)?;
        Ok((InGraph { graph, found },))
    }

    /// Instantiates a graph. On an error, returns the `CUgraphInstantiateResult` and the node.
    pub fn instantiate(
        &self,
        graph: CUgraph,
        flags: u64,
        upload: CUstream,
    ) -> Result<CUgraphExec, (CudaError, c_int, CUgraphNode)> {
        let mut raw = RawInstantiate { flags, upload_stream: upload as u64, ..RawInstantiate::ZERO };
        // SAFETY: the pointer is to a local of that structure.
        let made = unsafe { self.cuGraphInstantiateWithParams(graph, (&raw mut raw).cast()) };
        made.map(|(exec,)| exec).map_err(|error| (error, raw.result, raw.error_node as CUgraphNode))
    }

    /// Updates an executable graph with a graph's parameters. Returns the outcome, `CUgraphExecUpdateResult` and the
    /// two nodes.
    pub fn update(
        &self,
        exec: CUgraphExec,
        graph: CUgraph,
    ) -> (CuResult<()>, c_int, CUgraphNode, CUgraphNode) {
        let mut raw = RawUpdate::ZERO;
        // SAFETY: the pointer is to a local of that structure.
        let outcome = unsafe { self.cuGraphExecUpdate_v2(exec, graph, (&raw mut raw).cast()) };
        (outcome, raw.result, raw.error_node as CUgraphNode, raw.error_from_node as CUgraphNode)
    }
}
