// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two libraries in front of NVIDIA's run-time compilers, for programs on an emulated GPU.
//!
//! `nvrtcGetCUBIN` and `nvJitLinkGetLinkedCubin` return machine code, which the emulator cannot execute. If device 0 is
//! emulated, they return the PTX that NVIDIA's library generated as an intermediate step: the driver's functions that
//! load modules accept either. All other calls go to NVIDIA's library, and with a real GPU all calls do.
#![allow(non_snake_case)]

mod behind;
mod device;
mod linker;
mod nvrtc;

pub use linker::*;
pub use nvrtc::*;

/// This symbol distinguishes a library of ours from NVIDIA's.
#[unsafe(no_mangle)]
pub extern "C" fn vhost_cuda_in_front() {}
