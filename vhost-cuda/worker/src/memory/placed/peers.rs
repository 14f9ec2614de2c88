// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Access of devices to placed memory of others, which follows `cuCtxEnablePeerAccess`.
//!
//! The driver gives access to mapped memory by device, not by context: once one context of a device may access the memory of
//! another context, all contexts of that device may.
//!
//! The driver copies its own memory from any context, whether or not access is enabled. For mapped memory it demands access of
//! the current context's device, but in `cuMemcpyPeer` (driver 580). [`Placed::lend`] gives that for the rest of the region's
//! life: work that was queued may come to it at any time.
//!
//! Access to memory of pools does not follow peers, but `cuMemPoolSetAccess` ([`Placed::set_readers`]).

use std::collections::{BTreeMap, BTreeSet};

use super::left::PeerRow;
use super::{Placed, Region, State};
use crate::gpu::{CuResult, CudaError, Driver, with_capture_relaxed};
use crate::home::Home;

/// The contexts that may access memory of others.
#[derive(Debug, Default)]
pub struct Peers {
    /// Devices, by the names of the context that owns the memory and of the one that accesses it.
    enabled: BTreeMap<(u64, u64), i32>,
    /// The devices of NCCL's ranks. Between them NCCL enables access itself, without the guest.
    ranks: BTreeSet<i32>,
}

impl Peers {
    /// Returns the devices that have access to new memory of a context: its own one comes first.
    pub fn readers(&self, owner: Home) -> Vec<i32> {
        let mut readers = vec![owner.device];
        let of_owner = self.enabled.range((owner.context, 0)..=(owner.context, u64::MAX));
        let ranks = self.ranks.iter().filter(|_| self.ranks.contains(&owner.device));
        for &device in of_owner.map(|(_, device)| device).chain(ranks) {
            if !readers.contains(&device) {
                readers.push(device);
            }
        }
        readers
    }

    /// Gives the devices access to a region that have it, and takes it from the others.
    ///
    /// Errors: the driver's.
    pub fn apply(&self, gpu: &Driver, owner: Home, region: &mut Region) -> CuResult<()> {
        let readers = match &region.chosen {
            Some(chosen) => [owner.device].into_iter().chain(chosen.iter().copied()).collect(),
            None => self.readers(owner),
        };
        let others = region.part.readers().filter(|device| !readers.contains(device));
        for device in others.collect::<Vec<_>>() {
            if !region.lent.contains(&device) {
                region.part.set_access(gpu, device, false)?;
            }
        }
        for device in readers {
            if !region.part.is_accessible(device) {
                region.part.set_access(gpu, device, true)?;
            }
        }
        Ok(())
    }
}

impl Peers {
    /// Returns the contexts that may access memory of others, for another worker. `None` if some have access without a call of the program.
    pub fn rows(&self) -> Option<Vec<PeerRow>> {
        if !self.ranks.is_empty() {
            return None;
        }
        let row = |(&(owner, reader), &device): (&(u64, u64), &i32)| {
            Some(PeerRow { owner, reader, device: u64::try_from(device).ok()? })
        };
        self.enabled.iter().map(row).collect()
    }

    /// Enters those of another worker, with devices of this one.
    pub fn restore(&mut self, rows: &[PeerRow]) {
        self.enabled.extend(rows.iter().map(|row| ((row.owner, row.reader), row.device as i32)));
    }
}

impl State {
    /// Returns the contexts that may access memory of others: the owner of the memory, and the one that accesses it.
    pub fn peers(&self) -> Vec<(u64, u64)> {
        self.peers.enabled.keys().copied().collect()
    }

    /// Gives or takes access to all memory of a context as its peers are now.
    ///
    /// Errors: the driver's, of the first region that fails.
    fn apply_peers(&mut self, gpu: &Driver, owner: u64) -> CuResult<()> {
        let Self { regions, peers, .. } = self;
        let of_owner = regions.values_mut().filter(|region| region.context == owner);
        let mut outcome = Ok(());
        for region in of_owner {
            let owner = Home { context: owner, device: region.part.device() };
            outcome = outcome.and(peers.apply(gpu, owner, region));
        }
        outcome
    }

