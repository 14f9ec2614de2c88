// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Device addresses are addresses of the worker's process. Natively the driver reserves them in the program's address
//! space, so that an address is either host or device memory. This file does the same.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Granularity of reservations, which is also that of the driver's allocations.
const GRANULE: u64 = 2 << 20;
/// Device memory has no address below: Linux leaves these addresses unmapped (`vm.mmap_min_addr`), so that a null
/// pointer faults. A privileged process could map them if a damaged reply of the device contained them.
pub const LOWEST: u64 = 64 << 10;
/// Maximum bytes to reserve at once. A longer range can only come from a damaged reply of the device.
const MAX_BYTES: u64 = 1 << 40;

/// The granules that were requested, and whether they could be reserved.
#[derive(Debug, Default)]
pub struct Claims(Mutex<BTreeMap<u64, bool>>);

impl Claims {
    /// Reserves `bytes` from `start` on against host memory, where they are still free.
    pub fn claim(&self, start: u64, bytes: u64) {
        if bytes == 0 || bytes > MAX_BYTES || start < LOWEST {
            return;
        }
        let Some(end) = start.checked_add(bytes) else { return };
        let mut claimed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut granule = start / GRANULE;
        let last = (end - 1) / GRANULE;
        while granule <= last {
            let run = (granule..=last).take_while(|granule| !claimed.contains_key(granule)).count() as u64;
            if run == 0 {
                granule += 1;
            } else if reserve(granule, run) {
                claimed.extend((granule..granule + run).map(|granule| (granule, true)));
                granule += run;
            } else {
                // Some granule of the run is in use: reserve them one by one.
                claimed.extend((granule..granule + run).map(|granule| (granule, reserve(granule, 1))));
                granule += run;
            }
        }
    }

    /// Returns whether this file has reserved the whole range, so that the program can have nothing there.
    pub fn owns(&self, start: u64, bytes: u64) -> bool {
        let claimed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(end) = start.checked_add(bytes).filter(|_| bytes > 0) else { return false };
        (start / GRANULE..=(end - 1) / GRANULE).all(|granule| claimed.get(&granule) == Some(&true))
    }
}

/// Reserves granules.
fn reserve(first: u64, count: u64) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let (address, bytes) = (first * GRANULE, count * GRANULE);
    // SAFETY: a new, inaccessible mapping that replaces nothing.
    let at = unsafe { libc::mmap(address as *mut _, bytes as usize, libc::PROT_NONE, flags, -1, 0) };
    if at as u64 == address {
        return true;
    }
    // Only calls that classify an address by its value alone can be wrong then.
    log::debug!("Device memory at {address:#x} shares its address with memory of this process");
    if at != libc::MAP_FAILED {
        // SAFETY: the mapping was made just above, by a kernel that took the address for a hint.
        unsafe { libc::munmap(at, bytes as usize) };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_mapped(address: u64) -> bool {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
        maps.lines().any(|line| {
            let (low, high) =
                line.split_once(' ').and_then(|(range, _)| range.split_once('-')).expect("range");
            let parse = |text| u64::from_str_radix(text, 16).expect("hexadecimal");
            (parse(low)..parse(high)).contains(&address)
        })
    }

    #[test]
    fn claimed_addresses_are_taken() {
        let claims = Claims::default();
        let start = 0x1234_5600_0000;
        claims.claim(start + 100, 3 << 20);
        assert!(is_mapped(start) && is_mapped(start + (4 << 20) - 1));
        assert!(!is_mapped(start + (4 << 20)));
        claims.claim(start, 5 << 20);
        assert!(is_mapped(start + (5 << 20)));
        assert!(claims.owns(start, 6 << 20));
        assert!(!claims.owns(start, (6 << 20) + 1));
        claims.claim(u64::MAX - 5, 100);
        claims.claim(0, 100);
        assert!(!claims.owns(0, 1) && !is_mapped(0));
    }

    #[test]
    fn memory_of_the_program_is_not_owned() {
        let claims = Claims::default();
        let mine = vec![0u8; 8 << 20];
        let address = mine.as_ptr() as u64;
        claims.claim(address, 8 << 20);
        assert!(!claims.owns(address, 1));
    }
}
