// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Allocations inside one piece of memory or one range of addresses.

use std::collections::BTreeMap;

/// The alignment and the granularity of small allocations in bytes, as NVIDIA's driver has them.
pub const UNIT: u64 = 512;

/// A piece of memory or addresses that allocations share. First fit: freed places near the beginning are used again first, so that the
/// end stays free.
#[derive(Debug)]
pub struct Slab {
    bytes: u64,
    /// The alignment and the granularity of its allocations in bytes.
    unit: u64,
    /// Free ranges: bytes by offset. They neither overlap nor touch.
    free: BTreeMap<u64, u64>,
    /// Allocations: bytes by offset.
    used: BTreeMap<u64, u64>,
}

impl Default for Slab {
    /// Gives nothing.
    fn default() -> Self {
        Self { bytes: 0, unit: UNIT, free: BTreeMap::new(), used: BTreeMap::new() }
    }
}

impl Slab {
    /// A free slab of `bytes` bytes, a multiple of `unit`.
    pub fn new(bytes: u64, unit: u64) -> Self {
        Self { bytes, unit, free: BTreeMap::from([(0, bytes)]), used: BTreeMap::new() }
    }

    /// A slab of `bytes` bytes with these allocations (bytes by offset). `None` if they overlap, or are none that such a slab gives.
    pub fn of(bytes: u64, unit: u64, used: BTreeMap<u64, u64>) -> Option<Self> {
        let (mut free, mut at) = (BTreeMap::new(), 0);
        for (&offset, &length) in &used {
            let has_units = offset.is_multiple_of(unit) && length.is_multiple_of(unit) && length > 0;
            if !has_units || offset < at || length > bytes.saturating_sub(offset) {
                return None;
            }
            if offset > at {
                free.insert(at, offset - at);
            }
            at = offset + length;
        }
        if at < bytes {
            free.insert(at, bytes - at);
        }
        Some(Self { bytes, unit, free, used })
    }

    /// Returns the allocations: bytes by offset.
    pub fn used(&self) -> &BTreeMap<u64, u64> {
        &self.used
    }

    /// Takes `bytes` bytes, at least one. Returns the offset of the first one. `None` if no free range is long enough.
    pub fn take(&mut self, bytes: u64) -> Option<u64> {
        let bytes = bytes.max(1).checked_next_multiple_of(self.unit).filter(|bytes| *bytes <= self.bytes)?;
        let (&offset, &length) = self.free.iter().find(|(_, length)| **length >= bytes)?;
        self.free.remove(&offset);
        if length > bytes {
            self.free.insert(offset + bytes, length - bytes);
        }
        self.used.insert(offset, bytes);
        Some(offset)
    }

    /// Frees the allocation at `offset`. Returns false if there is none.
    pub fn give(&mut self, mut offset: u64) -> bool {
        let Some(mut bytes) = self.used.remove(&offset) else { return false };
        if let Some(behind) = self.free.remove(&(offset + bytes)) {
            bytes += behind;
        }
        let before = self.free.range(..offset).next_back().map(|(start, length)| (*start, *length));
        if let Some((start, length)) = before.filter(|(start, length)| start + length == offset) {
            (offset, bytes) = (start, length + bytes);
        }
        self.free.insert(offset, bytes);
        true
    }

    /// Returns the length of the longest free range in bytes.
    pub fn longest(&self) -> u64 {
        self.free.values().copied().max().unwrap_or_default()
    }

    /// Returns whether nothing is allocated.
    pub fn is_empty(&self) -> bool {
        self.used.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BYTES: u64 = 16 * UNIT;

    #[test]
    fn freed_places_are_merged_and_used_again() {
        let mut slab = Slab::new(BYTES, UNIT);
        let all: Vec<_> = (0..16).map(|_| slab.take(1).unwrap()).collect();
        assert_eq!(all, (0..16).map(|index| index * UNIT).collect::<Vec<_>>());
        assert_eq!(slab.take(1), None);
        for index in [3, 5, 4] {
            assert!(slab.give(index * UNIT) && !slab.give(index * UNIT));
        }
        assert_eq!(slab.take(3 * UNIT), Some(3 * UNIT));
        assert!(!slab.give(4 * UNIT), "inside an allocation");
        assert_eq!((slab.take(BYTES + 1), slab.take(u64::MAX)), (None, None));
    }

    #[test]
    fn a_slab_is_made_again_from_its_allocations_only() {
        let of = |used: &[(u64, u64)]| Slab::of(BYTES, UNIT, used.iter().copied().collect());
        assert_eq!(of(&[]).unwrap().longest(), BYTES);
        assert_eq!(of(&[(0, BYTES)]).unwrap().longest(), 0);
        for wrong in [
            &[(1, UNIT)][..],
            &[(0, 0)],
            &[(0, 1)],
            &[(0, 2 * UNIT), (UNIT, UNIT)],
            &[(BYTES, UNIT)],
            &[(0, BYTES + UNIT)],
            &[(UNIT, u64::MAX - UNIT + 1)],
        ] {
            assert!(of(wrong).is_none(), "{wrong:?}");
        }
    }

    proptest! {
        /// Allocations never overlap, and all of the slab is free again at the end.
        #[test]
        fn allocations_do_not_overlap(steps in proptest::collection::vec((any::<bool>(), 0..5 * UNIT), 1..200)) {
            let mut slab = Slab::new(BYTES, UNIT);
            let mut live: Vec<(u64, u64)> = Vec::new();
            for (frees, number) in steps {
                if frees && !live.is_empty() {
                    let (offset, _) = live.swap_remove(number as usize % live.len());
                    prop_assert!(slab.give(offset));
                    continue;
                }
                let bytes = number.max(1).next_multiple_of(UNIT);
                if let Some(offset) = slab.take(number) {
                    prop_assert!(offset % UNIT == 0 && offset + bytes <= BYTES);
                    prop_assert!(live.iter().all(|(start, length)| offset + bytes <= *start || start + length <= offset));
                    live.push((offset, bytes));
                }
            }
            let same = Slab::of(BYTES, UNIT, slab.used().clone()).unwrap();
            prop_assert_eq!((&same.free, &same.used), (&slab.free, &slab.used));
            for (offset, _) in live {
                prop_assert!(slab.give(offset));
            }
            prop_assert!(slab.is_empty());
            prop_assert_eq!(slab.take(BYTES), Some(0));
        }
    }
}
