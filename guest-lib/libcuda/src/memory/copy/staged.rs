// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Copies of pageable memory through pinned memory of this process. Its processors move the bytes between the two, as
//! NVIDIA's driver does, and the GPU moves them between pinned and device memory. For a buffer that is new to the
//! device this is faster than having the worker read the pages directly, because the worker has to find and map them first. Emulated
//! processors, and too few of them, copy more slowly than that ([`threads`]).

use std::arch::x86_64::__cpuid;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use cuda_environment::speed;
use virtio_cuda_client::{CudaError, calls};
use virtio_cuda_ring::streaming;

use crate::entry::Api;
use crate::memory::copy::division::{Division, PAGE_BYTES};
use crate::memory::copy::pieces::HELPERS;
use crate::memory::copy::pipeline::{Backoff, Pipeline};
use crate::memory::copy::plan::LinearCopy;
use crate::memory::copy::staging::Piece;
use crate::memory::copy::transfer::Transfer;
use crate::state::memory::staging::{Queue, Size, Staging};

/// The number of threads that move the bytes of a copy, at most [`MAX_THREADS`]; 0 turns these copies off.
const VARIABLE: &str = "VIRTIO_CUDA_STAGING";
/// The longest copies use the longest staging buffers, except the first ones of a process. Creating such a buffer takes
/// as long as several copies.
const COPIES_BEFORE_LONG: u32 = 2;
/// Maximum number of threads of a copy. They move bytes. With spare cores, the calling thread mainly starts the GPU's
/// copies. More threads than usual slow down copies from the device if there are few slots.
const MAX_THREADS: usize = 8;
const USUAL_THREADS: usize = 4;
/// Minimum numbers of cores for one additional thread, and for two.
const MANY_CORES: [usize; 2] = [8, 12];
/// Maximum number of pieces that the GPU copies at once. Copies from the device always use it, others if as many are
/// ready.
const MAX_SENT_TOGETHER: usize = 4;
const FETCHED_TOGETHER: usize = 2;
const FETCHED_TOGETHER_LONG: usize = 4;

/// A copy, divided into pieces.
struct StagedCopy<'a> {
    copy: &'a LinearCopy,
    transfer: Transfer,
    division: Division,
}

/// Returns the maximum number of threads of a copy, and the maximum for one from the device with few slots.
pub fn threads() -> [usize; 2] {
    static THREADS: OnceLock<[usize; 2]> = OnceLock::new();
    *THREADS.get_or_init(|| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let wanted: Option<usize> = std::env::var(VARIABLE).ok().and_then(|value| value.parse().ok());
        let more = MANY_CORES.iter().filter(|&&many| cores >= many).count();
        let pays = speed::is_on() && !is_emulated();
        let usual = if pays { [USUAL_THREADS + more, USUAL_THREADS] } else { [0; 2] };
        usual.map(|usual| wanted.unwrap_or(cores.min(usual)).min(MAX_THREADS))
    })
}

/// Returns whether QEMU emulates the processor, which then has QEMU's name for that among its features.
fn is_emulated() -> bool {
    const HYPERVISOR: u32 = 1 << 31;
    const NAME: u32 = 0x4000_0000;
    let name = || {
        let leaf = __cpuid(NAME);
        [leaf.ebx, leaf.ecx, leaf.edx].map(u32::to_le_bytes).concat()
    };
    __cpuid(1).ecx & HYPERVISOR != 0 && name() == b"TCGTCGTCGTCG"
}

/// Returns whether the first and the last page of the program's buffer are mapped for the transfer's reads or writes.
/// For an invalid address the device returns an error, whereas an access here would end the process.
pub fn is_mapped(transfer: Transfer) -> bool {
    static CAN_TELL: OnceLock<bool> = OnceLock::new();
    let advice = if transfer.is_to_device() { libc::MADV_POPULATE_READ } else { libc::MADV_POPULATE_WRITE };
    let populate = |address: usize, advice| {
        let page = address / PAGE_BYTES * PAGE_BYTES;
        // SAFETY: this makes a page present, as touching it would, or fails.
        unsafe { libc::madvise(page as *mut libc::c_void, PAGE_BYTES, advice) == 0 }
    };
    // A kernel before 5.14 does not support the advice, even for a valid address.
    let can_tell = *CAN_TELL.get_or_init(|| populate(&raw const CAN_TELL as usize, libc::MADV_POPULATE_READ));
    let host = transfer.host();
    let ends = [host.address, host.address + (host.bytes - 1)];
    !can_tell || ends.into_iter().all(|address| populate(address, advice))
}

