// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Utilisation and sensors, as far as the host knows them.

use virtio_cuda_client::calls;

use crate::api::store;
use crate::error::{NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NOT_SUPPORTED, Result, of_call};
use crate::state::{self, nvmlDevice_t};

/// Places in the reply of the row `nvml_sensors`.
pub const TEMPERATURE: usize = 0;
const POWER: usize = 1;
const POWER_LIMIT: usize = 2;
const SM_CLOCK: usize = 3;
const MEMORY_CLOCK: usize = 4;
const MAX_SM_CLOCK: usize = 5;
const MAX_MEMORY_CLOCK: usize = 6;
const PERFORMANCE_STATE: usize = 7;
const PCIE_GENERATION: usize = 8;
const PCIE_WIDTH: usize = 9;
const MAX_PCIE_GENERATION: usize = 10;
const MAX_PCIE_WIDTH: usize = 11;

/// `nvmlClockType_t`; the graphics clock is the SM clock.
const CLOCK_GRAPHICS: u32 = 0;
const CLOCK_SM: u32 = 1;
const CLOCK_MEMORY: u32 = 2;
const CLOCK_VIDEO: u32 = 3;
/// The largest `nvmlClockId_t`.
const CLOCK_IDS: u32 = 3;
/// `CU_DEVICE_ATTRIBUTE_CLOCK_RATE` and `…_MEMORY_CLOCK_RATE`, in kHz.
const CLOCK_RATE: usize = 13;
const MEMORY_CLOCK_RATE: usize = 36;

#[repr(C)]
pub struct nvmlUtilization_t {
    gpu: u32,
    memory: u32,
}

/// One of the values.
pub fn sensor(device: nvmlDevice_t, which: usize) -> Result<u32> {
    let device = state::device(device)?;
    let values = calls::nvml_sensors(&mut state::session()?.call(), device.number).map_err(of_call)?;
    if values[which] == u32::MAX { Err(NVML_ERROR_NOT_SUPPORTED) } else { Ok(values[which]) }
}

fn clock(device: nvmlDevice_t, kind: u32) -> Result<u32> {
    match kind {
        CLOCK_GRAPHICS | CLOCK_SM => sensor(device, SM_CLOCK),
        CLOCK_MEMORY => sensor(device, MEMORY_CLOCK),
        _ => state::device(device).and(Err(NVML_ERROR_NOT_SUPPORTED)),
    }
}

/// Stores what `value` finds; a null pointer is noticed first.
///
/// # Safety
/// `to` is null or valid.
pub unsafe fn give<T>(to: *mut T, value: impl FnOnce() -> Result<T>) -> Result {
    if to.is_null() {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    // SAFETY: the caller's contract.
    unsafe { store(to, value()?) }
}

api! {
    fn nvmlDeviceGetUtilizationRates(device: nvmlDevice_t, utilization: *mut nvmlUtilization_t) {
        give(utilization, || {
            let device = state::device(device)?;
            let used = calls::nvml_utilization(&mut state::session()?.call(), device.number);
            let (gpu, memory) = used.map_err(of_call)?;
            Ok(nvmlUtilization_t { gpu, memory })
        })
    }

    fn nvmlDeviceGetTemperature(device: nvmlDevice_t, sensor_type: u32, temperature: *mut u32) {
        if sensor_type != 0 {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        give(temperature, || sensor(device, TEMPERATURE))
    }

    fn nvmlDeviceGetPowerUsage(device: nvmlDevice_t, milliwatts: *mut u32) {
        give(milliwatts, || sensor(device, POWER))
    }

    fn nvmlDeviceGetEnforcedPowerLimit, nvmlDeviceGetPowerManagementLimit(
        device: nvmlDevice_t, milliwatts: *mut u32,
    ) {
        give(milliwatts, || sensor(device, POWER_LIMIT))
    }

    fn nvmlDeviceGetClockInfo(device: nvmlDevice_t, kind: u32, mhz: *mut u32) {
        give(mhz, || clock(device, kind))
    }

    /// The current clocks only.
    fn nvmlDeviceGetClock(device: nvmlDevice_t, kind: u32, id: u32, mhz: *mut u32) {
        if id != 0 {
            // Boost and application clocks are not told; others there are not.
            let known = if id <= CLOCK_IDS { NVML_ERROR_NOT_SUPPORTED } else { NVML_ERROR_INVALID_ARGUMENT };
            return state::device(device).and(Err(known));
        }
        give(mhz, || clock(device, kind))
    }

    fn nvmlDeviceGetMaxClockInfo(device: nvmlDevice_t, kind: u32, mhz: *mut u32) {
        let (which, attribute) = match kind {
            CLOCK_GRAPHICS | CLOCK_SM => (MAX_SM_CLOCK, CLOCK_RATE),
            CLOCK_MEMORY => (MAX_MEMORY_CLOCK, MEMORY_CLOCK_RATE),
            CLOCK_VIDEO => return state::device(device).and(Err(NVML_ERROR_NOT_SUPPORTED)),
            _ => return state::device(device).and(Err(NVML_ERROR_INVALID_ARGUMENT)),
        };
        let by_attribute = || Ok(state::device(device)?.attribute(attribute)? / 1000);
        give(mhz, || sensor(device, which).or_else(|_| by_attribute()))
    }

    fn nvmlDeviceGetPerformanceState, nvmlDeviceGetPowerState(device: nvmlDevice_t, state: *mut u32) {
        give(state, || sensor(device, PERFORMANCE_STATE))
    }

    fn nvmlDeviceGetCurrPcieLinkGeneration(device: nvmlDevice_t, generation: *mut u32) {
        give(generation, || sensor(device, PCIE_GENERATION))
    }

    fn nvmlDeviceGetCurrPcieLinkWidth(device: nvmlDevice_t, width: *mut u32) {
        give(width, || sensor(device, PCIE_WIDTH))
    }

    fn nvmlDeviceGetMaxPcieLinkGeneration, nvmlDeviceGetGpuMaxPcieLinkGeneration(
        device: nvmlDevice_t, generation: *mut u32,
    ) {
        give(generation, || sensor(device, MAX_PCIE_GENERATION))
    }

    fn nvmlDeviceGetMaxPcieLinkWidth(device: nvmlDevice_t, width: *mut u32) {
        give(width, || sensor(device, MAX_PCIE_WIDTH))
    }
}
