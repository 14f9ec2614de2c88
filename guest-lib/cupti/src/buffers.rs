// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Delivery of records: the program provides buffers, gets them back filled, and iterates over the records.

use std::ffi::c_void;
use std::mem::{align_of, size_of};
use std::ptr::{null_mut, read_unaligned};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use cuda_abi::{
    ACTIVITY_CONCURRENT_KERNEL, ACTIVITY_DRIVER, ACTIVITY_EXTERNAL_CORRELATION, ACTIVITY_KERNEL,
    ACTIVITY_MEMCPY, ACTIVITY_MEMCPY2, ACTIVITY_MEMSET, ACTIVITY_RUNTIME, CUpti_ActivityAPI,
    CUpti_ActivityExternalCorrelation, CUpti_ActivityKernel, CUpti_ActivityMemcpy, CUpti_ActivityMemcpyPtoP,
    CUpti_ActivityMemset,
};

use crate::queue::{self, Record};
use crate::result::{CUptiResult, INVALID_KIND, INVALID_PARAMETER, MAX_LIMIT_REACHED, Result, enter, set};
use crate::{quiet, work};

/// `CUpti_BuffersCallbackRequestFunc`
type Request = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// `CUpti_BuffersCallbackCompleteFunc`
type Complete = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

static CALLBACKS: Mutex<Option<(Request, Complete)>> = Mutex::new(None);
/// The buffer that gets the next records. The lock ensures that one thread delivers at a time.
static DELIVERY: Mutex<Option<Buffer>> = Mutex::new(None);
/// Returns whether there is a buffer.
static HAS_BUFFER: AtomicBool = AtomicBool::new(false);

/// `ACTIVITY_RECORD_ALIGNMENT` of cupti_activity.h
const ALIGNMENT: usize = 8;
const _: () = assert!(align_of::<CUpti_ActivityKernel>() == ALIGNMENT);

