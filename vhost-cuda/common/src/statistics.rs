// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The counters of a worker, in memory that the worker writes and the daemon reads.
//!
//! Most calls reach a worker through lanes, which the daemon does not see. So the worker counts them. Each of its
//! threads writes its own counters: an increment needs no lock and no exclusive access to a cache line. The daemon
//! sums them up on request. A compromised worker can report wrong values for its own session only.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{SealFlags, fcntl_get_seals};
use serde::{Deserialize, Serialize};

use crate::files;

/// The maximum number of threads of a worker that have their own counters at a time; the others are not counted. A
/// session may have as many threads that use CUDA.
const THREADS: usize = 1024;

/// A gate at which calls wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Gate {
    /// The session's memory moves, or is in host memory.
    Suspended,
    /// It is another machine's turn.
    Turn,
}

/// The number of gates.
const GATES: usize = 2;

/// Counters of one thread, on a cache line of their own.
#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Thread {
    calls: AtomicU64,
    failed: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    queued: AtomicU64,
    queued_ns: AtomicU64,
    lane_samples: AtomicU64,
    lane_ns: AtomicU64,
}
const _: () = assert!(size_of::<Thread>() == 64);

/// The layout of the shared memory. All zeros are valid.
#[derive(Debug)]
#[repr(C)]
struct Page {
    /// Device memory that the session is charged for, in bytes.
    device_memory: AtomicU64,
    /// See [`Totals::gate_ns`]. All threads write it, because waits are rare.
    gate_ns: [AtomicU64; GATES],
    /// The devices on which it has allocated memory that may move, a bit for each number of a device.
    movable_devices: AtomicU64,
    /// Host memory that is ready for contents, in bytes.
    ready_memory: AtomicU64,
    threads: [Thread; THREADS],
}

/// Sums of a session's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Calls that were executed, failed ones included.
    pub calls: u64,
    /// Calls that returned an error other than `CUDA_ERROR_NOT_READY`.
    pub failed: u64,
    /// Bytes of bulk data that calls read from the guest.
    pub bytes_in: u64,
    /// Bytes of bulk data that calls wrote to the guest.
    pub bytes_out: u64,
    /// Requests that came through a request queue.
    pub queued: u64,
    /// The time that these requests have waited in the worker for the thread that executes them, in nanoseconds.
    pub queued_ns: u64,
    /// Records of lanes of which the wait was measured.
    pub lane_samples: u64,
    /// The time that these have waited in their lane, in nanoseconds.
    pub lane_ns: u64,
    /// The time that calls have waited at each [`Gate`], in nanoseconds.
    pub gate_ns: [u64; GATES],
    /// The time in which GPUs executed its kernels, in nanoseconds. `None` if it is not measured.
    pub gpu_busy_ns: Option<u64>,
    /// The device memory that is currently charged, in bytes.
    pub device_memory: u64,
}

impl Totals {
    /// Adds the sums of a session that has ended and no longer holds device memory.
    pub fn plus_ended(self, other: Self) -> Self {
        Self {
            calls: self.calls.saturating_add(other.calls),
            failed: self.failed.saturating_add(other.failed),
            bytes_in: self.bytes_in.saturating_add(other.bytes_in),
            bytes_out: self.bytes_out.saturating_add(other.bytes_out),
            queued: self.queued.saturating_add(other.queued),
            queued_ns: self.queued_ns.saturating_add(other.queued_ns),
            lane_samples: self.lane_samples.saturating_add(other.lane_samples),
            lane_ns: self.lane_ns.saturating_add(other.lane_ns),
            gate_ns: std::array::from_fn(|gate| self.gate_ns[gate].saturating_add(other.gate_ns[gate])),
            gpu_busy_ns: [self.gpu_busy_ns, other.gpu_busy_ns]
                .into_iter()
                .flatten()
                .reduce(u64::saturating_add),
            device_memory: self.device_memory,
        }
    }
}

/// A mapping of a worker's counters.
///
/// # Invariants
///
/// `page` is a shared mapping, for as long as the value lives, of a file of that size that can neither shrink nor grow.
#[derive(Debug)]
pub struct Statistics {
    page: *const Page,
}

// SAFETY: all fields of the page are atomic, and it stays mapped for as long as the value lives.
unsafe impl Send for Statistics {}
// SAFETY: all fields of the page are atomic, so several threads may use them at once.
unsafe impl Sync for Statistics {}

