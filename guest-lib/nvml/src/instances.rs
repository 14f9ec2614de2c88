// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MIG instances: the profiles that the card supports. This machine has no instances.

use core::ffi::c_void;

use crate::error::{NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NOT_FOUND, Result};
use crate::getters::{ask, copy};
use crate::pointers::Out;
use crate::state::{self, nvmlDevice_t};

/// Rows of the table of getters: profiles by index and by name, each in the structure's versions 2 and 3.
const PROFILES: [u32; 2] = [0x64, 0x65];
const PROFILES_BY_ID: [u32; 2] = [0x66, 0x67];
const PLACEMENTS: u32 = 0x68;
const REMAINING: u32 = 0x69;
/// Bytes of `nvmlGpuInstanceProfileInfo_v2_t` and `_v3_t`.
const PROFILE_BYTES: u32 = 152;
/// Bytes of `nvmlGpuInstancePlacement_t`.
const PLACEMENT_BYTES: usize = 8;

/// # Safety
/// `info` is null or valid for the structure of the version in its first field.
unsafe fn profile(device: nvmlDevice_t, rows: [u32; 2], profile: u32, info: Out<u32>) -> Result {
    state::device(device)?;
    let version = info.get()?;
    let of = rows.iter().zip(2..).find(|(_, number)| PROFILE_BYTES | number << 24 == version);
    let (row, _) = of.ok_or(NVML_ERROR_INVALID_ARGUMENT)?;
    let results = ask(*row, Some(device), [profile.into(), 0, 0])?;
    // SAFETY: the structure has the bytes of this version by this function's contract, and the row has no more.
    unsafe { copy(results.of(1), info.as_ptr().cast()) };
    Ok(())
}

/// Stores all placements: the NVML call has no parameter for the room.
///
/// # Safety
/// `places` is null or has room for all placements.
unsafe fn placements(device: nvmlDevice_t, profile: u32, places: *mut u8, count: Out<u32>) -> Result {
    state::device(device)?;
    count.check()?;
    let results = ask(PLACEMENTS, Some(device), [profile.into(), 0, 0])?;
    let found = results.number(2);
    count.set(found)?;
    if !places.is_null() {
        let all = results.of(1);
        // SAFETY: not null, so there is room for all placements by this function's contract.
        unsafe { copy(&all[..all.len().min(found as usize * PLACEMENT_BYTES)], places) };
    }
    Ok(())
}

api! {
    fn nvmlDeviceGetGpuInstanceProfileInfoV(device: nvmlDevice_t, index: u32, info: Out<u32>) {
        // SAFETY: the program promises the structure of the version that it says, or null.
        unsafe { profile(device, PROFILES, index, info) }
    }

    fn nvmlDeviceGetGpuInstanceProfileInfoByIdV(device: nvmlDevice_t, id: u32, info: Out<u32>) {
        // SAFETY: the program promises the structure of the version that it says, or null.
        unsafe { profile(device, PROFILES_BY_ID, id, info) }
    }

    fn nvmlDeviceGetGpuInstancePossiblePlacements(
        device: nvmlDevice_t, profile: u32, places: *mut u8, count: Out<u32>,
    ) {
        if places.is_null() {
            return state::device(device).and(Err(NVML_ERROR_INVALID_ARGUMENT));
        }
        // SAFETY: the program promises room for all placements, or null, as NVML demands.
        unsafe { placements(device, profile, places, count) }
    }

    /// Without a list, returns the number of placements.
    fn nvmlDeviceGetGpuInstancePossiblePlacements_v2(
        device: nvmlDevice_t, profile: u32, places: *mut u8, count: Out<u32>,
    ) {
        // SAFETY: the program promises room for all placements, or null, as NVML demands.
        unsafe { placements(device, profile, places, count) }
    }

    /// No instances of any profile that the card supports.
    fn nvmlDeviceGetGpuInstances(device: nvmlDevice_t, profile: u32, list: *mut c_void, count: Out<u32>) {
        state::device(device)?;
        if list.is_null() || count.is_null() {
            return Err(NVML_ERROR_INVALID_ARGUMENT);
        }
        ask(REMAINING, Some(device), [profile.into(), 0, 0])?;
        count.set(0)
    }

    fn nvmlDeviceGetGpuInstanceById, nvmlDeviceGetMigDeviceHandleByIndex(
        device: nvmlDevice_t, _which: u32, found: *mut c_void,
    ) {
        state::device(device)?;
        Err(if found.is_null() { NVML_ERROR_INVALID_ARGUMENT } else { NVML_ERROR_NOT_FOUND })
    }

    /// A device is always a whole card.
    fn nvmlDeviceGetGpuInstanceId, nvmlDeviceGetComputeInstanceId(device: nvmlDevice_t, _id: *mut u32) {
        state::device(device).and(Err(NVML_ERROR_INVALID_ARGUMENT))
    }

    fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device: nvmlDevice_t, _card: *mut nvmlDevice_t) {
        state::device(device).and(Err(NVML_ERROR_INVALID_ARGUMENT))
    }
}
