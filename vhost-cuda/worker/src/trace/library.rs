// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host's CUPTI: NVIDIA's, or the emulator's.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use cuda_abi::{
    ACTIVITY_CONCURRENT_KERNEL, ACTIVITY_DRIVER, ACTIVITY_EXTERNAL_CORRELATION, ACTIVITY_MEMCPY,
    ACTIVITY_MEMCPY2, ACTIVITY_MEMSET, ACTIVITY_RUNTIME,
};
use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};
use log::{debug, info};
use parking_lot::Mutex;
use thiserror::Error;

use super::{Caller, store};

/// Returns its file names for the version of the driver, the best one first: CUPTI of CUDA 13 does not work with
/// drivers of CUDA 12.
pub fn names(driver_version: i32) -> [&'static str; 2] {
    let (newer, older) = ("libcupti.so.13", "libcupti.so.12");
    if driver_version >= 13_000 { [newer, older] } else { [older, newer] }
}

/// The folders of NVIDIA's packages that the dynamic linker may not know.
const USUAL_FOLDERS: [&str; 3] = [
    "/usr/local/cuda/lib64",
    "/usr/local/cuda/extras/CUPTI/lib64",
    "/usr/local/cuda/targets/x86_64-linux/lib",
];

/// The kinds that a profiler in the guest needs. External ids belong to calls of both APIs, because NVIDIA's libraries call the
/// runtime.
pub const WITH_CALLS: &[u32] = &[
    ACTIVITY_EXTERNAL_CORRELATION,
    ACTIVITY_DRIVER,
    ACTIVITY_RUNTIME,
    ACTIVITY_MEMCPY,
    ACTIVITY_MEMCPY2,
    ACTIVITY_MEMSET,
    ACTIVITY_CONCURRENT_KERNEL,
];
/// The kinds for work only.
pub const WORK: &[u32] = &[ACTIVITY_MEMCPY, ACTIVITY_MEMCPY2, ACTIVITY_MEMSET, ACTIVITY_CONCURRENT_KERNEL];

/// A buffer, and the maximum number that CUPTI has at a time.
const BUFFER: Layout = match Layout::from_size_align(1 << 20, 8) {
    Ok(layout) => layout,
    Err(_) => panic!("8 is a power of two"),
};
const MAX_BUFFERS: usize = 64;

/// A function of CUPTI has failed.
#[derive(Debug, Error)]
#[error("{function} of CUPTI failed with {code} (cupti_result.h)")]
pub struct CuptiError {
    function: &'static str,
    code: u32,
}

type Result<T> = std::result::Result<T, CuptiError>;

/// `CUpti_BuffersCallbackRequestFunc`
type Request = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// `CUpti_BuffersCallbackCompleteFunc`
type Complete = extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
/// `cuptiActivityGetNextRecord`
type Next = unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> u32;

/// Functions of CUPTI, which stays loaded.
#[derive(Debug)]
pub struct Cupti {
    register: unsafe extern "C" fn(Request, Complete) -> u32,
    enable: unsafe extern "C" fn(u32) -> u32,
    disable: unsafe extern "C" fn(u32) -> u32,
    flush_all: unsafe extern "C" fn(u32) -> u32,
    next: Next,
    timestamp: unsafe extern "C" fn(*mut u64) -> u32,
    push: unsafe extern "C" fn(u32, u64) -> u32,
    pop: unsafe extern "C" fn(u32, *mut u64) -> u32,
    dropped: unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> u32,
    /// Allows one thread to enable, disable or flush at a time.
    turn: Mutex<()>,
}

