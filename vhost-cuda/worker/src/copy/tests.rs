// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the engine with a stream that finishes as late as possible, or fails.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;
use virtio_cuda_protocol::transport::{MemEntry, PAGE_BYTES};

use super::dma::{Dma, Mark};
use super::engine::Engine;
use super::pipeline::{PARALLEL_BYTES, Pipeline};
use super::staging::BUFFER_BYTES;
use super::threads::Direction;
use crate::gpu::{CUdeviceptr, CuResult, CudaError};
use crate::memory::pages::PageList;
use crate::memory::pages::fixture::fixture_memory;

const FIRST_PAGE: u64 = 0x10000;
const CONTEXT: u64 = 7;
/// The start of the fake device's memory.
const DEVICE: u64 = 0x7000_0000;
/// The error of the fake stream.
const FAILURE: CudaError = CudaError(719);

enum Operation {
    ToDevice { at: usize, from: *const u8, bytes: usize },
    FromDevice { to: *mut u8, at: usize, bytes: usize },
    Mark(Mark),
}

/// Marks of all streams that are not reached. They travel with the buffers.
static OPEN: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());
static MARKS: AtomicUsize = AtomicUsize::new(1);

/// A stream that executes nothing until a thread waits for it, or queries it often enough.
struct FakeStream {
    memory: RefCell<Vec<u8>>,
    queue: RefCell<VecDeque<Operation>>,
    calls: Cell<usize>,
    /// The call that fails.
    fail_at: Option<usize>,
}

impl FakeStream {
    fn new(bytes: usize) -> Self {
        Self::failing(bytes, None)
    }

    fn failing(bytes: usize, fail_at: Option<usize>) -> Self {
        let memory = RefCell::new(vec![0; bytes]);
        Self { memory, queue: RefCell::default(), calls: Cell::new(0), fail_at }
    }

    fn call(&self) -> CuResult<()> {
        self.calls.set(self.calls.get() + 1);
        if Some(self.calls.get()) == self.fail_at { Err(FAILURE) } else { Ok(()) }
    }

    fn step(&self) -> bool {
        let Some(operation) = self.queue.borrow_mut().pop_front() else { return false };
        let mut memory = self.memory.borrow_mut();
        // SAFETY: the engine keeps buffers as long as it was told; the ranges are checked by slicing.
        unsafe {
            match operation {
                Operation::ToDevice { at, from, bytes } => {
                    memory[at..at + bytes].copy_from_slice(std::slice::from_raw_parts(from, bytes));
                }
                Operation::FromDevice { to, at, bytes } => {
                    to.copy_from_nonoverlapping(memory[at..at + bytes].as_ptr(), bytes);
                }
                Operation::Mark(mark) => *OPEN.lock().get_mut(&mark.0).unwrap() -= 1,
            }
        }
        true
    }

    fn finish(&self) {
        while self.step() {}
    }

    fn is_open(mark: Mark) -> bool {
        OPEN.lock().get(&mark.0).is_some_and(|times| *times > 0)
    }
}

impl Dma for FakeStream {
    unsafe fn pin(&self, _address: *mut u8, _bytes: usize) -> CuResult<()> {
        self.call()
    }
    unsafe fn send(&self, dst: CUdeviceptr, src: *const u8, bytes: usize) -> CuResult<()> {
        self.call()?;
        let at = (dst - DEVICE) as usize;
        self.queue.borrow_mut().push_back(Operation::ToDevice { at, from: src, bytes });
        Ok(())
    }
    unsafe fn fetch(&self, dst: *mut u8, src: CUdeviceptr, bytes: usize) -> CuResult<()> {
        self.call()?;
        let at = (src - DEVICE) as usize;
        self.queue.borrow_mut().push_back(Operation::FromDevice { to: dst, at, bytes });
        Ok(())
    }
    fn create(&self) -> CuResult<Mark> {
        self.call()?;
        Ok(Mark(MARKS.fetch_add(1, Ordering::Relaxed)))
    }
    fn record(&self, mark: Mark) -> CuResult<()> {
        self.call()?;
        *OPEN.lock().entry(mark.0).or_default() += 1;
        self.queue.borrow_mut().push_back(Operation::Mark(mark));
        Ok(())
    }
    fn is_done(&self, mark: Mark) -> bool {
        if self.calls.get().is_multiple_of(3) {
            self.step();
        }
        !Self::is_open(mark)
    }
    fn wait(&self, mark: Mark) -> CuResult<()> {
        self.call()?;
        while Self::is_open(mark) {
            assert!(self.step(), "a copy waits for another one's stream");
        }
        Ok(())
    }
}

