// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Video and JPEG engines, and MIG. A virtual machine has none of these, so their utilisation is 0.

use crate::error::{NVML_ERROR_INVALID_ARGUMENT, Result};
use crate::pointers::Out;
use crate::state::{self, nvmlDevice_t};

/// The period over which NVML measures an engine, in microseconds.
const PERIOD: u32 = 100_000;

#[repr(C)]
pub struct nvmlFBCStats_t {
    sessionsCount: u32,
    averageFPS: u32,
    averageLatency: u32,
}

fn unused(device: nvmlDevice_t, per_cent: Out<u32>, period: Out<u32>) -> Result {
    state::device(device)?;
    period.check()?;
    per_cent.set(0)?;
    period.set(PERIOD)
}

api! {
    fn nvmlDeviceGetEncoderUtilization, nvmlDeviceGetDecoderUtilization(
        device: nvmlDevice_t, per_cent: Out<u32>, period: Out<u32>,
    ) {
        unused(device, per_cent, period)
    }

    fn nvmlDeviceGetJpgUtilization, nvmlDeviceGetOfaUtilization(
        device: nvmlDevice_t, per_cent: Out<u32>, period: Out<u32>,
    ) {
        unused(device, per_cent, period)
    }

    fn nvmlDeviceGetEncoderStats(
        device: nvmlDevice_t, sessions: Out<u32>, frames: Out<u32>, latency: Out<u32>,
    ) {
        state::device(device)?;
        if sessions.is_null() || frames.is_null() {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        latency.set(0)?;
        sessions.set(0)?;
        frames.set(0)
    }

    fn nvmlDeviceGetFBCStats(device: nvmlDevice_t, stats: Out<nvmlFBCStats_t>) {
        state::device(device)?;
        stats.set(nvmlFBCStats_t { sessionsCount: 0, averageFPS: 0, averageLatency: 0 })
    }

    /// MIG is disabled and stays disabled.
    fn nvmlDeviceGetMigMode(device: nvmlDevice_t, current: Out<u32>, pending: Out<u32>) {
        state::device(device)?;
        if pending.is_null() {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        current.set(0)?;
        pending.set(0)
    }
}
