// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Classification of addresses: ranges of host memory that the GPU can access, and ranges of device memory.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use virtio_cuda_client::CudaError;
use virtio_cuda_client::transport::UserMemory;

use crate::state::local_pools::LocalPool;
use crate::state::memory::pinned::Pinned;
use crate::state::moving::Moving;

/// The reason why host memory is accessible to the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKind {
    /// `cuMemHostAlloc`, `cuMemAllocHost`.
    Allocated,
    /// `cuMemAllocManaged`.
    Managed,
    /// `cuMemHostRegister`.
    Registered,
    /// The shadow of a `__managed__` variable.
    ManagedVariable,
    /// From a pool of host memory: the pages are the pool's.
    Pooled,
    /// From a pool of managed memory: the pages are the pool's.
    ManagedPooled,
    /// `cuMemMap`: the pages belong to the allocation. Copies and fills may extend over several.
    Mapped,
}

impl HostKind {
    /// Returns whether it is managed memory.
    pub fn is_managed(self) -> bool {
        matches!(self, Self::Managed | Self::ManagedVariable | Self::ManagedPooled)
    }

    /// Returns whether it is from a pool of this library.
    pub fn is_pooled(self) -> bool {
        matches!(self, Self::Pooled | Self::ManagedPooled)
    }
}

/// Host memory that the GPU reaches.
#[derive(Debug)]
pub struct HostRange {
    /// Program's address of the first byte.
    pub start: u64,
    /// Bytes that the program requested.
    pub bytes: u64,
    /// GPU address of the first byte.
    pub device_address: u64,
    /// The kind of memory.
    pub kind: HostKind,
    /// The flags that the program passed.
    pub flags: u32,
    /// Context that was current at the creation.
    pub context: u64,
    /// Device of that context.
    pub device: u32,
    /// `CU_POINTER_ATTRIBUTE_BUFFER_ID`.
    pub id: u64,
    /// All pages, at the program's address.
    pub pages: UserMemory,
    /// The address of the pages in the address window.
    pub window: u64,
    /// Tags of the kept pages.
    pub pinned: Vec<Pinned>,
    /// For a variable: its module or library.
    pub owner: u64,
    /// For memory from a pool of this library: the pool.
    pub pool: Option<Arc<LocalPool>>,
    /// For managed memory that moves to the GPU and back: its state.
    pub moving: Option<Arc<Moving>>,
}

impl HostRange {
    /// Returns whether it moves between the program and the GPU, so that it counts as device memory.
    pub fn moves(&self) -> bool {
        self.moving.as_ref().is_some_and(|moving| !moving.rests())
    }

    /// Returns the GPU address of a host address in the range.
    pub fn device_address_of(&self, address: u64) -> u64 {
        self.device_address + (address - self.start)
    }
}

/// Device memory.
#[derive(Clone, Copy, Debug)]
pub struct DeviceRange {
    /// First byte.
    pub start: u64,
    /// Bytes.
    pub bytes: u64,
    /// Context in which it was allocated.
    pub context: u64,
    /// Device of that context.
    pub device: u32,
    /// `CU_POINTER_ATTRIBUTE_BUFFER_ID`.
    pub id: u64,
    /// For a variable: its module or library; for a mapping: its allocation; else 0.
    pub owner: u64,
    /// For memory from a pool: the pool; else 0.
    pub pool: u64,
    /// Set if its device may read and write it: for a mapping only after the program has enabled access.
    pub reachable: bool,
}

/// All ranges.
#[derive(Debug, Default)]
pub struct Ranges {
    host: RwLock<BTreeMap<u64, Arc<HostRange>>>,
    /// Host memory by its GPU address, if that differs from the program's.
    aliases: RwLock<BTreeMap<u64, Arc<HostRange>>>,
    device: RwLock<BTreeMap<u64, DeviceRange>>,
    next_id: AtomicU64,
    /// Set if there is host memory that both sides see at all times.
    any_seen: AtomicBool,
    /// The number of ranges of host memory of `cuMemMap`.
    mapped: AtomicUsize,
}

fn read<T>(map: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    map.read().unwrap_or_else(PoisonError::into_inner)
}
fn write<T>(map: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    map.write().unwrap_or_else(PoisonError::into_inner)
}

impl Ranges {
    /// Returns an id that no other allocation has had.
    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Adds host memory. Returns false if it overlaps an existing range.
    pub fn add_host(&self, range: HostRange) -> bool {
        let range = Arc::new(range);
        let mut host = write(&self.host);
        let before = host.range(..range.start + range.bytes).next_back();
        if before.is_some_and(|(_, other)| other.start + other.bytes > range.start) {
            return false;
        }
        if range.device_address != range.start {
            write(&self.aliases).insert(range.device_address, range.clone());
        }
        self.mapped.fetch_add(usize::from(range.kind == HostKind::Mapped), Ordering::Release);
        host.insert(range.start, range);
        self.look(&host);
        true
    }

    /// Must be called when memory of the table has begun or ceased to move.
    pub fn look_again(&self) {
        self.look(&read(&self.host));
    }

