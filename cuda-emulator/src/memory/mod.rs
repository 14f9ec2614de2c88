// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The device's address space. A device pointer is a host virtual address of this process: device allocations come from
//! one reserved window, and host memory (pinned, registered) is valid at its own address once it has been added.
//! Every access is checked against the valid ranges first.

mod access;
mod export;
mod initialised;
mod ranges;
mod sharing;
mod window;

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use thiserror::Error;

pub(crate) use export::memory_file;
use initialised::Initialised;
use ranges::{Extents, Ranges};
pub use ranges::{Range, RangeKind};
use window::{PAGE, Window};

/// The minimum alignment of a device allocation in bytes: CUDA guarantees 256, but a texture on it needs 512.
pub const MIN_ALIGN: u64 = 512;
/// The minimum alignment of memory of a kernel's malloc() in bytes, as CUDA guarantees.
const HEAP_ALIGN: u64 = 16;
/// Unused bytes after each allocation, so that an overrun does not reach another allocation.
const GUARD_BYTES: u64 = 256;
/// The same for a kernel's malloc(), whose blocks are small and numerous.
const HEAP_GUARD_BYTES: u64 = 16;
/// The default of `cudaLimitMallocHeapSize`.
const DEFAULT_HEAP_BYTES: u64 = 8 << 20;
/// The address space per byte of device memory, so that fragmentation and guards never make an allocation fail.
const WINDOW_FACTOR: u64 = 2;
/// Freed ranges that are remembered for messages.
const FREED: usize = 256;
/// Addresses below this come from null pointers.
const MIN_POINTER: u64 = 1 << 16;
/// The maximum distance after an allocation at which a message still relates an address to it, in bytes.
const NEAR: u64 = 1 << 20;
/// The smallest window.
const MIN_WINDOW: u64 = 1 << 40;

/// The memory of one emulated device. All methods may be called from any thread at any time.
#[derive(Debug)]
pub struct Memory {
    state: RwLock<State>,
    /// Counts the removals of ranges. Caches of ranges must be cleared when it changes.
    generation: AtomicU64,
    /// Devices whose memory is valid here, too.
    peers: RwLock<Vec<&'static Memory>>,
    has_peers: AtomicBool,
    /// Devices that reach this memory.
    watchers: RwLock<Vec<&'static Memory>>,
    /// The bytes that have been written, when that is checked.
    initialised: Option<Initialised>,
}

#[derive(Debug)]
struct State {
    window: Window,
    ranges: Ranges,
    extents: Extents,
    total: u64,
    used: u64,
    heap_limit: u64,
    heap_used: u64,
    /// The ranges that were freed last.
    freed: VecDeque<Range>,
    /// The allocations that other processes may have mapped as well, and the files they lie in.
    shared: BTreeMap<u64, Arc<File>>,
}

/// The address space could not be reserved.
#[derive(Debug, Error)]
#[error("cannot reserve {bytes} bytes of address space for device memory: {source}; raise `ulimit -v`")]
pub struct ReserveError {
    bytes: u64,
    source: std::io::Error,
}

/// An allocation does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{requested} bytes of device memory asked for, {free} free")]
pub struct OutOfMemory {
    /// Bytes asked for.
    pub requested: u64,
    /// Bytes free.
    pub free: u64,
}

/// An access is not inside one valid range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{bytes} bytes at {address:#x} are not inside one allocation")]
pub struct OutOfRange {
    /// The start of the access.
    pub address: u64,
    /// Its length.
    pub bytes: u64,
}

impl Memory {
    /// A device with `total_bytes` of memory. Uses address space only until memory is written.
    pub fn new(total_bytes: u64) -> Result<Memory, ReserveError> {
        let bytes = total_bytes.saturating_mul(WINDOW_FACTOR).max(MIN_WINDOW);
        let window = Window::reserve(bytes).map_err(|source| ReserveError { bytes, source })?;
        let extents = Extents::new(window.base(), window.bytes());
        let state = State {
            window,
            ranges: Ranges::default(),
            extents,
            total: total_bytes,
            used: 0,
            heap_limit: DEFAULT_HEAP_BYTES,
            heap_used: 0,
            freed: VecDeque::new(),
            shared: BTreeMap::new(),
        };
        let initialised = crate::checks::checks().init.then(Initialised::default);
        Ok(Memory {
            state: RwLock::new(state),
            generation: AtomicU64::new(0),
            initialised,
            peers: RwLock::default(),
            has_peers: AtomicBool::new(false),
            watchers: RwLock::default(),
        })
    }

