// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The session's memory that a GPU address may name, and its quota.
//!
//! The driver would take any address of this process for a copy (unified addressing), the worker's own memory
//! included: so every range that it is to copy or set is looked up here first.

use std::collections::{BTreeMap, HashMap};

use super::gpu::{CuResult, CudaError};

/// Most ranges at once.
const MAX_RANGES: usize = 1 << 20;

/// Where a range comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `cuMemAlloc` and its like.
    Allocated,
    /// `cuMemAllocAsync`.
    AllocatedAsync,
    /// What a node of a graph allocates, whenever the graph runs.
    GraphNode,
    /// A variable of a module.
    ModuleGlobal(u64),
    /// A variable of a library.
    LibraryGlobal(u64),
    /// Pages of the guest process, registered with the GPU.
    HostWindow,
    /// Memory that another process allocated and shares (`cuIpcOpenMemHandle`).
    Opened,
    /// An allocation of `cuMemCreate` at reserved addresses; [`super::reservations`] counts its bytes.
    Mapped,
    /// A part of external memory; [`super::externals`] counts its bytes.
    External,
}

/// A range of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First address.
    pub base: u64,
    /// Bytes.
    pub bytes: u64,
    /// Where it comes from.
    pub origin: Origin,
    /// The context it belongs to.
    pub context: u64,
    /// That context's device.
    pub device: i32,
    /// Unique in the session.
    pub serial: u64,
}

/// All ranges of a session.
#[derive(Debug, Default)]
pub struct Allocations {
    ranges: BTreeMap<u64, Range>,
    limit: Option<u64>,
    allocated: u64,
    serial: u64,
    /// Bytes of arrays, by name, with the context that they are in.
    arrays: HashMap<u64, (u64, u64)>,
}

impl Allocations {
    /// No memory yet; at most `limit` bytes may be allocated.
    pub fn new(limit: Option<u64>) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Bytes of device memory that are charged to the session.
    pub fn allocated(&self) -> u64 {
        self.allocated
    }

    /// The quota and what of it is used, if there is one.
    pub fn quota(&self) -> Option<(u64, u64)> {
        self.limit.map(|limit| (limit, self.allocated))
    }

