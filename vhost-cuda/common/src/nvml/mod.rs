// SPDX-License-Identifier: Apache-2.0 OR MIT
//! NVIDIA's management library (NVML): GPU memory before a context exists, and the guests' queries.

mod fields;
mod getters;
mod rows;

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::ManuallyDrop;

use cuda_abi::{nvmlMemory_t, nvmlProcessInfo_v2_t};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};

/// The size in bytes of the buffer for the driver's release (`NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE`).
pub const DRIVER_VERSION_BYTES: usize = 80;
/// The number of values in the row `nvml_sensors`.
pub const SENSORS: usize = 12;
/// The number of values in the row `nvml_card`.
pub const CARD_VALUES: usize = 23;
/// `nvmlClockType_t`.
const CLOCK_SM: c_int = 1;
const CLOCK_MEMORY: c_int = 2;
/// The maximum number of queried processes per device.
const MAX_PROCESSES: usize = 1024;
const NVML_ERROR_NOT_FOUND: c_int = 6;
/// The maximum number of queried GPUs. Hosts have fewer.
const MAX_DEVICES: u32 = 64;

/// `nvmlProcessUtilizationSample_t`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct ProcessSample {
    /// The process id.
    pub pid: u32,
    /// The time of the sample, in microseconds since 1970.
    pub time: u64,
    /// The percentage of time in which a kernel of the process was executed.
    pub compute: u32,
    /// The percentage of time in which the process read or wrote device memory.
    pub memory: u32,
    /// The utilization of the video encoder in per cent.
    pub encoder: u32,
    /// The utilization of the video decoder in per cent.
    pub decoder: u32,
}

type Get = unsafe extern "C" fn(*mut c_void, *mut nvmlMemory_t) -> c_int;

/// A device of the library.
///
/// # Invariants
///
/// `device` is a handle that the library returned, and `get` is a function of the library.
#[derive(Debug)]
pub struct Nvml {
    device: *mut c_void,
    get: Symbol<Get>,
    /// The library of `get`. Never closed, because the library does not support a second initialisation in a process.
    library: ManuallyDrop<Library>,
}

// SAFETY: the library may be used from every thread, and so may its handles.
unsafe impl Send for Nvml {}
// SAFETY: the library locks its shared state.
unsafe impl Sync for Nvml {}

impl Nvml {
    /// Returns the device at a PCI address, or `None` if there is no such library, or it does not know the device, as with
    /// the emulator.
    pub fn at(pci: &CStr) -> Option<Self> {
        // SAFETY: the library is NVIDIA's own, found as its other programs find it; the prototypes are nvml.h's.
        unsafe {
            let library = Library::open(Some("libnvidia-ml.so.1"), RTLD_NOW | RTLD_LOCAL).ok()?;
            let init: Symbol<unsafe extern "C" fn() -> c_int> = symbol(&library, c"nvmlInit_v2")?;
            let find: Symbol<unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int> =
                symbol(&library, c"nvmlDeviceGetHandleByPciBusId_v2")?;
            let get = symbol(&library, c"nvmlDeviceGetMemoryInfo")?;
            let mut device = std::ptr::null_mut();
            let found = init() == 0 && find(pci.as_ptr(), &raw mut device) == 0;
            found.then_some(Self { device, get, library: ManuallyDrop::new(library) })
        }
    }

    /// Returns all devices of this host that the library reports.
    pub fn all() -> Vec<Self> {
        (0..MAX_DEVICES).map_while(Self::numbered).collect()
    }

    fn numbered(index: u32) -> Option<Self> {
        // SAFETY: the library is NVIDIA's own, found as its other programs find it; the prototypes are nvml.h's.
        unsafe {
            let library = Library::open(Some("libnvidia-ml.so.1"), RTLD_NOW | RTLD_LOCAL).ok()?;
            let init: Symbol<unsafe extern "C" fn() -> c_int> = symbol(&library, c"nvmlInit_v2")?;
            let find: Symbol<unsafe extern "C" fn(u32, *mut *mut c_void) -> c_int> =
                symbol(&library, c"nvmlDeviceGetHandleByIndex_v2")?;
            let get = symbol(&library, c"nvmlDeviceGetMemoryInfo")?;
            let mut device = std::ptr::null_mut();
            let found = init() == 0 && find(index, &raw mut device) == 0;
            found.then_some(Self { device, get, library: ManuallyDrop::new(library) })
        }
    }

    /// Returns its current memory use.
    pub fn memory(&self) -> Option<nvmlMemory_t> {
        let mut memory = nvmlMemory_t::default();
        // SAFETY: by the invariant; `memory` is a local of the right layout.
        let result = unsafe { (self.get)(self.device, &raw mut memory) };
        (result == 0).then_some(memory)
    }