static NEXT: OnceLock<Next> = OnceLock::new();
static BUFFERS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn request(buffer: *mut *mut u8, bytes: *mut usize, records: *mut usize) {
    let mut start = null_mut();
    if BUFFERS.fetch_add(1, Ordering::Relaxed) < MAX_BUFFERS {
        // SAFETY: the layout is not empty.
        start = unsafe { alloc(BUFFER) };
    }
    if start.is_null() {
        // CUPTI then drops records, and counts them.
        BUFFERS.fetch_sub(1, Ordering::Relaxed);
    }
    // SAFETY: CUPTI passes places for three results.
    unsafe {
        *buffer = start;
        *bytes = if start.is_null() { 0 } else { BUFFER.size() };
        *records = 0;
    }
}

extern "C" fn complete(_context: *mut c_void, _stream: u32, buffer: *mut u8, _bytes: usize, valid: usize) {
    if buffer.is_null() {
        return;
    }
    if let Some(next) = NEXT.get() {
        let mut record = null_mut();
        // SAFETY: the buffer is one of `request`, of which the first `valid` bytes are CUPTI's records.
        while unsafe { next(buffer, valid, &raw mut record) } == 0 {
            let left = valid.saturating_sub(record.addr() - buffer.addr());
            // SAFETY: the record lies in the buffer, and so do the valid bytes behind it. CUPTI lets the text of a
            // kernel's name live until the process ends.
            unsafe { store::take(record, left) };
        }
    }
    // SAFETY: `request` allocated the buffer with this layout, and CUPTI gives it back once.
    unsafe { dealloc(buffer, BUFFER) };
    BUFFERS.fetch_sub(1, Ordering::Relaxed);
}

impl Cupti {
    /// Finds CUPTI in `folders`, where the dynamic linker searches, or in the usual folders.
    pub fn find(folders: &[PathBuf], names: [&str; 2]) -> Option<Self> {
        let usual = USUAL_FOLDERS.map(PathBuf::from);
        let found = Self::find_in(folders, names);
        let found = found.or_else(|| names.iter().find_map(|name| Self::open(Path::new(name))));
        found.or_else(|| Self::find_in(&usual, names))
    }

    /// Finds CUPTI in some folders.
    pub fn find_in(folders: &[PathBuf], names: [&str; 2]) -> Option<Self> {
        let files = names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
        files.filter(|path| path.is_file()).find_map(|path| Self::open(&path))
    }

    fn open(path: &Path) -> Option<Self> {
        // SAFETY: the library's constructors run here. Whoever runs the daemon chose the folders, or the system's owner did.
        let file = unsafe { Library::open(Some(path), RTLD_LAZY | RTLD_LOCAL) };
        let file = file.inspect_err(|error| debug!("{}: {error}", path.display())).ok()?;
        let cupti = Self::of(&file).inspect_err(|error| debug!("{}: {error}", path.display())).ok()?;
        // It has threads and calls `complete` until the process ends.
        std::mem::forget(file);
        info!("loaded {}", path.display());
        Some(cupti)
    }

    fn of(file: &Library) -> std::result::Result<Self, libloading::Error> {
        // SAFETY: CUPTI's functions have these signatures (cupti_activity.h, cupti_events.h).
        unsafe {
            Ok(Self {
                register: *file.get(b"cuptiActivityRegisterCallbacks\0")?,
                enable: *file.get(b"cuptiActivityEnable\0")?,
                disable: *file.get(b"cuptiActivityDisable\0")?,
                flush_all: *file.get(b"cuptiActivityFlushAll\0")?,
                next: *file.get(b"cuptiActivityGetNextRecord\0")?,
                timestamp: *file.get(b"cuptiGetTimestamp\0")?,
                push: *file.get(b"cuptiActivityPushExternalCorrelationId\0")?,
                pop: *file.get(b"cuptiActivityPopExternalCorrelationId\0")?,
                dropped: *file.get(b"cuptiActivityGetNumDroppedRecords\0")?,
                turn: Mutex::new(()),
            })
        }
    }