/// The memory of a guest whose pages are in arbitrary order.
struct Guest {
    pages: PageList,
    file: File,
    /// The page numbers in the file, in the buffer's order.
    order: Vec<u64>,
    skip: usize,
}

impl Guest {
    /// A buffer of `bytes` bytes that begins `skip` bytes into a page.
    fn new(bytes: usize, skip: usize) -> Self {
        let count = ((skip + bytes) as u64).div_ceil(PAGE_BYTES);
        let (memory, file) = fixture_memory(count);
        // A step that has no divisor in common with the count visits every page; pairs stay together.
        let step = (7..).find(|step| gcd(*step, count) == 1).unwrap();
        let order: Vec<u64> = (0..count).map(|index| index * step % count).collect();
        let mut left = bytes;
        let entries = order.iter().enumerate().map(|(index, page)| {
            let skip = if index == 0 { skip } else { 0 };
            let bytes = left.min(PAGE_BYTES as usize - skip);
            left -= bytes;
            MemEntry { addr: FIRST_PAGE + page * PAGE_BYTES + skip as u64, bytes: bytes as u32, reserved: 0 }
        });
        let pages = PageList::new(memory, entries.collect()).unwrap();
        assert_eq!(pages.bytes(), bytes as u64);
        Self { pages, file, order, skip }
    }

    /// Returns the contents of the pages, including the bytes outside of the buffer.
    fn contents(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.order.len() * PAGE_BYTES as usize];
        for (page, at) in bytes.chunks_mut(PAGE_BYTES as usize).zip(&self.order) {
            self.file.read_exact_at(page, at * PAGE_BYTES).unwrap();
        }
        bytes
    }

    fn fill(&self, contents: &[u8]) {
        let mut at = 0;
        for (index, page) in self.order.iter().enumerate() {
            let skip = if index == 0 { self.skip } else { 0 };
            let bytes = (contents.len() - at).min(PAGE_BYTES as usize - skip);
            self.file.write_all_at(&contents[at..at + bytes], page * PAGE_BYTES + skip as u64).unwrap();
            at += bytes;
        }
    }
}

