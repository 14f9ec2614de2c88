// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Running a kernel over a grid, and the ways in which it can fail.

use std::sync::atomic::AtomicBool;

use thiserror::Error;

use crate::execute::{Printf, grid};
use crate::memory::Memory;
use crate::nested::{Children, DeviceRuntime, Family};
use crate::program::{Kernel, Program};

/// Bytes of shared memory beyond which no device goes.
const MAX_SHARED_BYTES: u32 = 1 << 20;

/// Blocks of a cluster that hardware allows at most.
const MAX_CLUSTER_BLOCKS: u32 = 16;

/// Blocks in each dimension that every compute capability allows.
const MAX_GRID: [u32; 3] = [(1 << 31) - 1, (1 << 16) - 1, (1 << 16) - 1];

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
    /// Threads of a block in each dimension, each at least 1, at most 1024 together.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    /// The parameter buffer, `kernel.param_bytes` long.
    pub params: &'a [u8],
    /// Blocks of a cluster in each dimension, when the launch says so; else the kernel's own.
    pub cluster: Option<[u32; 3]>,
    /// The device's memory.
    pub memory: &'a Memory,
    /// The output of device printf.
    pub printf: &'a Printf,
    /// cuLaunchCooperativeKernel: all blocks run side by side and may wait for each other.
    pub cooperative: bool,
    /// Set by another thread to end the launch early; checked every few milliseconds.
    pub cancel: &'a AtomicBool,
    /// The maximum number of host threads that work on it, at least 1.
    pub workers: usize,
    /// The value of `%nsmid`, at least 1.
    pub multiprocessors: u32,
    /// Most bytes of local memory a thread may use for its call stack; cudaLimitStackSize is a lower bound for it.
    pub stack_bytes: u32,
    /// A number for `%gridid`.
    pub grid_id: u64,
    /// The device runtime for the kernel; `&()` without a driver.
    pub device: &'a dyn DeviceRuntime,
}

/// Executes the grid and all that it launches, and returns when all blocks have ended, the first fault has stopped it or
/// it was cancelled.
pub fn launch(launch: &Launch<'_>) -> Result<(), Fault> {
    Family::launch(launch)
}

/// Executes one grid; what it launches goes to `children`.
pub(crate) fn once(launch: &Launch<'_>, children: &Children<'_>) -> Result<(), Fault> {
    let code = &launch.program.code;
    let refuse = |message: String| Err(grid::shapeless(launch, message));
    let Some(entry) = code.entries.get(&launch.kernel.name) else {
        return refuse(format!("kernel `{}` is not of this program", launch.kernel.name));
    };
    let threads = launch.block.iter().try_fold(1_u32, |n, size| n.checked_mul(*size)).unwrap_or(u32::MAX);
    let too_many = launch.grid.iter().zip(MAX_GRID).any(|(blocks, most)| *blocks == 0 || *blocks > most);
    if threads == 0 || threads > launch.kernel.max_threads || too_many {
        let (grid, block) = (launch.grid, launch.block);
        return refuse(format!("grid {grid:?} with blocks {block:?} is not possible"));
    }
    let cluster = launch.cluster.or(launch.kernel.cluster).unwrap_or([1; 3]);
    let divides = launch.grid.iter().zip(cluster).all(|(blocks, size)| size > 0 && blocks % size == 0);
    let blocks = cluster.iter().try_fold(1_u32, |n, size| n.checked_mul(*size));
    if !divides || blocks.is_none_or(|blocks| blocks > MAX_CLUSTER_BLOCKS) {
        return refuse(format!("clusters {cluster:?} in a grid {:?} are not possible", launch.grid));
    }
    if launch.global_addresses.len() < launch.program.globals.len() {
        return refuse("too few addresses of module variables".to_owned());
    }
    if launch.dynamic_shared > MAX_SHARED_BYTES {
        return refuse(format!("{} bytes of dynamic shared memory", launch.dynamic_shared));
    }
    grid::run(launch, code, entry, children)
}

/// The reason for which a kernel was stopped: the first fault of the first thread that had one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct Fault {
    /// The kind of fault.
    pub kind: FaultKind,
    /// The kernel's name.
    pub kernel: String,
    /// blockIdx.
    pub block: [u32; 3],
    /// threadIdx.
    pub thread: [u32; 3],
    /// The address of a memory fault, else 0.
    pub address: u64,
    /// The line of the PTX text, from 1.
    pub ptx_line: u32,
    /// One line that names all of the above; for an assertion, CUDA's own line.
    pub message: String,
}

/// The kinds of [`Fault`], each with the driver API's error for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// CUDA_ERROR_ILLEGAL_ADDRESS: outside every allocation.
    IllegalAddress = 700,
    /// CUDA_ERROR_LAUNCH_TIMEOUT: ended by [`Launch::cancel`].
    Cancelled = 702,
    /// CUDA_ERROR_ASSERT
    Assert = 710,
    /// CUDA_ERROR_ILLEGAL_INSTRUCTION
    IllegalInstruction = 715,
    /// CUDA_ERROR_MISALIGNED_ADDRESS
    Misaligned = 716,
    /// CUDA_ERROR_INVALID_ADDRESS_SPACE
    InvalidAddressSpace = 717,
    /// CUDA_ERROR_INVALID_PC: an indirect call of something that is not a function.
    InvalidPc = 718,
    /// CUDA_ERROR_LAUNCH_FAILED: trap, barriers that can never complete, a stack overflow.
    LaunchFailed = 719,
}

impl FaultKind {
    /// The CUresult.
    pub fn code(self) -> u32 {
        self as u32
    }
}
