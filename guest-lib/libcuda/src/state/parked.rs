// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Host memory of `cuMemCreate` that stays attached after the program has unmapped it, for the next allocation of its length,
//! because pinning and registering pages takes a millisecond. Each is all of a reservation, which stays with it when the program
//! frees the addresses. Meanwhile the program cannot access it, as if it were unmapped; the GPU could.

use std::sync::Arc;

use crate::state::memory::spares::{ALL_BYTES, MAX_BYTES};
use crate::state::reservations::{HostAllocation, HostMap, Reserved};

/// Host memory that the program has unmapped.
#[derive(Debug)]
pub struct Parked {
    /// Its address, which is that of its reservation.
    pub base: u64,
    /// The mapping.
    pub map: HostMap,
    /// The reservation, if the program has freed it.
    pub freed: Option<Reserved>,
}

impl Parked {
    /// Returns whether this maps the first `bytes` bytes of an allocation, which are all.
    pub fn is_all_of(&self, allocation: &Arc<HostAllocation>, bytes: u64) -> bool {
        Arc::ptr_eq(&self.map.allocation, allocation) && self.map.bytes == bytes
    }

    /// Returns whether the program still has a handle of the memory.
    fn is_held(&self) -> bool {
        Arc::strong_count(&self.map.allocation) > 1
    }
}

/// All such memory of a process, the oldest first.
#[derive(Debug, Default)]
pub struct ParkedMaps(Vec<Parked>);

impl ParkedMaps {
    /// Returns whether a mapping may be added.
    pub fn takes(&self, map: &HostMap) -> bool {
        map.bytes <= MAX_BYTES && map.bytes == map.allocation.bytes
    }

    /// Adds a mapping. Returns those that must be detached for it.
    pub fn add(&mut self, base: u64, map: HostMap) -> Vec<Parked> {
        self.0.push(Parked { base, map, freed: None });
        let mut bytes: u64 = self.0.iter().map(|parked| parked.map.bytes).sum();
        let mut removed = Vec::new();
        while bytes > ALL_BYTES as u64 {
            let oldest = self.0.remove(0);
            bytes -= oldest.map.bytes;
            removed.push(oldest);
        }
        removed
    }

    /// Removes and returns the memory in the reservation at `base`.
    pub fn take(&mut self, base: u64) -> Option<Parked> {
        let index = self.0.iter().position(|parked| parked.base == base)?;
        Some(self.0.remove(index))
    }

    /// Keeps a reservation that the program frees. Returns false if there is no memory in it.
    pub fn free(&mut self, base: u64, reserved: Reserved) -> bool {
        let found = self.0.iter_mut().find(|parked| parked.base == base);
        found.map(|parked| parked.freed = Some(reserved)).is_some()
    }

    /// Takes a freed reservation of `bytes` bytes: that of memory of which the program has a handle, else the last one.
    pub fn reserve(&mut self, bytes: u64) -> Option<(u64, Reserved)> {
        let fits = |parked: &&mut Parked| parked.freed.is_some_and(|reserved| reserved.bytes == bytes);
        let found = self.0.iter_mut().filter(fits).max_by_key(|parked| parked.is_held())?;
        Some((found.base, found.freed.take()?))
    }

    /// Returns memory of `bytes` bytes of which nothing has a handle: that in a reservation of the program, else the last one.
    pub fn unused(&mut self, bytes: u64) -> Option<&mut Parked> {
        let fits = |parked: &&mut Parked| parked.map.bytes == bytes && !parked.is_held();
        self.0.iter_mut().filter(fits).max_by_key(|parked| parked.freed.is_none())
    }

    /// Returns the mappings.
    pub fn maps(&mut self) -> impl Iterator<Item = &mut HostMap> {
        self.0.iter_mut().map(|parked| &mut parked.map)
    }

    /// Removes and returns all.
    pub fn take_all(&mut self) -> Vec<Parked> {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::moving::pages::Store;
    use crate::state::reservations::{Bound, GRANULARITY};
    use cuda_abi::CUmemAllocationProp;

    fn map(bytes: u64) -> HostMap {
        let (store, properties) = (Store::new(4096).unwrap(), CUmemAllocationProp::ZERO);
        let allocation = Arc::new(HostAllocation { handle: bytes, store, bytes, properties });
        HostMap { bytes, allocation, access: Default::default(), attached: None }
    }

    fn reserved(bytes: u64) -> Reserved {
        Reserved { bytes, slot_bytes: 1 << 30, bound: Bound::Host }
    }

    #[test]
    fn memory_and_addresses_that_belong_together_come_together() {
        let mut all = ParkedMaps::default();
        for base in 1..4 {
            assert!(all.add(base, map(GRANULARITY)).is_empty());
        }
        assert!(all.free(1, reserved(GRANULARITY)) && all.free(3, reserved(GRANULARITY)));
        assert!(!all.free(4, reserved(GRANULARITY)));
        assert!(all.unused(2 * GRANULARITY).is_none() && all.reserve(2 * GRANULARITY).is_none());
        let at_reserved = all.unused(GRANULARITY).unwrap();
        assert_eq!(at_reserved.base, 2, "its addresses are the program's");
        let handle = at_reserved.map.allocation.clone();
        let next = all.unused(GRANULARITY).unwrap();
        assert_eq!(next.base, 3);
        let other = next.map.allocation.clone();
        assert_eq!(all.reserve(GRANULARITY).map(|(base, _)| base), Some(3));
        assert_eq!(all.reserve(GRANULARITY).map(|(base, _)| base), Some(1));
        assert!(all.reserve(GRANULARITY).is_none());
        assert!(Arc::ptr_eq(&all.take(2).unwrap().map.allocation, &handle) && all.take(2).is_none());
        drop(other);
        assert_eq!(all.unused(GRANULARITY).map(|parked| parked.base), Some(3));
        assert_eq!(all.take_all().len(), 2);
    }

    #[test]
    fn the_oldest_go_first_and_parts_do_not_stay() {
        let mut all = ParkedMaps::default();
        let part = HostMap { bytes: GRANULARITY, ..map(2 * GRANULARITY) };
        assert!(!all.takes(&part) && !all.takes(&map(MAX_BYTES + 1)) && all.takes(&map(MAX_BYTES)));
        let room = ALL_BYTES as u64 / MAX_BYTES;
        for base in 0..room {
            assert!(all.add(base, map(MAX_BYTES)).is_empty());
        }
        let removed = all.add(room, map(GRANULARITY));
        assert_eq!(removed.iter().map(|parked| parked.base).collect::<Vec<_>>(), [0]);
    }
}
