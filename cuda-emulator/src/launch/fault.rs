// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ways in which a kernel can fail.

use thiserror::Error;

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
    /// One line that contains all of the above; for an assertion, CUDA's own line.
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
