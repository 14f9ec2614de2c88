// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Event sets. The device reports no events; `nvidia-smi` creates a set and never waits for it.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::{
    NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_TIMEOUT, NVML_ERROR_UNKNOWN, Result,
};
use crate::pointers::Out;
use crate::state::{self, nvmlDevice_t};

/// The handles of the existing sets.
static SETS: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());
/// Limits this process's memory if a program never frees its sets. No program needs as many.
const MAX_SETS: usize = 1024;

fn sets() -> MutexGuard<'static, BTreeSet<usize>> {
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for the whole time, because there are no events.
fn wait(set: usize, milliseconds: u32) -> Result {
    state::devices()?;
    if !sets().contains(&set) {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    std::thread::sleep(Duration::from_millis(milliseconds.into()));
    Err(NVML_ERROR_TIMEOUT)
}

api! {
    fn nvmlEventSetCreate(set: Out<usize>) {
        state::devices()?;
        let mut sets = sets();
        if sets.len() >= MAX_SETS {
            return Err(NVML_ERROR_UNKNOWN);
        }
        let handle = sets.last().map_or(1, |last| last + 1);
        set.set(handle)?;
        sets.insert(handle);
        Ok(())
    }

    fn nvmlEventSetFree(set: usize) {
        if sets().remove(&set) { Ok(()) } else { Err(NVML_ERROR_INVALID_ARGUMENT) }
    }

    fn nvmlDeviceGetSupportedEventTypes(device: nvmlDevice_t, types: Out<u64>) {
        state::device(device)?;
        types.set(0)
    }

    fn nvmlDeviceRegisterEvents(device: nvmlDevice_t, types: u64, set: usize) {
        state::device(device)?;
        if !sets().contains(&set) {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        if types == 0 { Ok(()) } else { Err(NVML_ERROR_NOT_SUPPORTED) }
    }

    fn nvmlEventSetWait, nvmlEventSetWait_v2(set: usize, event: *mut u8, milliseconds: u32) {
        if event.is_null() {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        wait(set, milliseconds)
    }
}
