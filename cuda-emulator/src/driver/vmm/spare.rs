// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Addresses that were released. They stay mapped as long as the process lives, and are reused only for memory of
//! this kind. So an access that was checked before, on another thread, finds plain memory and never other memory of
//! the process.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::driver::memory::place::{blank, reserve_place};
use crate::driver::result::{CUresult, CuResult};

static SPARE: Mutex<Spare> = Mutex::new(Spare(BTreeMap::new()));

/// The lengths of places by their first addresses.
///
/// # Invariants
/// Each range of [`SPARE`] is mapped and unused. Ranges do not overlap; adjacent ones are merged.
struct Spare(BTreeMap<u64, u64>);

impl Spare {
    fn add(&mut self, mut base: u64, mut bytes: u64) {
        let before = self.0.range(..base).next_back().map(|(start, length)| (*start, *length));
        if let Some((start, length)) = before.filter(|(start, length)| start + length == base) {
            self.0.remove(&start);
            (base, bytes) = (start, bytes + length);
        }
        bytes += self.0.remove(&(base + bytes)).unwrap_or(0);
        self.0.insert(base, bytes);
    }

    /// Takes a range at an address.
    fn take_at(&mut self, at: u64, bytes: u64) -> Option<u64> {
        let (start, length) = self.0.range(..=at).next_back().map(|(start, length)| (*start, *length))?;
        let (end, all) = (at.checked_add(bytes)?, start + length);
        if end > all {
            return None;
        }
        self.0.remove(&start);
        if at > start {
            self.0.insert(start, at - start);
        }
        if all > end {
            self.0.insert(end, all - end);
        }
        Some(at)
    }

    /// Takes the first range that is long enough.
    fn take(&mut self, bytes: u64, alignment: u64) -> Option<u64> {
        let aligned = |start: u64| start.checked_next_multiple_of(alignment);
        let at = self.0.iter().find_map(|(start, length)| {
            let at = aligned(*start)?;
            (at.checked_add(bytes)? <= start + length).then_some(at)
        })?;
        self.take_at(at, bytes)
    }
}

/// Reserves unused, inaccessible addresses, at `hint` if these are free. `alignment` is a power of two of at least a
/// page.
pub(crate) fn reserve(bytes: u64, alignment: u64, hint: u64) -> CuResult<u64> {
    let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut found = None;
    if hint != 0 && hint.is_multiple_of(alignment) {
        found = spare.take_at(hint, bytes);
        if found.is_none() {
            // SAFETY: MAP_FIXED_NOREPLACE: a place that nothing uses.
            let start = unsafe { blank(hint, bytes, libc::PROT_NONE, libc::MAP_FIXED_NOREPLACE) };
            if start as u64 == hint {
                return Ok(hint);
            }
        }
    }
    let Some(base) = found.or_else(|| spare.take(bytes, alignment)) else {
        return reserve_place(bytes, alignment, hint);
    };
    // SAFETY: a place that was nobody's (invariant) and is out of the table.
    let place = unsafe { blank(base, bytes, libc::PROT_NONE, libc::MAP_FIXED) };
    if place == libc::MAP_FAILED {
        spare.add(base, bytes);
        return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    }
    Ok(base)
}

/// Releases addresses of [`reserve`], including their mappings.
///
/// # Safety
/// Only the caller may use them, and no device may use them any longer.
pub(crate) unsafe fn give_back(base: u64, bytes: u64) {
    // Plain memory, so that a late access does not end the process. Inaccessible if the system has too little memory.
    let is_blank = [libc::PROT_READ | libc::PROT_WRITE, libc::PROT_NONE].into_iter().any(|protection| {
        // SAFETY: the range is the caller's alone by this function's contract.
        unsafe { blank(base, bytes, protection, libc::MAP_FIXED) != libc::MAP_FAILED }
    });
    if is_blank {
        SPARE.lock().unwrap_or_else(PoisonError::into_inner).add(base, bytes);
    } else {
        // The mapping stays, so the addresses must not be reused.
        log::error!("{bytes} bytes of addresses are lost");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_become_one_place_and_places_are_cut() {
        let mut spare = Spare(BTreeMap::new());
        spare.add(0x1000, 0x1000);
        spare.add(0x3000, 0x1000);
        assert_eq!(spare.take(0x2000, 0x1000), None);
        spare.add(0x2000, 0x1000);
        assert_eq!(spare.0, BTreeMap::from([(0x1000, 0x3000)]));
        assert_eq!(spare.take(0x1000, 0x2000), Some(0x2000), "an aligned one");
        assert_eq!(spare.0, BTreeMap::from([(0x1000, 0x1000), (0x3000, 0x1000)]));
        assert_eq!(spare.take_at(0x3000, 0x2000), None, "longer than the place");
        assert_eq!(spare.take_at(0x2000, 0x1000), None, "in use");
        assert_eq!(spare.take_at(u64::MAX, 2), None);
        assert_eq!(spare.take_at(0x3000, 0x1000), Some(0x3000));
        assert_eq!(spare.0, BTreeMap::from([(0x1000, 0x1000)]));
    }

    #[test]
    fn the_system_never_gets_addresses_back() {
        // A size that no other code in this process allocates.
        let bytes = 0x7fed_5000;
        let base = reserve(bytes, 0x1000, 0).unwrap();
        // SAFETY: the place is this test's.
        unsafe { give_back(base, bytes) };
        // SAFETY: MAP_FIXED_NOREPLACE: only a place that nothing uses.
        let other = unsafe { blank(base, bytes, libc::PROT_NONE, libc::MAP_FIXED_NOREPLACE) };
        assert_eq!(other, libc::MAP_FAILED);
        let late = base as *mut u8;
        // SAFETY: given back, so it is plain memory that nobody uses.
        unsafe { late.write_volatile(7) };
        assert_eq!(reserve(bytes, 0x1000, base), Ok(base), "the hint");
        // SAFETY: the place is this test's.
        unsafe { give_back(base, bytes) };
        // SAFETY: given back, so it is plain memory that nobody uses.
        assert_eq!(unsafe { late.read_volatile() }, 0, "new pages");
    }
}
