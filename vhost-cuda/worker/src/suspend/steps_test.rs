// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Moves with two devices of this process's own, which fail at each call in turn. Nothing may be lost.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::PipeReader;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::pages::{Pages, Registrar};
use super::super::room::Room;
use super::super::transfer::BUFFERS;
use super::*;
use crate::gpu::{RawAccess, RawAllocation, RawLocation};
use crate::memory::parts::Mapping;

/// The result of a call that was told to fail.
const BROKEN: CudaError = CudaError(719);
const BASE: u64 = 0x10_0000_0000;
const DEVICES: [i32; 2] = [0, 1];

#[derive(Debug, Default)]
struct State {
    /// Device and bytes, by handle.
    physical: HashMap<u64, (i32, Vec<u8>)>,
    held: Vec<u64>,
    /// The other ends of files that keep memory, with its handle, by their numbers.
    files: HashMap<u64, (PipeReader, u64)>,
    /// Handle, bytes and whether it is accessible, by address.
    maps: BTreeMap<u64, (u64, u64, bool)>,
    next: u64,
    calls: usize,
    fails: Vec<usize>,
    /// The memory of each device in bytes. 0: any.
    room: [u64; DEVICES.len()],
}

/// Devices with memory, whose calls of certain numbers fail.
#[derive(Debug, Default)]
struct FakeDevice(Mutex<State>);

impl FakeDevice {
    fn call<T>(&self, body: impl FnOnce(&mut State) -> CuResult<T>) -> CuResult<T> {
        let mut state = self.0.lock();
        state.calls += 1;
        if state.fails.contains(&state.calls) {
            return Err(BROKEN);
        }
        body(&mut state)
    }

    /// Resets the count of calls, and returns it.
    fn fail_at(&self, calls: &[usize]) -> usize {
        let mut state = self.0.lock();
        state.fails = calls.to_vec();
        std::mem::take(&mut state.calls)
    }

    fn set_room(&self, device: i32, bytes: u64) {
        self.0.lock().room[device as usize] = bytes;
    }

    /// A part with contents that differ from those of all others; half of its chunks are zeros.
    fn part(&self, address: u64, chunks: u64, aliases: &[u64]) -> Part {
        self.part_on(DEVICES[0], address, chunks, aliases)
    }

    fn part_on(&self, id: i32, address: u64, chunks: u64, aliases: &[u64]) -> Part {
        let home = RawLocation { kind: 1, id };
        let bytes = chunks * CHUNK_BYTES;
        let properties = RawAllocation {
            kind: 1,
            handle_types: 0,
            location: home,
            win32_metadata: 0,
            compression: 0,
            gpu_direct_rdma: 0,
            usage: 0,
            reserved: [0; 4],
        };
        let access = vec![RawAccess { location: home, flags: 3 }];
        let handle = self.create(bytes, &properties).unwrap();
        let mut mappings = Vec::new();
        for &address in [address].iter().chain(aliases) {
            // SAFETY: nothing but this test's own tables.
            unsafe { self.map(address, bytes, handle).and_then(|()| self.allow(address, bytes, &access)) }
                .unwrap();
            mappings.push(Mapping::new(address, bytes, access.clone()));
        }
        let mut state = self.0.lock();
        let (_, memory) = state.physical.get_mut(&handle).unwrap();
        for (index, chunk) in memory.chunks_mut(CHUNK_BYTES as usize).enumerate() {
            let value = if index % 2 == 0 { (address >> 24) as u8 + index as u8 + 1 } else { 0 };
            chunk.fill(value);
        }
        Part::new(Some(handle), bytes, properties, mappings)
    }

    /// Changes a byte of a chunk.
    fn write(&self, address: u64, value: u8) {
        self.0.lock().any_at(address).unwrap()[0] = value;
    }

    /// The contents of all accessible addresses.
    fn contents(&self) -> BTreeMap<u64, u64> {
        let state = self.0.lock();
        let accessible = state.maps.iter().filter(|(_, (.., accessible))| *accessible);
        accessible.map(|(&address, (handle, ..))| (address, digest(&state.physical[handle].1))).collect()
    }
}

/// A digest of a part of the bytes. 0 for zeros.
fn digest(memory: &[u8]) -> u64 {
    memory.iter().step_by(1024).fold(0_u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte))
}