fn callbacks() -> Option<(Request, Complete)> {
    *CALLBACKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes per record of a kind.
fn bytes_of(kind: u32) -> Option<usize> {
    Some(match kind {
        ACTIVITY_DRIVER | ACTIVITY_RUNTIME => size_of::<CUpti_ActivityAPI>(),
        ACTIVITY_EXTERNAL_CORRELATION => size_of::<CUpti_ActivityExternalCorrelation>(),
        ACTIVITY_KERNEL | ACTIVITY_CONCURRENT_KERNEL => size_of::<CUpti_ActivityKernel>(),
        ACTIVITY_MEMCPY => size_of::<CUpti_ActivityMemcpy>(),
        ACTIVITY_MEMCPY2 => size_of::<CUpti_ActivityMemcpyPtoP>(),
        ACTIVITY_MEMSET => size_of::<CUpti_ActivityMemset>(),
        _ => return None,
    })
}

/// A partly filled buffer of the program.
///
/// # Invariants
///
/// `start` is aligned and has `bytes` writable bytes, of which the first `used` are records.
struct Buffer {
    start: *mut u8,
    bytes: usize,
    used: usize,
    /// Number of records that still fit; `None` if the program set no limit.
    left: Option<usize>,
}

// SAFETY: the program hands its buffer over to CUPTI, which may fill it and give it back in any thread.
unsafe impl Send for Buffer {}

impl Buffer {
    /// Requests a buffer from the program. `None`: it provides none.
    fn request(request: Request) -> Option<Self> {
        let (mut start, mut bytes, mut records) = (null_mut(), 0, 0);
        // SAFETY: a function of the program with these parameters, which are locals.
        unsafe { request(&raw mut start, &raw mut bytes, &raw mut records) };
        if start.is_null() || !start.addr().is_multiple_of(ALIGNMENT) {
            return None;
        }
        Some(Self { start, bytes, used: 0, left: (records > 0).then_some(records) })
    }

    /// Appends a record. Returns false if there is no room.
    fn append(&mut self, record: &Record) -> bool {
        match record {
            Record::Api(record) => self.put(record),
            Record::External(record) => self.put(record),
            Record::Kernel(record) => self.put(record),
            Record::Memcpy(record) => self.put(record),
            Record::PeerMemcpy(record) => self.put(record),
            Record::Memset(record) => self.put(record),
        }
    }

    fn put<T: Copy>(&mut self, record: &T) -> bool {
        if self.left == Some(0) || self.bytes - self.used < size_of::<T>() {
            return false;
        }
        // SAFETY: `used` is inside of the buffer, with room for a `T` after it; all sizes of records are multiples of
        // the alignment.
        unsafe { self.start.add(self.used).cast::<T>().write(*record) };
        self.used += size_of::<T>();
        self.left = self.left.map(|left| left - 1);
        true
    }

    fn complete(self, complete: Complete) {
        // SAFETY: a function of the program with these parameters, which gets its own buffer back.
        unsafe { complete(null_mut(), 0, self.start, self.bytes, self.used) };
    }
}

/// Fetches the work of GPUs, and delivers all records to the program. Does nothing within its callbacks.
pub fn deliver() {
    quiet::quietly(|| deliver_into(&mut DELIVERY.lock().unwrap_or_else(PoisonError::into_inner)));
}

/// Returns the buffer, unless another thread uses it. A call of the program must not wait for the program's callback in
/// another thread.
fn without_waiting() -> Option<MutexGuard<'static, Option<Buffer>>> {
    match DELIVERY.try_lock() {
        Ok(buffer) => Some(buffer),
        Err(TryLockError::Poisoned(buffer)) => Some(buffer.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Requests a buffer from the program as soon as there is something to record: some programs (PyTorch) flush only if
/// they have provided one.
pub fn prepare() {
    if HAS_BUFFER.load(Ordering::Relaxed) {
        return;
    }
    let Some((request, _)) = callbacks() else { return };
    quiet::quietly(|| {
        let Some(mut buffer) = without_waiting() else { return };
        if buffer.is_none() {
            *buffer = Buffer::request(request);
            HAS_BUFFER.store(buffer.is_some(), Ordering::Relaxed);
        }
    });
}

/// Delivers records, unless another thread does.
pub fn deliver_without_waiting() {
    quiet::quietly(|| without_waiting().as_deref_mut().map(deliver_into));
}

fn deliver_into(place: &mut Option<Buffer>) {
    let Some((request, complete)) = callbacks() else { return };
    work::fetch();
    let mut buffer = place.take();
    HAS_BUFFER.store(false, Ordering::Relaxed);
    let records = queue::take();
    for record in &records {
        if buffer.as_mut().is_some_and(|buffer| buffer.append(record)) {
            continue;
        }
        if let Some(full) = buffer.take() {
            full.complete(complete);
        }
        let mut fresh = Buffer::request(request);
        if !fresh.as_mut().is_some_and(|buffer| buffer.append(record)) {
            queue::drop_records(1);
        }
        buffer = fresh;
    }
    queue::recycle(records);
    if let Some(last) = buffer {
        last.complete(complete);
    }
}

/// Sets the functions that provide buffers and take them back.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityRegisterCallbacks(
    request: Option<Request>,
    complete: Option<Complete>,
) -> CUptiResult {
    enter(|| {
        let both = (request.ok_or(INVALID_PARAMETER)?, complete.ok_or(INVALID_PARAMETER)?);
        *CALLBACKS.lock().unwrap_or_else(PoisonError::into_inner) = Some(both);
        Ok(())
    })
}

/// Delivers all records of completed work. Without callbacks it succeeds and keeps the records, as NVIDIA's library
/// does.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityFlushAll(_flag: u32) -> CUptiResult {
    enter(|| {
        deliver();
        Ok(())
    })
}

/// Finds the record after `record`, or the first one if that is NULL.
///
/// # Safety
///
/// The first `valid` bytes of `buffer` are those of a completed buffer, and `*record` is NULL or a record in it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityGetNextRecord(
    buffer: *mut u8,
    valid: usize,
    record: *mut *mut u8,
) -> CUptiResult {
    enter(|| {
        if buffer.is_null() || record.is_null() {
            return Err(INVALID_PARAMETER);
        }
        // SAFETY: not NULL, so valid by this function's contract.
        let at = unsafe { *record };
        let next = match at.addr() {
            0 => 0,
            address => {
                let offset = address.checked_sub(buffer.addr()).filter(|offset| *offset < valid);
                // SAFETY: the record lies in the buffer, and begins with its kind.
                offset.ok_or(INVALID_PARAMETER)? + record_bytes(unsafe { read_unaligned(at.cast::<u32>()) })?
            }
        };
        if valid.checked_sub(next).is_none_or(|left| left < size_of::<u32>()) {
            return Err(MAX_LIMIT_REACHED);
        }
        // SAFETY: at least 4 valid bytes of the buffer follow; `record` is valid for writing.
        unsafe { set(record, buffer.add(next)) }
    })
}

fn record_bytes(kind: u32) -> Result<usize> {
    bytes_of(kind).ok_or(INVALID_KIND)
}

/// Returns the number of records that were lost since the last call.
///
/// # Safety
///
/// `dropped` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityGetNumDroppedRecords(
    _context: *mut c_void,
    _stream: u32,
    dropped: *mut usize,
) -> CUptiResult {
    enter(|| {
        if dropped.is_null() {
            return Err(INVALID_PARAMETER);
        }
        // SAFETY: this function's contract.
        unsafe { set(dropped, usize::try_from(queue::take_dropped()).unwrap_or(usize::MAX)) }
    })
}
