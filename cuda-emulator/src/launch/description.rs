// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Everything that one kernel launch needs.

use std::sync::atomic::AtomicBool;

use super::fault::{Fault, FaultKind};
use crate::code::program::Program;
use crate::execute::Printf;
use crate::memory::Memory;
use crate::nested::DeviceRuntime;
use crate::symbols::Kernel;

/// Everything that one kernel launch needs.
pub struct Launch<'a> {
    /// The module.
    pub program: &'a Program,
    /// The entry point, one of `program.kernels`.
    pub kernel: &'a Kernel,
    /// The device address of each entry of `program.globals`.
    pub global_addresses: &'a [u64],
    /// Blocks in each dimension, each at least 1.
    pub grid: [u32; 3],
    /// Threads of a block in each dimension, each at least 1. Their product is at most 1024.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    /// The parameter buffer, `kernel.param_bytes` long.
    pub params: &'a [u8],
    /// Blocks of a cluster in each dimension. `None`: those that the kernel declares.
    pub cluster: Option<[u32; 3]>,
    /// The device's memory.
    pub memory: &'a Memory,
    /// The output of device printf.
    pub printf: &'a Printf,
    /// cuLaunchCooperativeKernel: all blocks run concurrently and may wait for each other.
    pub cooperative: bool,
    /// Another thread sets it to end the launch early. It is checked every few milliseconds.
    pub cancel: &'a AtomicBool,
    /// The maximum number of host threads that work on it, at least 1.
    pub workers: usize,
    /// The value of `%nsmid`, at least 1.
    pub multiprocessors: u32,
    /// The maximum number of bytes of local memory that a thread may use for its call stack, at least cudaLimitStackSize.
    pub stack_bytes: u32,
    /// A number for `%gridid`.
    pub grid_id: u64,
    /// The device runtime for the kernel; `&()` without a driver.
    pub device: &'a dyn DeviceRuntime,
}

impl Launch<'_> {
    /// A failure of the launch as a whole.
    pub(crate) fn failure(&self, message: String) -> Fault {
        Fault {
            kind: FaultKind::LaunchFailed,
            kernel: self.kernel.name.clone(),
            block: [0; 3],
            thread: [0; 3],
            address: 0,
            ptx_line: 0,
            message,
        }
    }
}
