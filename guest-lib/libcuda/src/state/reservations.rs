// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Reservations whose addresses this library chooses, allocations of host memory, and their mappings.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cuda_abi::{CUmemAllocationProp, CUmemLocation};
use virtio_cuda_client::CudaError;
use virtio_cuda_client::protocol::{RESERVATIONS_BASE, WINDOW_BYTES};

use crate::state::memory::pinned::Pinned;
use crate::state::moving::pages::Store;
use crate::state::parked::ParkedMaps;

/// Sizes and addresses of mappings are multiples of this many bytes, as on NVIDIA's GPUs.
pub const GRANULARITY: u64 = 2 << 20;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const LOCATION_DEVICE: u32 = 1;

/// The owner of a reservation's addresses in the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// No owner: the last change of the owner has failed.
    Nothing,
    /// The driver: device memory can be mapped there.
    Device,
    /// The address window: pages of this process can be mapped there.
    Host,
}

/// Addresses of `cuMemAddressReserve`.
#[derive(Clone, Copy, Debug)]
pub struct Reserved {
    /// Bytes that the program requested.
    pub bytes: u64,
    /// Bytes of the window that it occupies.
    pub slot_bytes: u64,
    /// The owner in the worker.
    pub bound: Bound,
}

/// Host memory of `cuMemCreate`. It exists while it is referenced or mapped.
#[derive(Debug)]
pub struct HostAllocation {
    /// The program's handle.
    pub handle: u64,
    /// Pages of the allocation.
    pub store: Store,
    /// Bytes.
    pub bytes: u64,
    /// Properties that the program requested.
    pub properties: CUmemAllocationProp,
}

/// A location with access to a mapping. All parts of the host count as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reader {
    /// A device, by the program's number.
    Device(i32),
    /// The processors of the guest.
    Host,
}

impl Reader {
    /// Returns the reader at a location.
    pub fn at(location: CUmemLocation) -> Self {
        if location.kind == LOCATION_DEVICE { Self::Device(location.id) } else { Self::Host }
    }
}

/// Host memory at reserved addresses.
#[derive(Debug)]
pub struct HostMap {
    /// Bytes.
    pub bytes: u64,
    /// The memory.
    pub allocation: Arc<HostAllocation>,
    /// `CU_MEM_ACCESS_FLAGS_*` of the readers that the program has specified.
    pub access: HashMap<Reader, u32>,
    /// Set if the pages are attached for the GPU, or were until their context ended.
    pub attached: Option<Attachment>,
}

impl HostMap {
    /// Returns whether any device has access.
    pub fn is_for_devices(&self) -> bool {
        self.access.iter().any(|(reader, &flags)| *reader != Reader::Host && flags != 0)
    }
}

/// Pages that the device keeps.
#[derive(Debug)]
pub struct Attachment {
    /// Tags of the kept pages.
    pub pinned: Vec<Pinned>,
    /// The context through which the GPU accesses them; 0 if there is none.
    pub context: u64,
}

/// The mutable state.
#[derive(Debug, Default)]
pub struct State {
    /// Reservations by first address.
    pub reserved: BTreeMap<u64, Reserved>,
    /// Mappings by first address. Each lies in a reservation that is bound to the window.
    pub maps: BTreeMap<u64, HostMap>,
    /// Mappings that the program has unmapped, and that stay attached.
    pub parked: ParkedMaps,
    /// Referenced allocations, with their reference counts.
    handles: HashMap<u64, (Arc<HostAllocation>, u32)>,
}

/// A part of a range of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Host memory: the addresses of adjacent mappings.
    Host(Vec<u64>),
    /// Addresses that only the worker knows.
    Worker(Range<u64>),
    /// Reserved here, without a mapping.
    Empty(Range<u64>),
}

/// The virtual memory state of the process.
#[derive(Debug, Default)]
pub struct Vmm {
    /// Set to true if this library chooses addresses.
    pub chooses: OnceLock<bool>,
    state: Mutex<State>,
    /// True if there may be mappings that the GPU cannot access, because there was no context.
    pub orphaned: AtomicBool,
    /// True once host memory existed: programs without it have no overhead.
    any_host: AtomicBool,
}

impl Vmm {
    /// Locks the tables. The lock is held during the worker's part of a change, so that changes by several threads do
    /// not interleave.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Like [`Self::lock`], unless a thread has locked them, which may be the calling one.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        self.state.try_lock().ok()
    }

    /// Returns whether there ever was host memory.
    pub fn any_host(&self) -> bool {
        self.any_host.load(Ordering::Acquire)
    }

    /// Adds a new allocation with one reference.
    pub fn insert(&self, allocation: HostAllocation) {
        self.any_host.store(true, Ordering::Release);
        self.lock().hold(Arc::new(allocation));
    }

    /// Returns the allocation of a handle, if it is host memory.
    pub fn host(&self, handle: u64) -> Option<Arc<HostAllocation>> {
        self.any_host().then(|| self.lock().held(handle)).flatten()
    }
}

