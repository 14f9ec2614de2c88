// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The questions that the device runtime of kernels asks the driver.

use super::error::RuntimeError;
use crate::symbols::Kernel;

/// The reason for refusing a kernel's call about a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The call returns an error.
    Error(RuntimeError),
    /// The kernel is stopped. A device does not check handles, and this one is invalid.
    NoHandle,
}

impl From<RuntimeError> for Refusal {
    fn from(error: RuntimeError) -> Refusal {
        Refusal::Error(error)
    }
}

/// A kernel's change to a node of a graph.
#[derive(Debug, Clone, Copy)]
pub enum NodeChange<'a> {
    /// Enables or disables the node.
    Enabled(bool),
    /// Its blocks.
    Grid([u32; 3]),
    /// Bytes in its parameter buffer, from an offset on.
    Parameter(u64, &'a [u8]),
}

/// The device runtime for kernels. The answers of `()`, for kernels without a driver, are the defaults.
pub trait DeviceRuntime: Sync {
    /// cudaGetDevice
    fn ordinal(&self) -> i32 {
        0
    }

    /// cudaGetDeviceCount
    fn count(&self) -> i32 {
        1
    }

    /// cudaDeviceGetAttribute
    fn attribute(&self, _attribute: i32, _device: i32) -> Result<i32, RuntimeError> {
        Err(RuntimeError::NOT_SUPPORTED)
    }

    /// cudaDeviceGetLimit
    fn limit(&self, _limit: u32) -> Result<u64, RuntimeError> {
        Err(RuntimeError::UNSUPPORTED_LIMIT)
    }

    /// cudaDeviceGetCacheConfig and cudaDeviceGetSharedMemConfig
    fn configurations(&self) -> [u32; 2] {
        [0, 1]
    }

    /// Checks that a kernel can be launched in this shape with so many bytes of dynamic shared memory.
    fn check(
        &self,
        kernel: &Kernel,
        grid: [u32; 3],
        block: [u32; 3],
        _shared: u32,
    ) -> Result<(), RuntimeError> {
        let threads = block.iter().try_fold(1_u32, |n, size| n.checked_mul(*size));
        let possible = threads.is_some_and(|threads| (1..=kernel.max_threads).contains(&threads));
        if possible && !grid.contains(&0) { Ok(()) } else { Err(RuntimeError::INVALID_CONFIGURATION) }
    }

    /// cudaOccupancyMaxActiveBlocksPerMultiprocessor
    fn active_blocks(&self, _kernel: &Kernel, _threads: i32, _dynamic: u64) -> Result<i32, RuntimeError> {
        Err(RuntimeError::NOT_SUPPORTED)
    }

    /// A CUfunction_attribute of a kernel.
    fn function_attribute(&self, _kernel: &Kernel, _attribute: u32) -> Result<i32, RuntimeError> {
        Err(RuntimeError::NOT_SUPPORTED)
    }

    /// cudaLimitDevRuntimePendingLaunchCount
    fn pending_launches(&self) -> usize {
        2048
    }

    /// cudaGetCurrentGraphExec: the executable graph that the kernel is a node of, if kernels can launch that; else 0.
    fn current_graph(&self) -> u64 {
        0
    }

    /// cudaGraphLaunch
    fn launch_graph(&self, _exec: u64, _stream: u64) -> Result<(), Refusal> {
        Err(Refusal::Error(RuntimeError::NOT_SUPPORTED))
    }

    /// cudaGraphKernelNodeUpdatesApply, for one change.
    fn change_node(&self, _node: u64, _change: NodeChange<'_>) -> Result<(), Refusal> {
        Err(Refusal::Error(RuntimeError::NOT_SUPPORTED))
    }

    /// A number for `%gridid`.
    fn next_grid_id(&self) -> u64 {
        0
    }
}

impl DeviceRuntime for () {}
