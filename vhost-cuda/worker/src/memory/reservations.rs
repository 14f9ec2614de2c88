// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reserved addresses, allocations without addresses, and the mappings of allocations at addresses.

pub mod left;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::sync::Arc;

use vhost_cuda_common::exchange::Token;
use virtio_cuda_protocol::cuda::{FIRST_HANDLE, Location};

use super::array_maps::{ArrayMaps, ArrayName, Changes, Part};
use super::externals::{Block, Externals, Unused};
use crate::gpu::{
    ACCESS_READ_WRITE, CUexternalMemory, CUmemGenericAllocationHandle, CuResult, CudaError, HANDLE_TYPE_FILE,
    LOCATION_DEVICE, RawAccess, RawAllocation,
};
use crate::home::Home;
use crate::memory::parts;

/// The maximum number of reservations, of allocations and of mappings per session.
const MAX_ENTRIES: usize = 1 << 16;

/// An allocation of `cuMemCreate`. It lives while it is held or mapped.
#[derive(Clone, Copy, Debug)]
pub struct Allocation {
    /// The driver's handle.
    pub raw: CUmemGenericAllocationHandle,
    /// Bytes.
    pub bytes: u64,
    /// The location, as the guest named it.
    pub location: Location,
    /// The properties that the program asked for, if this process has made it.
    pub properties: Option<RawAllocation>,
    held: u32,
    /// The number of its mappings: at addresses, in parts of arrays, and as external memory.
    mapped: u32,
    /// The token under which it is offered to other processes.
    token: Option<Token>,
}

/// An allocation at reserved addresses.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// Bytes.
    pub bytes: u64,
    /// The allocation's name.
    pub name: u64,
    /// The access of locations to it.
    pub access: Vec<RawAccess>,
}

/// All of them, of one session.
#[derive(Debug, Default)]
pub struct Reservations {
    reserved: BTreeMap<u64, u64>,
    /// Reserved addresses that are lent to the address window: bytes by first address. Nothing is mapped there.
    lent: BTreeMap<u64, u64>,
    mappings: BTreeMap<u64, Mapping>,
    allocations: HashMap<u64, Allocation>,
    /// Files of the memory of allocations that have come from another worker, by their names.
    files: HashMap<u64, Arc<File>>,
    array_maps: ArrayMaps,
    /// External memory.
    pub externals: Externals,
    /// Allocations by their tokens.
    offered: HashMap<Token, u64>,
    /// Tokens of allocations that have ended, for [`Self::take_ended`].
    ended: Vec<Token>,
    /// A file can keep memory of the session's devices.
    has_files: bool,
}

impl Reservations {
    /// Returns none yet, of a session whose devices support files of their memory, or do not.
    pub fn new(has_files: bool) -> Self {
        Self { has_files, ..Self::default() }
    }

    /// Returns the properties with which memory is made for a program that asks for these. Plain memory gets a file also if the
    /// program wants none, with which a renewal leaves it on the card.
    pub fn made_as(&self, asked: &RawAllocation) -> RawAllocation {
        let is_plain = asked.location.kind == LOCATION_DEVICE && (asked.compression, asked.usage) == (0, 0);
        let file = if self.has_files && is_plain { HANDLE_TYPE_FILE } else { 0 };
        RawAllocation { handle_types: asked.handle_types | file, ..*asked }
    }

