// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What monitors ask of the card beyond its sensors, as far as the host knows it.

use std::time::{SystemTime, UNIX_EPOCH};

use virtio_cuda_client::calls;

use crate::error::nvmlReturn_t;
use crate::error::{NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NOT_SUPPORTED, NVML_SUCCESS, Result, of_call};
use crate::sensors::{POWER, POWER_LIMIT, give, sensor};
use crate::state::{self, nvmlDevice_t};

/// Places in the reply of the row `nvml_card`.
const THRESHOLDS: usize = 4;
const DEFAULT_POWER_LIMIT: usize = 4;
const LEAST_POWER_LIMIT: usize = 5;
const GREATEST_POWER_LIMIT: usize = 6;
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

/// The largest `nvmlTemperatureThresholds_t` and `nvmlClockType_t`.
const LAST_THRESHOLD: u32 = 6;
const LAST_CLOCK: u32 = 3;

/// `NVML_FI_DEV_*`.
mod field {
    pub const ENERGY: u32 = 83;
    pub const REPLACED_ROWS: u32 = 142;
    pub const ROWS_FAILED: u32 = 145;
    pub const POWER_INSTANT: u32 = 186;
    pub const LEAST_POWER_LIMIT: u32 = 187;
    pub const GREATEST_POWER_LIMIT: u32 = 188;
    pub const DEFAULT_POWER_LIMIT: u32 = 189;
    pub const POWER_LIMIT: u32 = 190;
}

/// `nvmlValueType_t`.
const UNSIGNED_INT: u32 = 1;
const UNSIGNED_LONG_LONG: u32 = 3;

#[repr(C)]
pub struct nvmlFieldValue_t {
    fieldId: u32,
    scopeId: u32,
    timestamp: i64,
    latencyUsec: i64,
    valueType: u32,
    nvmlReturn: nvmlReturn_t,
    value: u64,
}
const _: () = assert!(size_of::<nvmlFieldValue_t>() == 40);

fn long(device: nvmlDevice_t, which: usize) -> Result<u64> {
    let device = state::device(device)?;
    let values = calls::nvml_card(&mut state::session()?.call(), device.number).map_err(of_call)?;
    if values[which] == u64::MAX { Err(NVML_ERROR_NOT_SUPPORTED) } else { Ok(values[which]) }
}

fn short(device: nvmlDevice_t, which: usize) -> Result<u32> {
    u32::try_from(long(device, which)?).map_err(|_| NVML_ERROR_NOT_SUPPORTED)
}

/// A clock of a pair (SM, memory); the graphics clock is the SM clock.
fn clock(device: nvmlDevice_t, kind: u32, first: usize) -> Result<u32> {
    match kind {
        0 | 1 => short(device, first),
        2 => short(device, first + 1),
        LAST_CLOCK => state::device(device).and(Err(NVML_ERROR_NOT_SUPPORTED)),
        _ => state::device(device).and(Err(NVML_ERROR_INVALID_ARGUMENT)),
    }
}

/// Type and value of a field.
fn field_value(device: nvmlDevice_t, field: u32) -> Result<(u32, u64)> {
    let of_card = |which| Ok((UNSIGNED_INT, long(device, which)?));
    match field {
        field::ENERGY => Ok((UNSIGNED_LONG_LONG, long(device, ENERGY)?)),
        field::REPLACED_ROWS..=field::ROWS_FAILED => {
            of_card(REPLACED_ROWS + (field - field::REPLACED_ROWS) as usize)
        }
        field::POWER_INSTANT => Ok((UNSIGNED_INT, sensor(device, POWER)?.into())),
        field::LEAST_POWER_LIMIT => of_card(LEAST_POWER_LIMIT),
        field::GREATEST_POWER_LIMIT => of_card(GREATEST_POWER_LIMIT),
        field::DEFAULT_POWER_LIMIT => of_card(DEFAULT_POWER_LIMIT),
        field::POWER_LIMIT => Ok((UNSIGNED_INT, sensor(device, POWER_LIMIT)?.into())),
        _ => Err(NVML_ERROR_NOT_SUPPORTED),
    }
}