impl Statistics {
    /// Returns counters at zero, and their file for the worker.
    pub fn create() -> io::Result<(Self, File)> {
        let file = files::memory_file(c"cuda-statistics")?;
        file.set_len(size_of::<Page>() as u64)?;
        files::add_seals(&file, files::FIXED_LENGTH)?;
        Ok((Self::map(&file, libc::PROT_READ)?, file))
    }

    /// Maps the counters of a worker of the program before this one.
    ///
    /// Errors: the file has another size, or could be shortened, which would end this process on a read.
    pub fn read(file: &File) -> io::Result<Self> {
        if !fcntl_get_seals(file)?.contains(SealFlags::SHRINK) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "statistics that are not sealed"));
        }
        Self::map(file, libc::PROT_READ)
    }

    fn map(file: &File, protection: i32) -> io::Result<Self> {
        if file.metadata()?.len() != size_of::<Page>() as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "statistics of another size"));
        }
        // SAFETY: a new mapping of a file of that length. `create` has sealed the length.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<Page>(),
                protection,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { page: page.cast_const().cast() })
    }

    fn page(&self) -> &Page {
        // SAFETY: by the invariant. Every bit pattern is a valid page, and other processes write its atomics only.
        unsafe { &*self.page }
    }

    fn sum(&self, counter: fn(&Thread) -> &AtomicU64) -> u64 {
        let values = self.page().threads.iter().map(|thread| counter(thread).load(Ordering::Relaxed));
        values.fold(0, u64::saturating_add)
    }

    /// The calls that were executed ([`Totals::calls`]): 1,024 cache lines are read, in about ten microseconds.
    pub fn calls(&self) -> u64 {
        self.sum(|thread| &thread.calls)
    }

    /// The device memory that is currently charged, in bytes.
    pub fn device_memory(&self) -> u64 {
        self.page().device_memory.load(Ordering::Relaxed)
    }

    /// The devices on which the session has allocated memory that may move, a bit for each number of a device in the worker. It may
    /// have freed it since.
    pub fn movable_devices(&self) -> u64 {
        self.page().movable_devices.load(Ordering::Relaxed)
    }

    /// The host memory that is ready for contents of a suspended session, in bytes.
    pub fn ready_memory(&self) -> u64 {
        self.page().ready_memory.load(Ordering::Relaxed)
    }

    /// Returns the counters of a worker that is charged for `bytes` of memory of its first device, for tests of their readers.
    ///
    /// Errors: there is no memory for them.
    pub fn charged(bytes: u64) -> io::Result<(Self, File)> {
        let (statistics, file) = Self::create()?;
        let writing = Writing::to(&file)?;
        writing.statistics.page().device_memory.store(bytes, Ordering::Relaxed);
        writing.statistics.page().movable_devices.store(1, Ordering::Relaxed);
        Ok((statistics, file))
    }

    /// Returns the present sums.
    pub fn totals(&self) -> Totals {
        Totals {
            calls: self.calls(),
            failed: self.sum(|thread| &thread.failed),
            bytes_in: self.sum(|thread| &thread.bytes_in),
            bytes_out: self.sum(|thread| &thread.bytes_out),
            queued: self.sum(|thread| &thread.queued),
            queued_ns: self.sum(|thread| &thread.queued_ns),
            lane_samples: self.sum(|thread| &thread.lane_samples),
            lane_ns: self.sum(|thread| &thread.lane_ns),
            gate_ns: self.page().gate_ns.each_ref().map(|gate| gate.load(Ordering::Relaxed)),
            gpu_busy_ns: None,
            device_memory: self.device_memory(),
        }
    }
}

impl Drop for Statistics {
    fn drop(&mut self) {
        // SAFETY: the mapping is the value's own; references to it do not outlive the value.
        unsafe { libc::munmap(self.page.cast_mut().cast(), size_of::<Page>()) };
    }
}

/// The counters of this process, if it is a worker.
static OWN: OnceLock<Arc<Writing>> = OnceLock::new();

/// A worker's side.
#[derive(Debug)]
struct Writing {
    statistics: Statistics,
    /// Indices of threads without an owner. An index keeps its sums when its owner ends.
    free: Mutex<Vec<usize>>,
}

impl Writing {
    fn to(file: &File) -> io::Result<Arc<Self>> {
        let statistics = Statistics::map(file, libc::PROT_READ | libc::PROT_WRITE)?;
        Ok(Arc::new(Self { statistics, free: Mutex::new((0..THREADS).rev().collect()) }))
    }
}