    /// Returns an error if a session has the maximum number of reservations.
    ///
    /// Errors: `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn check_room(&self) -> CuResult<()> {
        if self.reserved.len() >= MAX_ENTRIES { Err(CudaError::OUT_OF_MEMORY) } else { Ok(()) }
    }

    /// Notes addresses that the driver has reserved.
    pub fn reserve(&mut self, base: u64, bytes: u64) {
        self.reserved.insert(base, bytes);
    }

    /// Returns whether the driver has reserved any of these addresses for the session.
    pub fn overlaps(&self, base: u64, bytes: u64) -> bool {
        let last = self.reserved.range(..base.saturating_add(bytes)).next_back();
        last.is_some_and(|(start, length)| start.saturating_add(*length) > base)
    }

    /// Checks that these addresses are reserved in one piece, that nothing is mapped there, and that none is lent.
    ///
    /// Errors: `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn check_lend(&self, base: u64, bytes: u64) -> CuResult<()> {
        if self.is_reserved(base, bytes) && self.is_free(base, bytes) {
            Ok(())
        } else {
            Err(CudaError::OUT_OF_MEMORY)
        }
    }

    /// Notes that addresses that [`Self::check_lend`] has checked are lent.
    pub fn lend(&mut self, base: u64, bytes: u64) {
        self.lent.insert(base, bytes);
    }

    /// Undoes [`Self::lend`].
    pub fn take_back(&mut self, base: u64) {
        self.lent.remove(&base);
    }

    /// Returns whether `bytes` bytes at `base` are reserved in one piece.
    fn is_reserved(&self, base: u64, bytes: u64) -> bool {
        let Some(end) = base.checked_add(bytes).filter(|_| bytes > 0) else { return false };
        let found = self.reserved.range(..=base).next_back();
        found.is_some_and(|(start, length)| end <= start.saturating_add(*length))
    }

    /// Returns whether nothing is mapped at any of these addresses, and none is lent.
    fn is_free(&self, base: u64, bytes: u64) -> bool {
        let end = base.saturating_add(bytes);
        let mapped = self.mappings.range(..end).next_back();
        mapped.is_none_or(|(start, mapping)| start.saturating_add(mapping.bytes) <= base)
            && !self.any_lent(base, end)
    }

    /// Returns whether any address from `base` to before `end` is lent.
    fn any_lent(&self, base: u64, end: u64) -> bool {
        let last = self.lent.range(..end).next_back();
        last.is_some_and(|(start, length)| start.saturating_add(*length) > base)
    }

    /// Checks that a reservation has exactly these addresses, no mappings, and that none of them is lent.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`.
    pub fn check_unused(&self, base: u64, bytes: u64) -> CuResult<()> {
        let known = base.checked_add(bytes).is_some() && self.reserved.get(&base) == Some(&bytes);
        if known && self.is_free(base, bytes) { Ok(()) } else { Err(CudaError::INVALID_VALUE) }
    }

    /// Forgets a reservation.
    pub fn free(&mut self, base: u64) {
        self.reserved.remove(&base);
    }

    /// Checks a name that the guest has chosen.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`, `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn check_new(&self, name: u64) -> CuResult<()> {
        if name < FIRST_HANDLE || self.allocations.contains_key(&name) {
            return Err(CudaError::INVALID_VALUE);
        }
        if self.allocations.len() >= MAX_ENTRIES { Err(CudaError::OUT_OF_MEMORY) } else { Ok(()) }
    }

    /// Enters an allocation that the driver has made, held once.
    pub fn insert(&mut self, name: u64, raw: CUmemGenericAllocationHandle, bytes: u64, location: Location) {
        let new = Allocation { raw, bytes, location, properties: None, held: 1, mapped: 0, token: None };
        self.allocations.insert(name, new);
    }

    /// Notes the properties that the program asked for, of an allocation that this process has made.
    pub fn asked_for(&mut self, name: u64, properties: RawAllocation) {
        if let Some(allocation) = self.allocations.get_mut(&name) {
            allocation.properties = Some(properties);
        }
    }

    /// Returns whether there is an allocation that is not among `moved`.
    pub fn has_others(&self, moved: &[(u64, parts::Part)]) -> bool {
        self.allocations.keys().any(|name| moved.iter().all(|(other, _)| other != name))
    }

    /// Returns the allocations that may move, by name: memory of one of these devices, all of it mapped with full access of its device,
    /// that no array, external memory or other process uses. Their handles are the driver's until [`Self::moved`].
    pub fn movable(&self, devices: &BTreeSet<i32>) -> Vec<(u64, parts::Part)> {
        let mut mappings: HashMap<u64, Vec<(u64, &Mapping)>> = HashMap::new();
        for (&base, mapping) in &self.mappings {
            mappings.entry(mapping.name).or_default().push((base, mapping));
        }
        mappings.into_iter().filter_map(|(name, of)| Some((name, self.part(name, of, devices)?))).collect()
    }

    fn part(&self, name: u64, mut of: Vec<(u64, &Mapping)>, devices: &BTreeSet<i32>) -> Option<parts::Part> {
        let allocation = self.allocations.get(&name)?;
        let properties = allocation.properties?;
        let is_plain = properties.location.kind == LOCATION_DEVICE
            && devices.contains(&properties.location.id)
            && (properties.compression, properties.usage) == (0, 0);
        let is_kept = allocation.held == 1 || allocation.held == 0 && of.len() == 1;
        // The driver's unit is that size, or a multiple of it.
        let has_units = allocation.bytes.is_multiple_of(parts::UNIT);
        if !is_plain
            || !has_units
            || !is_kept
            || allocation.token.is_some()
            || allocation.mapped as usize != of.len()
        {
            return None;
        }
        let full =
            |access: &RawAccess| access.location == properties.location && access.flags == ACCESS_READ_WRITE;
        let is_whole =
            |mapping: &Mapping| mapping.bytes == allocation.bytes && mapping.access.iter().any(full);
        let whole = of.iter().position(|(_, mapping)| is_whole(mapping))?;
        of.swap(0, whole);
        let handle = (allocation.held > 0).then_some(allocation.raw);
        let mapping = |(base, mapping): (u64, &Mapping)| {
            parts::Mapping::new(base, mapping.bytes, mapping.access.clone())
        };
        let mappings = of.into_iter().map(mapping).collect();
        let part = parts::Part::new(handle, allocation.bytes, self.made_as(&properties), mappings);
        Some(part.with_file(self.file(name)))
    }

    /// Returns the file of an allocation's memory, if it has come from another worker: the driver makes no other one.
    pub fn file(&self, name: u64) -> Option<Arc<File>> {
        self.files.get(&name).cloned()
    }

    /// Notes the file of an allocation's memory. Without one the memory has ended, or is this process's own.
    pub fn set_file(&mut self, name: u64, file: Option<Arc<File>>) {
        match file.filter(|_| self.allocations.contains_key(&name)) {
            Some(file) => self.files.insert(name, file),
            None => self.files.remove(&name),
        };
    }

    /// Notes the handle of an allocation that has moved. Returns false if the program does not hold one.
    pub fn moved(&mut self, name: u64, raw: CUmemGenericAllocationHandle) -> bool {
        let Some(allocation) = self.allocations.get_mut(&name) else { return false };
        allocation.raw = raw;
        allocation.held > 0
    }

    /// Returns an allocation that is held.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`.
    pub fn held(&self, name: u64) -> CuResult<Allocation> {
        let found = self.allocations.get(&name).filter(|allocation| allocation.held > 0);
        found.copied().ok_or(CudaError::INVALID_VALUE)
    }

    /// Holds the allocation mapped at `base` once more, under a handle that the driver has given for that.
    pub fn hold(&mut self, name: u64, raw: CUmemGenericAllocationHandle) {
        if let Some(allocation) = self.allocations.get_mut(&name) {
            allocation.raw = raw;
            allocation.held = allocation.held.saturating_add(1);
        }
    }

    /// Gives one hold back. Returns the bytes that became free.
    pub fn release(&mut self, name: u64) -> u64 {
        self.change(name, |allocation| allocation.held -= 1)
    }

    /// Checks that `bytes` bytes at `base` are reserved in one piece and free, and lie in the allocation.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`, `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn check_map(&self, base: u64, bytes: u64, offset: u64, name: u64) -> CuResult<Allocation> {
        let allocation = self.held(name)?;
        let possible = self.is_reserved(base, bytes) && self.is_free(base, bytes);
        // NVIDIA's driver maps from the beginning on only.
        if offset != 0 || bytes > allocation.bytes {
            return Err(CudaError::NOT_SUPPORTED);
        }
        if !possible {
            return Err(CudaError::INVALID_VALUE);
        }
        if self.mappings.len() >= MAX_ENTRIES { Err(CudaError::OUT_OF_MEMORY) } else { Ok(allocation) }
    }

    /// Notes a mapping that the driver has made.
    pub fn map(&mut self, base: u64, bytes: u64, name: u64) {
        self.mappings.insert(base, Mapping { bytes, name, access: Vec::new() });
        if let Some(allocation) = self.allocations.get_mut(&name) {
            allocation.mapped += 1;
        }
    }

    /// The bases of the mappings that make up exactly `bytes` bytes from `base` on.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`.
    pub fn whole(&self, base: u64, bytes: u64) -> CuResult<Vec<u64>> {
        let end = base.checked_add(bytes).filter(|_| bytes > 0).ok_or(CudaError::INVALID_VALUE)?;
        let mut at = base;
        let mut bases = Vec::new();
        while at < end {
            let mapping = self.mappings.get(&at).ok_or(CudaError::INVALID_VALUE)?;
            bases.push(at);
            at = at.saturating_add(mapping.bytes);
        }
        if at == end { Ok(bases) } else { Err(CudaError::INVALID_VALUE) }
    }

    /// Returns the bases of the mappings in `bytes` bytes from `base` on, which must be reserved in one piece. No mapping may lie
    /// there in part, and no address may be lent.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`.
    pub fn inside(&self, base: u64, bytes: u64) -> CuResult<Vec<u64>> {
        let whole = self.whole(base, bytes);
        if whole.is_ok() {
            return whole;
        }
        let end = base.checked_add(bytes).filter(|_| bytes > 0).ok_or(CudaError::INVALID_VALUE)?;
        let (start, length) = self.reserved.range(..=base).next_back().ok_or(CudaError::INVALID_VALUE)?;
        let reaches = |found: Option<(&u64, &Mapping)>, to: u64| {
            found.is_some_and(|(start, mapping)| start.saturating_add(mapping.bytes) > to)
        };
        let before = reaches(self.mappings.range(..base).next_back(), base);
        let behind = reaches(self.mappings.range(base..end).next_back(), end);
        if end > start.saturating_add(*length) || before || behind || self.any_lent(base, end) {
            return Err(CudaError::INVALID_VALUE);
        }
        Ok(self.mappings.range(base..end).map(|(start, _)| *start).collect())
    }

    /// The mapping that begins at `base`.
    pub fn mapping(&mut self, base: u64) -> Option<&mut Mapping> {
        self.mappings.get_mut(&base)
    }

    /// The base and the allocation's name of the mapping that holds `address`.
    ///
    /// Errors: `CUDA_ERROR_INVALID_VALUE`.
    pub fn at(&self, address: u64) -> CuResult<(u64, u64)> {
        let (&base, mapping) = self.mappings.range(..=address).next_back().ok_or(CudaError::INVALID_VALUE)?;
        if address - base < mapping.bytes { Ok((base, mapping.name)) } else { Err(CudaError::INVALID_VALUE) }
    }

    /// Forgets the mapping at `base`. Returns the bytes that became free.
    pub fn unmap(&mut self, base: u64) -> u64 {
        let Some(mapping) = self.mappings.remove(&base) else { return 0 };
        self.change(mapping.name, |allocation| allocation.mapped -= 1)
    }

    /// Returns an error if a session would have too many mapped parts of arrays with `more` of them.
    ///
    /// Errors: `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn check_array_maps(&self, more: usize) -> CuResult<()> {
        self.array_maps.check_room(more)
    }

    /// Notes the allocation that is mapped into a part of the array `array`. Returns the bytes that became
    /// free.
    pub fn map_array(&mut self, array: ArrayName, part: Part, name: Option<u64>) -> u64 {
        let changes = self.array_maps.set(array, part, name);
        self.apply(changes)
    }

    /// Forgets an array that has ended. Returns the bytes that became free.
    pub fn forget_array(&mut self, array: u64) -> u64 {
        let changes = self.array_maps.forget(array);
        self.apply(changes)
    }

    /// Forgets the arrays and external memory of a context that has ended. Returns the bytes that became free.
    pub fn forget_context(&mut self, context: u64) -> u64 {
        let unused = self.externals.forget_context(context);
        let external: u64 = unused.into_iter().map(|unused| self.free_external(Some(unused))).sum();
        let arrays = self.array_maps.of_context(context);
        external + arrays.into_iter().map(|array| self.forget_array(array)).sum::<u64>()
    }

    /// Notes that an allocation is offered to other processes.
    pub fn offer(&mut self, name: u64, token: Token) {
        if let Some(allocation) = self.allocations.get_mut(&name) {
            allocation.token = Some(token);
            self.offered.insert(token, name);
        }
    }

    /// Tokens of allocations that have ended since this was called last: their offers end, too.
    pub fn take_ended(&mut self) -> Vec<Token> {
        std::mem::take(&mut self.ended)
    }

    /// Returns the token under which an allocation is offered, if it is: programs may export one allocation several times.
    pub fn offered_as(&self, name: u64) -> Option<Token> {
        self.allocations.get(&name)?.token
    }

    /// Returns the charge for importing the memory behind a token that another process has offered: 0 if it counts
    /// already.
    pub fn charge_of(&self, token: &Token, bytes: u64) -> u64 {
        if self.externals.is_known(token) || self.offered.contains_key(token) { 0 } else { bytes }
    }

    /// Enters an import of external memory, made in the context `home`.
    pub fn import(&mut self, name: u64, raw: CUexternalMemory, token: Token, bytes: u64, home: Home) {
        let own = self.offered.get(&token).copied();
        if self.externals.import(name, raw, token, Block::new(bytes, own), home)
            && let Some(allocation) = own.and_then(|name| self.allocations.get_mut(&name))
        {
            allocation.mapped += 1;
        }
    }

    /// Lets go of external memory that nothing uses any more. Returns the bytes that became free.
    pub fn free_external(&mut self, unused: Option<Unused>) -> u64 {
        match unused {
            None => 0,
            Some(Unused::Foreign(bytes)) => bytes,
            Some(Unused::Own(name)) => self.change(name, |allocation| allocation.mapped -= 1),
        }
    }

    fn apply(&mut self, changes: Changes) -> u64 {
        let change = |(name, by): (u64, i64)| {
            self.change(name, |allocation| {
                allocation.mapped = i64::from(allocation.mapped).saturating_add(by).max(0) as u32;
            })
        };
        changes.into_iter().map(change).sum()
    }

    fn change(&mut self, name: u64, change: impl FnOnce(&mut Allocation)) -> u64 {
        let Some(allocation) = self.allocations.get_mut(&name) else { return 0 };
        change(allocation);
        if allocation.held > 0 || allocation.mapped > 0 {
            return 0;
        }
        let (bytes, token) = (allocation.bytes, allocation.token);
        self.allocations.remove(&name);
        self.files.remove(&name);
        if let Some(token) = token {
            self.offered.remove(&token);
            self.ended.push(token);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use vhost_cuda_common::exchange::TOKEN_BYTES;

    use super::*;

    const NAME: u64 = FIRST_HANDLE;
    const BASE: u64 = 0x7000_0000;

    fn fixture() -> Reservations {
        let mut fixture = Reservations::default();
        fixture.reserve(BASE, 0x4000);
        fixture.insert(NAME, 77, 0x1000, Location::default());
        fixture
    }

    #[test]
    fn lent_addresses_are_neither_mapped_nor_freed() {
        let mut vmm = fixture();
        vmm.map(BASE, 0x1000, NAME);
        for (base, bytes) in
            [(BASE, 0x1000), (BASE + 0x1000, 0), (BASE + 0x3000, 0x2000), (BASE + 0x1000, u64::MAX)]
        {
            assert_eq!(vmm.check_lend(base, bytes), Err(CudaError::OUT_OF_MEMORY), "{base:#x}+{bytes:#x}");
        }
        vmm.check_lend(BASE + 0x1000, 0x2000).unwrap();
        vmm.lend(BASE + 0x1000, 0x2000);
        for offset in [0x1000, 0x2000] {
            assert!(vmm.check_map(BASE + offset, 0x1000, 0, NAME).is_err());
            assert!(vmm.check_lend(BASE + offset, 0x1000).is_err());
            assert!(vmm.inside(BASE + offset, 0x1000).is_err());
        }
        assert!(vmm.check_map(BASE + 0x3000, 0x1000, 0, NAME).is_ok(), "behind them");
        assert_eq!(vmm.unmap(BASE), 0);
        assert!(vmm.check_unused(BASE, 0x4000).is_err());
        vmm.take_back(BASE + 0x1000);
        assert!(vmm.check_unused(BASE, 0x4000).is_ok() && vmm.check_map(BASE, 0x1000, 0, NAME).is_ok());
    }

    #[test]
    fn mappings_lie_in_reservations_and_allocations() {
        let mut vmm = fixture();
        assert!(vmm.check_map(BASE + 0x3000, 0x1000, 0, NAME).is_ok());
        for (base, bytes, offset, name) in [
            (BASE + 0x3800, 0x1000, 0, NAME),
            (BASE - 0x1000, 0x1000, 0, NAME),
            (BASE, 0, 0, NAME),
            (u64::MAX, 0x1000, 0, NAME),
            (BASE, 0x1000, 0, NAME + 1),
        ] {
            let checked = vmm.check_map(base, bytes, offset, name);
            assert_eq!(checked.unwrap_err(), CudaError::INVALID_VALUE, "{base:#x}+{bytes:#x}");
        }
        for (bytes, offset) in [(0x2000, 0), (0x1000, 1), (0x1000, u64::MAX)] {
            let checked = vmm.check_map(BASE, bytes, offset, NAME);
            assert_eq!(checked.unwrap_err(), CudaError::NOT_SUPPORTED, "{bytes:#x} from {offset:#x} on");
        }
        vmm.map(BASE, 0x1000, NAME);
        assert!(vmm.check_map(BASE, 0x1000, 0, NAME).is_err(), "used");
        assert!(vmm.check_map(BASE + 0x1000, 0x1000, 0, NAME).is_ok(), "beside it");
        assert!(vmm.check_unused(BASE, 0x4000).is_err());
        for (base, bytes, overlaps) in [
            (BASE - 0x1000, 0x1000, false),
            (BASE - 0x1000, 0x1001, true),
            (BASE + 0x3fff, 1, true),
            (BASE + 0x4000, 0x1000, false),
            (0, u64::MAX, true),
        ] {
            assert_eq!(vmm.overlaps(base, bytes), overlaps, "{base:#x}+{bytes:#x}");
        }
        assert_eq!(vmm.inside(BASE, 0x2000), Ok(vec![BASE]), "with what is free behind it");
        assert_eq!(vmm.inside(BASE + 0x1000, 0x3000), Ok(vec![]), "nothing");
        for (base, bytes) in
            [(BASE, 0x800), (BASE + 0x800, 0x1000), (BASE, 0x5000), (BASE, 0), (BASE, u64::MAX)]
        {
            assert!(vmm.inside(base, bytes).is_err(), "{base:#x}+{bytes:#x}");
        }
        vmm.unmap(BASE);
        assert!(vmm.check_unused(BASE, 0x3000).is_err() && vmm.check_unused(BASE, 0x4000).is_ok());
    }

    #[test]
    fn only_whole_mappings_are_taken() {
        let mut vmm = fixture();
        vmm.map(BASE, 0x1000, NAME);
        vmm.map(BASE + 0x1000, 0x1000, NAME);
        assert_eq!(vmm.whole(BASE, 0x2000).unwrap(), [BASE, BASE + 0x1000]);
        assert!(vmm.whole(BASE, 0x1800).is_err() && vmm.whole(BASE, 0x3000).is_err());
        assert!(vmm.whole(BASE + 0x800, 0x800).is_err() && vmm.whole(BASE, 0).is_err());
    }

    #[test]
    fn memory_lives_while_it_is_held_or_mapped() {
        let mut vmm = fixture();
        vmm.map(BASE, 0x1000, NAME);
        assert_eq!(vmm.release(NAME), 0);
        assert!(vmm.held(NAME).is_err());
        assert_eq!(vmm.at(BASE + 0xfff).unwrap(), (BASE, NAME));
        vmm.hold(NAME, 78);
        assert_eq!(vmm.held(NAME).unwrap().raw, 78);
        assert_eq!(vmm.unmap(BASE), 0);
        assert_eq!(vmm.release(NAME), 0x1000);
        assert!(vmm.check_new(NAME).is_ok() && vmm.check_new(NAME - 1).is_err());
    }

    #[test]
    fn what_the_session_offers_itself_counts_once() {
        let (mine, other) = ([1; TOKEN_BYTES], [2; TOKEN_BYTES]);
        let raw = std::ptr::without_provenance_mut(1);
        let mut vmm = fixture();
        vmm.offer(NAME, mine);
        assert_eq!((vmm.offered_as(NAME), vmm.offered_as(NAME + 1)), (Some(mine), None));
        assert_eq!((vmm.charge_of(&mine, 0x1000), vmm.charge_of(&other, 0x1000)), (0, 0x1000));
        vmm.import(NAME + 1, raw, mine, 0x1000, Home { context: 3, device: 0 });
        vmm.import(NAME + 2, raw, other, 0x1000, Home { context: 3, device: 0 });
        assert_eq!(vmm.charge_of(&other, 0x1000), 0, "counts already");
        assert_eq!(vmm.release(NAME), 0, "imported");
        let unused = vmm.externals.destroy(NAME + 2);
        assert_eq!(vmm.free_external(unused), 0x1000);
        assert_eq!(vmm.forget_context(3), 0x1000);
        // Another allocation of the same name has nothing to do with it.
        vmm.insert(NAME, 78, 0x2000, Location::default());
        assert_eq!(vmm.charge_of(&mine, 0x1000), 0x1000);
    }

    #[test]
    fn arrays_keep_what_is_mapped_into_them() {
        let array = ArrayName { name: 7, context: 3 };
        let mut vmm = fixture();
        assert_eq!(vmm.map_array(array, Part::WHOLE, Some(NAME)), 0);
        assert_eq!(vmm.release(NAME), 0);
        assert_eq!(vmm.forget_context(4), 0, "another context");
        assert_eq!(vmm.forget_context(3), 0x1000);
        let mut vmm = fixture();
        vmm.map_array(array, Part::WHOLE, Some(NAME));
        vmm.release(NAME);
        assert_eq!(vmm.map_array(array, Part::WHOLE, None), 0x1000);
        assert_eq!(vmm.forget_array(7), 0);
    }
}