impl State {
    /// The chunk at `address`, which must be memory of that device.
    fn at(&mut self, device: i32, address: u64) -> CuResult<&mut [u8]> {
        let (_, (handle, ..)) = self.maps.range(..=address).next_back().ok_or(BROKEN)?;
        if self.physical.get(handle).is_none_or(|(of, _)| *of != device) {
            return Err(BROKEN);
        }
        self.any_at(address)
    }

    /// The chunk at `address`.
    fn any_at(&mut self, address: u64) -> CuResult<&mut [u8]> {
        let (base, (handle, bytes, accessible)) = self.maps.range(..=address).next_back().ok_or(BROKEN)?;
        let offset = address - base;
        if !accessible || offset + CHUNK_BYTES > *bytes {
            return Err(BROKEN);
        }
        let (_, memory) = self.physical.get_mut(handle).ok_or(BROKEN)?;
        Ok(&mut memory[offset as usize..(offset + CHUNK_BYTES) as usize])
    }

    fn end_unused(&mut self) {
        let Self { physical, held, files, maps, .. } = self;
        files.retain(|_, (reader, _)| {
            let mut ends = [PollFd::new(reader, PollFlags::IN)];
            poll(&mut ends, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
            !ends[0].revents().contains(PollFlags::HUP)
        });
        let is_open = |handle: &u64| files.values().any(|(_, of)| of == handle);
        let is_mapped = |handle: &u64| maps.values().any(|(of, ..)| of == handle);
        physical.retain(|handle, _| held.contains(handle) || is_open(handle) || is_mapped(handle));
    }
}

impl Memory for FakeDevice {
    fn create(&self, bytes: u64, properties: &RawAllocation) -> CuResult<u64> {
        let device = properties.location.id;
        self.call(|state| {
            let of_it = state.physical.values().filter(|(of, _)| *of == device);
            let used: u64 = of_it.map(|(_, memory)| memory.len() as u64).sum();
            let room = state.room[device as usize];
            if room > 0 && used + bytes > room {
                return Err(CudaError::OUT_OF_MEMORY);
            }
            state.next += 1;
            let handle = state.next;
            // Whatever another program has left there.
            state.physical.insert(handle, (device, vec![0xee; bytes as usize]));
            state.held.push(handle);
            Ok(handle)
        })
    }

    fn release(&self, handle: u64) -> CuResult<()> {
        self.call(|state| {
            let index = state.held.iter().position(|held| *held == handle).ok_or(BROKEN)?;
            state.held.swap_remove(index);
            state.end_unused();
            Ok(())
        })
    }

    fn export(&self, handle: u64) -> CuResult<File> {
        self.call(|state| {
            let (reader, writer) = std::io::pipe().unwrap();
            let file: File = OwnedFd::from(writer).into();
            state.files.insert(file.metadata().unwrap().ino(), (reader, handle));
            Ok(file)
        })
    }

    fn import(&self, file: &File) -> CuResult<u64> {
        self.call(|state| {
            let number = file.metadata().unwrap().ino();
            let handle = state.files.get(&number).map(|(_, handle)| *handle).ok_or(BROKEN)?;
            state.held.push(handle);
            Ok(handle)
        })
    }

    unsafe fn map(&self, address: u64, bytes: u64, handle: u64) -> CuResult<()> {
        self.call(|state| {
            let known = state.physical.contains_key(&handle) && state.held.contains(&handle);
            let new = state.maps.insert(address, (handle, bytes, false)).is_none();
            if known && new { Ok(()) } else { Err(BROKEN) }
        })
    }

    unsafe fn unmap(&self, address: u64, bytes: u64) -> CuResult<()> {
        self.call(|state| {
            let found = state.maps.remove(&address).filter(|(_, length, _)| *length == bytes);
            state.end_unused();
            found.map(drop).ok_or(BROKEN)
        })
    }

    unsafe fn allow(&self, address: u64, _: u64, _: &[RawAccess]) -> CuResult<()> {
        self.call(|state| state.maps.get_mut(&address).map(|map| map.2 = true).ok_or(BROKEN))
    }
}

/// The copies of one of the devices.
struct FakeCarriers<'a>(&'a FakeDevice, i32);