    /// Updates the flag; must be called after each change of `host`.
    fn look(&self, host: &BTreeMap<u64, Arc<HostRange>>) {
        self.any_seen.store(host.values().any(|range| !range.moves()), Ordering::Release);
    }

    /// Returns the number of bytes between `address` and the end of its mapping of host memory, if an access of `bytes`
    /// bytes continues in the next mapping. `None` if the access ends before, or does not begin in such a mapping.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE` if a part of the access is not mapped.
    pub fn before_seam(&self, address: u64, bytes: u64) -> Result<Option<u64>, CudaError> {
        if self.mapped.load(Ordering::Acquire) == 0 {
            return Ok(None);
        }
        let host = read(&self.host);
        let left = |at: u64| {
            let (_, range) = host.range(..=at).next_back()?;
            let mapped = range.kind == HostKind::Mapped && at - range.start < range.bytes;
            mapped.then(|| range.bytes - (at - range.start))
        };
        let Some(first) = left(address).filter(|&first| first < bytes) else { return Ok(None) };
        let mut reached = first;
        while reached < bytes {
            reached += left(address + reached).ok_or(CudaError::INVALID_VALUE)?;
        }
        Ok(Some(first))
    }

    /// Returns whether there is any memory that both the program and the GPU see at all times.
    pub fn any_host(&self) -> bool {
        self.any_seen.load(Ordering::Acquire)
    }

    /// Removes the host memory that begins at `start`, if it is of this kind.
    pub fn take_host(&self, start: u64, kind: HostKind) -> Option<Arc<HostRange>> {
        let mut host = write(&self.host);
        if host.get(&start)?.kind != kind {
            return None;
        }
        let range = host.remove(&start)?;
        self.removed(&range);
        self.look(&host);
        Some(range)
    }

    /// Must be called for each range that is removed from `host`.
    fn removed(&self, range: &HostRange) {
        write(&self.aliases).remove(&range.device_address);
        self.mapped.fetch_sub(usize::from(range.kind == HostKind::Mapped), Ordering::Release);
    }

    /// Returns the host memory that contains the program's `address`.
    pub fn host(&self, address: u64) -> Option<Arc<HostRange>> {
        let host = read(&self.host);
        let (_, range) = host.range(..=address).next_back()?;
        (address - range.start < range.bytes).then(|| range.clone())
    }

    /// Returns the host memory that contains the GPU's `address`, if the two addresses differ.
    pub fn alias(&self, address: u64) -> Option<Arc<HostRange>> {
        let aliases = read(&self.aliases);
        let (&start, range) = aliases.range(..=address).next_back()?;
        (address - start < range.bytes).then(|| range.clone())
    }

    /// Returns the host memory that contains all of `bytes` from the program's `address` on.
    pub fn host_of(&self, address: u64, bytes: u64) -> Option<Arc<HostRange>> {
        self.host(address).filter(|range| bytes <= range.bytes - (address - range.start))
    }

    /// Removes and returns the host memory for which a predicate is true.
    pub fn take_host_where(&self, removed: impl Fn(&HostRange) -> bool) -> Vec<Arc<HostRange>> {
        let mut host = write(&self.host);
        let taken: Vec<_> = host.extract_if(.., |_, range| removed(range)).map(|(_, range)| range).collect();
        taken.iter().for_each(|range| self.removed(range));
        self.look(&host);
        taken
    }

    /// Adds device memory. Ranges that it overlaps are removed, because the device has reused their addresses. Ignores
    /// invalid ranges, which a malicious worker may return.
    pub fn add_device(&self, range: DeviceRange) {
        let mut device = write(&self.device);
        let Some(end) = range.start.checked_add(range.bytes) else { return };
        let stale: Vec<u64> = device
            .range(..end)
            .rev()
            .take_while(|(_, other)| other.start + other.bytes > range.start)
            .map(|(&start, _)| start)
            .collect();
        for start in stale {
            device.remove(&start);
        }
        device.insert(range.start, range);
    }

    /// Returns the device memory that contains `address`.
    pub fn device(&self, address: u64) -> Option<DeviceRange> {
        let device = read(&self.device);
        let (_, range) = device.range(..=address).next_back()?;
        (address - range.start < range.bytes).then_some(*range)
    }

    /// Sets whether `device` can access its memory that begins in `places`.
    pub fn set_reachable(&self, places: std::ops::Range<u64>, device: u32, reachable: bool) {
        for (_, range) in write(&self.device).range_mut(places) {
            if range.device == device {
                range.reachable = reachable;
            }
        }
    }

    /// Removes the device memory that begins at an address, if `wanted` accepts it.
    pub fn take_device(&self, start: u64, wanted: impl Fn(&DeviceRange) -> bool) -> Option<DeviceRange> {
        let mut device = write(&self.device);
        device.get(&start).is_some_and(wanted).then(|| device.remove(&start)).flatten()
    }

    /// Removes the device memory that begins in `places`.
    pub fn remove_device_in(&self, places: std::ops::Range<u64>) {
        write(&self.device).extract_if(places, |_, _| true).for_each(drop);
    }

