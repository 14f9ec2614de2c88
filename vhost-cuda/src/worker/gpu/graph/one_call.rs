// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The work that a library's function queues, as an executable graph.

use virtio_cuda_protocol::cuda::{NODE_HOST, NODE_KERNEL, NODE_MEMSET};

use super::super::{CUgraph, CUgraphExec, CUstream, CuResult, CudaError, Driver};
use super::capture::CAPTURE_RELAXED;

/// `CU_STREAM_NON_BLOCKING`
const NON_BLOCKING: u32 = 1;

/// The executable graph.
///
/// # Invariants
///
/// It is alive and used only by this value until [`Driver::end_one_call`] takes it.
#[derive(Debug)]
pub struct OneCall(CUgraphExec);

impl Driver {
    /// Returns a stream for [`Self::one_call`], which the caller destroys.
    pub fn recording_stream(&self) -> CuResult<CUstream> {
        self.cuStreamCreateWithPriority(NON_BLOCKING, 0).map(|(stream,)| stream)
    }

    /// Records what `call` queues in a stream that nothing else uses.
    ///
    /// `host_functions`: work may contain functions of the host, as that of the emulator's libraries does.
    ///
    /// Errors: those of the driver and of `call`; `CUDA_ERROR_NOT_SUPPORTED` for work that a graph does not repeat as it is: a copy,
    /// which could read host memory of this call, and an allocation.
    pub fn one_call(
        &self,
        stream: CUstream,
        host_functions: bool,
        call: impl FnOnce() -> CuResult<()>,
    ) -> CuResult<OneCall> {
        self.cuStreamBeginCapture_v2(stream, CAPTURE_RELAXED as u32)?;
        let called = call();
        let (graph,) = self.cuStreamEndCapture(stream)?;
        let made =
            called.and_then(|()| self.repeats(graph, host_functions)).and_then(|repeats| match repeats {
                true => self.cuGraphInstantiateWithFlags(graph, 0),
                false => Err(CudaError::NOT_SUPPORTED),
            });
        let _ = self.cuGraphDestroy(graph);
        made.map(|(exec,)| OneCall(exec))
    }

    /// Returns whether a graph has work, and only such that does the same each time.
    fn repeats(&self, graph: CUgraph, host_functions: bool) -> CuResult<bool> {
        let kinds: Vec<u32> = self
            .graph_nodes(graph, false)?
            .into_iter()
            .map(|node| self.cuGraphNodeGetType(node).map(|(kind,)| kind))
            .collect::<CuResult<_>>()?;
        let is_good = |kind: &u32| match *kind {
            NODE_KERNEL | NODE_MEMSET => true,
            NODE_HOST => host_functions,
            _ => false,
        };
        Ok(!kinds.is_empty() && kinds.iter().all(is_good))
    }

    /// Launches it.
    ///
    /// Errors: the driver's errors; then nothing was launched.
    pub fn launch_one_call(&self, call: &OneCall, stream: CUstream) -> CuResult<()> {
        self.cuGraphLaunch(call.0, stream)
    }

    /// Destroys it. Its launches continue. Its context must be alive, because the driver would follow freed memory.
    pub fn end_one_call(&self, call: OneCall) -> CuResult<()> {
        self.cuGraphExecDestroy(call.0)
    }
}