    /// Measures the kinds in `wanted`, after those in `before`.
    ///
    /// Errors: those of CUPTI; then it measures what it did before.
    pub fn measure(&self, before: &[u32], wanted: &[u32]) -> Result<()> {
        if before.len() > wanted.len() {
            self.flush();
        }
        let _turn = self.turn.lock();
        let _ = NEXT.set(self.next);
        if before.is_empty() {
            // SAFETY: both functions keep CUPTI's contract.
            check("cuptiActivityRegisterCallbacks", unsafe { (self.register)(request, complete) })?;
        }
        for kind in wanted.iter().filter(|kind| !before.contains(kind)) {
            // SAFETY: a plain call.
            if let Err(error) = check("cuptiActivityEnable", unsafe { (self.enable)(*kind) }) {
                self.disable_all(wanted, before);
                return Err(error);
            }
        }
        self.disable_all(before, wanted);
        Ok(())
    }

    fn disable_all(&self, kinds: &[u32], except: &[u32]) {
        for kind in kinds.iter().filter(|kind| !except.contains(kind)) {
            // SAFETY: a plain call; what is not enabled is not disabled.
            unsafe { (self.disable)(*kind) };
        }
    }

    /// Makes CUPTI deliver the records of all completed work.
    pub fn flush(&self) {
        let _turn = self.turn.lock();
        // SAFETY: a plain call; CUPTI calls `complete`, in this thread or another one.
        let flushed = unsafe { (self.flush_all)(0) };
        let mut dropped = 0;
        // SAFETY: `dropped` is a local; a null context means all.
        if unsafe { (self.dropped)(null_mut(), 0, &raw mut dropped) } == 0 {
            store::count_dropped(dropped as u64);
        }
        if let Err(error) = check("cuptiActivityFlushAll", flushed) {
            debug!("{error}");
        }
    }

    /// Returns the time of CUPTI's clock.
    ///
    /// Errors: those of CUPTI.
    pub fn clock(&self) -> Result<u64> {
        let mut time = 0;
        // SAFETY: `time` is a local.
        check("cuptiGetTimestamp", unsafe { (self.timestamp)(&raw mut time) })?;
        Ok(time)
    }

    /// Sets an external id for the following calls of this thread. Returns whether CUPTI has accepted it.
    pub fn push(&self, caller: Caller, number: u32) -> bool {
        // SAFETY: a plain call.
        unsafe { (self.push)(caller as u32, number.into()) == 0 }
    }

    /// Removes the last id of that kind.
    pub fn pop(&self, caller: Caller) {
        let mut last = 0;
        // SAFETY: `last` is a local.
        unsafe { (self.pop)(caller as u32, &raw mut last) };
    }
}

fn check(function: &'static str, code: u32) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(CuptiError { function, code }) }
}

/// A CUPTI that measures nothing.
#[cfg(test)]
pub mod fake {
    use super::*;

    /// The number of kinds that are enabled.
    pub static ENABLED: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn register(_: Request, _: Complete) -> u32 {
        0
    }
    extern "C" fn enable(_: u32) -> u32 {
        ENABLED.fetch_add(1, Ordering::Relaxed);
        0
    }
    extern "C" fn disable(_: u32) -> u32 {
        ENABLED.fetch_sub(1, Ordering::Relaxed);
        0
    }
    extern "C" fn flush_all(_: u32) -> u32 {
        0
    }
    extern "C" fn next(_: *mut u8, _: usize, _: *mut *mut u8) -> u32 {
        1
    }
    extern "C" fn timestamp(_: *mut u64) -> u32 {
        0
    }
    extern "C" fn push(_: u32, _: u64) -> u32 {
        0
    }
    extern "C" fn pop(_: u32, _: *mut u64) -> u32 {
        0
    }
    extern "C" fn dropped(_: *mut c_void, _: u32, _: *mut usize) -> u32 {
        0
    }

    /// Returns it.
    pub fn cupti() -> Cupti {
        let turn = Mutex::new(());
        Cupti { register, enable, disable, flush_all, next, timestamp, push, pop, dropped, turn }
    }
}