api! {
    fn nvmlDeviceGetTemperatureThreshold(device: nvmlDevice_t, kind: u32, temperature: *mut u32) {
        if kind > LAST_THRESHOLD {
            return state::device(device).and(Err(NVML_ERROR_INVALID_ARGUMENT));
        }
        give(temperature, || match kind as usize {
            kind if kind < THRESHOLDS => short(device, kind),
            _ => state::device(device).and(Err(NVML_ERROR_NOT_SUPPORTED)),
        })
    }

    fn nvmlDeviceGetPowerManagementDefaultLimit(device: nvmlDevice_t, milliwatts: *mut u32) {
        give(milliwatts, || short(device, DEFAULT_POWER_LIMIT))
    }

    fn nvmlDeviceGetPowerManagementLimitConstraints(device: nvmlDevice_t, least: *mut u32, greatest: *mut u32) {
        if greatest.is_null() {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        give(least, || short(device, LEAST_POWER_LIMIT))?;
        give(greatest, || short(device, GREATEST_POWER_LIMIT))
    }

    fn nvmlDeviceGetPowerManagementMode(device: nvmlDevice_t, enabled: *mut u32) {
        give(enabled, || short(device, POWER_MANAGED))
    }

    fn nvmlDeviceGetTotalEnergyConsumption(device: nvmlDevice_t, millijoules: *mut u64) {
        give(millijoules, || long(device, ENERGY))
    }

    fn nvmlDeviceGetCurrentClocksThrottleReasons, nvmlDeviceGetCurrentClocksEventReasons(
        device: nvmlDevice_t, reasons: *mut u64,
    ) {
        give(reasons, || long(device, CLOCK_REASONS))
    }

    fn nvmlDeviceGetSupportedClocksThrottleReasons, nvmlDeviceGetSupportedClocksEventReasons(
        device: nvmlDevice_t, reasons: *mut u64,
    ) {
        give(reasons, || long(device, KNOWN_CLOCK_REASONS))
    }

    fn nvmlDeviceGetNumFans(device: nvmlDevice_t, count: *mut u32) {
        give(count, || short(device, FANS))
    }

    fn nvmlDeviceGetFanSpeed(device: nvmlDevice_t, per_cent: *mut u32) {
        give(per_cent, || short(device, FAN_SPEED))
    }

    fn nvmlDeviceGetMaxCustomerBoostClock(device: nvmlDevice_t, kind: u32, mhz: *mut u32) {
        give(mhz, || clock(device, kind, HIGHEST_CLOCKS))
    }

    fn nvmlDeviceGetApplicationsClock(device: nvmlDevice_t, kind: u32, mhz: *mut u32) {
        give(mhz, || clock(device, kind, APPLICATION_CLOCKS))
    }

    fn nvmlDeviceGetDefaultApplicationsClock(device: nvmlDevice_t, kind: u32, mhz: *mut u32) {
        give(mhz, || clock(device, kind, DEFAULT_CLOCKS))
    }

    fn nvmlDeviceGetRemappedRows(
        device: nvmlDevice_t, correctable: *mut u32, uncorrectable: *mut u32, pending: *mut u32, failed: *mut u32,
    ) {
        let places = [correctable, uncorrectable, pending, failed];
        if places.iter().any(|place| place.is_null()) {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        for (index, place) in places.into_iter().enumerate() {
            give(place, || short(device, REPLACED_ROWS + index))?;
        }
        Ok(())
    }

    /// Fields that are not known say so, each for itself.
    fn nvmlDeviceGetFieldValues(device: nvmlDevice_t, count: i32, values: *mut nvmlFieldValue_t) {
        state::device(device)?;
        if count <= 0 || values.is_null() {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        for value in core::slice::from_raw_parts_mut(values, count as usize) {
            let found = field_value(device, value.fieldId);
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            value.timestamp = now.map_or(0, |now| now.as_micros() as i64);
            value.latencyUsec = 0;
            value.nvmlReturn = found.err().unwrap_or(NVML_SUCCESS);
            (value.valueType, value.value) = found.unwrap_or((UNSIGNED_INT, 0));
        }
        Ok(())
    }
}