/// Writes this process's counters into the file that the daemon has created.
pub fn write_to(file: &File) -> io::Result<()> {
    let _ = OWN.set(Writing::to(file)?);
    Ok(())
}

/// Publishes the device memory that the session is charged for, in bytes.
pub fn set_device_memory(bytes: u64) {
    if let Some(own) = OWN.get() {
        own.statistics.page().device_memory.store(bytes, Ordering::Relaxed);
    }
}

/// Publishes that the session has allocated memory that may move on these devices, a bit for each.
pub fn add_movable_devices(bits: u64) {
    if let Some(own) = OWN.get() {
        own.statistics.page().movable_devices.fetch_or(bits, Ordering::Relaxed);
    }
}

/// Publishes the host memory that is ready for contents, in bytes.
pub fn set_ready_memory(bytes: u64) {
    if let Some(own) = OWN.get() {
        own.statistics.page().ready_memory.store(bytes, Ordering::Relaxed);
    }
}

/// Counts the time for which a call has waited at a gate, in nanoseconds.
#[cold]
pub fn count_gate(gate: Gate, ns: u64) {
    if let Some(own) = OWN.get() {
        own.statistics.page().gate_ns[gate as usize].fetch_add(ns, Ordering::Relaxed);
    }
}

/// The counters of one thread of the worker. Without [`write_to`] nothing is counted.
#[derive(Debug)]
pub struct Counter {
    place: Option<(Arc<Writing>, usize)>,
}

impl Default for Counter {
    fn default() -> Self {
        OWN.get().map_or(Self { place: None }, Self::of)
    }
}

impl Counter {
    fn of(own: &Arc<Writing>) -> Self {
        let index = own.free.lock().pop();
        Self { place: index.map(|index| (own.clone(), index)) }
    }

    /// Counts one call.
    pub fn count(&mut self, failed: bool, bytes_in: u64, bytes_out: u64) {
        let Some((own, index)) = &self.place else { return };
        let thread = &own.statistics.page().threads[*index];
        add(&thread.calls, 1);
        add(&thread.failed, u64::from(failed));
        add(&thread.bytes_in, bytes_in);
        add(&thread.bytes_out, bytes_out);
    }

    /// Counts a record of a lane that has waited for `ns` nanoseconds.
    #[cold]
    pub fn count_in_lane(&mut self, ns: u64) {
        let Some((own, index)) = &self.place else { return };
        let thread = &own.statistics.page().threads[*index];
        add(&thread.lane_samples, 1);
        add(&thread.lane_ns, ns);
    }

    /// Counts one request of a queue that has waited for `waited`.
    pub fn count_queued(&mut self, waited: Duration) {
        let Some((own, index)) = &self.place else { return };
        let thread = &own.statistics.page().threads[*index];
        add(&thread.queued, 1);
        add(&thread.queued_ns, waited.as_nanos() as u64);
    }
}

/// Adds to a counter that only the calling thread writes.
fn add(counter: &AtomicU64, value: u64) {
    if value > 0 {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        if let Some((own, index)) = self.place.take() {
            own.free.lock().push(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemon_reads_what_threads_of_a_worker_count() {
        let (statistics, file) = Statistics::create().unwrap();
        assert_eq!(statistics.totals(), Totals::default());
        let worker = Writing::to(&file).unwrap();
        let mut one = Counter::of(&worker);
        one.count(false, 10, 0);
        drop(one);
        let (mut same, mut other) = (Counter::of(&worker), Counter::of(&worker));
        same.count(true, 0, 5);
        other.count(false, 1, 1);
        worker.statistics.page().device_memory.store(1 << 20, Ordering::Relaxed);
        other.count_queued(Duration::from_nanos(7));
        other.count_in_lane(3);
        same.count_in_lane(4);
        worker.statistics.page().gate_ns[Gate::Turn as usize].store(9, Ordering::Relaxed);
        let expected = Totals {
            calls: 3,
            failed: 1,
            bytes_in: 11,
            bytes_out: 6,
            queued: 1,
            queued_ns: 7,
            lane_samples: 2,
            lane_ns: 7,
            gate_ns: [0, 9],
            gpu_busy_ns: None,
            device_memory: 1 << 20,
        };
        assert_eq!(statistics.totals(), expected);
    }

    #[test]
    fn a_file_of_another_size_is_refused() {
        let file = files::memory_file(c"small").unwrap();
        assert!(Writing::to(&file).is_err());
    }
}
