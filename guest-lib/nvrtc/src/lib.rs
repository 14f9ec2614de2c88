// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two libraries that stand in front of NVIDIA's compilers at run time, for programs on an emulated GPU.
//!
//! `nvrtcGetCUBIN` and `nvJitLinkGetLinkedCubin` give machine code, which the emulator cannot execute. Where device 0 is
//! emulated, they give the PTX that NVIDIA's library has made on the way: the driver's functions that load modules
//! take either. Everything else is NVIDIA's library's, and so is all where there is a real GPU.
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
