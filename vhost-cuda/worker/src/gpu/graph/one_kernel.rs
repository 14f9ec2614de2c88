// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A kernel as an executable graph of one node. Its parameters can differ at each launch.

use std::ptr::{null, null_mut};

use cudarc::driver::sys::CUDA_KERNEL_NODE_PARAMS;
use virtio_cuda_protocol::cuda::KernelNode;

use super::super::{
    CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUkernel, CUstream, CuResult, Driver, Launch,
};
use super::kernel::with_raw_kernel;

/// The code that a launch runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// A function of a module.
    Function(CUfunction),
    /// A kernel of a library.
    Kernel(CUkernel),
}

impl Code {
    /// Returns the code of a node, which has a function or a kernel.
    pub fn of(function: CUfunction, kernel: CUkernel) -> Self {
        if function.is_null() { Self::Kernel(kernel) } else { Self::Function(function) }
    }
}

/// The executable graph, and the graph and node that it was created from. The node identifies the parameters.
///
/// # Invariants
///
/// The three are alive and used only by this value until [`Driver::end_one_kernel`] takes it.
#[derive(Debug)]
pub struct OneKernel {
    graph: CUgraph,
    node: CUgraphNode,
    exec: CUgraphExec,
}

// SAFETY: the driver's handles belong to no thread, and only this value uses these (invariant).
unsafe impl Send for OneKernel {}

impl Driver {
    /// Creates one from a launch without attributes, in the current context.
    ///
    /// Errors: the driver's errors.
    pub fn one_kernel(&self, code: Code, launch: &Launch<'_>) -> CuResult<OneKernel> {
        let (graph,) = self.cuGraphCreate(0)?;
        let made = with_parameters(code, launch, |raw| {
            // SAFETY: no dependencies; the structure and what it leads to live across the call, which copies them.
            let (node,) = unsafe { self.cuGraphAddKernelNode_v2(graph, null(), 0, raw) }?;
            let (exec,) = self.cuGraphInstantiateWithFlags(graph, 0)?;
            Ok(OneKernel { graph, node, exec })
        });
        made.inspect_err(|_| {
            let _ = self.cuGraphDestroy(graph);
        })
    }

    /// Launches it with the parameters of `launch`, which has the code that it was created from.
    ///
    /// Errors: the driver's errors; then nothing was launched.
    pub fn launch_one_kernel(
        &self,
        kernel: &OneKernel,
        code: Code,
        launch: &Launch<'_>,
        stream: CUstream,
    ) -> CuResult<()> {
        with_parameters(code, launch, |raw| {
            // SAFETY: the structure and what it leads to live across the call, which copies them; launches that have begun
            // keep theirs (CUDA driver API, cuGraphExecKernelNodeSetParams).
            unsafe { self.cuGraphExecKernelNodeSetParams_v2(kernel.exec, kernel.node, raw) }
        })?;
        self.cuGraphLaunch(kernel.exec, stream)
    }

    /// Destroys it. Its launches continue. Its context must be alive, because the driver would follow freed memory.
    pub fn end_one_kernel(&self, kernel: OneKernel) -> CuResult<()> {
        let ended = self.cuGraphExecDestroy(kernel.exec);
        self.cuGraphDestroy(kernel.graph).and(ended)
    }
}

/// Passes the driver's structure for a launch to `body`.
fn with_parameters<T>(
    code: Code,
    launch: &Launch<'_>,
    body: impl FnOnce(*const CUDA_KERNEL_NODE_PARAMS) -> T,
) -> T {
    let Launch { shape, params, .. } = launch;
    let (function, kernel) = match code {
        Code::Function(function) => (function, null_mut()),
        Code::Kernel(kernel) => (null_mut(), kernel),
    };
    let shape = KernelNode {
        grid: shape.grid,
        block: shape.block,
        shared_bytes: shape.shared_bytes,
        ..KernelNode::default()
    };
    with_raw_kernel(function, kernel, &shape, params, |raw| body((&raw const raw).cast()))
}
