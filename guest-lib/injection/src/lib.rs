// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `libvhost-cuda-injection.so`: records calls, the work of GPUs ([`cupti`]) and the ranges of NVTX ([`nvtx`]) of the program that
//! loads it, and sends them to `vhost-cuda-prof` ([`sink`]).
//!
//! `vhost-cuda-prof` puts a link to this library beside its socket, and names the link in `CUDA_INJECTION64_PATH` and
//! `NVTX_INJECTION64_PATH`. So the library finds the socket by its own path.

mod cupti;
mod nvtx;
mod sink;

use std::ffi::c_int;

/// Begins to record calls and work. `cuInit` calls it, in NVIDIA's driver as in ours. Returns 1, or 0 if there is nobody to send to.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> c_int {
    c_int::from(sink::get().is_some_and(cupti::begin))
}
