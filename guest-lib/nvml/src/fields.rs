// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values that are requested by number: fields of the card, and the traffic of its PCIe link.

use std::time::{SystemTime, UNIX_EPOCH};

use virtio_cuda_client::calls;

use crate::error::{
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH, NVML_ERROR_INVALID_ARGUMENT, NVML_SUCCESS, Result, of_call,
};
use crate::pointers::Out;
use crate::sensors::{TEMPERATURE, sensor};
use crate::state::{self, nvmlDevice_t};
use cuda_abi::{nvmlFieldValue_t, nvmlMarginTemperature_v1_t};

/// `NVML_VALUE_TYPE_UNSIGNED_INT`.
const UNSIGNED_INT: u32 = 1;

/// Exceeds the number of fields in all their scopes, so that only an invalid count is refused.
const MAX_VALUES: i32 = 4096;

/// Indices into the results of the row `nvml_value`; the first two are `nvmlPcieUtilCounter_t`.
const RECEIVED: u32 = 1;
const REPLAYS: u32 = 2;
const MARGIN: u32 = 3;

#[repr(C)]
pub struct nvmlTemperature_v1_t {
    version: u32,
    sensorType: u32,
    temperature: i32,
}

/// Returns `NVML_STRUCT_VERSION` of a structure's first version.
const fn version<T>() -> u32 {
    size_of::<T>() as u32 | 1 << 24
}

/// Returns the type and the value of a field.
fn field_value(device: nvmlDevice_t, field: u32, scope: u32) -> Result<(u32, u64)> {
    let device = state::device(device)?;
    if field == 0 {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    calls::nvml_field(&mut state::call()?, device.ordinal(), field, scope).map_err(of_call)
}

fn single(device: nvmlDevice_t, which: u32) -> Result<u32> {
    let device = state::device(device)?;
    calls::nvml_value(&mut state::call()?, device.ordinal(), which).map_err(of_call)
}

api! {
    /// Unknown fields get an error each in `nvmlReturn`; the call succeeds.
    fn nvmlDeviceGetFieldValues(device: nvmlDevice_t, count: i32, values: *mut nvmlFieldValue_t) {
        state::device(device)?;
        if count <= 0 || count > MAX_VALUES || values.is_null() {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        for index in 0..count as usize {
            // SAFETY: not null, so the program promises `count` values there.
            let (place, mut value) = unsafe {
                let place = values.add(index);
                (place, place.read())
            };
            let found = field_value(device, value.field, value.scope);
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            value.time = now.map_or(0, |now| now.as_micros() as i64);
            value.latency = 0;
            value.result = found.err().unwrap_or(NVML_SUCCESS).0;
            (value.kind, value.value) = found.unwrap_or((UNSIGNED_INT, 0));
            // SAFETY: the same place, which the program lets this function write.
            unsafe { place.write(value) };
        }
        Ok(())
    }

    /// Takes 20 ms, during which the host measures the link.
    fn nvmlDeviceGetPcieThroughput(device: nvmlDevice_t, counter: u32, kilobytes: Out<u32>) {
        if counter > RECEIVED {
            return state::device(device).and(Err(NVML_ERROR_INVALID_ARGUMENT));
        }
        kilobytes.give(|| single(device, counter))
    }

    fn nvmlDeviceGetPcieReplayCounter(device: nvmlDevice_t, count: Out<u32>) {
        count.give(|| single(device, REPLAYS))
    }

    fn nvmlDeviceGetTemperatureV(device: nvmlDevice_t, temperature: *mut nvmlTemperature_v1_t) {
        // SAFETY: the program promises a structure, or null.
        let Some(temperature) = (unsafe { temperature.as_mut() }) else { return Err(NVML_ERROR_INVALID_ARGUMENT) };
        if temperature.version != version::<nvmlTemperature_v1_t>() {
            return Err(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
        }
        if temperature.sensorType != 0 {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        temperature.temperature = sensor(device, TEMPERATURE)? as i32;
        Ok(())
    }

    fn nvmlDeviceGetMarginTemperature(device: nvmlDevice_t, margin: *mut nvmlMarginTemperature_v1_t) {
        // SAFETY: the program promises a structure, or null.
        let Some(margin) = (unsafe { margin.as_mut() }) else { return Err(NVML_ERROR_INVALID_ARGUMENT) };
        if margin.version != version::<nvmlMarginTemperature_v1_t>() {
            return Err(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
        }
        margin.degrees = single(device, MARGIN)?.cast_signed();
        Ok(())
    }
}
