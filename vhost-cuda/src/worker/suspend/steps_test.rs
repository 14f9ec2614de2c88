// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Moves with a device of this process's own, which fails at each call in turn. Nothing may be lost.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;

use super::super::parts::Mapping;
use super::super::transfer::{BUFFERS, Carrier};
use super::*;
use crate::worker::gpu::{CuResult, RawAccess, RawAllocation, RawLocation};

/// The result of a call that was told to fail.
const BROKEN: CudaError = CudaError(719);
const BASE: u64 = 0x10_0000_0000;
const HOME: RawLocation = RawLocation { kind: 1, id: 0 };

#[derive(Debug, Default)]
struct State {
    physical: HashMap<u64, Vec<u8>>,
    held: Vec<u64>,
    /// Handle, bytes and whether it is accessible, by address.
    maps: BTreeMap<u64, (u64, u64, bool)>,
    next: u64,
    calls: usize,
    fails: Vec<usize>,
    free: u64,
}

/// A device with memory, whose calls of certain numbers fail.
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

    /// A part with contents that differ from those of all others; half of its chunks are zeros.
    fn part(&self, address: u64, chunks: u64, aliases: &[u64]) -> Part {
        let bytes = chunks * CHUNK_BYTES;
        let properties = RawAllocation {
            kind: 1,
            handle_types: 0,
            location: HOME,
            win32_metadata: 0,
            compression: 0,
            gpu_direct_rdma: 0,
            usage: 0,
            reserved: [0; 4],
        };
        let access = vec![RawAccess { location: HOME, flags: 3 }];
        let handle = self.create(bytes, &properties).unwrap();
        let mut mappings = Vec::new();
        for &address in [address].iter().chain(aliases) {
            // SAFETY: nothing but this test's own tables.
            unsafe { self.map(address, bytes, handle).and_then(|()| self.allow(address, bytes, &access)) }
                .unwrap();
            mappings.push(Mapping::new(address, bytes, access.clone()));
        }
        let mut state = self.0.lock();
        let memory = state.physical.get_mut(&handle).unwrap();
        for (index, chunk) in memory.chunks_mut(CHUNK_BYTES as usize).enumerate() {
            let value = if index % 2 == 0 { (address >> 24) as u8 + index as u8 + 1 } else { 0 };
            chunk.fill(value);
        }
        Part::new(Some(handle), bytes, properties, mappings)
    }

    /// The contents of all accessible addresses.
    fn contents(&self) -> BTreeMap<u64, u64> {
        let state = self.0.lock();
        let digest = |memory: &[u8]| {
            memory.iter().step_by(1024).fold(0_u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte))
        };
        let accessible = state.maps.iter().filter(|(_, (.., accessible))| *accessible);
        accessible.map(|(&address, (handle, ..))| (address, digest(&state.physical[handle]))).collect()
    }
}

impl State {
    fn at(&mut self, piece: &Piece) -> CuResult<&mut [u8]> {
        let (base, (handle, bytes, accessible)) =
            self.maps.range(..=piece.address).next_back().ok_or(BROKEN)?;
        let offset = piece.address - base;
        if !accessible || offset + piece.bytes > *bytes {
            return Err(BROKEN);
        }
        let memory = self.physical.get_mut(handle).ok_or(BROKEN)?;
        Ok(&mut memory[offset as usize..(offset + piece.bytes) as usize])
    }

    fn end_unused(&mut self) {
        let Self { physical, held, maps, .. } = self;
        physical.retain(|handle, _| held.contains(handle) || maps.values().any(|(of, ..)| of == handle));
    }
}

impl Memory for FakeDevice {
    fn create(&self, bytes: u64, _: &RawAllocation) -> CuResult<u64> {
        self.call(|state| {
            let used: u64 = state.physical.values().map(|memory| memory.len() as u64).sum();
            if state.free > 0 && used + bytes > state.free {
                return Err(CudaError::OUT_OF_MEMORY);
            }
            state.next += 1;
            let handle = state.next;
            // Whatever another program has left there.
            state.physical.insert(handle, vec![0xee; bytes as usize]);
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

struct FakeCarrier<'a>(&'a FakeDevice, Vec<Vec<u8>>);

impl<'a> Carriers for &'a FakeDevice {
    type Carrier = FakeCarrier<'a>;

    fn carrier(&self) -> CuResult<FakeCarrier<'a>> {
        self.call(|_| Ok(FakeCarrier(self, vec![vec![0; CHUNK_BYTES as usize]; BUFFERS])))
    }
}

impl Carrier for FakeCarrier<'_> {
    unsafe fn fetch(&mut self, buffer: usize, piece: &Piece) -> CuResult<()> {
        let Self(device, buffers) = self;
        device.call(|state| {
            buffers[buffer][..piece.bytes as usize].copy_from_slice(state.at(piece)?);
            Ok(())
        })
    }

    unsafe fn send(&mut self, buffer: usize, piece: &Piece) -> CuResult<()> {
        let Self(device, buffers) = self;
        device.call(|state| {
            state.at(piece)?.copy_from_slice(&buffers[buffer][..piece.bytes as usize]);
            Ok(())
        })
    }

    fn wait(&mut self, buffer: usize) -> CuResult<&mut [u8]> {
        let Self(device, buffers) = self;
        device.call(|_| Ok(&mut buffers[buffer][..]))
    }
}

/// Two parts, one of which is mapped twice.
fn fixture(device: &FakeDevice) -> [Part; 2] {
    [device.part(BASE, 3, &[]), device.part(BASE + (1 << 32), 2, &[BASE + (2 << 32)])]
}

fn suspend(device: &FakeDevice, parts: &mut [Part], budget: u64) -> Result<Store, Unmoved> {
    let mut all: Vec<_> = parts.iter_mut().collect();
    // SAFETY: nothing but this test's own tables.
    unsafe { give_back(device, &device, &mut all, budget) }
}

fn resume(device: &FakeDevice, parts: &mut [Part], store: &Store) -> Result<(), Unmoved> {
    let mut all: Vec<_> = parts.iter_mut().collect();
    // SAFETY: nothing but this test's own tables.
    unsafe { bring_back(device, &device, &mut all, store) }
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
    assert!(parts.iter().all(|part| part.stored.is_none() && part.exists()));
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
    device.0.lock().free = 4 * CHUNK_BYTES;
    for _ in 0..2 {
        assert_eq!(resume(&device, &mut parts, &store).unwrap_err(), Unmoved::DeviceMemory);
        assert!(device.0.lock().physical.is_empty(), "what was there already is given back");
    }
    device.0.lock().free = 5 * CHUNK_BYTES;
    resume(&device, &mut parts, &store).unwrap();
    assert_eq!(device.contents(), before);
}

#[test]
fn changed_contents_are_not_brought_back() {
    let device = FakeDevice::default();
    let mut parts = fixture(&device);
    let store = suspend(&device, &mut parts, u64::MAX).unwrap();
    store.damage(5);
    assert_eq!(resume(&device, &mut parts, &store).unwrap_err(), Unmoved::Differs);
    store.damage(5);
    resume(&device, &mut parts, &store).unwrap();
}
