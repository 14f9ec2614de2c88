// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Placed memory of a session that goes to another worker: its tables, and the same addresses there.

use std::collections::BTreeMap;

use vhost_cuda_common::statistics;
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::slab::{self, Slab};
use super::{Allocation, Placed, Region, State, access_of, properties};
use crate::gpu::{Driver, RawAllocation};
use crate::memory::parts::{Mapping, Part};
use crate::memory::quota::{self, BLOCK};

/// A region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RegionRow {
    /// Its first address.
    pub base: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// The name of its context.
    pub context: u64,
    /// 1 for a region of small allocations, or 0.
    pub is_shared: u64,
}

/// An allocation in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct AllocationRow {
    /// Its address.
    pub address: u64,
    /// The first address of its region.
    pub region: u64,
    /// The bytes that it takes in the region.
    pub bytes: u64,
}

impl State {
    /// Returns all regions and allocations, ordered by address. `None` if another process or device has a part in them.
    pub fn rows(&self) -> Option<(Vec<RegionRow>, Vec<AllocationRow>)> {
        let mut regions = Vec::new();
        for (&base, region) in &self.regions {
            if region.exported || !region.lent.is_empty() {
                return None;
            }
            let (bytes, context) = (region.part.bytes, region.context);
            regions.push(RegionRow { base, bytes, context, is_shared: region.slab.is_some().into() });
        }
        let mut allocations = Vec::new();
        for (&address, allocation) in &self.allocations {
            let region = self.regions.get(&allocation.region)?;
            let bytes = match &region.slab {
                Some(slab) => *slab.used().get(&(address - allocation.region))?,
                None => region.part.bytes,
            };
            allocations.push(AllocationRow { address, region: allocation.region, bytes });
        }
        allocations.sort_by_key(|row| row.address);
        Some((regions, allocations))
    }

    /// Returns the context of the allocation at `address`, and the bytes that it takes.
    pub fn room_of(&self, address: u64) -> Option<(u64, u64)> {
        let allocation = self.allocations.get(&address)?;
        let region = self.regions.get(&allocation.region)?;
        let bytes = match &region.slab {
            Some(slab) => *slab.used().get(&(address - allocation.region))?,
            None => region.part.bytes,
        };
        Some((allocation.context, bytes))
    }
}

impl Placed {
    /// Enters regions and allocations of another worker, whose contents are away, at the same addresses of this session's device. Nothing is
    /// placed before.
    ///
    /// Errors: the reason.
    pub fn restore(
        &self,
        device: i32,
        regions: &[RegionRow],
        allocations: &[AllocationRow],
    ) -> Result<(), String> {
        if regions.len() > self.limit {
            return Err(format!(
                "it has {} regions of memory, and this worker may have {}",
                regions.len(),
                self.limit
            ));
        }
        let is_good = |row: &RegionRow| row.is_shared == 0 || row.is_shared == 1 && row.bytes == BLOCK;
        if !regions.iter().all(is_good) {
            return Err("a region of memory is none".to_owned());
        }
        let (mut addresses, elsewhere) = (BTreeMap::new(), || {
            format!("addresses for its memory are in use: those of this worker begin at {:#x}", self.start)
        });
        for row in regions {
            addresses.insert(row.base.checked_sub(self.start).ok_or_else(elsewhere)?, row.bytes);
        }
        let is_unique = addresses.len() == regions.len();
        let addresses =
            Slab::of(self.bytes(), BLOCK, addresses).filter(|_| is_unique).ok_or_else(elsewhere)?;
        let mut by_region = BTreeMap::<u64, BTreeMap<u64, u64>>::new();
        for row in allocations {
            let offset =
                row.address.checked_sub(row.region).ok_or("an allocation lies outside of its region")?;
            by_region.entry(row.region).or_default().insert(offset, row.bytes);
        }
        let mut state = self.lock();
        state.addresses = addresses;
        for row in regions {
            let used = by_region.remove(&row.base).unwrap_or_default();
            let slab = if row.is_shared == 1 {
                let slab = Slab::of(row.bytes, slab::UNIT, used.clone());
                Some(slab.ok_or("allocations in a region overlap")?)
            } else if used == BTreeMap::from([(0, row.bytes)]) {
                None
            } else {
                return Err("a region has another allocation than its own".to_owned());
            };
            for &offset in used.keys() {
                let allocation = Allocation { region: row.base, shadow: 0, context: row.context };
                state.allocations.insert(row.base + offset, allocation);
            }
            if let Some(slab) = &slab {
                state.slabs.insert((row.context, slab.longest(), row.base));
            }
            let properties =
                RawAllocation { gpu_direct_rdma: self.is_open_to_peers.into(), ..properties(device) };
            let mapping = Mapping::new(row.base, row.bytes, access_of(&[device]));
            let part = Part::new(Some(0), row.bytes, properties, vec![mapping]).away();
            let context = row.context;
            let region = Region { part, context, lent: Vec::new(), chosen: None, slab, exported: false };
            state.regions.insert(row.base, region);
        }
        if !by_region.is_empty() {
            return Err("an allocation has no region".to_owned());
        }
        if !regions.is_empty() {
            statistics::add_movable_devices(self.device_bit(device));
        }
        Ok(())
    }
}

/// Returns the bytes that an allocation of `bytes` bytes takes in its region.
pub fn taken_by(bytes: u64) -> u64 {
    match quota::alone(bytes) {
        0 => bytes.max(1).next_multiple_of(slab::UNIT),
        alone => alone,
    }
}

/// Reserves these addresses and no others.
///
/// Errors: the reason.
pub fn reserve_at(gpu: &Driver, address: u64, bytes: u64) -> Result<(), String> {
    let length = usize::try_from(bytes).map_err(|_| "too many addresses")?;
    let (found,) = gpu
        .cuMemAddressReserve(length, 0, address, 0)
        .map_err(|error| format!("{bytes} bytes of addresses at {address:#x} cannot be reserved: {error}"))?;
    if found == address {
        return Ok(());
    }
    // SAFETY: reserved above; nothing is mapped there.
    let _ = unsafe { gpu.cuMemAddressFree(found, length) };
    Err(format!("{bytes} bytes of addresses at {address:#x} are in use, or the driver places them elsewhere"))
}
