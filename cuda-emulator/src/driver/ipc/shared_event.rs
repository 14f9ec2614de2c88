// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An event that several processes record and wait for: counters in memory that all of them have mapped.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::exchange::{self, IpcHandle};
use crate::driver::result::{CUresult, CuResult};
use crate::memory::memory_file;

/// Bytes of an event's file.
const BYTES: u64 = 4096;
/// The minimum and maximum time between two checks of the counters. It grows from the first to the second.
const PAUSES: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(2));

/// The number of records that are distinguished. An older record counts as reached once a newer one in its slot is
/// reached.
const SLOTS: usize = 128;

/// The memory that the processes share. Any of them may write any value here. A value only affects how long a process
/// waits.
#[repr(C)]
struct Counters {
    /// The number of records of the event.
    recorded: AtomicU64,
    /// The records by number, in turn.
    slots: [Slot; SLOTS],
}

const _: () = assert!(size_of::<Counters>() as u64 <= BYTES);

/// The latest record in this slot. Records end in any order, because they are in different streams.
#[repr(C)]
struct Slot {
    /// The latest record here that was reached.
    reached: AtomicU64,
    /// The record ([`tag`]) and its process, once that is known, and the process's PID namespace.
    recorder: AtomicU64,
    namespace: AtomicU64,
}

/// The upper half of [`Slot::recorder`].
fn tag(record: u64) -> u64 {
    record << 32
}

/// # Invariants
/// `counters` is a shared mapping of [`BYTES`] bytes of a memory file that cannot shrink; it stays until this is dropped.
pub(in crate::driver) struct SharedEvent {
    file: Arc<File>,
    counters: *const Counters,
    /// This process's handle for it, once it has been requested.
    offered: Mutex<Option<IpcHandle>>,
}

// SAFETY: the counters are atomic, and the mapping belongs to no thread.
unsafe impl Send for SharedEvent {}
// SAFETY: threads share atomic counters and a lock; the mapping stays until the last of them drops the value.
unsafe impl Sync for SharedEvent {}

/// Identifies this process's PID namespace, or 0 if it is unknown.
fn namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |file| file.ino())
}

impl SharedEvent {
    pub(in crate::driver) fn new() -> CuResult<SharedEvent> {
        let file = memory_file(BYTES).map_err(|_| CUresult::CUDA_ERROR_OPERATING_SYSTEM)?;
        Self::map(file).map_err(|_| CUresult::CUDA_ERROR_OPERATING_SYSTEM)
    }

    /// cuIpcOpenEventHandle
    pub(super) fn open(handle: &IpcHandle) -> CuResult<SharedEvent> {
        if u64::from_ne_bytes(handle.bytes) != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        Self::map(handle.fetch()?).map_err(|_| CUresult::CUDA_ERROR_MAP_FAILED)
    }

    fn map(file: File) -> io::Result<SharedEvent> {
        // Another process's file is not trusted: its length must be final.
        // SAFETY: asks for the seals of a file that is open; anything but a memory file refuses.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 || file.metadata()?.len() != BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, at a place that nothing uses.
        let place = unsafe {
            let (length, file) = (BYTES as usize, file.as_raw_fd());
            libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_SHARED, file, 0)
        };
        if place == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(SharedEvent { file: Arc::new(file), counters: place.cast(), offered: Mutex::default() })
    }

    fn counters(&self) -> &Counters {
        // SAFETY: mapped, large enough and page-aligned (invariant); all fields are atomic, any value is one.
        unsafe { &*self.counters }
    }

    /// cuIpcGetEventHandle
    pub(super) fn handle(&self) -> CuResult<IpcHandle> {
        let mut offered = self.offered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = &*offered {
            return Ok(*handle);
        }
        let handle = exchange::offer(Arc::clone(&self.file), 0)?;
        *offered = Some(handle);
        Ok(handle)
    }

    fn slot(&self, record: u64) -> &Slot {
        &self.counters().slots[(record % SLOTS as u64) as usize]
    }

    /// Begins a record of the event. Returns the number for [`Self::reach`].
    pub(in crate::driver) fn record(&self) -> u64 {
        let record = self.counters().recorded.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        let slot = self.slot(record);
        slot.namespace.store(namespace(), Ordering::Relaxed);
        slot.recorder.store(tag(record) | u64::from(std::process::id()), Ordering::Release);
        record
    }

    /// Notes that the stream has reached a record.
    pub(in crate::driver) fn reach(&self, record: u64) {
        self.slot(record).reached.fetch_max(record, Ordering::AcqRel);
    }

    /// Returns the latest record, or 0.
    pub(in crate::driver) fn latest(&self) -> u64 {
        self.counters().recorded.load(Ordering::Acquire)
    }

    pub(in crate::driver) fn is_reached(&self, record: u64) -> bool {
        self.slot(record).reached.load(Ordering::Acquire) >= record || self.is_abandoned(record)
    }

    /// Returns whether the process of a record has ended, so that its work will never reach it.
    fn is_abandoned(&self, record: u64) -> bool {
        let slot = self.slot(record);
        // Another record's tag does not identify a process.
        let recorder = slot.recorder.load(Ordering::Acquire) ^ tag(record);
        let Ok(recorder) = i32::try_from(recorder) else { return false };
        if recorder <= 0 || slot.namespace.load(Ordering::Relaxed) != namespace() {
            return false;
        }
        // Nothing exists there for a process that has ended. A process that cannot be checked counts as alive.
        let process = std::fs::metadata(format!("/proc/{recorder}"));
        process.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// Waits for a record of any process.
    pub(in crate::driver) fn wait(&self, record: u64) {
        let (mut pause, longest) = PAUSES;
        while !self.is_reached(record) {
            thread::sleep(pause);
            pause = longest.min(pause * 2);
        }
    }
}

impl Drop for SharedEvent {
    fn drop(&mut self) {
        if let Some(handle) = *self.offered.get_mut().unwrap_or_else(PoisonError::into_inner) {
            exchange::withdraw(handle.token);
        }
        // SAFETY: the mapping is this value's own (invariant).
        unsafe { libc::munmap(self.counters.cast_mut().cast(), BYTES as usize) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_counted_and_files_are_checked() {
        let event = SharedEvent::new().unwrap();
        let other = SharedEvent::map(event.file.try_clone().unwrap()).unwrap();
        assert!(other.is_reached(other.latest()));
        let record = event.record();
        assert_eq!(other.latest(), record);
        assert!(!other.is_reached(record));
        event.reach(record);
        other.wait(record);
        assert!(SharedEvent::map(memory_file(8192).unwrap()).is_err());
        assert!(SharedEvent::map(File::open("/proc/self/exe").unwrap()).is_err());
    }

    #[test]
    fn a_record_is_not_reached_by_a_later_one() {
        let event = SharedEvent::new().unwrap();
        let (first, second) = (event.record(), event.record());
        event.reach(second);
        assert!(event.is_reached(second) && !event.is_reached(first));
        event.reach(first);
        assert!(event.is_reached(first));
        for _ in 0..SLOTS {
            event.record();
        }
        assert!(event.is_reached(first) && !event.is_reached(event.latest()));
    }

    #[test]
    fn who_ended_is_not_waited_for() {
        let event = SharedEvent::new().unwrap();
        let record = event.record();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let recorder = tag(record) | u64::from(child.id());
        event.slot(record).recorder.store(recorder, Ordering::Relaxed);
        event.wait(record);
        assert!(!event.is_reached(event.record()), "this process lives");
        event.wait(record);
    }
}
