// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Copies of pageable memory through pinned memory of this process: its own processors move the bytes between the two,
//! as NVIDIA's driver does, and the GPU the rest. For a buffer that is new to the device this is mostly quicker than to
//! let the worker read the pages where they lie, which it has to find and map first; see `routes`.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use virtio_cuda_client::lane::INLINE_BYTES;
use virtio_cuda_client::protocol::{DevicePtr, StreamId};
use virtio_cuda_client::transport::UserMemory;
use virtio_cuda_client::{CudaError, calls};
use virtio_cuda_ring::streaming;

use crate::entry::Api;
use crate::memory::copy::crew::{Crew, Patience};
use crate::memory::copy::pieces::HELPERS;
use crate::memory::copy::staging::Piece;
use crate::memory::copy::timing::Timing;
use crate::memory::table::routes::{LONG_BYTES, Route};
use crate::memory::table::staging::{Queue, Size, Staging};

/// Threads that move the bytes of a copy, at most [`MOST_THREADS`]; 0 turns these copies off.
const VARIABLE: &str = "VIRTIO_CUDA_STAGING";
/// Shorter copies from the device travel in the reply, as those to the device do up to [`INLINE_BYTES`].
const LEAST_FROM_DEVICE: usize = 16 << 10;
/// Copies to the device from here on are shared by threads, and those from it from half of that on.
const SHARED_BYTES: usize = 2 << 20;
/// Copies from here on have the longest stagings, …
const LONGEST_BYTES: usize = 32 << 20;
/// … but not the first ones of a process: to make one takes as long as several such copies.
const COPIES_BEFORE_LONGEST: u32 = 2;
/// Threads of a copy: those that move bytes, and, where there are cores to spare, one that (mostly) starts the GPU's
/// copies: the thread whose copy it is. From the device, more than the usual ones take longer if slots are few.
const MOST_THREADS: usize = 8;
const USUAL_THREADS: usize = 4;
/// Cores for one thread more, and for two.
const MANY_CORES: [usize; 2] = [8, 12];
/// Pieces that the GPU copies at once: to the device if so many are ready, from it always.
const MOST_SENT_TOGETHER: usize = 4;
const FETCHED_TOGETHER: usize = 2;
const FETCHED_TOGETHER_LONG: usize = 4;
/// Shortest piece.
const LEAST_PIECE: usize = 64 << 10;
const PAGE_BYTES: usize = 4096;

/// One copy.
#[derive(Clone, Copy)]
struct Plan {
    host: usize,
    device: u64,
    to_device: bool,
    bytes: usize,
    piece_bytes: usize,
    threads: usize,
    stream: StreamId,
    size: Size,
}

/// Threads of a copy, and of one that has few slots and comes from the device.
fn threads() -> [usize; 2] {
    static THREADS: OnceLock<[usize; 2]> = OnceLock::new();
    *THREADS.get_or_init(|| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let wanted: Option<usize> = std::env::var(VARIABLE).ok().and_then(|value| value.parse().ok());
        let more = MANY_CORES.iter().filter(|&&many| cores >= many).count();
        let usual = [USUAL_THREADS + more, USUAL_THREADS];
        usual.map(|usual| wanted.unwrap_or(cores.min(usual)).min(MOST_THREADS))
    })
}

/// Returns whether the first and the last page of the program's buffer are there, to be read or written: an address that is no
/// memory is for the device to refuse, rather than for this process to end at.
fn is_there(memory: UserMemory, advice: libc::c_int) -> bool {
    static CAN_TELL: OnceLock<bool> = OnceLock::new();
    let populate = |address: usize, advice| {
        let page = address / PAGE_BYTES * PAGE_BYTES;
        // SAFETY: this makes a page present, as touching it would, or fails.
        unsafe { libc::madvise(page as *mut libc::c_void, PAGE_BYTES, advice) == 0 }
    };
    // A kernel before 5.14 does not know the advice, not even for a variable.
    let can_tell = *CAN_TELL.get_or_init(|| populate(&raw const CAN_TELL as usize, libc::MADV_POPULATE_READ));
    let ends = [memory.address, memory.address + (memory.bytes - 1)];
    !can_tell || ends.into_iter().all(|address| populate(address, advice))
}

impl Plan {
    fn new(host: UserMemory, device: u64, to_device: bool, stream: StreamId) -> Option<Self> {
        let bytes = host.bytes;
        let least = if to_device { INLINE_BYTES } else { LEAST_FROM_DEVICE };
        let [most, few] = threads();
        if most == 0 || bytes <= least {
            return None;
        }
        let size = match bytes {
            ..LONG_BYTES => Size::Small,
            LONGEST_BYTES.. => Size::Long,
            _ => Size::Large,
        };
        let threads = match bytes >= if to_device { SHARED_BYTES } else { SHARED_BYTES / 2 } {
            false => 1,
            true if to_device || size == Size::Long => most,
            true => few,
        };
        let even = (bytes / (2 * threads)).next_multiple_of(PAGE_BYTES);
        let piece_bytes = even.clamp(LEAST_PIECE, size.slot_bytes());
        Some(Self { host: host.address, device, to_device, bytes, piece_bytes, threads, stream, size })
    }