    /// Ends all access of and to a context that has ended.
    pub fn forget_peers(&mut self, gpu: &Driver, context: u64) {
        let ended =
            self.peers.enabled.extract_if(.., |&(owner, reader), _| owner == context || reader == context);
        for ((owner, _), _) in ended.collect::<Vec<_>>() {
            // The driver keeps what it does not take away.
            let _ = self.apply_peers(gpu, owner);
        }
    }
}

impl Placed {
    /// Lets the device of `reader` access all memory of the context `owner`, now and later, if `driver` allows it to that context.
    ///
    /// Errors: those of `driver`, and the driver's. All access is as before.
    pub fn enable(
        &self,
        gpu: &Driver,
        reader: Home,
        owner: u64,
        driver: impl FnOnce() -> CuResult<()>,
        undo: impl FnOnce(),
    ) -> CuResult<()> {
        let _changes = self.changes.lock();
        driver()?;
        let mut state = self.lock();
        state.peers.enabled.insert((owner, reader.context), reader.device);
        let applied = with_capture_relaxed(gpu, || state.apply_peers(gpu, owner));
        applied.inspect_err(|_| {
            state.peers.enabled.remove(&(owner, reader.context));
            let _ = state.apply_peers(gpu, owner);
            undo();
        })
    }

    /// Ends what [`Self::enable`] has allowed, once `driver` has ended it.
    ///
    /// Errors: those of `driver`.
    pub fn disable(
        &self,
        gpu: &Driver,
        reader: u64,
        owner: u64,
        driver: impl FnOnce() -> CuResult<()>,
    ) -> CuResult<()> {
        let _changes = self.changes.lock();
        driver()?;
        let mut state = self.lock();
        state.peers.enabled.remove(&(owner, reader));
        // The driver keeps what it does not take away.
        let _ = with_capture_relaxed(gpu, || state.apply_peers(gpu, owner));
        Ok(())
    }

    /// Lets the devices of all NCCL ranks access each other's memory, of which one is `device` from now on.
    ///
    /// Errors: the driver's.
    pub fn add_rank(&self, gpu: &Driver, device: i32) -> CuResult<()> {
        if !self.has_peers() {
            return Ok(());
        }
        let _changes = self.changes.lock();
        let mut state = self.lock();
        if !state.peers.ranks.insert(device) {
            return Ok(());
        }
        let owners: BTreeSet<u64> = state.regions.values().map(|region| region.context).collect();
        let applied = with_capture_relaxed(gpu, || {
            owners.into_iter().try_for_each(|owner| state.apply_peers(gpu, owner))
        });
        applied.inspect_err(|_| {
            state.peers.ranks.remove(&device);
        })
    }

    /// Lets these devices access the allocation at `address`, besides its own, and no others but for copies. It must be a region of
    /// its own.
    ///
    /// Errors: `CUDA_ERROR_NOT_SUPPORTED` for all other memory, and the driver's. The access is as before.
    pub fn set_readers(&self, gpu: &Driver, address: u64, devices: Vec<i32>) -> CuResult<()> {
        let _changes = self.changes.lock();
        let mut state = self.lock();
        let State { regions, peers, .. } = &mut *state;
        let region = regions.get_mut(&address).filter(|region| region.slab.is_none() && !region.is_shared());
        let region = region.ok_or(CudaError::NOT_SUPPORTED)?;
        let owner = Home { context: region.context, device: region.part.device() };
        let before = region.chosen.replace(devices);
        with_capture_relaxed(gpu, || {
            peers.apply(gpu, owner, region).inspect_err(|_| {
                region.chosen = before;
                // The driver keeps what it does not take away.
                let _ = peers.apply(gpu, owner, region);
            })
        })
    }

    /// Returns whether memory of one device may need access of another one.
    pub fn has_peers(&self) -> bool {
        self.devices.len() > 1 && self.limit > 0
    }

    /// Returns whether a device has access to the allocation at `address`. True for memory that is not placed.
    pub fn is_accessible(&self, address: u64, device: i32) -> bool {
        let state = self.lock();
        let region = state.allocations.get(&address).and_then(|found| state.regions.get(&found.region));
        region.is_none_or(|region| region.part.is_accessible(device))
    }