impl StagedCopy<'_> {
    /// Takes a staging buffer of the planned size, or a smaller one if all of that size are in use.
    fn take(&mut self, api: Api) -> Option<Staging> {
        static EARLY: AtomicU32 = AtomicU32::new(0);
        let (stagings, queue) = (&api.driver.memory.stagings, Queue::new(self.copy.stream));
        if self.division.size == Size::Long {
            let early = EARLY.load(Ordering::Relaxed) < COPIES_BEFORE_LONG;
            let taken = if early { None } else { stagings.take(api, self.division.size, queue) };
            if taken.is_some() {
                return taken;
            }
            EARLY.fetch_add(u32::from(early), Ordering::Relaxed);
            self.division.size = Size::Large;
            if !self.transfer.is_to_device() {
                self.division.threads = threads()[1];
            }
        }
        stagings.take(api, self.division.size, queue)
    }

    fn count(&self) -> usize {
        self.copy.bytes.div_ceil(self.division.piece_bytes)
    }

    /// Returns the offset and length of a piece.
    fn piece(&self, number: usize) -> (usize, usize) {
        let offset = number * self.division.piece_bytes;
        (offset, self.division.piece_bytes.min(self.copy.bytes - offset))
    }

    /// Copies a piece between the program's memory and its slot at `slot`.
    fn move_piece(&self, number: usize, slot: *mut u8) {
        let (offset, bytes) = self.piece(number);
        // SAFETY: the program promises that the buffer is its memory, of that length. The slot is pinned memory of this
        // library, at least a piece long; only the thread that has taken the piece touches it until it is finished.
        unsafe {
            match self.transfer.piece(offset, bytes) {
                Transfer::ToDevice { src, .. } => streaming::copy(src.address as *const u8, slot, bytes),
                Transfer::FromDevice { dst, .. } if self.division.size != Size::Small => {
                    streaming::copy(slot.cast_const(), dst.address as *mut u8, bytes);
                }
                // The program will soon read it.
                Transfer::FromDevice { dst, .. } => {
                    std::ptr::copy_nonoverlapping(slot.cast_const(), dst.address as *mut u8, bytes);
                }
            }
        }
        streaming::fence();
    }

    /// Starts the GPU's copy of the first adjacent pieces. Returns the number of pieces. Few long copies take the GPU
    /// less time than many short ones.
    fn start(&self, api: Api, staging: &mut Staging, pieces: Range<usize>) -> Result<usize, CudaError> {
        let slot = pieces.start % self.division.size.slots();
        let together = if self.division.piece_bytes == self.division.size.slot_bytes() {
            self.division.size.slots() - slot
        } else {
            1
        };
        let count = pieces.len().min(together);
        let (offset, _) = self.piece(pieces.start);
        let bytes = (count * self.division.piece_bytes).min(self.copy.bytes - offset);
        let (dst, src) = self.transfer.piece(offset, bytes).on_gpu(staging.device(slot));
        let last = pieces.start + count == self.count();
        staging.start(
            api,
            slot..slot + count,
            last,
            Piece { dst, src, bytes },
            Queue::new(self.copy.stream),
        )?;
        Ok(count)
    }

    /// Copies to the device; runs in the calling thread. Returns when the copies of all pieces were started.
    fn send(&self, api: Api, staging: &mut Staging, pipeline: &Pipeline<'_>) -> Result<(), CudaError> {
        let (mut opened, mut started) = (0, 0);
        let mut backoff = Backoff::default();
        while started < pipeline.count() {
            let most = opened.min(started + MAX_SENT_TOGETHER);
            let ready = (started..most).take_while(|&number| pipeline.is_finished(number)).count();
            if ready > 0 {
                started += self.start(api, staging, started..started + ready)?;
                backoff = Backoff::default();
                continue;
            }
            while opened < pipeline.count().min(started + pipeline.slots()) {
                let slot = opened % pipeline.slots();
                if staging.is_pending(slot) {
                    if pipeline.waiting() >= self.division.threads || !staging.can_settle(slot) {
                        break;
                    }
                    staging.settle(api, slot)?;
                }
                opened += 1;
                pipeline.open(opened);
            }
            if !pipeline.help_once() {
                backoff.pass();
            }
        }
        Ok(())
    }

    /// Copies from the device; runs in the calling thread. Returns when the program has all bytes.
    fn fetch(&self, api: Api, staging: &mut Staging, pipeline: &Pipeline<'_>) -> Result<(), CudaError> {
        let (mut started, mut arrived, mut finished) = (0, 0, 0);
        let mut backoff = Backoff::default();
        let many = if self.division.size == Size::Long { FETCHED_TOGETHER_LONG } else { FETCHED_TOGETHER };
        // With enough threads, this one starts the next pieces, and helps only with arrived pieces that no thread
        // takes.
        let helps = |arrived, pipeline: &Pipeline<'_>| {
            self.division.threads <= USUAL_THREADS
                || arrived == pipeline.count()
                || pipeline.waiting() >= self.division.threads
        };
        while finished < pipeline.count() {
            if pipeline.is_finished(finished) {
                finished += 1;
                backoff = Backoff::default();
                continue;
            }
            loop {
                let together = pipeline.count().min(started + many);
                if started == together || together > finished + pipeline.slots() {
                    break;
                }
                // The GPU's copy of an earlier use of the slot.
                staging.settle(api, started % pipeline.slots())?;
                started += self.start(api, staging, started..together)?;
            }
            let slot = arrived % pipeline.slots();
            if arrived < started && pipeline.waiting() < self.division.threads && staging.can_settle(slot) {
                staging.settle(api, slot)?;
                arrived += 1;
                pipeline.open(arrived);
            } else if !(helps(arrived, pipeline) && pipeline.help_once()) {
                backoff.pass();
            }
        }
        Ok(())
    }

    fn run(&self, api: Api, staging: &mut Staging) -> Result<(), CudaError> {
        let (first_slot, slots) = (staging.host(0) as usize, self.division.size.slots());
        let slot_bytes = self.division.size.slot_bytes();
        let work = |number: usize| {
            self.move_piece(number, (first_slot + number % slots * slot_bytes) as *mut u8);
        };
        if self.count() == 1 && !self.transfer.is_to_device() {
            staging.settle(api, 0)?;
            let (dst, src) = self.transfer.on_gpu(staging.device(0));
            calls::memcpy_wait(&mut api.in_context()?, dst, src, self.copy.bytes as u64, self.copy.stream)?;
            work(0);
            return Ok(());
        }
        let pipeline = Pipeline::new(self.count(), slots, &work);
        let helpers = self.division.threads.min(self.count()) - 1;
        HELPERS.run_beside(helpers, &|| pipeline.help(), || {
            let outcome = if self.transfer.is_to_device() {
                self.send(api, staging, &pipeline)
            } else {
                self.fetch(api, staging, &pipeline)
            };
            pipeline.end();
            outcome
        })?;
        if self.transfer.is_to_device() && self.copy.waits {
            staging.settle(api, (self.count() - 1) % slots)?;
        }
        Ok(())
    }
}