struct FakeCarrier<'a>(&'a FakeDevice, i32, Vec<Vec<u8>>);

impl<'a> Carriers for FakeCarriers<'a> {
    type Carrier = FakeCarrier<'a>;

    fn enter(&self) -> CuResult<()> {
        self.0.call(|_| Ok(()))
    }

    fn carrier(&self) -> CuResult<FakeCarrier<'a>> {
        let Self(device, id) = *self;
        device.call(|_| Ok(FakeCarrier(device, id, vec![vec![0; CHUNK_BYTES as usize]; BUFFERS])))
    }

    fn devices(&self) -> usize {
        DEVICES.len()
    }

    fn zeros(&self) -> Digest {
        [0, 0]
    }
}

impl Carrier for FakeCarrier<'_> {
    unsafe fn fetch(&mut self, buffer: usize, address: u64) -> CuResult<()> {
        let Self(device, id, buffers) = self;
        device.call(|state| {
            buffers[buffer].copy_from_slice(state.at(*id, address)?);
            Ok(())
        })
    }

    unsafe fn send(&mut self, buffer: usize, address: u64) -> CuResult<()> {
        let Self(device, id, buffers) = self;
        device.call(|state| {
            state.at(*id, address)?.copy_from_slice(&buffers[buffer]);
            Ok(())
        })
    }

    unsafe fn clear(&mut self, address: u64) -> CuResult<()> {
        self.0.call(|state| {
            state.at(self.1, address)?.fill(0);
            Ok(())
        })
    }

    unsafe fn fetch_to(&mut self, room: Room, address: u64, chunks: usize) -> CuResult<()> {
        self.0.call(|state| {
            for index in 0..chunks {
                let contents = state.at(self.1, address + index as u64 * CHUNK_BYTES)?;
                // SAFETY: as many rooms as there are chunks (`Carrier::fetch_to`).
                unsafe { Room::at(room.address() + index * CHUNK_BYTES as usize, true).store(contents) };
            }
            Ok(())
        })
    }

    unsafe fn send_from(&mut self, room: Room, address: u64, chunks: usize) -> CuResult<()> {
        self.0.call(|state| {
            for index in 0..chunks {
                let contents = state.at(self.1, address + index as u64 * CHUNK_BYTES)?;
                // SAFETY: as above.
                unsafe { Room::at(room.address() + index * CHUNK_BYTES as usize, true).load(contents) }
                    .unwrap();
            }
            Ok(())
        })
    }

    fn finish(&mut self) -> CuResult<()> {
        self.0.call(|_| Ok(()))
    }

    unsafe fn digests(&mut self, addresses: &[u64]) -> CuResult<Vec<Digest>> {
        let of = |state: &mut State, address: u64| Ok([digest(state.at(self.1, address)?), 0]);
        self.0.call(|state| addresses.iter().map(|&address| of(state, address)).collect())
    }

    fn wait(&mut self, buffer: usize) -> CuResult<&mut [u8]> {
        let Self(device, _, buffers) = self;
        device.call(|_| Ok(&mut buffers[buffer][..]))
    }
}

/// A part on each device, one of which is mapped twice.
fn fixture(device: &FakeDevice) -> [Part; 2] {
    [device.part(BASE, 3, &[]), device.part_on(DEVICES[1], BASE + (1 << 32), 2, &[BASE + (2 << 32)])]
}