    /// Lets a device copy the region of the allocation at `address` from now on. Memory that is not placed needs nothing.
    ///
    /// Errors: the driver's.
    pub fn lend(&self, gpu: &Driver, address: u64, device: i32) -> CuResult<()> {
        let mut state = self.lock();
        let State { allocations, regions, .. } = &mut *state;
        let region = allocations.get(&address).and_then(|found| regions.get_mut(&found.region));
        let Some(region) = region.filter(|region| !region.lent.contains(&device)) else { return Ok(()) };
        if !region.part.is_accessible(device) {
            with_capture_relaxed(gpu, || region.part.set_access(gpu, device, true))?;
        }
        region.lent.push(device);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::null;
    use crate::memory::quota::BLOCK;
    use crate::memory::window::IN_USE;

    const ONE: Home = Home { context: 9, device: 0 };
    const OTHER: Home = Home { context: 10, device: 1 };

    fn readers(placed: &Placed, address: u64) -> Vec<i32> {
        let state = placed.lock();
        let mut readers: Vec<_> = state.regions[&state.allocations[&address].region].part.readers().collect();
        readers.sort_unstable();
        readers
    }

    fn enable(placed: &Placed, gpu: &Driver, reader: Home, owner: u64) -> CuResult<()> {
        placed.enable(gpu, reader, owner, || Ok(()), || {})
    }

    #[test]
    fn access_follows_the_peers_of_old_and_new_memory() {
        let _null = IN_USE.lock();
        null::reset();
        let gpu = Driver::null();
        let placed = Placed::new(&gpu, 2, false);
        assert!(placed.has_peers());
        let allocate = |home| placed.allocate(&gpu, BLOCK as usize, home).unwrap();
        let (old, own) = (allocate(OTHER), allocate(ONE));
        enable(&placed, &gpu, ONE, OTHER.context).unwrap();
        let new = allocate(OTHER);
        assert_eq!([old, new, own].map(|at| readers(&placed, at)), [vec![0, 1], vec![0, 1], vec![0]]);
        placed.disable(&gpu, ONE.context, OTHER.context, || Ok(())).unwrap();
        assert_eq!([old, new, own].map(|at| readers(&placed, at)), [vec![1], vec![1], vec![0]]);
        assert_eq!(readers(&placed, allocate(OTHER)), [1]);
    }

    #[test]
    fn a_device_has_access_while_one_of_its_contexts_has() {
        let _null = IN_USE.lock();
        null::reset();
        let gpu = Driver::null();
        let placed = Placed::new(&gpu, 2, false);
        let memory = placed.allocate(&gpu, 1, OTHER).unwrap();
        for context in [9, 11] {
            enable(&placed, &gpu, Home { context, device: 0 }, OTHER.context).unwrap();
        }
        placed.disable(&gpu, 9, OTHER.context, || Ok(())).unwrap();
        assert_eq!(readers(&placed, memory), [0, 1]);
        placed.forget_context(&gpu, 11);
        assert_eq!(readers(&placed, memory), [1]);
        enable(&placed, &gpu, ONE, OTHER.context).unwrap();
        placed.forget_context(&gpu, OTHER.context);
        assert!(placed.lock().peers.enabled.is_empty());
    }

    #[test]
    fn what_was_lent_stays() {
        let _null = IN_USE.lock();
        null::reset();
        let gpu = Driver::null();
        let placed = Placed::new(&gpu, 2, false);
        let memory = placed.allocate(&gpu, 1, OTHER).unwrap();
        placed.lend(&gpu, memory, 0).unwrap();
        placed.lend(&gpu, memory + 1, 0).unwrap();
        assert_eq!(readers(&placed, memory), [0, 1]);
        assert!(placed.is_accessible(memory, 0) && !placed.is_accessible(memory, 7));
        assert!(placed.is_accessible(memory + 1, 7), "it is not placed");
        enable(&placed, &gpu, ONE, OTHER.context).unwrap();
        placed.disable(&gpu, ONE.context, OTHER.context, || Ok(())).unwrap();
        assert_eq!(readers(&placed, memory), [0, 1], "queued copies may come to it");
    }

    #[test]
    fn chosen_readers_do_not_follow_peers() {
        let _null = IN_USE.lock();
        null::reset();
        let gpu = Driver::null();
        let placed = Placed::new(&gpu, 2, false);
        let [memory, small] = [BLOCK as usize, 1].map(|bytes| placed.allocate(&gpu, bytes, OTHER).unwrap());
        enable(&placed, &gpu, ONE, OTHER.context).unwrap();
        for (chosen, expected) in [(vec![], vec![1]), (vec![0], vec![0, 1]), (vec![1], vec![1])] {
            placed.set_readers(&gpu, memory, chosen).unwrap();
            assert_eq!(readers(&placed, memory), expected);
        }
        placed.add_rank(&gpu, ONE.device).unwrap();
        placed.add_rank(&gpu, OTHER.device).unwrap();
        assert_eq!((readers(&placed, memory), readers(&placed, small)), (vec![1], vec![0, 1]));
        for address in [small, memory + 1, 7] {
            let refused = placed.set_readers(&gpu, address, vec![0]);
            assert_eq!(refused, Err(CudaError::NOT_SUPPORTED), "it has no region of its own");
        }
        placed.lend(&gpu, memory, 0).unwrap();
        placed.set_readers(&gpu, memory, vec![]).unwrap();
        assert_eq!(readers(&placed, memory), [0, 1], "queued copies may come to it");
    }

    #[test]
    fn readers_are_as_before_if_the_driver_fails() {
        let _null = IN_USE.lock();
        null::reset();
        let gpu = Driver::null();
        let placed = Placed::new(&gpu, 2, false);
        let memory = placed.allocate(&gpu, BLOCK as usize, OTHER).unwrap();
        let all = [(vec![], vec![0]), (vec![0], vec![])];
        let mut failures = 0;
        for (fails, (from, to)) in (1..6).flat_map(|fails| all.clone().map(|both| (fails, both))) {
            placed.set_readers(&gpu, memory, from).unwrap();
            let before = readers(&placed, memory);
            null::script(0, fails, 999);
            let set = placed.set_readers(&gpu, memory, to);
            null::script(0, 0, 0);
            assert_eq!(readers(&placed, memory) == before, set.is_err(), "{fails}");
            failures += u32::from(set.is_err());
        }
        assert!(failures > 1, "both directions can fail");
    }

    #[test]
    fn ranks_of_nccl_reach_each_other() {
        let _null = IN_USE.lock();
        null::reset();
        let gpu = Driver::null();
        let placed = Placed::new(&gpu, 2, false);
        let memory = [ONE, OTHER].map(|home| placed.allocate(&gpu, 1, home).unwrap());
        placed.add_rank(&gpu, ONE.device).unwrap();
        assert_eq!(memory.map(|at| readers(&placed, at)), [[0], [1]], "one device alone");
        placed.add_rank(&gpu, OTHER.device).unwrap();
        assert_eq!(memory.map(|at| readers(&placed, at)), [[0, 1]; 2]);
        let later = placed.allocate(&gpu, BLOCK as usize, OTHER).unwrap();
        assert_eq!(readers(&placed, later), [0, 1]);
        placed.enable(&gpu, ONE, OTHER.context, || Ok(()), || {}).unwrap();
        placed.disable(&gpu, ONE.context, OTHER.context, || Ok(())).unwrap();
        assert_eq!(readers(&placed, later), [0, 1]);
    }

    /// Whatever fails, all memory of a context has the same readers afterwards, and an allowed context has access.
    #[test]
    fn every_call_may_fail() {
        let _null = IN_USE.lock();
        let gpu = Driver::null();
        for fails in 1..12 {
            null::reset();
            let placed = Placed::new(&gpu, 2, false);
            let all = [1, 2, 3].map(|_| placed.allocate(&gpu, BLOCK as usize, OTHER).unwrap());
            null::script(0, fails, 999);
            let mut is_undone = false;
            let enabled = placed.enable(&gpu, ONE, OTHER.context, || Ok(()), || is_undone = true);
            null::script(0, 0, 0);
            assert_eq!(enabled.is_err(), is_undone);
            let expected = if is_undone { vec![1] } else { vec![0, 1] };
            for memory in all {
                assert_eq!(readers(&placed, memory), expected, "{fails}");
            }
        }
    }

    #[test]
    fn memory_is_not_placed_if_a_context_cannot_be_allowed() {
        let _null = IN_USE.lock();
        null::reset();
        let gpu = Driver::null();
        let placed = Placed::new(&gpu, 2, false);
        let refused = placed.enable(&gpu, ONE, 10, || Err(CudaError(704)), || panic!("it was not done"));
        assert!(refused.is_err() && placed.lock().peers.enabled.is_empty());
    }
}