    /// A staging for it: a smaller one, where there is none of its size.
    fn take(&mut self, api: Api) -> Option<Staging> {
        static LONGEST: AtomicU32 = AtomicU32::new(0);
        let (stagings, queue) = (&api.driver.memory.stagings, Queue::new(self.stream));
        if self.size == Size::Long {
            let early = LONGEST.load(Ordering::Relaxed) < COPIES_BEFORE_LONGEST;
            let taken = if early { None } else { stagings.take(api, self.size, queue) };
            if taken.is_some() {
                return taken;
            }
            LONGEST.fetch_add(u32::from(early), Ordering::Relaxed);
            self.size = Size::Large;
            if !self.to_device {
                self.threads = threads()[1];
            }
        }
        stagings.take(api, self.size, queue)
    }

    fn count(&self) -> usize {
        self.bytes.div_ceil(self.piece_bytes)
    }

    /// Offset and length of a piece.
    fn piece(&self, number: usize) -> (usize, usize) {
        let offset = number * self.piece_bytes;
        (offset, self.piece_bytes.min(self.bytes - offset))
    }

    /// Copies a piece between the program's memory and its slot at `slot`.
    fn move_piece(&self, number: usize, slot: *mut u8) {
        let (offset, bytes) = self.piece(number);
        let host = (self.host + offset) as *mut u8;
        // SAFETY: the program promises that the buffer is its memory, of that length. The slot is pinned memory of this
        // library, at least a piece long; only the thread that has taken the piece touches it until it is finished.
        unsafe {
            if self.to_device {
                streaming::copy(host.cast_const(), slot, bytes);
            } else if self.size != Size::Small {
                streaming::copy(slot.cast_const(), host, bytes);
            } else {
                // The program will soon look at it.
                std::ptr::copy_nonoverlapping(slot.cast_const(), host, bytes);
            }
        }
        streaming::fence();
    }

    /// Starts the GPU's copy of pieces: of the first one that lie side by side, whose number it answers. Few long copies
    /// take the GPU less time than many short ones.
    fn start(&self, api: Api, staging: &mut Staging, pieces: Range<usize>) -> Result<usize, CudaError> {
        let slot = pieces.start % self.size.slots();
        let together = if self.piece_bytes == self.size.slot_bytes() { self.size.slots() - slot } else { 1 };
        let count = pieces.len().min(together);
        let (offset, _) = self.piece(pieces.start);
        let bytes = (count * self.piece_bytes).min(self.bytes - offset);
        let (device, slot_at) = (DevicePtr(self.device + offset as u64), staging.device(slot));
        let (dst, src) = if self.to_device { (device, slot_at) } else { (slot_at, device) };
        let last = pieces.start + count == self.count();
        staging.start(api, slot..slot + count, last, Piece { dst, src, bytes }, Queue::new(self.stream))?;
        Ok(count)
    }

    /// To the device, by the thread whose copy it is. Returns when all pieces are under way.
    fn send(&self, api: Api, staging: &mut Staging, crew: &Crew<'_>) -> Result<(), CudaError> {
        let (mut opened, mut started) = (0, 0);
        let mut patience = Patience::default();
        while started < crew.count() {
            let most = opened.min(started + MOST_SENT_TOGETHER);
            let ready = (started..most).take_while(|&number| crew.is_finished(number)).count();
            if ready > 0 {
                started += self.start(api, staging, started..started + ready)?;
                patience = Patience::default();
                continue;
            }
            while opened < crew.count().min(started + crew.slots()) {
                let slot = opened % crew.slots();
                if staging.is_pending(slot) {
                    if crew.waiting() >= self.threads || !staging.can_settle(slot) {
                        break;
                    }
                    staging.settle(api, slot)?;
                }
                opened += 1;
                crew.open(opened);
            }
            if !crew.help_once() {
                patience.pass();
            }
        }
        Ok(())
    }