/// Memory stays on its devices, whichever call fails, and is there once in the end.
#[test]
fn memory_that_files_keep_comes_back_with_its_contents() {
    let device = FakeDevice::default();
    let mut parts = fixture(&device);
    let before = device.contents();
    let leave = |parts: &mut [Part]| {
        // SAFETY: nothing but this test's own tables.
        with_groups(&device, parts.iter_mut(), |mut groups| unsafe { hold(&device, &mut groups) })
    };
    let come_back = |parts: &mut [Part]| {
        let away = parts.iter_mut().filter(|part| part.is_away());
        // SAFETY: as above.
        with_groups(&device, away, |mut groups| unsafe {
            bring_back(&device, &mut groups, &Store::default())
        })
    };
    device.fail_at(&[]);
    leave(&mut parts).unwrap();
    assert!(device.contents().is_empty() && parts.iter().all(|part| part.is_away() && !part.exists()));
    let calls = device.fail_at(&[]);
    come_back(&mut parts).unwrap();
    let calls = calls + device.fail_at(&[]);
    for (first, second) in (1..=calls).flat_map(|first| (first..=calls).map(move |second| (first, second))) {
        device.fail_at(&[first, second]);
        if leave(&mut parts).is_ok() {
            let _ = come_back(&mut parts);
        }
        device.fail_at(&[]);
        come_back(&mut parts).unwrap();
        assert_eq!(device.contents(), before, "{first} {second}");
        let is_there = |part: &Part| part.exists() && part.held().is_none();
        assert!(parts.iter().all(is_there), "{first} {second}");
    }
    device.0.lock().end_unused();
    assert_eq!(device.0.lock().physical.len(), parts.len());
    for part in &mut parts {
        // SAFETY: as above.
        unsafe { part.give_back(&device) }.unwrap();
    }
    device.0.lock().end_unused();
    assert!(device.0.lock().physical.is_empty(), "no file is left");
}

/// Calls `body` with the parts by their devices.
fn with_groups<'p, T>(
    device: &FakeDevice,
    parts: impl Iterator<Item = &'p mut Part>,
    body: impl FnOnce(Vec<Group<'_, 'p, FakeCarriers<'_>>>) -> T,
) -> T {
    let carriers = DEVICES.map(|id| FakeCarriers(device, id));
    let mut groups = carriers.each_ref().map(|carriers| Group { carriers, parts: Vec::new() });
    parts.for_each(|part| groups[part.device() as usize].parts.push(part));
    body(groups.into_iter().filter(|group| !group.parts.is_empty()).collect())
}

fn suspend(device: &FakeDevice, parts: &mut [Part], budget: u64) -> Result<Store, Unmoved> {
    suspend_again(device, parts, budget, Store::default()).map(|(store, _)| store)
}

fn suspend_again(
    device: &FakeDevice,
    parts: &mut [Part],
    budget: u64,
    mut kept: Store,
) -> Result<(Store, u64), Unmoved> {
    kept.retain(|address| parts.iter().any(|part| part.address() == address));
    let outcome = suspend_more(device, parts, budget, false, &mut kept);
    if outcome.is_err() {
        assert_eq!(kept.stored_bytes(), 0, "contents of memory that is on the device have ended");
    }
    outcome.map(|copied| (kept, copied))
}

/// Suspends the parts that are on the device.
fn suspend_more(
    device: &FakeDevice,
    parts: &mut [Part],
    budget: u64,
    in_pieces: bool,
    store: &mut Store,
) -> Result<u64, Unmoved> {
    let here = parts.iter_mut().filter(|part| !part.stored);
    // SAFETY: nothing but this test's own tables.
    with_groups(device, here, |groups| unsafe { give_back(device, groups, budget, in_pieces, store) })
}

/// Resumes as many parts as there is room for.
fn resume_pieces(device: &FakeDevice, parts: &mut [Part], store: &mut Store) -> Result<bool, Unmoved> {
    let away = parts.iter_mut().filter(|part| part.stored);
    // SAFETY: nothing but this test's own tables.
    with_groups(device, away, |groups| unsafe { bring_back_pieces(device, groups, store) })
}

/// A device whose parts have been suspended and resumed once, with the contents that were kept. Since then a chunk has changed, one
/// has become zeros, one of zeros has not, a part was freed, and there is a new one.
fn fixture_with_kept() -> (FakeDevice, Vec<Part>, Store) {
    let device = FakeDevice::default();
    let mut parts = fixture(&device).to_vec();
    parts.push(device.part(BASE + (3 << 32), 1, &[]));
    let store = suspend(&device, &mut parts, u64::MAX).unwrap();
    resume(&device, &mut parts, &store).unwrap();
    let mut freed = parts.pop().unwrap();
    // SAFETY: nothing but this test's own tables.
    unsafe { freed.give_back(&device) }.unwrap();
    device.0.lock().any_at(BASE).unwrap().fill(0);
    device.write(BASE + CHUNK_BYTES, 9);
    device.write(BASE + (1 << 32), 8);
    parts.push(device.part(BASE + (4 << 32), 2, &[]));
    device.fail_at(&[]);
    (device, parts, store)
}