    /// Returns the driver's release as NUL-terminated text.
    pub fn driver_version(&self) -> Option<[u8; DRIVER_VERSION_BYTES]> {
        let mut text = [0; DRIVER_VERSION_BYTES];
        // SAFETY: the prototype is nvml.h's; the library writes at most the length of `text`.
        let result = unsafe {
            let get: Symbol<unsafe extern "C" fn(*mut u8, u32) -> c_int> =
                symbol(&self.library, c"nvmlSystemGetDriverVersion")?;
            get(text.as_mut_ptr(), text.len() as u32)
        };
        (result == 0).then_some(text)
    }

    /// Returns the bytes of device memory that these processes use.
    pub fn memory_of(&self, processes: &[u32]) -> Option<u64> {
        let all = self.processes()?;
        Some(all.iter().filter(|(pid, _)| processes.contains(pid)).map(|(_, used)| used).sum())
    }

    /// Returns the processes that compute on the device, and the bytes of its memory that each one uses.
    pub fn processes(&self) -> Option<Vec<(u32, u64)>> {
        let mut list = [nvmlProcessInfo_v2_t::default(); MAX_PROCESSES];
        let mut count = MAX_PROCESSES as u32;
        // SAFETY: the prototype is nvml.h's; the library writes at most `count` entries.
        let result = unsafe {
            let get: Symbol<unsafe extern "C" fn(*mut c_void, *mut u32, *mut nvmlProcessInfo_v2_t) -> c_int> =
                symbol(&self.library, c"nvmlDeviceGetComputeRunningProcesses_v3")?;
            get(self.device, &raw mut count, list.as_mut_ptr())
        };
        let known = list.iter().take(count as usize).filter(|process| process.used != u64::MAX);
        (result == 0).then(|| known.map(|process| (process.pid, process.used)).collect())
    }

    /// Returns the recent utilization of the device by these processes in per cent: computing and memory.
    pub fn utilization_of(&self, processes: &[u32]) -> Option<(u32, u32)> {
        let samples = self.samples_since(0)?;
        Some(latest_sum(samples.iter().filter(|sample| processes.contains(&sample.pid))))
    }

    /// Returns samples of the device's utilization by processes after `since`, in microseconds since 1970. There is
    /// no sample for a process that did not use it.
    pub fn samples_since(&self, since: u64) -> Option<Vec<ProcessSample>> {
        let mut list = vec![ProcessSample::default(); MAX_PROCESSES];
        let mut count = MAX_PROCESSES as u32;
        // SAFETY: the prototype is nvml.h's; the library writes at most `count` entries.
        let result = unsafe {
            let get: Symbol<unsafe extern "C" fn(*mut c_void, *mut ProcessSample, *mut u32, u64) -> c_int> =
                symbol(&self.library, c"nvmlDeviceGetProcessUtilization")?;
            get(self.device, list.as_mut_ptr(), &raw mut count, since)
        };
        match result {
            0 => {}
            // No process has used it.
            NVML_ERROR_NOT_FOUND => count = 0,
            _ => return None,
        }
        list.truncate(count as usize);
        Some(list)
    }

    /// Returns the values of the row `nvml_sensors`.
    pub fn sensors(&self) -> [u32; SENSORS] {
        const GPU_TEMPERATURE: c_int = 0;
        [
            self.value_of(c"nvmlDeviceGetTemperature", GPU_TEMPERATURE),
            self.value(c"nvmlDeviceGetPowerUsage"),
            self.value(c"nvmlDeviceGetEnforcedPowerLimit"),
            self.value_of(c"nvmlDeviceGetClockInfo", CLOCK_SM),
            self.value_of(c"nvmlDeviceGetClockInfo", CLOCK_MEMORY),
            self.value_of(c"nvmlDeviceGetMaxClockInfo", CLOCK_SM),
            self.value_of(c"nvmlDeviceGetMaxClockInfo", CLOCK_MEMORY),
            self.value(c"nvmlDeviceGetPerformanceState"),
            self.value(c"nvmlDeviceGetCurrPcieLinkGeneration"),
            self.value(c"nvmlDeviceGetCurrPcieLinkWidth"),
            self.value(c"nvmlDeviceGetMaxPcieLinkGeneration"),
            self.value(c"nvmlDeviceGetMaxPcieLinkWidth"),
        ]
        .map(|value| value.unwrap_or(u32::MAX))
    }