    /// From the device, by the thread whose copy it is. Returns when the program has all bytes.
    fn fetch(&self, api: Api, staging: &mut Staging, crew: &Crew<'_>) -> Result<(), CudaError> {
        let (mut started, mut arrived, mut finished) = (0, 0, 0);
        let mut patience = Patience::default();
        let many = if self.size == Size::Long { FETCHED_TOGETHER_LONG } else { FETCHED_TOGETHER };
        // Where there are threads enough, this one sees to the next pieces, unless they are there and nobody takes them.
        let helps = |arrived, crew: &Crew<'_>| {
            self.threads <= USUAL_THREADS || arrived == crew.count() || crew.waiting() >= self.threads
        };
        while finished < crew.count() {
            if crew.is_finished(finished) {
                finished += 1;
                patience = Patience::default();
                continue;
            }
            loop {
                let together = crew.count().min(started + many);
                if started == together || together > finished + crew.slots() {
                    break;
                }
                // Of an earlier copy.
                staging.settle(api, started % crew.slots())?;
                started += self.start(api, staging, started..together)?;
            }
            let slot = arrived % crew.slots();
            if arrived < started && crew.waiting() < self.threads && staging.can_settle(slot) {
                staging.settle(api, slot)?;
                arrived += 1;
                crew.open(arrived);
            } else if !(helps(arrived, crew) && crew.help_once()) {
                patience.pass();
            }
        }
        Ok(())
    }

    fn run(&self, api: Api, staging: &mut Staging, wait: bool) -> Result<(), CudaError> {
        let slots: Vec<usize> = (0..self.size.slots()).map(|slot| staging.host(slot) as usize).collect();
        let work = |number: usize| self.move_piece(number, slots[number % slots.len()] as *mut u8);
        if self.count() == 1 && !self.to_device {
            staging.settle(api, 0)?;
            let (dst, src) = (staging.device(0), DevicePtr(self.device));
            calls::memcpy_wait(&mut api.in_context()?, dst, src, self.bytes as u64, self.stream)?;
            work(0);
            return Ok(());
        }
        let crew = Crew::new(self.count(), slots.len(), &work);
        let helpers = self.threads.min(self.count()) - 1;
        HELPERS.run_beside(helpers, &|| crew.help(), || {
            let outcome =
                if self.to_device { self.send(api, staging, &crew) } else { self.fetch(api, staging, &crew) };
            crew.end();
            outcome
        })?;
        if self.to_device && wait {
            staging.settle(api, (self.count() - 1) % slots.len())?;
        }
        Ok(())
    }
}

impl Api {
    /// Copies between pageable memory and device memory through a staging. False: nothing was done, it has to go another
    /// way.
    pub fn by_staging(
        &self,
        host: UserMemory,
        device: u64,
        to_device: bool,
        timing: Timing,
        stream: StreamId,
    ) -> Result<bool, CudaError> {
        let Some(mut plan) = Plan::new(host, device, to_device, stream) else { return Ok(false) };
        let broken = virtio_cuda_client::call::is_broken();
        if broken || !self.may_post(stream.0) || !self.owns(device, host.bytes as u64) {
            return Ok(false);
        }
        let advice = if to_device { libc::MADV_POPULATE_READ } else { libc::MADV_POPULATE_WRITE };
        if !is_there(host, advice) {
            return Ok(false);
        }
        let memory = &self.driver.memory;
        if memory.routes.choose(host.bytes) != Route::Staging {
            return Ok(false);
        }
        let Some(mut staging) = plan.take(*self) else {
            return Ok(false);
        };
        let wait = timing == Timing::Wait;
        // What the GPU does before may change the source, where both reach it.
        let outcome = if wait && to_device && memory.ranges.any_host() && !memory.visible.is_none() {
            self.wait_for_stream(stream)
        } else {
            Ok(())
        };
        let run = || plan.run(*self, &mut staging, wait);
        match outcome.and_then(|()| memory.routes.measured(Route::Staging, host.bytes, run)) {
            Ok(()) => {
                memory.stagings.give_back(staging);
                Ok(true)
            }
            Err(error) => {
                memory.stagings.give_up(*self, staging);
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_memory_is_noticed() {
        const PAGES: usize = 4;
        let map = |protection| {
            let (bytes, flags) = (PAGES * PAGE_BYTES, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            // SAFETY: a new mapping that replaces nothing.
            let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
            assert_ne!(at, libc::MAP_FAILED);
            at as usize
        };
        let there = |address, bytes, advice| is_there(UserMemory { address, bytes }, advice);
        let (read, write) = (libc::MADV_POPULATE_READ, libc::MADV_POPULATE_WRITE);
        let (whole, constant) = (map(libc::PROT_READ | libc::PROT_WRITE), map(libc::PROT_READ));
        assert!(there(whole + 7, PAGES * PAGE_BYTES - 7, read) && there(whole, 1, write));
        assert!(there(constant, PAGE_BYTES, read) && !there(constant, PAGE_BYTES, write));
        // SAFETY: the last page of the mapping above.
        unsafe { libc::munmap((whole + (PAGES - 1) * PAGE_BYTES) as *mut _, PAGE_BYTES) };
        assert!(there(whole, (PAGES - 1) * PAGE_BYTES, write));
        assert!(!there(whole, (PAGES - 1) * PAGE_BYTES + 1, read));
        assert!(!there(PAGE_BYTES, PAGE_BYTES, read), "nothing is mapped there");
    }
}