fn resume(device: &FakeDevice, parts: &mut [Part], store: &Store) -> Result<(), Unmoved> {
    // SAFETY: nothing but this test's own tables.
    with_groups(device, parts.iter_mut(), |mut groups| unsafe { bring_back(device, &mut groups, store) })
}

#[test]
fn contents_come_back_to_their_addresses() {
    let device = FakeDevice::default();
    let mut parts = fixture(&device);
    let before = device.contents();
    assert_eq!(before.len(), 3);
    for _ in 0..3 {
        let store = suspend(&device, &mut parts, u64::MAX).unwrap();
        assert_eq!(store.stored_bytes(), 3 * CHUNK_BYTES, "zeros are not stored");
        assert!(device.0.lock().physical.is_empty() && device.0.lock().maps.is_empty());
        resume(&device, &mut parts, &store).unwrap();
        assert_eq!(device.contents(), before);
    }
    assert_eq!(suspend(&device, &mut [], u64::MAX).unwrap_err(), Unmoved::Nothing);
}

#[test]
fn a_budget_that_does_not_suffice_changes_nothing() {
    let device = FakeDevice::default();
    let mut parts = fixture(&device);
    let before = device.contents();
    device.fail_at(&[]);
    let refused = suspend(&device, &mut parts, 3 * CHUNK_BYTES - 1).unwrap_err();
    assert_eq!((refused, device.contents()), (Unmoved::HostMemory, before));
    assert!(parts.iter().all(|part| !part.stored && part.exists()));
}

#[test]
fn every_call_may_fail_on_the_way_out() {
    for fails in 1.. {
        let device = FakeDevice::default();
        let mut parts = fixture(&device);
        let before = device.contents();
        device.fail_at(&[fails]);
        let outcome = suspend(&device, &mut parts, u64::MAX);
        let calls = device.fail_at(&[]);
        match outcome {
            Err(reason) => {
                assert_eq!((reason, device.contents()), (Unmoved::Driver(BROKEN), before), "{fails}")
            }
            Ok(store) => {
                resume(&device, &mut parts, &store).unwrap();
                assert_eq!(device.contents(), before, "{fails}");
                if calls < fails {
                    return;
                }
            }
        }
    }
}

/// The way back after a failure fails, too: then all is in the store.
#[test]
fn two_calls_may_fail_on_the_way_out() {
    for first in 1..32 {
        for second in first + 1..first + 6 {
            let device = FakeDevice::default();
            let mut parts = fixture(&device);
            let before = device.contents();
            device.fail_at(&[first, second]);
            let outcome = suspend(&device, &mut parts, u64::MAX);
            device.fail_at(&[]);
            if let Ok(store) = outcome {
                resume(&device, &mut parts, &store).unwrap();
            }
            assert_eq!(device.contents(), before, "{first} {second}");
        }
    }
}

#[test]
fn every_call_may_fail_on_the_way_back() {
    for fails in 1.. {
        let device = FakeDevice::default();
        let mut parts = fixture(&device);
        let before = device.contents();
        let store = suspend(&device, &mut parts, u64::MAX).unwrap();
        device.fail_at(&[fails]);
        let outcome = resume(&device, &mut parts, &store);
        let calls = device.fail_at(&[]);
        if outcome.is_err() {
            assert!(device.0.lock().physical.is_empty(), "{fails}: the memory is free for others");
            resume(&device, &mut parts, &store).unwrap();
        }
        assert_eq!(device.contents(), before, "{fails}");
        if calls < fails {
            return;
        }
    }
}

#[test]
fn a_card_without_room_keeps_the_session_suspended() {
    let device = FakeDevice::default();
    let mut parts = fixture(&device);
    let before = device.contents();
    let store = suspend(&device, &mut parts, u64::MAX).unwrap();
    for (full, room) in [(0, [2, 0]), (1, [3, 1]), (1, [0, 1])] {
        DEVICES.iter().for_each(|&id| device.set_room(id, room[id as usize] * CHUNK_BYTES));
        assert_eq!(resume(&device, &mut parts, &store).unwrap_err(), Unmoved::DeviceMemory(full));
        assert!(device.0.lock().physical.is_empty(), "what was there already is given back");
    }
    DEVICES.iter().for_each(|&id| device.set_room(id, 3 * CHUNK_BYTES));
    resume(&device, &mut parts, &store).unwrap();
    assert_eq!(device.contents(), before);
}

