// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The session's memory that a GPU address may refer to, and its quota.
//!
//! The driver would take any address of this process for a copy (unified addressing), the worker's own memory
//! included. So every range that a call copies or sets is looked up here first.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::quota::{self, BLOCK, POOL_CHUNK, Quota};
use crate::gpu::{CuResult, CudaError};
use crate::home::Home;

/// The maximum number of ranges.
const MAX_RANGES: usize = 1 << 20;

/// The origin of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `cuMemAlloc` and its like.
    Allocated,
    /// `cuMemAllocAsync` and its like; the driver's pool, or 0 for an unknown one.
    AllocatedAsync(usize),
    /// Memory of a pool that another process allocated and shares (`cuMemPoolImportPointer`).
    Imported,
    /// Memory that a node of a graph allocates, whenever the graph runs.
    GraphNode,
    /// A variable of a module.
    ModuleGlobal(u64),
    /// A variable of a library.
    LibraryGlobal(u64),
    /// A variable of a library whose address the guest does not know. The range ends with the objects in a deep suspension.
    Named(u64),
    /// Pages of the guest process, registered with the GPU.
    HostWindow,
    /// As `HostWindow`, read-only.
    ReadOnlyWindow,
    /// Memory that another process allocated and shares (`cuIpcOpenMemHandle`).
    Opened,
    /// An allocation of `cuMemCreate` at reserved addresses; [`super::reservations`] counts its bytes.
    Mapped,
    /// A part of external memory; [`super::externals`] counts its bytes.
    External,
}

impl Origin {
    /// Returns whether it is memory of the guest process.
    pub fn is_window(self) -> bool {
        matches!(self, Self::HostWindow | Self::ReadOnlyWindow)
    }
}

/// A range of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First address.
    pub base: u64,
    /// Bytes.
    pub bytes: u64,
    /// The origin.
    pub origin: Origin,
    /// The context to which it belongs.
    pub context: u64,
    /// The device of that context.
    pub device: i32,
    /// Unique in the session.
    pub serial: u64,
}

/// All ranges of a session.
#[derive(Debug, Default)]
pub struct Allocations {
    ranges: BTreeMap<u64, Range>,
    /// Numbers of the ranges that the driver is being asked to free.
    ending: HashSet<u64>,
    serial: u64,
    /// Bytes that are allocated from each pool of the driver's.
    live: HashMap<usize, u64>,
    /// The charges for all of them.
    pub quota: Quota,
}

impl Allocations {
    /// Starts without memory; at most `limit` bytes may be allocated.
    pub fn new(limit: Option<u64>) -> Self {
        Self { quota: Quota::new(limit), ..Self::default() }
    }