    /// Allocates zeroed memory, aligned to at least [`MIN_ALIGN`] (`align` must be a power of two). This is fast,
    /// because pages are created on access.
    pub fn allocate(&self, bytes: u64, align: u64) -> Result<u64, OutOfMemory> {
        self.allocate_as(bytes, align, RangeKind::Device)
    }

    /// As [`Self::allocate`], with the kind for [`Self::range_of`].
    pub fn allocate_as(&self, bytes: u64, align: u64, kind: RangeKind) -> Result<u64, OutOfMemory> {
        self.write_state().allocate(bytes, align.max(MIN_ALIGN), kind)
    }

    /// A kernel's malloc(): counted against the heap limit.
    pub fn heap_allocate(&self, bytes: u64) -> Option<u64> {
        let mut state = self.write_state();
        let charged = State::charged(bytes, RangeKind::Heap)?;
        if charged > state.heap_limit.saturating_sub(state.heap_used) {
            return None;
        }
        let base = state.allocate(bytes, HEAP_ALIGN, RangeKind::Heap).ok()?;
        state.heap_used += charged;
        Some(base)
    }

    /// A kernel's free(); false when `base` is not what [`Self::heap_allocate`] returned.
    pub fn heap_free(&self, base: u64) -> bool {
        self.release(base, |kind| kind == RangeKind::Heap)
    }

    /// Sets cudaLimitMallocHeapSize, bytes.
    pub fn set_heap_limit(&self, bytes: u64) {
        self.write_state().heap_limit = bytes;
    }

    /// cudaLimitMallocHeapSize, bytes.
    pub fn heap_limit(&self) -> u64 {
        self.read_state().heap_limit
    }

    /// Frees an allocation by its address from [`Self::allocate`]. Returns false if no allocation begins at that address.
    pub fn free(&self, base: u64) -> bool {
        self.release(base, |kind| kind == RangeKind::Device || kind.is_everywhere())
    }

    fn release(&self, base: u64, accepts: impl Fn(RangeKind) -> bool) -> bool {
        let mut state = self.write_state();
        let Some(range) = state.ranges.at(base).filter(|range| accepts(range.kind)) else { return false };
        state.ranges.remove(base);
        if state.freed.len() >= FREED {
            state.freed.pop_front();
        }
        state.freed.push_back(range);
        if let Some(initialised) = &self.initialised {
            initialised.remove(base, range.bytes);
        }
        // Before the pages are discarded: who still uses the range finds out at the next check.
        self.generation.fetch_add(1, Ordering::SeqCst);
        self.notify_watchers();
        match state.shared.remove(&base) {
            Some(_) => state.window.renew(base, export::pages(range.bytes)),
            None => state.window.discard(base, range.bytes),
        }
        let charged = State::charged(range.bytes, range.kind).unwrap_or(0);
        state.extents.free(base, charged);
        state.used -= charged;
        if range.kind == RangeKind::Heap {
            state.heap_used -= charged;
        }
        true
    }

    /// Makes host memory valid for kernels and copies; false when it overlaps a valid range. The caller keeps it mapped
    /// readable and writable until after [`Self::remove_host_range`] and the end of all launches that may use it.
    pub fn add_host_range(&self, base: u64, bytes: u64, kind: RangeKind) -> bool {
        self.write_state().ranges.insert(Range { base, bytes, kind })
    }

    /// Ends the validity of host memory; false when none was added at `base`.
    pub fn remove_host_range(&self, base: u64) -> bool {
        let mut state = self.write_state();
        let host = |range: &Range| !state.in_window(range.base);
        if state.ranges.at(base).filter(host).is_none() {
            return false;
        }
        state.ranges.remove(base);
        self.generation.fetch_add(1, Ordering::SeqCst);
        true
    }

    /// Frees an allocation of kind [`RangeKind::Array`]. Returns false if no such allocation begins there.
    pub(crate) fn free_array(&self, base: u64) -> bool {
        self.release(base, |kind| kind == RangeKind::Array)
    }

    /// The valid range around `ptr`. Arrays have no addresses that programs may use.
    pub fn range_of(&self, ptr: u64) -> Option<Range> {
        let own = self.read_state().ranges.find(ptr);
        own.or_else(|| self.peer_range_of(ptr)).filter(|range| range.kind != RangeKind::Array)
    }