    /// Removes the device memory for which a predicate is true. The predicate is called for all of it.
    pub fn remove_device_where(&self, removed: impl Fn(&DeviceRange) -> bool) {
        write(&self.device).retain(|_, range| !removed(range));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(start: u64, bytes: u64, device_address: u64) -> HostRange {
        HostRange {
            start,
            bytes,
            device_address,
            kind: HostKind::Registered,
            flags: 0,
            context: 1,
            device: 0,
            id: 1,
            pages: UserMemory { address: (start & !4095) as usize, bytes: 0 },
            window: 0,
            pinned: Vec::new(),
            owner: 0,
            pool: None,
            moving: None,
        }
    }

    fn device(start: u64, bytes: u64) -> DeviceRange {
        DeviceRange { start, bytes, context: 1, device: 0, id: 1, owner: 0, pool: 0, reachable: true }
    }

    #[test]
    fn host_memory_is_found_by_both_addresses() {
        let ranges = Ranges::default();
        assert!(ranges.add_host(host(0x1100, 0x300, 0x8100)));
        let found = ranges.host(0x13ff).expect("last byte");
        assert_eq!(found.device_address_of(0x13ff), 0x83ff);
        assert!(ranges.host(0x1400).is_none() && ranges.host(0x10ff).is_none());
        assert_eq!(ranges.alias(0x8200).expect("alias").start, 0x1100);
        assert!(ranges.host_of(0x1200, 0x200).is_some());
        assert!(ranges.host_of(0x1200, 0x201).is_none(), "reaches out of the range");
        assert!(ranges.take_host(0x1100, HostKind::Allocated).is_none());
        assert!(ranges.take_host(0x1100, HostKind::Registered).is_some());
        assert!(ranges.alias(0x8200).is_none());
    }

    #[test]
    fn mappings_of_host_memory_adjoin() {
        let ranges = Ranges::default();
        let mapped = |start, bytes| HostRange { kind: HostKind::Mapped, ..host(start, bytes, start) };
        assert!(ranges.add_host(host(0x3000, 0x1000, 0x3000)));
        assert_eq!(ranges.before_seam(0x3800, 0x1000), Ok(None), "registered");
        assert!(ranges.add_host(mapped(0x1000, 0x1000)) && ranges.add_host(mapped(0x2000, 0x1000)));
        assert_eq!(ranges.before_seam(0x1800, 0x800), Ok(None), "in one");
        assert_eq!(ranges.before_seam(0x1800, 0x801), Ok(Some(0x800)));
        assert_eq!(ranges.before_seam(0x1800, 0x1800), Ok(Some(0x800)));
        assert_eq!(ranges.before_seam(0x1800, 0x1801), Err(CudaError::INVALID_VALUE), "into another kind");
        assert_eq!(ranges.before_seam(0x2800, 0x801), Err(CudaError::INVALID_VALUE));
        assert_eq!(ranges.before_seam(0x800, 0x1000), Ok(None), "before all");
        assert!(ranges.take_host(0x1000, HostKind::Mapped).is_some());
        assert!(ranges.take_host(0x2000, HostKind::Mapped).is_some());
        assert_eq!(ranges.before_seam(0x2800, 0x801), Ok(None));
    }

    #[test]
    fn device_memory_goes_by_where_it_begins() {
        let ranges = Ranges::default();
        for start in [0x1000, 0x2000, 0x3000] {
            ranges.add_device(device(start, 0x1000));
        }
        assert!(ranges.take_device(0x1800, |_| true).is_none(), "inside one");
        assert!(ranges.take_device(0x1000, |range| range.owner == 7).is_none(), "not as wanted");
        assert_eq!(ranges.take_device(0x1000, |_| true).map(|range| range.start), Some(0x1000));
        ranges.remove_device_in(0x2800..0x3001);
        assert!(ranges.device(0x1000).is_none() && ranges.device(0x3fff).is_none());
        assert!(ranges.device(0x2fff).is_some(), "begins before");
    }

    #[test]
    fn overlapping_registration_is_refused() {
        let ranges = Ranges::default();
        assert!(ranges.add_host(host(0x1100, 0x300, 0x8100)));
        assert!(!ranges.add_host(host(0x13ff, 1, 0x9000)));
        assert!(!ranges.add_host(host(0x1000, 0x101, 0x9000)));
        assert!(ranges.add_host(host(0x1000, 0x100, 0x9000)));
        assert!(ranges.add_host(host(0x1400, 0x100, 0xa000)));
    }

    #[test]
    fn reused_device_addresses_replace_stale_ranges() {
        let ranges = Ranges::default();
        ranges.add_device(device(0x1000, 0x1000));
        ranges.add_device(device(0x3000, 0x1000));
        ranges.add_device(device(0x1800, 0x2000));
        assert!(ranges.device(0x1000).is_none() && ranges.device(0x3900).is_none());
        assert_eq!(ranges.device(0x1900).expect("new").start, 0x1800);
    }
}
