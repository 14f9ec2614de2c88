// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Engines for pictures and MIG: a virtual machine has none of these, so nothing of them is in use.

use crate::api::store;
use crate::error::{NVML_ERROR_INVALID_ARGUMENT, Result};
use crate::state::{self, nvmlDevice_t};

/// For how long NVML watches an engine, in microseconds.
const PERIOD: u32 = 100_000;

#[repr(C)]
pub struct nvmlFBCStats_t {
    sessionsCount: u32,
    averageFPS: u32,
    averageLatency: u32,
}

/// # Safety
/// Both places are null or valid.
unsafe fn unused(device: nvmlDevice_t, per_cent: *mut u32, period: *mut u32) -> Result {
    state::device(device)?;
    if period.is_null() {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    // SAFETY: this function's contract.
    unsafe {
        store(per_cent, 0)?;
        store(period, PERIOD)
    }
}

api! {
    fn nvmlDeviceGetEncoderUtilization, nvmlDeviceGetDecoderUtilization(
        device: nvmlDevice_t, per_cent: *mut u32, period: *mut u32,
    ) {
        unused(device, per_cent, period)
    }

    fn nvmlDeviceGetJpgUtilization, nvmlDeviceGetOfaUtilization(
        device: nvmlDevice_t, per_cent: *mut u32, period: *mut u32,
    ) {
        unused(device, per_cent, period)
    }

    fn nvmlDeviceGetEncoderStats(
        device: nvmlDevice_t, sessions: *mut u32, frames: *mut u32, latency: *mut u32,
    ) {
        state::device(device)?;
        if sessions.is_null() || frames.is_null() {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        store(latency, 0)?;
        store(sessions, 0)?;
        store(frames, 0)
    }

    fn nvmlDeviceGetFBCStats(device: nvmlDevice_t, stats: *mut nvmlFBCStats_t) {
        state::device(device)?;
        store(stats, nvmlFBCStats_t { sessionsCount: 0, averageFPS: 0, averageLatency: 0 })
    }

    /// Disabled, and to stay so.
    fn nvmlDeviceGetMigMode(device: nvmlDevice_t, current: *mut u32, pending: *mut u32) {
        state::device(device)?;
        if pending.is_null() {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        store(current, 0)?;
        store(pending, 0)
    }
}