    /// Takes `bytes` of the quota, before the driver is asked for them.
    ///
    /// Errors: `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn charge(&mut self, bytes: u64) -> CuResult<()> {
        let sum = self.allocated.checked_add(bytes).ok_or(CudaError::OUT_OF_MEMORY)?;
        if self.limit.is_some_and(|limit| sum > limit) || self.ranges.len() >= MAX_RANGES {
            return Err(CudaError::OUT_OF_MEMORY);
        }
        self.allocated = sum;
        Ok(())
    }

    /// Gives back what [`Self::charge`] took.
    pub fn discharge(&mut self, bytes: u64) {
        self.allocated = self.allocated.saturating_sub(bytes);
    }

    /// Takes `bytes` of the quota for the array or mipmapped array named `name`.
    ///
    /// Errors: `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn charge_array(&mut self, name: u64, bytes: u64, context: u64) -> CuResult<()> {
        self.charge(bytes)?;
        self.arrays.insert(name, (bytes, context));
        Ok(())
    }

    /// Gives back what [`Self::charge_array`] took.
    pub fn discharge_array(&mut self, name: u64) {
        if let Some((bytes, _)) = self.arrays.remove(&name) {
            self.discharge(bytes);
        }
    }

    /// Forgets the ranges and arrays of a context that has ended.
    pub fn forget_context(&mut self, context: u64) {
        self.forget(|range| range.context == context);
        let gone: Vec<u64> =
            self.arrays.iter().filter(|(_, (_, of))| *of == context).map(|(&name, _)| name).collect();
        for name in gone {
            self.discharge_array(name);
        }
    }

    /// Enters a range; an older one at the same base is replaced.
    pub fn insert(&mut self, base: u64, bytes: u64, origin: Origin, place: (u64, i32)) {
        self.serial += 1;
        let (context, device) = place;
        self.ranges.insert(base, Range { base, bytes, origin, context, device, serial: self.serial });
    }

    /// The range that holds `address`, if all of `bytes` bytes from there on lie in it. Mapped allocations count
    /// as one range where they adjoin.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`.
    pub fn check(&self, address: u64, bytes: u64) -> CuResult<&Range> {
        let range = self.find(address).ok_or(CudaError::INVALID_VALUE)?;
        let end = address.checked_add(bytes).ok_or(CudaError::INVALID_VALUE)?;
        let mut last = range;
        while end > last.base.saturating_add(last.bytes) {
            let next = self.ranges.get(&last.base.saturating_add(last.bytes));
            match next {
                Some(next) if next.origin == Origin::Mapped && last.origin == Origin::Mapped => last = next,
                _ => return Err(CudaError::INVALID_VALUE),
            }
        }
        Ok(range)
    }

    /// As [`Self::check`], of windows that may adjoin. Adds each one's first address and the one behind its last to
    /// `windows`.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`.
    pub fn check_windows(&self, address: u64, bytes: u64, windows: &mut Vec<(u64, u64)>) -> CuResult<()> {
        let end = address.checked_add(bytes).ok_or(CudaError::INVALID_VALUE)?;
        let mut at = address;
        loop {
            let window = self.find(at).filter(|range| range.origin == Origin::HostWindow);
            let window = window.ok_or(CudaError::INVALID_VALUE)?;
            at = window.base.saturating_add(window.bytes);
            windows.push((window.base, at));
            if at >= end {
                return Ok(());
            }
        }
    }

    /// The range that holds `address`.
    pub fn find(&self, address: u64) -> Option<&Range> {
        let (_, range) = self.ranges.range(..=address).next_back()?;
        (address - range.base < range.bytes).then_some(range)
    }

    /// The range that begins at `base` and was allocated (not a variable, not a window).
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`.
    pub fn allocated_at(&self, base: u64) -> CuResult<Range> {
        let range = self.ranges.get(&base).ok_or(CudaError::INVALID_VALUE)?;
        match range.origin {
            Origin::Allocated | Origin::AllocatedAsync | Origin::GraphNode | Origin::External => Ok(*range),
            _ => Err(CudaError::INVALID_VALUE),
        }
    }

    /// The program has freed a range. What a graph allocates it can allocate again.
    pub fn freed(&mut self, range: &Range) {
        if range.origin == Origin::GraphNode {
            return;
        }
        match self.ranges.get(&range.base) {
            Some(now) if now.serial == range.serial => self.remove(range.base),
            // The driver has given the address to another thread meanwhile.
            Some(_) => self.release(range),
            None => {}
        }
    }

    /// Takes out the range that begins at `base`.
    pub fn remove(&mut self, base: u64) {
        if let Some(range) = self.ranges.remove(&base) {
            self.release(&range);
        }
    }

    /// Takes out every range that `dead` names: the driver freed them with something else.
    pub fn forget(&mut self, dead: impl Fn(&Range) -> bool) {
        let gone: Vec<u64> =
            self.ranges.values().filter(|range| dead(range)).map(|range| range.base).collect();
        for base in gone {
            self.remove(base);
        }
    }

    fn release(&mut self, range: &Range) {
        let charged = [Origin::Allocated, Origin::AllocatedAsync, Origin::Opened, Origin::GraphNode];
        if charged.contains(&range.origin) {
            self.discharge(range.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(base: u64, bytes: u64) -> Allocations {
        let mut allocations = Allocations::new(Some(1000));
        allocations.charge(bytes).unwrap();
        allocations.insert(base, bytes, Origin::Allocated, (9, 0));
        allocations
    }

    #[test]
    fn only_ranges_inside_one_allocation_pass() {
        let allocations = one(0x1000, 256);
        assert!(allocations.check(0x1000, 256).is_ok());
        assert!(allocations.check(0x10ff, 1).is_ok());
        for (address, bytes) in
            [(0x0fff, 1), (0x1000, 257), (0x1100, 0), (0x10ff, 2), (0x1001, u64::MAX), (0, 0)]
        {
            assert!(allocations.check(address, bytes).is_err(), "{address:#x}+{bytes}");
        }
    }

    #[test]
    fn an_address_may_be_anothers_before_it_is_known_to_be_free() {
        let mut allocations = one(0x1000, 256);
        let first = allocations.allocated_at(0x1000).unwrap();
        // The driver has freed it, and given it to another thread, which comes first.
        allocations.charge(256).unwrap();
        allocations.insert(0x1000, 256, Origin::Allocated, (9, 0));
        allocations.freed(&first);
        assert!(allocations.check(0x1000, 256).is_ok());
        assert_eq!(allocations.quota(), Some((1000, 256)));
        let second = allocations.allocated_at(0x1000).unwrap();
        allocations.freed(&second);
        allocations.freed(&second);
        assert!(allocations.check(0x1000, 1).is_err());
        assert_eq!(allocations.quota(), Some((1000, 0)));
    }

    #[test]
    fn only_mapped_allocations_adjoin() {
        let mut allocations = Allocations::new(None);
        allocations.insert(0x1000, 0x1000, Origin::Mapped, (0, 0));
        allocations.insert(0x2000, 0x1000, Origin::Mapped, (0, 0));
        allocations.insert(0x3000, 0x1000, Origin::Allocated, (9, 0));
        assert!(allocations.check(0x1800, 0x1800).is_ok());
        assert!(allocations.check(0x1800, 0x1801).is_err(), "into another kind");
        allocations.insert(0x5000, 0x1000, Origin::Mapped, (0, 0));
        assert!(allocations.check(0x5fff, 2).is_err(), "into nothing");
    }

    #[test]
    fn arrays_count_until_they_end() {
        let mut allocations = Allocations::new(Some(100));
        allocations.charge_array(1, 60, 9).unwrap();
        assert_eq!(allocations.charge_array(2, 41, 9), Err(CudaError::OUT_OF_MEMORY));
        allocations.discharge_array(2);
        assert_eq!(allocations.quota(), Some((100, 60)));
        allocations.forget_context(9);
        assert_eq!(allocations.quota(), Some((100, 0)));
    }

    #[test]
    fn the_quota_is_kept_and_given_back() {
        let mut allocations = one(0x1000, 256);
        assert_eq!(allocations.charge(745), Err(CudaError::OUT_OF_MEMORY));
        assert_eq!(allocations.charge(u64::MAX), Err(CudaError::OUT_OF_MEMORY));
        allocations.remove(0x1000);
        assert_eq!(allocations.quota(), Some((1000, 0)));
        allocations.charge(1000).unwrap();
    }

    #[test]
    fn only_allocations_can_be_freed() {
        let mut allocations = one(0x1000, 256);
        allocations.insert(0x8000, 4096, Origin::HostWindow, (9, 0));
        assert!(allocations.allocated_at(0x1000).is_ok());
        assert!(allocations.allocated_at(0x1001).is_err());
        assert!(allocations.allocated_at(0x8000).is_err());
        allocations.forget(|range| range.context == 9);
        assert!(allocations.find(0x1000).is_none());
    }
}