    /// Returns the values of the row `nvml_card`.
    pub fn card(&self) -> [u64; CARD_VALUES] {
        let threshold = |which| self.value_of(c"nvmlDeviceGetTemperatureThreshold", which).map(u64::from);
        let clock = |name, which| self.value_of(name, which).map(u64::from);
        let limits: Option<[u32; 2]> = self.values(c"nvmlDeviceGetPowerManagementLimitConstraints");
        let rows: Option<[u32; 4]> = self.remapped_rows();
        let limit = |index: usize| limits.map(|limits| u64::from(limits[index]));
        let row = |index: usize| rows.map(|rows| u64::from(rows[index]));
        let (customer, applications) =
            (c"nvmlDeviceGetMaxCustomerBoostClock", c"nvmlDeviceGetApplicationsClock");
        let default_clock = c"nvmlDeviceGetDefaultApplicationsClock";
        [
            threshold(0),
            threshold(1),
            threshold(2),
            threshold(3),
            self.value(c"nvmlDeviceGetPowerManagementDefaultLimit").map(u64::from),
            limit(0),
            limit(1),
            self.value(c"nvmlDeviceGetPowerManagementMode").map(u64::from),
            self.long(c"nvmlDeviceGetTotalEnergyConsumption"),
            self.long(c"nvmlDeviceGetCurrentClocksThrottleReasons"),
            self.long(c"nvmlDeviceGetSupportedClocksThrottleReasons"),
            self.value(c"nvmlDeviceGetNumFans").map(u64::from),
            self.value(c"nvmlDeviceGetFanSpeed").map(u64::from),
            clock(customer, CLOCK_SM),
            clock(customer, CLOCK_MEMORY),
            clock(applications, CLOCK_SM),
            clock(applications, CLOCK_MEMORY),
            clock(default_clock, CLOCK_SM),
            clock(default_clock, CLOCK_MEMORY),
            row(0),
            row(1),
            row(2),
            row(3),
        ]
        .map(|value| value.unwrap_or(u64::MAX))
    }

    fn long(&self, name: &CStr) -> Option<u64> {
        let mut value = 0;
        // SAFETY: functions of these names take a device and a place for a long number.
        let result = unsafe {
            let get: Symbol<unsafe extern "C" fn(*mut c_void, *mut u64) -> c_int> =
                symbol(&self.library, name)?;
            get(self.device, &raw mut value)
        };
        (result == 0).then_some(value)
    }

    fn values(&self, name: &CStr) -> Option<[u32; 2]> {
        let mut values = [0; 2];
        let [first, second] = &mut values;
        // SAFETY: functions of these names take a device and places for two numbers.
        let result = unsafe {
            let get: Symbol<unsafe extern "C" fn(*mut c_void, *mut u32, *mut u32) -> c_int> =
                symbol(&self.library, name)?;
            get(self.device, first, second)
        };
        (result == 0).then_some(values)
    }

    fn remapped_rows(&self) -> Option<[u32; 4]> {
        let mut values = [0; 4];
        let [first, second, third, fourth] = &mut values;
        // SAFETY: the prototype is nvml.h's; the places are locals.
        let result = unsafe {
            let get: Symbol<
                unsafe extern "C" fn(*mut c_void, *mut u32, *mut u32, *mut u32, *mut u32) -> c_int,
            > = symbol(&self.library, c"nvmlDeviceGetRemappedRows")?;
            get(self.device, first, second, third, fourth)
        };
        (result == 0).then_some(values)
    }

    fn value(&self, name: &CStr) -> Option<u32> {
        let mut value = 0;
        // SAFETY: functions of these names take a device and a place for a number.
        let result = unsafe {
            let get: Symbol<unsafe extern "C" fn(*mut c_void, *mut u32) -> c_int> =
                symbol(&self.library, name)?;
            get(self.device, &raw mut value)
        };
        (result == 0).then_some(value)
    }

    fn value_of(&self, name: &CStr, which: c_int) -> Option<u32> {
        let mut value = 0;
        // SAFETY: functions of these names take a device, an enumeration and a place for a number.
        let result = unsafe {
            let get: Symbol<unsafe extern "C" fn(*mut c_void, c_int, *mut u32) -> c_int> =
                symbol(&self.library, name)?;
            get(self.device, which, &raw mut value)
        };
        (result == 0).then_some(value)
    }
}

/// Returns the sum of each process's latest sample, at most 100 per cent.
fn latest_sum<'s>(samples: impl Iterator<Item = &'s ProcessSample>) -> (u32, u32) {
    let mut latest: HashMap<u32, &ProcessSample> = HashMap::new();
    for sample in samples {
        let known = latest.entry(sample.pid).or_insert(sample);
        if sample.time > known.time {
            *known = sample;
        }
    }
    let sum =
        |part: fn(&ProcessSample) -> u32| latest.values().map(|sample| part(sample).min(100)).sum::<u32>();
    (sum(|sample| sample.compute).min(100), sum(|sample| sample.memory).min(100))
}

/// Returns a function of `library`.
///
/// # Safety
///
/// `T` must be its type.
unsafe fn symbol<T>(library: &Library, name: &CStr) -> Option<Symbol<T>> {
    // SAFETY: `T` is the function's type by this function's contract.
    unsafe { library.get(name.to_bytes_with_nul()) }.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_latest_sample_of_a_process_counts() {
        let sample =
            |pid, time, compute| ProcessSample { pid, time, compute, memory: 1, ..Default::default() };
        assert_eq!(latest_sum([sample(1, 5, 10), sample(1, 9, 30), sample(2, 1, 20)].iter()), (50, 2));
        assert_eq!(latest_sum([sample(1, 5, 80), sample(2, 9, 300)].iter()), (100, 2));
        assert_eq!(latest_sum([].iter()), (0, 0));
    }
}
