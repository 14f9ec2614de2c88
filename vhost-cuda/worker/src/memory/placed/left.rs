// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Placed memory of a session that goes to another worker: its tables, and the same addresses there.

use std::collections::BTreeMap;

use vhost_cuda_common::exchange::Token;
use vhost_cuda_common::statistics;
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::slab::{self, Slab};
use super::{Allocation, Others, Placed, Region, State, access_of, properties};
use crate::gpu::{Driver, RawAllocation};
use crate::home::Home;
use crate::memory::parts::{Mapping, Part};
use crate::memory::quota::{self, BLOCK};

/// The maximum number of pairs of contexts with access: a session has up to 128 contexts.
const MAX_PEERS: usize = 1 << 14;

/// [`RegionRow::flags`]: for small allocations.
const SLAB: u32 = 1;
/// [`RegionRow::flags`]: other processes may have it mapped.
const OFFERED: u32 = 2;

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
    /// [`SLAB`], [`OFFERED`].
    pub flags: u32,
    /// The number of its device.
    pub device: u32,
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

/// Devices that have access to a region of their own right. A device is the bit of its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct AccessRow {
    /// The first address of the region.
    pub region: u64,
    /// Those that keep it because of a copy.
    pub lent: u64,
    /// Those that have it in place of the peers of its context, if there are such.
    pub chosen: u64,
    /// 1 if there are, or 0.
    pub is_chosen: u64,
}

/// A context that may access the memory of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct PeerRow {
    /// The name of the context that owns the memory.
    pub owner: u64,
    /// The name of the one that may access it.
    pub reader: u64,
    /// The number of the latter's device.
    pub device: u64,
}

/// An allocation of another process, of which [`AllocationRow`] has the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct OpenedRow {
    /// Its address.
    pub address: u64,
    /// The number of times that the program has opened it.
    pub times: u64,
    /// The token under which it was offered.
    pub token: Token,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Rows {
    /// Regions.
    pub regions: Vec<RegionRow>,
    /// Allocations.
    pub allocations: Vec<AllocationRow>,
    /// Access to regions.
    pub access: Vec<AccessRow>,
    /// Access of contexts.
    pub peers: Vec<PeerRow>,
    /// Allocations of other processes.
    pub opened: Vec<OpenedRow>,
}

/// Returns the bits of the numbers of these devices. `None` for one that has no bit.
fn bits(devices: &[i32]) -> Option<u64> {
    let bit = |device: &i32| 1_u64.checked_shl(u32::try_from(*device).ok()?);
    devices.iter().try_fold(0, |all, device| Some(all | bit(device)?))
}

/// Returns the devices whose numbers have these bits.
fn devices_of(bits: u64) -> Vec<i32> {
    (0..64).filter(|device| bits >> device & 1 == 1).collect()
}