    /// Takes `bytes` of the quota, before the driver is asked for them.
    ///
    /// Errors: `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn charge(&mut self, bytes: u64) -> CuResult<()> {
        if self.ranges.len() >= MAX_RANGES {
            return Err(CudaError::OUT_OF_MEMORY);
        }
        self.quota.charge(bytes)
    }

    /// Gives back what [`Self::charge`] took.
    pub fn discharge(&mut self, bytes: u64) {
        self.quota.discharge(bytes);
    }

    /// Enters `bytes` bytes that `cuMemAlloc` has given, of which `ahead` bytes are charged.
    ///
    /// Errors: `CUDA_ERROR_OUT_OF_MEMORY`: nothing is entered, and the charge is given back.
    pub fn enter(&mut self, base: u64, bytes: u64, ahead: u64, home: Home) -> CuResult<()> {
        let entered = match quota::alone(bytes) {
            0 => self.quota.share(BLOCK, base, bytes).map(|()| self.discharge(ahead)),
            alone if alone >= ahead => self.quota.charge(alone - ahead),
            alone => {
                self.discharge(ahead - alone);
                Ok(())
            }
        };
        entered.inspect_err(|_| self.discharge(ahead))?;
        self.insert(base, bytes, Origin::Allocated, home);
        Ok(())
    }

    /// Enters `bytes` bytes of another process's pool that the driver has opened, for which `ahead` bytes are charged. If they were open
    /// before, nothing changes.
    ///
    /// Errors: `CUDA_ERROR_OUT_OF_MEMORY`: nothing is entered, and the charge is given back.
    pub fn import(&mut self, base: u64, bytes: u64, ahead: u64, home: Home) -> CuResult<()> {
        self.discharge(ahead);
        if self.find(base).is_none() {
            self.quota.share(POOL_CHUNK, base, bytes)?;
            self.insert(base, bytes, Origin::Imported, home);
        }
        Ok(())
    }

    /// Forgets the ranges of a context that has ended, and the other charges that ended with it.
    pub fn forget_context(&mut self, context: u64) {
        self.forget(|range| range.context == context);
        self.quota.forget_context(context);
    }

    /// Bytes that are allocated from a pool of the driver's.
    pub fn live_in(&self, pool: usize) -> u64 {
        self.live.get(&pool).copied().unwrap_or_default()
    }

    /// Bytes that graphs allocate on a device.
    pub fn of_graphs(&self, device: i32) -> u64 {
        let of_it =
            self.ranges.values().filter(|range| range.origin == Origin::GraphNode && range.device == device);
        of_it.map(|range| quota::rounded(range.bytes)).sum()
    }

    /// Enters a range; an older one at the same base is replaced. So are those in it that the driver is being asked to free: it
    /// has done so, or it would not have given their addresses to another thread.
    pub fn insert(&mut self, base: u64, bytes: u64, origin: Origin, home: Home) {
        self.serial += 1;
        let Home { context, device } = home;
        if let Origin::AllocatedAsync(pool) = origin {
            *self.live.entry(pool).or_default() += quota::in_pool(bytes);
        }
        if !self.ending.is_empty() && bytes > 1 {
            let inside = self.ranges.range(base.saturating_add(1)..base.saturating_add(bytes));
            let ended = inside.filter(|(_, range)| self.is_ending(range)).map(|(&base, _)| base);
            for base in ended.collect::<Vec<_>>() {
                self.remove(base);
            }
        }
        self.ranges.insert(base, Range { base, bytes, origin, context, device, serial: self.serial });
    }

    /// Enters a range of another worker under its number, and charges it.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE` for a range that overlaps another one, or whose origin goes to no other worker;
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn restore(&mut self, range: Range) -> CuResult<()> {
        let end = range.base.checked_add(range.bytes).filter(|_| range.bytes > 0);
        let end = end.ok_or(CudaError::INVALID_VALUE)?;
        let before = self.ranges.range(..end).next_back();
        if before.is_some_and(|(base, before)| base + before.bytes > range.base) {
            return Err(CudaError::INVALID_VALUE);
        }
        self.charge(0)?;
        match (range.origin, quota::alone(range.bytes)) {
            (Origin::Allocated, 0) => self.quota.share(BLOCK, range.base, range.bytes),
            (Origin::Allocated, bytes) => self.quota.charge(bytes),
            (Origin::Opened, _) => self.quota.charge(quota::opened(range.bytes)),
            (Origin::HostWindow | Origin::ReadOnlyWindow | Origin::Mapped, _) => Ok(()),
            _ => Err(CudaError::INVALID_VALUE),
        }?;
        self.serial = self.serial.max(range.serial);
        self.ranges.insert(range.base, range);
        Ok(())
    }

    /// Returns the number of the last range.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// Goes on behind the numbers of another worker.
    pub fn begin_behind(&mut self, serial: u64) {
        self.serial = self.serial.max(serial);
    }

    /// The range that holds `address`, if all of `bytes` bytes from there on lie in it. Mapped allocations count
    /// as one range where they adjoin.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`.
    pub fn check(&self, address: u64, bytes: u64) -> CuResult<&Range> {
        let range = self.find(address).ok_or(CudaError::INVALID_VALUE)?;
        if self.is_ending(range) {
            return Err(CudaError::INVALID_VALUE);
        }
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

    /// As [`Self::check`], for adjoining windows, which must be writable if `writes`. Adds each window's first address and the
    /// address after its last one to `windows`.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`.
    pub fn check_windows(
        &self,
        address: u64,
        bytes: u64,
        writes: bool,
        windows: &mut Vec<(u64, u64)>,
    ) -> CuResult<()> {
        let end = address.checked_add(bytes).ok_or(CudaError::INVALID_VALUE)?;
        let mut at = address;
        loop {
            let fits = |origin| origin == Origin::HostWindow || origin == Origin::ReadOnlyWindow && !writes;
            let window = self.find(at).filter(|range| fits(range.origin));
            let window = window.ok_or(CudaError::INVALID_VALUE)?;
            at = window.base.saturating_add(window.bytes);
            windows.push((window.base, at));
            if at >= end {
                return Ok(());
            }
        }
    }

    /// All ranges.
    pub fn ranges(&self) -> impl Iterator<Item = &Range> {
        self.ranges.values()
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
            Origin::Allocated
            | Origin::AllocatedAsync(_)
            | Origin::Imported
            | Origin::GraphNode
            | Origin::External
                if !self.is_ending(range) =>
            {
                Ok(*range)
            }
            _ => Err(CudaError::INVALID_VALUE),
        }
    }

    /// As [`Self::allocated_at`], for the one call that may free the range: until that reports the outcome, no other call may use
    /// or free it. The driver may give the address to another allocation, which a second call would free by mistake.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`.
    pub fn end(&mut self, base: u64) -> CuResult<Range> {
        let range = self.allocated_at(base)?;
        self.ending.insert(range.serial);
        Ok(range)
    }

    /// Notes that the driver has not freed the range.
    pub fn not_freed(&mut self, range: &Range) {
        self.ending.remove(&range.serial);
    }

    fn is_ending(&self, range: &Range) -> bool {
        !self.ending.is_empty() && self.ending.contains(&range.serial)
    }

    /// Notes that the program has freed a range. A graph can allocate its memory again.
    pub fn freed(&mut self, range: &Range) {
        self.ending.remove(&range.serial);
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

    /// Takes out every range for which `dead` returns true: the driver freed it together with something else.
    pub fn forget(&mut self, dead: impl Fn(&Range) -> bool) {
        let removed: Vec<u64> =
            self.ranges.values().filter(|range| dead(range)).map(|range| range.base).collect();
        for base in removed {
            self.remove(base);
        }
    }

    fn release(&mut self, range: &Range) {
        match range.origin {
            Origin::Allocated if quota::alone(range.bytes) == 0 => {
                self.quota.unshare(BLOCK, range.base, range.bytes);
            }
            Origin::Allocated => self.discharge(quota::alone(range.bytes)),
            Origin::AllocatedAsync(pool) => {
                let bytes = quota::in_pool(range.bytes);
                let live = self.live.remove(&pool).unwrap_or_default().saturating_sub(bytes);
                if live > 0 {
                    self.live.insert(pool, live);
                }
                self.discharge(bytes);
            }
            Origin::Imported => self.quota.unshare(POOL_CHUNK, range.base, range.bytes),
            Origin::Opened => self.discharge(quota::opened(range.bytes)),
            Origin::GraphNode => self.discharge(quota::rounded(range.bytes)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: Home = Home { context: 9, device: 0 };

    /// As much as two allocations take.
    const LIMIT: u64 = 2 * BLOCK;

    fn one(base: u64, bytes: u64) -> Allocations {
        let mut allocations = Allocations::new(Some(LIMIT));
        allocations.enter(base, bytes, 0, HOME).unwrap();
        allocations
    }

    #[test]
    fn one_call_frees_a_range() {
        let mut allocations = one(0x1000, 4096);
        let range = allocations.end(0x1000).unwrap();
        assert!(allocations.end(0x1000).is_err() && allocations.allocated_at(0x1000).is_err());
        assert!(allocations.check(0x1000, 1).is_err(), "it may be gone already");
        allocations.not_freed(&range);
        assert!(allocations.check(0x1000, 4096).is_ok());
        let range = allocations.end(0x1000).unwrap();
        // The driver gives the address to another thread before the first one has said that it is free.
        allocations.enter(0x1000, 4096, 0, HOME).unwrap();
        assert!(allocations.check(0x1000, 4096).is_ok(), "another allocation");
        allocations.freed(&range);
        assert!(allocations.allocated_at(0x1000).is_ok());
    }

    #[test]
    fn memory_that_is_being_freed_does_not_hide_what_the_driver_gives_out_there() {
        let mut allocations = Allocations::new(Some(8 * BLOCK));
        for base in [3 * BLOCK, 4 * BLOCK] {
            allocations.charge(BLOCK).unwrap();
            allocations.enter(base, BLOCK, BLOCK, HOME).unwrap();
        }
        let range = allocations.end(3 * BLOCK).unwrap();
        // The driver has freed it, and another thread gets memory around it before that is noted.
        allocations.charge(2 * BLOCK).unwrap();
        allocations.enter(2 * BLOCK, 2 * BLOCK, 2 * BLOCK, HOME).unwrap();
        assert!(allocations.check(3 * BLOCK, BLOCK).is_ok());
        assert_eq!(allocations.quota.used(), 3 * BLOCK);
        allocations.freed(&range);
        assert!(allocations.check(2 * BLOCK, 2 * BLOCK).is_ok() && allocations.check(4 * BLOCK, 1).is_ok());
        assert_eq!(allocations.quota.used(), 3 * BLOCK);
    }

    /// Two ranges of every place and kind in a few bytes, and every range that a call may name there.
    #[test]
    fn ranges_pass_if_all_their_bytes_are_there() {
        const ROOM: u64 = 7;
        let kinds = [Origin::Mapped, Origin::Allocated];
        let places = || (0..ROOM).flat_map(|base| (1..=ROOM - base).map(move |bytes| (base, bytes)));
        for ((one, one_bytes), (other, other_bytes)) in
            places().flat_map(|one| places().map(move |other| (one, other)))
        {
            if other < one + one_bytes {
                continue;
            }
            for (kind, other_kind) in
                kinds.iter().flat_map(|kind| kinds.iter().map(move |other| (*kind, *other)))
            {
                let mut allocations = Allocations::new(None);
                allocations.insert(one, one_bytes, kind, HOME);
                allocations.insert(other, other_bytes, other_kind, HOME);
                let adjoin =
                    one + one_bytes == other && kind == Origin::Mapped && other_kind == Origin::Mapped;
                let end_of = |at: u64| match at {
                    at if (other..other + other_bytes).contains(&at) => Some(other + other_bytes),
                    at if (one..one + one_bytes).contains(&at) && adjoin => Some(other + other_bytes),
                    at if (one..one + one_bytes).contains(&at) => Some(one + one_bytes),
                    _ => None,
                };
                for (address, bytes) in
                    (0..ROOM + 1).flat_map(|at| (0..ROOM + 2).map(move |bytes| (at, bytes)))
                {
                    let there = end_of(address).is_some_and(|end| address + bytes <= end);
                    let passes = allocations.check(address, bytes).is_ok();
                    assert_eq!(passes, there, "{one}+{one_bytes} {other}+{other_bytes}: {address}+{bytes}");
                }
            }
        }
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
        allocations.enter(0x1000, 256, 0, HOME).unwrap();
        allocations.freed(&first);
        assert!(allocations.check(0x1000, 256).is_ok());
        assert_eq!(allocations.quota.used(), BLOCK);
        let second = allocations.allocated_at(0x1000).unwrap();
        allocations.freed(&second);
        allocations.freed(&second);
        assert!(allocations.check(0x1000, 1).is_err());
        assert_eq!(allocations.quota.used(), 0);
    }

    #[test]
    fn only_mapped_allocations_adjoin() {
        let mut allocations = Allocations::new(None);
        allocations.insert(0x1000, 0x1000, Origin::Mapped, Home::default());
        allocations.insert(0x2000, 0x1000, Origin::Mapped, Home::default());
        allocations.insert(0x3000, 0x1000, Origin::Allocated, HOME);
        assert!(allocations.check(0x1800, 0x1800).is_ok());
        assert!(allocations.check(0x1800, 0x1801).is_err(), "into another kind");
        allocations.insert(0x5000, 0x1000, Origin::Mapped, Home::default());
        assert!(allocations.check(0x5fff, 2).is_err(), "into nothing");
    }

    #[test]
    fn the_quota_is_kept_and_given_back() {
        let mut allocations = one(0x1000, 256);
        assert_eq!(allocations.charge(BLOCK + 1), Err(CudaError::OUT_OF_MEMORY));
        assert_eq!(allocations.charge(u64::MAX), Err(CudaError::OUT_OF_MEMORY));
        allocations.remove(0x1000);
        assert_eq!(allocations.quota.used(), 0);
        allocations.charge(LIMIT).unwrap();
    }

    #[test]
    fn allocations_count_in_whole_blocks_whatever_was_charged_ahead() {
        let mut allocations = Allocations::new(Some(4 * BLOCK));
        allocations.charge(BLOCK).unwrap();
        // The driver took more than was asked for.
        allocations.enter(16 * BLOCK, BLOCK + 1, BLOCK, HOME).unwrap();
        assert_eq!(allocations.quota.used(), 2 * BLOCK);
        allocations.charge(2 * BLOCK).unwrap();
        let refused = allocations.enter(32 * BLOCK, 3 * BLOCK, 2 * BLOCK, HOME);
        assert_eq!(refused, Err(CudaError::OUT_OF_MEMORY));
        assert_eq!(allocations.quota.used(), 2 * BLOCK);
        allocations.remove(16 * BLOCK);
        allocations.charge(512).unwrap();
        allocations.insert(0, 1, Origin::AllocatedAsync(7), HOME);
        assert_eq!((allocations.live_in(7), allocations.live_in(8)), (512, 0));
        allocations.remove(0);
        assert_eq!(allocations.quota.used(), 0);
    }

    /// The chunks of a pool stay with the last process that has memory in them, also after their owner has ended.
    #[test]
    fn memory_of_other_pools_takes_whole_chunks() {
        let mut allocations = Allocations::new(Some(2 * POOL_CHUNK));
        let import = |allocations: &mut Allocations, base| {
            allocations.charge(quota::imported(512))?;
            allocations.import(base, 512, quota::imported(512), HOME)
        };
        for base in [0, 0, 512] {
            import(&mut allocations, base).unwrap();
        }
        assert_eq!(allocations.quota.used(), POOL_CHUNK, "all of one chunk");
        import(&mut allocations, POOL_CHUNK).unwrap();
        assert_eq!(import(&mut allocations, 2 * POOL_CHUNK), Err(CudaError::OUT_OF_MEMORY));
        assert_eq!(allocations.quota.used(), 2 * POOL_CHUNK);
        for (base, left) in [(0, 2), (512, 1), (POOL_CHUNK, 0)] {
            let range = allocations.end(base).unwrap();
            allocations.freed(&range);
            assert_eq!(allocations.quota.used(), left * POOL_CHUNK);
        }
    }

    #[test]
    fn only_allocations_can_be_freed() {
        let mut allocations = one(0x1000, 256);
        allocations.insert(0x8000, 4096, Origin::HostWindow, HOME);
        assert!(allocations.allocated_at(0x1000).is_ok());
        assert!(allocations.allocated_at(0x1001).is_err());
        assert!(allocations.allocated_at(0x8000).is_err());
        allocations.forget(|range| range.context == 9);
        assert!(allocations.find(0x1000).is_none());
    }
}