/// Copies through a staging buffer. Returns false without an effect if there is none.
pub fn run(api: Api, copy: &LinearCopy, transfer: Transfer, division: Division) -> Result<bool, CudaError> {
    let mut staged = StagedCopy { copy, transfer, division };
    let Some(mut staging) = staged.take(api) else {
        return Ok(false);
    };
    let memory = &api.driver.memory;
    // The GPU may reach the source, too: queued work may change it before the copy.
    let outcome = if copy.waits && transfer.is_to_device() && memory.shows_work() {
        api.wait_for_stream(copy.stream)
    } else {
        Ok(())
    };
    match outcome.and_then(|()| staged.run(api, &mut staging)) {
        Ok(()) => {
            memory.stagings.give_back(staging);
            Ok(true)
        }
        Err(error) => {
            memory.stagings.give_up(api, staging);
            Err(error)
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
        let read = |src, bytes| is_mapped(Transfer::to_device(1, src as u64, bytes));
        let written = |dst, bytes| is_mapped(Transfer::from_device(dst as u64, 1, bytes));
        let (whole, constant) = (map(libc::PROT_READ | libc::PROT_WRITE), map(libc::PROT_READ));
        assert!(read(whole + 7, PAGES * PAGE_BYTES - 7) && written(whole, 1));
        assert!(read(constant, PAGE_BYTES) && !written(constant, PAGE_BYTES));
        // SAFETY: the last page of the mapping above.
        unsafe { libc::munmap((whole + (PAGES - 1) * PAGE_BYTES) as *mut _, PAGE_BYTES) };
        assert!(written(whole, (PAGES - 1) * PAGE_BYTES));
        assert!(!read(whole, (PAGES - 1) * PAGE_BYTES + 1));
        assert!(!read(PAGE_BYTES, PAGE_BYTES), "nothing is mapped there");
    }
}