impl State {
    /// Returns all of it, ordered by address, but for the times that memory was opened. `None` if another process has a part in memory that no
    /// file keeps.
    pub fn rows(&self) -> Option<Rows> {
        let (mut regions, mut access) = (Vec::new(), Vec::new());
        for (&base, region) in &self.regions {
            if region.is_shared() && region.part.held().is_none() {
                return None;
            }
            let slab = if region.slab.is_some() { SLAB } else { 0 };
            let flags = slab | if region.others == Others::Offered { OFFERED } else { 0 };
            let (bytes, context) = (region.part.bytes, region.context);
            let device = u32::try_from(region.part.device()).ok()?;
            regions.push(RegionRow { base, bytes, context, flags, device });
            if !region.lent.is_empty() || region.chosen.is_some() {
                access.push(AccessRow {
                    region: base,
                    lent: bits(&region.lent)?,
                    chosen: bits(region.chosen.as_deref().unwrap_or_default())?,
                    is_chosen: region.chosen.is_some().into(),
                });
            }
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
        let opened = self.opened().map(|(address, token)| OpenedRow { address, times: 0, token });
        let mut opened: Vec<_> = opened.collect();
        opened.sort_by_key(|row| row.address);
        Some(Rows { regions, allocations, access, peers: self.peers.rows()?, opened })
    }

    /// Returns the context of the allocation at `address`, the bytes that it takes, and its device.
    pub fn room_of(&self, address: u64) -> Option<(u64, u64, i32)> {
        let allocation = self.allocations.get(&address)?;
        let region = self.regions.get(&allocation.region)?;
        let bytes = match &region.slab {
            Some(slab) => *slab.used().get(&(address - allocation.region))?,
            None => region.part.bytes,
        };
        Some((allocation.context, bytes, region.part.device()))
    }
}

impl Placed {
    /// Enters the rows of another worker, whose contents are away, at the same addresses. Nothing is placed before.
    ///
    /// Errors: the reason.
    pub fn restore(&self, rows: &Rows) -> Result<(), String> {
        let Rows { regions, allocations, .. } = rows;
        if regions.len() > self.limit {
            return Err(format!(
                "it has {} regions of memory, and this worker may have {}",
                regions.len(),
                self.limit
            ));
        }
        let is_seen = |device: u64| i32::try_from(device).is_ok_and(|device| self.devices.contains(&device));
        let is_good = |row: &RegionRow| {
            let is_plain = row.flags & SLAB == 0 || row.bytes == BLOCK;
            row.flags & !(SLAB | OFFERED) == 0 && is_plain && is_seen(row.device.into())
        };
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
        let mut opened: BTreeMap<u64, Token> =
            rows.opened.iter().map(|row| (row.address, row.token)).collect();
        let mut by_region = BTreeMap::<u64, BTreeMap<u64, u64>>::new();
        for row in allocations {
            let offset =
                row.address.checked_sub(row.region).ok_or("an allocation lies outside of its region")?;
            by_region.entry(row.region).or_default().insert(offset, row.bytes);
        }
        let mut state = self.lock();
        state.addresses = addresses;
        if rows.peers.len() > MAX_PEERS || !rows.peers.iter().all(|row| is_seen(row.device)) {
            return Err("contexts have access that no call gives".to_owned());
        }
        state.peers.restore(&rows.peers);
        let mut access: BTreeMap<u64, &AccessRow> = rows.access.iter().map(|row| (row.region, row)).collect();
        let all = rows.access.iter().fold(0, |all, row| all | row.lent | row.chosen);
        if all & !bits(&self.devices).unwrap_or(0) != 0 || access.len() != rows.access.len() {
            return Err("devices have access that no call gives".to_owned());
        }
        for row in regions {
            let used = by_region.remove(&row.base).unwrap_or_default();
            let slab = if row.flags & SLAB != 0 {
                let slab = Slab::of(row.bytes, slab::UNIT, used.clone());
                Some(slab.ok_or("allocations in a region overlap")?)
            } else if used == BTreeMap::from([(0, row.bytes)]) {
                None
            } else {
                return Err("a region has another allocation than its own".to_owned());
            };
            let first = used.keys().next().map(|offset| row.base + offset);
            let others = match first.and_then(|address| opened.remove(&address)) {
                Some(token) if used.len() == 1 && row.flags & OFFERED == 0 => Others::Opened(token),
                None if row.flags & OFFERED == 0 => Others::None,
                None => Others::Offered,
                Some(_) => return Err("memory of another process has parts of its own".to_owned()),
            };
            for &offset in used.keys() {
                let allocation = Allocation { region: row.base, shadow: 0, context: row.context };
                state.allocations.insert(row.base + offset, allocation);
            }
            if let Some(slab) = slab.as_ref().filter(|_| !matches!(others, Others::Opened(_))) {
                state.slabs.insert((row.context, slab.longest(), row.base));
            }
            let device = row.device.cast_signed();
            let properties =
                RawAllocation { gpu_direct_rdma: self.is_open_to_peers.into(), ..properties(device) };
            let own = access.remove(&row.base);
            let lent = own.map_or(Vec::new(), |own| devices_of(own.lent));
            let chosen = own.filter(|own| own.is_chosen == 1).map(|own| devices_of(own.chosen));
            let mut readers = match &chosen {
                Some(chosen) => [&[device], &chosen[..]].concat(),
                None => state.peers.readers(Home { context: row.context, device }),
            };
            readers.extend(&lent);
            readers.sort_unstable();
            readers.dedup();
            let mapping = Mapping::new(row.base, row.bytes, access_of(&readers));
            let part = Part::new(Some(0), row.bytes, properties, vec![mapping]).away();
            let region = Region { part, context: row.context, lent, chosen, slab, others };
            state.regions.insert(row.base, region);
            statistics::add_movable_devices(self.device_bit(device));
        }
        if !by_region.is_empty() {
            return Err("an allocation has no region".to_owned());
        }
        if !opened.is_empty() {
            return Err("memory of another process has no region of its own".to_owned());
        }
        if access.is_empty() { Ok(()) } else { Err("devices have access to no region".to_owned()) }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::null;
    use crate::memory::window::IN_USE;

    const ONE: Home = Home { context: 9, device: 0 };
    const OTHER: Home = Home { context: 10, device: 1 };

    /// Memory of two devices with all kinds of access: that of peers, for a copy, and chosen.
    fn rows(gpu: &Driver, placed: &Placed) -> Rows {
        let all = [ONE, OTHER, OTHER].map(|home| placed.allocate(gpu, BLOCK as usize, home).unwrap());
        placed.allocate(gpu, 1, OTHER).unwrap();
        placed.enable(gpu, ONE, OTHER.context, || Ok(()), || {}).unwrap();
        placed.lend(gpu, all[0], 1).unwrap();
        placed.set_readers(gpu, all[1], vec![]).unwrap();
        placed.lock().rows().unwrap()
    }

    fn readers(placed: &Placed) -> Vec<(u64, i32, Vec<i32>)> {
        let state = placed.lock();
        let all = state.regions.iter().map(|(&base, region)| {
            let mut readers: Vec<_> = region.part.readers().collect();
            readers.sort_unstable();
            (base, region.part.device(), readers)
        });
        all.collect()
    }

    #[test]
    fn devices_have_the_same_access_in_another_worker() {
        let _null = IN_USE.lock();
        null::reset();
        let gpu = Driver::null();
        let [here, there] = [(), ()].map(|()| Placed::new(&gpu, 2, false));
        let rows = rows(&gpu, &here);
        assert_eq!((rows.access.len(), rows.peers.len()), (2, 1));
        there.restore(&rows).unwrap();
        assert_eq!(readers(&there), readers(&here));
        let all: Vec<_> = readers(&here).into_iter().map(|(_, device, readers)| (device, readers)).collect();
        assert_eq!(all, [(0, vec![0, 1]), (1, vec![1]), (1, vec![0, 1]), (1, vec![0, 1])]);
        assert_eq!(format!("{:?}", there.lock().rows().unwrap()), format!("{rows:?}"));
        assert_eq!(there.lock().peers(), [(OTHER.context, ONE.context)]);
    }

    #[test]
    fn access_that_no_call_gives_is_refused() {
        let _null = IN_USE.lock();
        null::reset();
        let gpu = Driver::null();
        let lies: [fn(&mut Rows); 7] = [
            |rows| rows.regions[0].device = 2,
            |rows| rows.regions[0].device = u32::MAX,
            |rows| rows.peers[0].device = 2,
            |rows| rows.peers = vec![rows.peers[0]; MAX_PEERS + 1],
            |rows| rows.access[0].lent = 4,
            |rows| rows.access[1].region += BLOCK * 64,
            |rows| rows.access[1] = rows.access[0],
        ];
        for (number, lie) in lies.into_iter().enumerate() {
            let [here, there] = [(), ()].map(|()| Placed::new(&gpu, 2, false));
            let mut rows = rows(&gpu, &here);
            lie(&mut rows);
            assert!(there.restore(&rows).is_err(), "{number}");
        }
    }
}