    /// Returns whether `ptr` lies in the part of the address space that allocations come from, allocated or not.
    pub fn reserves(&self, ptr: u64) -> bool {
        self.read_state().in_window(ptr)
    }

    /// All valid ranges, by address.
    pub fn all_ranges(&self) -> Vec<Range> {
        self.read_state().ranges.iter().collect()
    }

    /// Returns the bytes of the device that an allocation takes.
    pub(crate) fn taken_bytes(bytes: u64, kind: RangeKind) -> u64 {
        State::charged(bytes, kind).unwrap_or(u64::MAX)
    }

    /// Bytes not yet allocated.
    pub fn free_bytes(&self) -> u64 {
        let state = self.read_state();
        state.total - state.used
    }

    /// Bytes of the device.
    pub fn total_bytes(&self) -> u64 {
        self.read_state().total
    }

    /// Describes the memory at or near an address that is not valid, for messages.
    pub(crate) fn describe(&self, address: u64) -> String {
        if address < MIN_POINTER {
            return " (a null pointer and an offset)".to_owned();
        }
        let state = self.read_state();
        let freed = state.freed.iter().rev().find(|range| range.holds(address, 1));
        if let Some(Range { base, bytes, .. }) = freed {
            return format!(" (inside the {bytes} bytes at {base:#x} that were freed)");
        }
        match state.ranges.before(address) {
            Some(Range { base, bytes, .. }) if address - base < bytes => {
                format!(" (beyond the end of the {bytes} bytes at {base:#x})")
            }
            Some(Range { base, bytes, .. }) if address - base - bytes < NEAR => {
                format!(" ({} bytes behind the {bytes} bytes at {base:#x})", address - base - bytes)
            }
            _ => String::new(),
        }
    }

    /// Counts bytes as written, when that is checked.
    pub(crate) fn mark_initialised(&self, start: u64, bytes: u64) {
        if let Some(initialised) = &self.initialised {
            initialised.add(start, bytes);
        }
    }

    /// Returns the first uninitialised byte of device memory in this range, if that is checked.
    pub(crate) fn first_uninitialised(&self, start: u64, bytes: u64) -> Option<u64> {
        let initialised = self.initialised.as_ref()?;
        // Not that of other devices.
        let range = self.read_state().ranges.find(start)?;
        let tracked = matches!(range.kind, RangeKind::Device | RangeKind::Heap);
        if tracked { initialised.first_missing(start, bytes) } else { None }
    }

    /// Changes whenever a range stops being valid.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Returns the address of [`Self::generation`], for translated code.
    pub(crate) fn generation_place(&self) -> *const u64 {
        self.generation.as_ptr().cast_const()
    }

    fn read_state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_state(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the bytes that an allocation takes from the window and from the device's memory.
    fn charged(bytes: u64, kind: RangeKind) -> Option<u64> {
        let (align, guard) = match kind {
            RangeKind::Heap => (HEAP_ALIGN, HEAP_GUARD_BYTES),
            // Pages of their own, guard included: they can be shared with another process, and nothing else with them.
            RangeKind::Device => return bytes.checked_add(GUARD_BYTES)?.checked_next_multiple_of(PAGE),
            _ => (MIN_ALIGN, GUARD_BYTES),
        };
        bytes.checked_next_multiple_of(align)?.checked_add(guard)
    }

    fn in_window(&self, ptr: u64) -> bool {
        ptr.checked_sub(self.window.base()).is_some_and(|offset| offset < self.window.bytes())
    }

    fn allocate(&mut self, bytes: u64, align: u64, kind: RangeKind) -> Result<u64, OutOfMemory> {
        let free = self.total - self.used;
        let error = OutOfMemory { requested: bytes, free };
        let charged = State::charged(bytes, kind).filter(|&charged| charged <= free).ok_or(error)?;
        let align = if kind == RangeKind::Device { align.max(PAGE) } else { align };
        let base = self.extents.allocate(charged, align).ok_or(error)?;
        let range = Range { base, bytes, kind };
        if self.window.commit(base + charged).is_err() || !self.ranges.insert(range) {
            self.extents.free(base, charged);
            return Err(error);
        }
        self.window.prefer_large_pages(base, charged);
        self.used += charged;
        Ok(base)
    }
}

#[cfg(test)]
mod memory_test;
