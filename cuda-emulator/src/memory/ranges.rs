// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The valid addresses: allocations and host ranges by address, and the gaps between allocations.

use std::collections::{BTreeMap, BTreeSet};

/// The kind of a range of the address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RangeKind {
    /// cuMemAlloc and module variables.
    Device,
    /// malloc() of a kernel.
    Heap,
    /// cuMemAllocManaged and managed variables.
    Managed,
    /// From a pool of the host.
    HostPooled,
    /// cuMemHostAlloc.
    HostAllocated,
    /// cuMemHostRegister.
    HostRegistered,
    /// cuMemMap of a device's memory.
    Mapped,
    /// cuMemMap of the host's memory.
    HostMapped,
    /// cuExternalMemoryGetMappedBuffer.
    External,
    /// A CUDA array: no address of the program's.
    Array,
}

impl RangeKind {
    /// Returns whether it is allocated on one device and valid on all.
    pub fn is_everywhere(self) -> bool {
        matches!(self, RangeKind::Managed | RangeKind::HostPooled)
    }
}

/// A valid range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first address.
    pub base: u64,
    /// The number of valid bytes.
    pub bytes: u64,
    /// The kind of memory.
    pub kind: RangeKind,
}

impl Range {
    /// Returns whether `bytes` bytes from `ptr` on lie inside.
    pub fn holds(&self, ptr: u64, bytes: u64) -> bool {
        ptr >= self.base && bytes <= self.bytes && ptr - self.base <= self.bytes - bytes
    }
}

/// The valid ranges by base address; they never overlap.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    by_base: BTreeMap<u64, Range>,
}

impl Ranges {
    /// The range that `ptr` lies in; a range of zero bytes holds its base.
    pub(super) fn find(&self, ptr: u64) -> Option<Range> {
        let (_, range) = self.by_base.range(..=ptr).next_back()?;
        (ptr - range.base < range.bytes.max(1)).then_some(*range)
    }

    /// The range that begins at or below `ptr`.
    pub(super) fn before(&self, ptr: u64) -> Option<Range> {
        self.by_base.range(..=ptr).next_back().map(|(_, range)| *range)
    }

    pub(super) fn at(&self, base: u64) -> Option<Range> {
        self.by_base.get(&base).copied()
    }

    /// Adds a range; false when it overlaps another one or wraps around.
    pub(super) fn insert(&mut self, range: Range) -> bool {
        let Some(end) = range.base.checked_add(range.bytes.max(1)) else { return false };
        let before = self.by_base.range(..end).next_back();
        if before.is_some_and(|(_, other)| other.base + other.bytes.max(1) > range.base) {
            return false;
        }
        self.by_base.insert(range.base, range);
        true
    }

    pub(super) fn remove(&mut self, base: u64) -> Option<Range> {
        self.by_base.remove(&base)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Range> + '_ {
        self.by_base.values().copied()
    }
}

/// The unallocated extents of a window: best fit, neighbours merged.
#[derive(Debug)]
pub(super) struct Extents {
    by_base: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
}

impl Extents {
    pub(super) fn new(base: u64, bytes: u64) -> Extents {
        let mut extents = Extents { by_base: BTreeMap::new(), by_size: BTreeSet::new() };
        extents.add(base, bytes);
        extents
    }

    fn add(&mut self, base: u64, bytes: u64) {
        if bytes > 0 {
            self.by_base.insert(base, bytes);
            self.by_size.insert((bytes, base));
        }
    }

    fn take(&mut self, base: u64) -> Option<u64> {
        let bytes = self.by_base.remove(&base)?;
        self.by_size.remove(&(bytes, base));
        Some(bytes)
    }

    /// Cuts `bytes` (not 0) at a multiple of `align` (a power of two) out of the smallest extent that has them.
    pub(super) fn allocate(&mut self, bytes: u64, align: u64) -> Option<u64> {
        let fits = |size: u64, base: u64| {
            let start = base.checked_next_multiple_of(align)?;
            (start - base).checked_add(bytes).filter(|&needed| needed <= size).map(|_| start)
        };
        let (size, base, start) = self
            .by_size
            .range((bytes, 0)..)
            .find_map(|&(size, base)| fits(size, base).map(|start| (size, base, start)))?;
        self.take(base);
        self.add(base, start - base);
        self.add(start + bytes, base + size - (start + bytes));
        Some(start)
    }

    /// Gives back what [`Self::allocate`] cut out.
    pub(super) fn free(&mut self, mut base: u64, mut bytes: u64) {
        let before = self.by_base.range(..base).next_back().map(|(&at, &size)| (at, size));
        if let Some((at, size)) = before.filter(|(at, size)| at + size == base) {
            self.take(at);
            base = at;
            bytes += size;
        }
        if let Some(size) = self.take(base + bytes) {
            bytes += size;
        }
        self.add(base, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_merge_back_to_one() {
        let mut extents = Extents::new(0x1000, 0x10000);
        let blocks: Vec<u64> = (0..8).map(|_| extents.allocate(0x300, 0x100).unwrap()).collect();
        assert!(blocks.iter().all(|b| b % 0x100 == 0));
        for index in [3, 1, 7, 0, 5, 2, 6, 4] {
            extents.free(blocks[index], 0x300);
        }
        assert_eq!(extents.by_base.len(), 1);
        assert_eq!(extents.by_base[&0x1000], 0x10000);
        assert_eq!(extents.allocate(0x10001, 1), None);
    }

    #[test]
    fn ranges_refuse_overlap() {
        let mut ranges = Ranges::default();
        let range = |base, bytes| Range { base, bytes, kind: RangeKind::HostRegistered };
        assert!(ranges.insert(range(100, 50)));
        assert!(!ranges.insert(range(149, 1)));
        assert!(!ranges.insert(range(50, 51)));
        assert!(!ranges.insert(range(u64::MAX, 2)));
        assert!(ranges.insert(range(150, 0)));
        assert!(ranges.insert(range(50, 50)));
        assert_eq!(ranges.find(149).unwrap().base, 100);
        assert_eq!(ranges.find(150).unwrap().bytes, 0);
        assert_eq!(ranges.find(151), None);
    }
}