#[test]
fn changed_contents_are_not_brought_back() {
    let device = FakeDevice::default();
    let mut parts = fixture(&device);
    let store = suspend(&device, &mut parts, u64::MAX).unwrap();
    store.damage(BASE);
    assert_eq!(resume(&device, &mut parts, &store).unwrap_err(), Unmoved::Differs);
    store.damage(BASE);
    resume(&device, &mut parts, &store).unwrap();
}

#[test]
fn only_changed_chunks_are_copied_again() {
    let (device, mut parts, kept) = fixture_with_kept();
    let before = device.contents();
    // The two that were written, and the new one. One more is unchanged.
    let (store, copied) = suspend_again(&device, &mut parts, 4 * CHUNK_BYTES, kept).unwrap();
    assert_eq!((copied, store.stored_bytes()), (3 * CHUNK_BYTES, 4 * CHUNK_BYTES));
    resume(&device, &mut parts, &store).unwrap();
    assert_eq!(device.contents(), before);
    let (store, copied) = suspend_again(&device, &mut parts, u64::MAX, store).unwrap();
    assert_eq!(copied, 0, "nothing has changed");
    store.damage(BASE + (1 << 32));
    assert_eq!(resume(&device, &mut parts, &store).unwrap_err(), Unmoved::Differs);
    store.damage(BASE + (1 << 32));
    resume(&device, &mut parts, &store).unwrap();
    assert_eq!(device.contents(), before);
    let refused = suspend_again(&device, &mut parts, 4 * CHUNK_BYTES - 1, store).unwrap_err();
    assert_eq!((refused, device.contents()), (Unmoved::HostMemory, before));
}

#[test]
fn every_call_may_fail_with_kept_contents() {
    for fails in 1.. {
        let (device, mut parts, kept) = fixture_with_kept();
        let before = device.contents();
        device.fail_at(&[fails]);
        let outcome = suspend_again(&device, &mut parts, u64::MAX, kept);
        let calls = device.fail_at(&[fails]);
        let Ok((store, _)) = outcome else {
            assert_eq!(device.contents(), before, "{fails}");
            continue;
        };
        if resume(&device, &mut parts, &store).is_err() {
            device.fail_at(&[]);
            resume(&device, &mut parts, &store).unwrap();
        }
        let came_back = device.fail_at(&[]);
        assert_eq!(device.contents(), before, "{fails}");
        if calls.max(came_back) < fails {
            return;
        }
    }
}

#[test]
fn a_part_moves_if_its_contents_fit() {
    assert_eq!(chosen(&[3, 1, 2], 6, false), Some(vec![true; 3]));
    assert_eq!(chosen(&[3, 1, 2], 5, false), None);
    assert_eq!(chosen(&[3, 1, 2], 5, true), Some(vec![true, true, false]));
    assert_eq!(chosen(&[9, 0, u64::MAX], 5, true), Some(vec![false, true, false]));
    assert_eq!(chosen(&[9, 6], 5, true), None);
    assert_eq!(chosen(&[u64::MAX; 2], u64::MAX - 1, false), None, "their sum is no number");
}

/// Two sessions change places on a device and in host memory that hold little more than one of them.
#[test]
fn two_sessions_change_places_in_pieces() {
    let device = FakeDevice::default();
    let of = |first: u64| -> Vec<Part> {
        (first..first + 6).map(|index| device.part(BASE + (index << 32), 1, &[])).collect()
    };
    let mut leaves = of(0);
    let mut comes = of(8);
    let before = device.contents();
    let mut stored = suspend(&device, &mut comes, u64::MAX).unwrap();
    device.set_room(0, 8 * CHUNK_BYTES);
    let host = 7 * CHUNK_BYTES;
    let mut left = Store::default();
    let mut rounds = 0;
    while comes.iter().any(|part| part.stored) {
        rounds += 1;
        let back = resume_pieces(&device, &mut comes, &mut stored);
        assert_eq!(back == Ok(true), comes.iter().all(|part| !part.stored));
        let budget = host - stored.stored_bytes();
        let _ = suspend_more(&device, &mut leaves, budget, true, &mut left);
        assert!(stored.stored_bytes() + left.stored_bytes() <= host);
        assert!(rounds < 10, "it ends");
    }
    assert!(rounds > 1, "not at once");
    assert_eq!(stored.stored_bytes(), 0, "contents that are back are not kept");
    // What was away comes back with the other one gone.
    comes.clear();
    device.set_room(0, 0);
    let physical: Vec<u64> = device.0.lock().maps.values().map(|map| map.0).collect();
    assert!(physical.len() >= 6);
    assert_eq!(resume_pieces(&device, &mut leaves, &mut left), Ok(true));
    assert_eq!(device.contents(), before);
}