impl Drop for FakeStream {
    /// The work of a stream ends with it, even when it was destroyed before.
    fn drop(&mut self) {
        self.finish();
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

fn gather(engine: &Engine, stream: &FakeStream, guest: &Guest, wait: bool) -> CuResult<()> {
    Pipeline::new(engine, CONTEXT, stream, &guest.pages, Direction::Gather, DEVICE).gather(wait)
}

fn scatter(engine: &Engine, stream: &FakeStream, guest: &Guest) -> CuResult<()> {
    Pipeline::new(engine, CONTEXT, stream, &guest.pages, Direction::Scatter, DEVICE).scatter()
}

/// Copies to the device, overwrites the source, and copies back to another buffer.
fn round_trip(engine: &Engine, bytes: usize, skip: usize) {
    let contents = noise(bytes, bytes as u64 + skip as u64);
    let (source, target) = (Guest::new(bytes, skip), Guest::new(bytes, (skip * 5 + 3) % 4096));
    let stream = FakeStream::new(bytes);
    source.fill(&contents);
    gather(engine, &stream, &source, false).unwrap();
    // The source may be reused as soon as the call has returned.
    source.fill(&vec![0xee; bytes]);
    scatter(engine, &stream, &target).unwrap();
    let found = target.contents();
    let (before, rest) = found.split_at(target.skip);
    assert!(rest[..bytes] == contents[..], "{bytes} bytes at {skip}");
    assert!(before.iter().chain(&rest[bytes..]).all(|byte| *byte == 0), "{bytes} bytes at {skip}: beside");
}

#[test]
fn copies_of_all_sizes_arrive() {
    let limits = [4096, BUFFER_BYTES, PARALLEL_BYTES as usize, 3 * BUFFER_BYTES, 13 * BUFFER_BYTES];
    for threads in [1, 2, 5] {
        let engine = Engine::new(threads);
        for bytes in limits.iter().flat_map(|limit| [limit - 1, *limit, limit + 1]).chain([1, 6_543_210]) {
            for skip in [0, 1, 4095] {
                round_trip(&engine, bytes, skip);
            }
        }
        let (made, free) = engine.staging.count();
        assert_eq!(made, free, "{threads} threads");
        // The buffers of the previous copy may still wait for the GPU.
        assert!(made <= 2 * (2 * threads + 4) + 4, "{threads} threads: {made} buffers");
    }
}

#[test]
fn copies_at_once_share_threads_and_buffers() {
    let engine = Arc::new(Engine::new(3));
    let copy = |index: usize| {
        let engine = engine.clone();
        thread::spawn(move || (0..4).for_each(|round| round_trip(&engine, 3_000_000 + 4097 * index, round)))
    };
    let copies: Vec<_> = (0..12).map(copy).collect();
    copies.into_iter().for_each(|copy| copy.join().unwrap());
    let (made, free) = engine.staging.count();
    assert_eq!(made, free);
    assert!(made <= 64 + 4 * 12, "{made} buffers");
}

#[test]
fn a_copy_that_waits_is_complete() {
    let (engine, bytes) = (Engine::new(3), 2_000_003);
    let (guest, stream) = (Guest::new(bytes, 77), FakeStream::new(bytes));
    let contents = noise(bytes, 1);
    guest.fill(&contents);
    gather(&engine, &stream, &guest, true).unwrap();
    assert!(*stream.memory.borrow() == contents);
}

#[test]
fn an_error_in_the_middle_ends_the_copy_and_nothing_else() {
    let bytes = 5 * BUFFER_BYTES + 4321;
    for threads in [1, 4] {
        for direction in [Direction::Gather, Direction::Scatter] {
            let (engine, guest) = (Engine::new(threads), Guest::new(bytes, 9));
            let mut abandoned = 0;
            for fail_at in 1.. {
                let stream = FakeStream::failing(bytes, Some(fail_at));
                let outcome = match direction {
                    Direction::Gather => gather(&engine, &stream, &guest, true),
                    Direction::Scatter => scatter(&engine, &stream, &guest),
                };
                stream.finish();
                let (made, free) = engine.staging.count();
                if outcome.is_ok() {
                    assert!(stream.calls.get() < fail_at);
                    break;
                }
                assert_eq!(outcome, Err(FAILURE));
                // A buffer is lost only where the GPU may use it forever.
                assert!(made - free <= abandoned + 1, "call {fail_at}: {made} buffers, {free} free");
                abandoned = made - free;
                if abandoned > 0 {
                    engine.forget_context(CONTEXT);
                    abandoned = engine.staging.count().0;
                }
            }
            round_trip(&engine, bytes, 9);
        }
    }
}

#[test]
fn buffers_of_a_context_that_has_ended_are_not_used() {
    let (engine, bytes) = (Engine::new(2), 1 << 20);
    let (guest, stream) = (Guest::new(bytes, 0), FakeStream::new(bytes));
    gather(&engine, &stream, &guest, false).unwrap();
    stream.finish();
    assert_ne!(engine.staging.count().0, 0);
    engine.forget_context(CONTEXT);
    assert_eq!(engine.staging.count(), (0, 0));
    round_trip(&engine, bytes, 0);
}
