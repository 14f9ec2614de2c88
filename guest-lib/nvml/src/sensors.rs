// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Utilisation and sensors, as far as the host provides them.

use virtio_cuda_client::calls;

use crate::error::{NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NOT_SUPPORTED, Result, of_call};
use crate::getters::ask;
use crate::pointers::Out;
use crate::state::{self, nvmlDevice_t};

/// Indices into the reply of the row `nvml_sensors`.
pub const TEMPERATURE: usize = 0;
const POWER: usize = 1;
const POWER_LIMIT: usize = 2;
const PERFORMANCE_STATE: usize = 7;
const PCIE_GENERATION: usize = 8;
const PCIE_WIDTH: usize = 9;
const MAX_PCIE_GENERATION: usize = 10;
const MAX_PCIE_WIDTH: usize = 11;

/// `nvmlClockType_t`; the graphics clock is the SM clock.
const CLOCK_GRAPHICS: u32 = 0;
const CLOCK_SM: u32 = 1;
const CLOCK_MEMORY: u32 = 2;
const LAST_CLOCK: u32 = 3;
const OTHER_CLOCKS: u32 = LAST_CLOCK + 1;
/// Rows of the table of getters for `nvmlDeviceGetClockInfo`, `nvmlDeviceGetMaxClockInfo` and `nvmlDeviceGetClock`.
const CLOCK: u32 = 0x40;
const MAX_CLOCK: u32 = 0x41;
const CLOCK_OF: u32 = 0x42;
/// `CU_DEVICE_ATTRIBUTE_CLOCK_RATE` and `…_MEMORY_CLOCK_RATE`, in kHz.
const CLOCK_RATE: usize = 13;
const MEMORY_CLOCK_RATE: usize = 36;

#[repr(C)]
pub struct nvmlUtilization_t {
    gpu: u32,
    memory: u32,
}

/// Returns the value at an index of the reply.
pub fn sensor(device: nvmlDevice_t, which: usize) -> Result<u32> {
    let device = state::device(device)?;
    let values = calls::nvml_sensors(&mut state::call()?, device.ordinal()).map_err(of_call)?;
    if values[which] == u32::MAX { Err(NVML_ERROR_NOT_SUPPORTED) } else { Ok(values[which]) }
}

api! {
    fn nvmlDeviceGetUtilizationRates(device: nvmlDevice_t, utilization: Out<nvmlUtilization_t>) {
        utilization.give(|| {
            let device = state::device(device)?;
            let used = calls::nvml_utilization(&mut state::call()?, device.ordinal());
            let (gpu, memory) = used.map_err(of_call)?;
            Ok(nvmlUtilization_t { gpu, memory })
        })
    }

    fn nvmlDeviceGetTemperature(device: nvmlDevice_t, sensor_type: u32, temperature: Out<u32>) {
        if sensor_type != 0 {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        temperature.give(|| sensor(device, TEMPERATURE))
    }

    fn nvmlDeviceGetPowerUsage(device: nvmlDevice_t, milliwatts: Out<u32>) {
        milliwatts.give(|| sensor(device, POWER))
    }

    fn nvmlDeviceGetEnforcedPowerLimit, nvmlDeviceGetPowerManagementLimit(
        device: nvmlDevice_t, milliwatts: Out<u32>,
    ) {
        milliwatts.give(|| sensor(device, POWER_LIMIT))
    }

    /// Other clock types are not supported, which is not an invalid argument.
    fn nvmlDeviceGetClockInfo(device: nvmlDevice_t, kind: u32, mhz: Out<u32>) {
        mhz.give(|| match kind {
            ..=LAST_CLOCK => Ok(ask(CLOCK, Some(device), [kind.into(), 0, 0])?.number(1)),
            _ => state::device(device).and(Err(NVML_ERROR_NOT_SUPPORTED)),
        })
    }

    /// Same as above, for current clocks.
    fn nvmlDeviceGetClock(device: nvmlDevice_t, kind: u32, id: u32, mhz: Out<u32>) {
        mhz.give(|| match (kind, id) {
            (OTHER_CLOCKS.., 0) => state::device(device).and(Err(NVML_ERROR_NOT_SUPPORTED)),
            _ => Ok(ask(CLOCK_OF, Some(device), [kind.into(), id.into(), 0])?.number(2)),
        })
    }

    /// If the card does not answer, returns CUDA's clock rate.
    fn nvmlDeviceGetMaxClockInfo(device: nvmlDevice_t, kind: u32, mhz: Out<u32>) {
        let by_attribute = |error| match kind {
            CLOCK_GRAPHICS | CLOCK_SM => Ok(state::device(device)?.attribute(CLOCK_RATE)? / 1000),
            CLOCK_MEMORY => Ok(state::device(device)?.attribute(MEMORY_CLOCK_RATE)? / 1000),
            _ => Err(error),
        };
        mhz.give(|| {
            let answer = ask(MAX_CLOCK, Some(device), [kind.into(), 0, 0]);
            answer.map(|answer| answer.number(1)).or_else(by_attribute)
        })
    }

    fn nvmlDeviceGetPerformanceState, nvmlDeviceGetPowerState(device: nvmlDevice_t, state: Out<u32>) {
        state.give(|| sensor(device, PERFORMANCE_STATE))
    }

    fn nvmlDeviceGetCurrPcieLinkGeneration(device: nvmlDevice_t, generation: Out<u32>) {
        generation.give(|| sensor(device, PCIE_GENERATION))
    }

    fn nvmlDeviceGetCurrPcieLinkWidth(device: nvmlDevice_t, width: Out<u32>) {
        width.give(|| sensor(device, PCIE_WIDTH))
    }

    fn nvmlDeviceGetMaxPcieLinkGeneration, nvmlDeviceGetGpuMaxPcieLinkGeneration(
        device: nvmlDevice_t, generation: Out<u32>,
    ) {
        generation.give(|| sensor(device, MAX_PCIE_GENERATION))
    }

    fn nvmlDeviceGetMaxPcieLinkWidth(device: nvmlDevice_t, width: Out<u32>) {
        width.give(|| sensor(device, MAX_PCIE_WIDTH))
    }
}