#[test]
fn every_call_may_fail_in_pieces() {
    for fails in 1.. {
        let device = FakeDevice::default();
        let mut parts = fixture(&device);
        let before = device.contents();
        // One of the two parts, then the other one; back with room for one, and then for both.
        let mut store = Store::default();
        device.fail_at(&[fails]);
        let mut ok = true;
        let is_stored = |parts: &[Part]| parts.iter().map(|part| part.stored).collect::<Vec<_>>();
        let mut step = |outcome: Result<(), Unmoved>, changed: bool| {
            ok &= outcome.is_ok();
            assert!(outcome.is_ok() || !changed, "{fails}: a failure changes nothing");
        };
        for budget in [CHUNK_BYTES, u64::MAX] {
            let was = is_stored(&parts);
            let outcome = suspend_more(&device, &mut parts, budget, true, &mut store).map(drop);
            step(outcome, was != is_stored(&parts));
        }
        for room in [CHUNK_BYTES, 0] {
            device.set_room(1, room);
            if parts.iter().any(|part| part.stored) {
                let was = is_stored(&parts);
                let outcome = resume_pieces(&device, &mut parts, &mut store).map(drop);
                step(outcome, was != is_stored(&parts));
            }
        }
        let calls = device.fail_at(&[]);
        if parts.iter().any(|part| part.stored) {
            assert_eq!(resume_pieces(&device, &mut parts, &mut store), Ok(true), "{fails}");
        }
        assert_eq!(device.contents(), before, "{fails}");
        if calls < fails {
            assert!(ok);
            return;
        }
    }
}

impl Registrar for () {
    unsafe fn register(&self, _: usize, _: usize) -> bool {
        true
    }

    fn unregister(&self, _: usize) -> bool {
        true
    }
}

/// A store whose first rooms are those of a pool, as many as there are in a block.
fn with_pool() -> (Arc<Pages>, Store) {
    let pages = Arc::<Pages>::default();
    pages.keep(4 * CHUNK_BYTES, ());
    let begun = Instant::now();
    loop {
        let rooms = pages.take(4).unwrap();
        let is_ready = rooms.iter().all(|room| room.is_registered());
        rooms.into_iter().for_each(|room| pages.give(room));
        if is_ready {
            return (pages.clone(), Store::new(&pages));
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "there is no pool");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Eight chunks that are not zeros, of which four have rooms in the pool; two of them are carried by one copy.
#[test]
fn every_call_may_fail_with_a_pool() {
    let (pages, _) = with_pool();
    for fails in 1.. {
        let device = FakeDevice::default();
        let mut parts = [device.part(BASE, 3, &[]), device.part(BASE + (1 << 32), 10, &[])];
        device.write(BASE + (1 << 32) + CHUNK_BYTES, 7);
        let before = device.contents();
        device.fail_at(&[fails]);
        let outcome = suspend_again(&device, &mut parts, u64::MAX, Store::new(&pages));
        let calls = device.fail_at(&[fails]);
        let Ok((store, _)) = outcome else {
            assert_eq!(device.contents(), before, "{fails}");
            continue;
        };
        assert_eq!(store.stored_bytes(), 8 * CHUNK_BYTES);
        if resume(&device, &mut parts, &store).is_err() {
            device.fail_at(&[]);
            resume(&device, &mut parts, &store).unwrap();
        }
        let came_back = device.fail_at(&[]);
        assert_eq!(device.contents(), before, "{fails}");
        if calls.max(came_back) < fails {
            return;
        }
    }
}
