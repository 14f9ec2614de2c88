// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data of the card other than sensors, as far as the host provides it.

use virtio_cuda_client::calls;

use crate::error::{
    NVML_ERROR_INSUFFICIENT_SIZE, NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NOT_SUPPORTED, Result, of_call,
};
use crate::getters::{ask, copy};
use crate::pointers::Out;
use crate::state::{self, nvmlDevice_t};

/// The row of the table of getters for `nvmlDeviceGetSupportedPerformanceStates`, and the size of its result in bytes.
const STATES: u32 = 0x4d;
const STATES_BYTES: u32 = 64;
/// Maximum number of bytes to fill in a longer array.
const MAX_STATES_BYTES: u32 = 1024;
/// `NVML_PSTATE_UNKNOWN`.
const STATE_UNKNOWN: u32 = 32;

/// Indices into the reply of the row `nvml_card`.
const DEFAULT_POWER_LIMIT: usize = 4;
const MIN_POWER_LIMIT: usize = 5;
const MAX_POWER_LIMIT: usize = 6;
const POWER_MANAGED: usize = 7;
const ENERGY: usize = 8;
const CLOCK_REASONS: usize = 9;
const KNOWN_CLOCK_REASONS: usize = 10;
const FANS: usize = 11;
const FAN_SPEED: usize = 12;
const HIGHEST_CLOCKS: usize = 13;
const APPLICATION_CLOCKS: usize = 15;
const DEFAULT_CLOCKS: usize = 17;
const REPLACED_ROWS: usize = 19;

/// The largest `nvmlClockType_t`.
const LAST_CLOCK: u32 = 3;

fn long(device: nvmlDevice_t, which: usize) -> Result<u64> {
    let device = state::device(device)?;
    let values = calls::nvml_card(&mut state::call()?, device.ordinal()).map_err(of_call)?;
    if values[which] == u64::MAX { Err(NVML_ERROR_NOT_SUPPORTED) } else { Ok(values[which]) }
}

fn short(device: nvmlDevice_t, which: usize) -> Result<u32> {
    u32::try_from(long(device, which)?).map_err(|_| NVML_ERROR_NOT_SUPPORTED)
}

/// Returns one clock of a pair (SM, memory). The graphics clock is the SM clock.
fn clock(device: nvmlDevice_t, kind: u32, first: usize) -> Result<u32> {
    match kind {
        0 | 1 => short(device, first),
        2 => short(device, first + 1),
        LAST_CLOCK => state::device(device).and(Err(NVML_ERROR_NOT_SUPPORTED)),
        _ => state::device(device).and(Err(NVML_ERROR_INVALID_ARGUMENT)),
    }
}

api! {
    fn nvmlDeviceGetPowerManagementDefaultLimit(device: nvmlDevice_t, milliwatts: Out<u32>) {
        milliwatts.give(|| short(device, DEFAULT_POWER_LIMIT))
    }

    fn nvmlDeviceGetPowerManagementLimitConstraints(device: nvmlDevice_t, least: Out<u32>, greatest: Out<u32>) {
        if greatest.is_null() {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        least.give(|| short(device, MIN_POWER_LIMIT))?;
        greatest.give(|| short(device, MAX_POWER_LIMIT))
    }

    fn nvmlDeviceGetPowerManagementMode(device: nvmlDevice_t, enabled: Out<u32>) {
        enabled.give(|| short(device, POWER_MANAGED))
    }

    fn nvmlDeviceGetTotalEnergyConsumption(device: nvmlDevice_t, millijoules: Out<u64>) {
        millijoules.give(|| long(device, ENERGY))
    }

    fn nvmlDeviceGetCurrentClocksThrottleReasons, nvmlDeviceGetCurrentClocksEventReasons(
        device: nvmlDevice_t, reasons: Out<u64>,
    ) {
        reasons.give(|| long(device, CLOCK_REASONS))
    }

    fn nvmlDeviceGetSupportedClocksThrottleReasons, nvmlDeviceGetSupportedClocksEventReasons(
        device: nvmlDevice_t, reasons: Out<u64>,
    ) {
        reasons.give(|| long(device, KNOWN_CLOCK_REASONS))
    }

    fn nvmlDeviceGetNumFans(device: nvmlDevice_t, count: Out<u32>) {
        count.give(|| short(device, FANS))
    }

    fn nvmlDeviceGetFanSpeed(device: nvmlDevice_t, per_cent: Out<u32>) {
        per_cent.give(|| short(device, FAN_SPEED))
    }

    fn nvmlDeviceGetMaxCustomerBoostClock(device: nvmlDevice_t, kind: u32, mhz: Out<u32>) {
        mhz.give(|| clock(device, kind, HIGHEST_CLOCKS))
    }

    fn nvmlDeviceGetApplicationsClock(device: nvmlDevice_t, kind: u32, mhz: Out<u32>) {
        mhz.give(|| clock(device, kind, APPLICATION_CLOCKS))
    }

    fn nvmlDeviceGetDefaultApplicationsClock(device: nvmlDevice_t, kind: u32, mhz: Out<u32>) {
        mhz.give(|| clock(device, kind, DEFAULT_CLOCKS))
    }

    /// Writes as many states as fit.
    fn nvmlDeviceGetSupportedPerformanceStates(device: nvmlDevice_t, states: *mut u8, bytes: u32) {
        state::device(device)?;
        if states.is_null() || bytes == 0 {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        if bytes < 4 {
            return Err(NVML_ERROR_INSUFFICIENT_SIZE);
        }
        let answer = ask(STATES, Some(device), [STATES_BYTES.into(), 0, 0])?;
        // SAFETY: not null, so the program promises `bytes` bytes, and no more are written.
        unsafe { copy(&answer.of(0)[..bytes.min(STATES_BYTES) as usize], states) };
        for place in (STATES_BYTES..bytes.min(MAX_STATES_BYTES).saturating_sub(3)).step_by(4) {
            // SAFETY: four bytes at `place` lie below `bytes`, which the program promises.
            unsafe { copy(&STATE_UNKNOWN.to_ne_bytes(), states.add(place as usize)) };
        }
        Ok(())
    }

    fn nvmlDeviceGetRemappedRows(
        device: nvmlDevice_t, correctable: Out<u32>, uncorrectable: Out<u32>, pending: Out<u32>, failed: Out<u32>,
    ) {
        let places = [correctable, uncorrectable, pending, failed];
        if places.iter().any(|place| place.is_null()) {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        for (index, place) in places.into_iter().enumerate() {
            place.give(|| short(device, REPLACED_ROWS + index))?;
        }
        Ok(())
    }
}
