// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Placed memory of a session that goes to another worker: its tables, and the same addresses there.
//!
//! NVIDIA's driver 580 ignores the address that a reservation of less than 32 MiB asks for. So regions that were made one by one get
//! reservations that cover several of them. Such a reservation stays until the last of its regions ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use vhost_cuda_common::statistics;
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::slab::{self, Slab};
use super::{Allocation, Placed, Region, State, access_of, properties};
use crate::gpu::{Driver, RawAllocation};
use crate::memory::parts::{Mapping, Part};
use crate::memory::quota::{self, BLOCK};

/// Reservations of other workers' addresses begin at multiples of this, and are multiples of it.
const COVER: u64 = 32 << 20;

/// A reservation in which several regions lie.
#[derive(Debug)]
pub struct Cover {
    /// Its first address.
    pub start: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

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
    /// Errors: the reason; some addresses may be reserved.
    pub fn restore(
        &self,
        gpu: &Driver,
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
        let is_good = |row: &RegionRow| {
            let end = row.base.checked_add(row.bytes);
            let has_blocks =
                row.bytes > 0 && row.base.is_multiple_of(BLOCK) && row.bytes.is_multiple_of(BLOCK);
            let is_slab = row.is_shared == 1 && row.bytes == BLOCK;
            has_blocks && end.is_some_and(|end| end < 1 << 63) && (row.is_shared == 0 || is_slab)
        };
        let are_apart = regions.is_sorted_by(|one, next| one.base + one.bytes <= next.base);
        if !regions.iter().all(is_good) || !are_apart {
            return Err("regions of memory overlap, or are none".to_owned());
        }
        let mut by_region = BTreeMap::<u64, BTreeMap<u64, u64>>::new();
        for row in allocations {
            let offset =
                row.address.checked_sub(row.region).ok_or("an allocation lies outside of its region")?;
            by_region.entry(row.region).or_default().insert(offset, row.bytes);
        }
        let mut covers = covers(regions).into_iter().map(Arc::new).peekable();
        let mut state = self.lock();
        let mut reserved: Option<Arc<Cover>> = None;
        for row in regions {
            let cover = match reserved.take().filter(|cover| row.base < cover.start + cover.bytes) {
                Some(cover) => cover,
                None => {
                    let next = covers.next().ok_or("a region has no addresses")?;
                    reserve_at(gpu, next.start, next.bytes)?;
                    next
                }
            };
            reserved = Some(cover.clone());
            let used = by_region.remove(&row.base).unwrap_or_default();
            let slab = if row.is_shared == 1 {
                Some(Slab::of(row.bytes, used.clone()).ok_or("allocations in a region overlap")?)
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
            let (context, cover) = (row.context, Some(cover));
            let region =
                Region { part, context, lent: Vec::new(), chosen: None, slab, exported: false, cover };
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

/// Returns the reservations that cover these regions, which are ordered.
fn covers(regions: &[RegionRow]) -> Vec<Cover> {
    let mut covers: Vec<Cover> = Vec::new();
    for row in regions {
        let start = row.base / COVER * COVER;
        let end = (row.base + row.bytes).next_multiple_of(COVER);
        match covers.last_mut() {
            Some(last) if start <= last.start + last.bytes => {
                last.bytes = last.bytes.max(end - last.start);
            }
            _ => covers.push(Cover { start, bytes: end - start }),
        }
    }
    covers
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covers_are_whole_and_touch_no_other() {
        let row = |base: u64, bytes: u64| RegionRow { base, bytes, context: 1, is_shared: 0 };
        let of = |rows: &[RegionRow]| -> Vec<_> {
            covers(rows).iter().map(|cover| (cover.start / COVER, cover.bytes / COVER)).collect()
        };
        let second = COVER + BLOCK;
        assert_eq!(of(&[row(second, BLOCK), row(second + BLOCK, 2 * BLOCK)]), [(1, 1)]);
        assert_eq!(of(&[row(second, COVER), row(4 * COVER, COVER)]), [(1, 2), (4, 1)]);
        assert_eq!(
            of(&[row(second, BLOCK), row(2 * COVER, 3 * COVER), row(6 * COVER, BLOCK)]),
            [(1, 4), (6, 1)]
        );
        assert!(of(&[]).is_empty());
    }
}