impl State {
    /// Adds an allocation with one reference. Returns its handle.
    pub fn hold(&mut self, allocation: Arc<HostAllocation>) -> u64 {
        let handle = allocation.handle;
        self.handles.insert(handle, (allocation, 1));
        handle
    }

    /// Returns the allocation of a handle, if it is host memory.
    pub fn held(&self, handle: u64) -> Option<Arc<HostAllocation>> {
        self.handles.get(&handle).map(|(allocation, _)| allocation.clone())
    }

    /// Adds a reference to the allocation that is mapped at an address.
    pub fn retain(&mut self, address: u64) -> Option<u64> {
        let (_, map) = self.map_at(address)?;
        let allocation = map.allocation.clone();
        let handle = allocation.handle;
        self.handles.entry(handle).or_insert((allocation, 0)).1 += 1;
        Some(handle)
    }

    /// Releases a reference. Returns false if it is not an allocation of host memory.
    pub fn release(&mut self, handle: u64) -> bool {
        let Some((_, held)) = self.handles.get_mut(&handle) else { return false };
        *held -= 1;
        if *held == 0 {
            self.handles.remove(&handle);
        }
        true
    }

    /// Returns the mapping that contains an address, and its first address.
    pub fn map_at(&self, address: u64) -> Option<(u64, &HostMap)> {
        let (&base, map) = self.maps.range(..=address).next_back()?;
        (address - base < map.bytes).then_some((base, map))
    }

    /// Returns the reservation that contains an address, and its first address.
    pub fn around(&self, address: u64) -> Option<(u64, Reserved)> {
        let (&base, reserved) = self.reserved.range(..=address).next_back()?;
        (address - base < reserved.bytes).then_some((base, *reserved))
    }

    /// Returns whether any host memory is mapped in a range.
    pub fn is_mapped(&self, range: Range<u64>) -> bool {
        let before = self.maps.range(..range.end).next_back();
        before.is_some_and(|(base, map)| base + map.bytes > range.start)
    }

    /// Divides a range into parts. A range outside of this library's reservations is a single part of the worker's.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE` if the range contains only a part of a mapping, or extends from a reservation
    /// into addresses that are not reserved.
    pub fn parts(&self, address: u64, bytes: u64) -> Result<Vec<Part>, CudaError> {
        let end = address.checked_add(bytes).filter(|_| bytes > 0).ok_or(CudaError::INVALID_VALUE)?;
        let mut parts = Vec::new();
        let mut at = address;
        while at < end {
            let part = self.part(at, end)?;
            at = match &part {
                Part::Host(bases) => {
                    let last = bases.last().and_then(|base| Some(base + self.maps.get(base)?.bytes));
                    last.ok_or(CudaError::INVALID_VALUE)?
                }
                Part::Worker(range) | Part::Empty(range) => range.end,
            };
            parts.push(part);
        }
        Ok(parts)
    }

    /// Returns the part of a range that begins at `at`.
    fn part(&self, at: u64, end: u64) -> Result<Part, CudaError> {
        let Some((base, reserved)) = self.around(at) else {
            if (RESERVATIONS_BASE..RESERVATIONS_BASE + WINDOW_BYTES).contains(&at)
                && !self.reserved.is_empty()
            {
                return Err(CudaError::INVALID_VALUE);
            }
            let next = self.reserved.range(at..end).next().map_or(end, |(&base, _)| base);
            return Ok(Part::Worker(at..next));
        };
        let end = end.min(base + reserved.bytes);
        match reserved.bound {
            Bound::Nothing => Ok(Part::Empty(at..end)),
            Bound::Device => Ok(Part::Worker(at..end)),
            Bound::Host => {
                let mut bases = Vec::new();
                let mut next = at;
                while let Some(map) = self.maps.get(&next).filter(|map| next + map.bytes <= end) {
                    bases.push(next);
                    next += map.bytes;
                }
                if !bases.is_empty() {
                    return Ok(Part::Host(bases));
                }
                if self.map_at(at).is_some() || self.maps.contains_key(&at) {
                    return Err(CudaError::INVALID_VALUE);
                }
                Ok(Part::Empty(at..self.maps.range(at..end).next().map_or(end, |(&base, _)| base)))
            }
        }
    }
}

#[cfg(test)]
#[path = "reservations_test.rs"]
mod tests;
