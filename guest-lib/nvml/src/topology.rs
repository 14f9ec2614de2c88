// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Proximity of devices to each other and to processors.

use crate::error::{NVML_ERROR_INVALID_ARGUMENT, Result};
use crate::getters::ask;
use crate::pointers::Out;
use crate::state::{self, Device, nvmlDevice_t};

/// The row of the table of getters for `nvmlDeviceGetTopologyCommonAncestor`.
const COMMON_ANCESTOR: u32 = 0x61;

/// Stores as many devices as fit; without a list and with room for none, returns their number.
///
/// # Safety
/// `list` is null or has room for `count` devices.
unsafe fn give_list(found: &[nvmlDevice_t], count: Out<u32>, list: *mut nvmlDevice_t) -> Result {
    let room = count.get()?;
    if list.is_null() != (room == 0) {
        return Err(NVML_ERROR_INVALID_ARGUMENT);
    }
    if list.is_null() {
        return count.set(found.len() as u32);
    }
    let given = found.len().min(room as usize);
    count.set(given as u32)?;
    // SAFETY: not null, so there is room for `room` devices by this function's contract.
    unsafe { core::ptr::copy_nonoverlapping(found.as_ptr(), list, given) };
    Ok(())
}

/// Returns the devices whose nearest common ancestor with `device` is at `level` (`nvmlGpuTopologyLevel_t`).
fn at_level(device: nvmlDevice_t, level: u32) -> Result<Vec<nvmlDevice_t>> {
    let own = state::device(device)?.number;
    let mut found = Vec::new();
    for other in state::devices()?.iter().filter(|other| other.number != own) {
        let answer = ask(COMMON_ANCESTOR, Some(device), [other.number.into(), 0, 0])?;
        found.extend((answer.number(1) == level).then(|| other.handle()));
    }
    Ok(found)
}

api! {
    fn nvmlDeviceGetTopologyNearestGpus(
        device: nvmlDevice_t, level: u32, count: Out<u32>, list: *mut nvmlDevice_t,
    ) {
        state::device(device)?;
        // SAFETY: the program promises room for as many devices as it says, or null.
        unsafe { give_list(&at_level(device, level)?, count, list) }
    }

    /// In a virtual machine all devices are near every processor.
    fn nvmlSystemGetTopologyGpuSet(_processor: u32, count: Out<u32>, list: *mut nvmlDevice_t) {
        let all: Vec<_> = state::devices()?.iter().map(Device::handle).collect();
        // SAFETY: the program promises room for as many devices as it says, or null.
        unsafe { give_list(&all, count, list) }
    }
}
