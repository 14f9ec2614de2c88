// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `libvhost-cuda-injection.so`: records calls, the work of GPUs ([`cupti`]), the ranges of NVTX ([`nvtx`]) and what the worker does
//! ([`records`]) of the program that loads it, and sends them to `vhost-cuda-prof` ([`sink`]).
//!
//! `vhost-cuda-prof` puts a link to this library beside its socket, and names the link in `CUDA_INJECTION64_PATH` and
//! `NVTX_INJECTION64_PATH`. So the library finds the socket by its own path.

mod cupti;
mod nvtx;
mod records;
mod sink;
mod started;
mod texts;

use std::ffi::c_int;
use std::time::{SystemTime, UNIX_EPOCH};

/// Begins to record calls and work. `cuInit` calls it, in NVIDIA's driver as in ours. Returns 1, or 0 if there is nobody to send to.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> c_int {
    let Some(sink) = sink::get() else { return 0 };
    if sink.wants_timeline() {
        records::begin();
    }
    c_int::from(cupti::begin(sink))
}

/// Returns the time of CUPTI's records: that of day, in nanoseconds.
fn time_of_day() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}
