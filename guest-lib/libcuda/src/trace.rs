// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Interface for this project's libcupti: reports calls, and passes on the work that the worker has measured. Not part
//! of CUDA.

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use cuda_abi::{
    ACTIVITY_CONCURRENT_KERNEL, ACTIVITY_MEMCPY2, TRACE_VERSION, TraceHooks, TraceProvider, TraceSink,
    TraceWork,
};
use virtio_cuda_client::{Call, CudaError, calls, trace};
use zerocopy::IntoBytes;

use crate::driver::Driver;
use crate::ffi::CUresult;

/// The number of work items per read.
const AT_A_TIME: usize = 500;
/// The maximum number of reads per drain. A malicious worker could otherwise keep the program reading for ever.
const MAX_ROUNDS: usize = 1 << 11;
/// The maximum length of a kernel's name, in bytes.
const MAX_NAME: usize = 16 << 10;
/// The maximum number of bytes for names, with [`ENTRY_BYTES`] for each. Limits the program's memory, because the
/// worker chooses the names.
const MAX_NAMES: usize = 32 << 20;
/// The approximate size of an entry of [`Names`] without its text, in bytes.
const ENTRY_BYTES: usize = 64;

static HOOKS: AtomicPtr<TraceHooks> = AtomicPtr::new(null_mut());
/// Names of kernels by the worker's ids.
static NAMES: Mutex<Option<Names>> = Mutex::new(None);

#[derive(Default)]
struct Names {
    known: HashMap<u32, Vec<u8>>,
    bytes: usize,
}

static PROVIDER: TraceProvider =
    TraceProvider { version: TRACE_VERSION, hooks: set_hooks, start, stop, now, drain };

/// Returns the functions that libcupti calls.
#[unsafe(no_mangle)]
pub extern "C" fn virtio_cuda_trace_provider() -> *const TraceProvider {
    &raw const PROVIDER
}

/// Returns the functions that receive calls, if a profiler has set them.
#[inline]
pub fn hooks() -> Option<&'static TraceHooks> {
    // SAFETY: NULL, or the argument of `set_hooks` from libcupti: a constant of a library that stays loaded.
    unsafe { HOOKS.load(Ordering::Relaxed).as_ref() }
}

/// Reports which ends of a copy are pageable.
#[inline]
pub fn copies_pageable(source: bool, destination: bool) {
    if let Some(hooks) = hooks() {
        (hooks.pageable)(source, destination);
    }
}

/// Reports that the destruction of a context begins.
pub fn context_ends(context: u64) {
    if let Some(hooks) = hooks() {
        (hooks.context_ends)(context as *mut c_void);
    }
}

/// Begins or ends the recording of this process ([`cuda_abi::RecordFunction`]).
#[unsafe(no_mangle)]
pub extern "C" fn virtio_cuda_trace_record(begin: bool) -> CUresult {
    code(driver().and_then(|driver| match begin {
        true => calls::profile_start(&mut Call::internal(driver.session), 0),
        false => calls::profile_stop(&mut Call::internal(driver.session)),
    }))
}

/// Returns bytes of the recording ([`cuda_abi::RecordedFunction`]).
///
/// # Safety
///
/// `room` has `bytes` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn virtio_cuda_trace_recorded(
    room: *mut u8,
    bytes: &mut usize,
    open: &mut bool,
    ns: &mut u64,
) -> CUresult {
    // SAFETY: this function's contract.
    let room = unsafe { std::slice::from_raw_parts_mut(room, *bytes) };
    code(driver().and_then(|driver| {
        let most = room.len();
        let mut call = Call::internal(driver.session).output(room);
        let (read, more, now) = calls::profile_read(&mut call)?;
        (*bytes, *open, *ns) = (usize::try_from(read).map_or(most, |read| read.min(most)), more != 0, now);
        Ok(())
    }))
}

extern "C" fn set_hooks(hooks: *const TraceHooks) {
    if hooks.is_null() {
        trace::set(None);
    }
    HOOKS.store(hooks.cast_mut(), Ordering::Relaxed);
}

fn code(result: Result<(), CudaError>) -> CUresult {
    result.err().map_or(0, CudaError::code)
}

fn driver() -> Result<&'static Driver, CudaError> {
    virtio_cuda_client::process::check()?;
    Driver::get().ok_or(CudaError::NOT_INITIALIZED)
}

extern "C" fn start() -> CUresult {
    code(driver().and_then(|driver| {
        calls::trace_start(&mut Call::internal(driver.session))?;
        // Set only here, after measuring has started: a daemon that cannot measure may not know these flags.
        trace::set(hooks().map(|hooks| hooks.correlation));
        Ok(())
    }))
}

extern "C" fn stop() -> CUresult {
    trace::set(None);
    code(driver().and_then(|driver| calls::trace_stop(&mut Call::internal(driver.session))))
}

extern "C" fn now(ns: &mut u64) -> CUresult {
    code(driver().and_then(|driver| {
        *ns = calls::trace_clock(&mut Call::internal(driver.session))?;
        Ok(())
    }))
}

extern "C" fn drain(sink: TraceSink, data: *mut c_void, dropped: &mut u64) -> CUresult {
    code(driver().and_then(|driver| drain_all(driver, sink, data, dropped)))
}

fn drain_all(
    driver: &Driver,
    sink: TraceSink,
    data: *mut c_void,
    dropped: &mut u64,
) -> Result<(), CudaError> {
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let names = names.get_or_insert_default();
    let mut room = vec![TraceWork::default(); AT_A_TIME];
    for _ in 0..MAX_ROUNDS {
        let mut call = Call::internal(driver.session).output(room.as_mut_bytes());
        let (bytes, left, lost) = calls::trace_read(&mut call)?;
        *dropped = dropped.saturating_add(lost);
        let count = usize::try_from(bytes).map_or(AT_A_TIME, |bytes| bytes / size_of::<TraceWork>());
        for work in &room[..count.min(AT_A_TIME)] {
            let name = match work.kind {
                ACTIVITY_CONCURRENT_KERNEL => name_of(driver, names, work.name),
                _ => None,
            };
            let work = with_own_numbers(driver, *work);
            let (start, bytes) = name.map_or((null(), 0), |name| (name.as_ptr(), name.len()));
            sink(data, &work, start, bytes);
        }
        if left == 0 || count == 0 {
            break;
        }
    }
    Ok(())
}

/// Replaces the worker's device numbers by the program's.
fn with_own_numbers(driver: &Driver, mut work: TraceWork) -> TraceWork {
    let number_of = |device: u32| driver.devices.number_of(device).map_or(device, i32::cast_unsigned);
    work.device = number_of(work.device);
    if work.kind == ACTIVITY_MEMCPY2 {
        // These are the devices of source and destination.
        work.grid[0] = number_of(work.grid[0]);
        work.grid[2] = number_of(work.grid[2]);
    }
    work
}

/// Returns the name of a kernel, which is requested from the worker once. Number 0 has no name.
fn name_of<'n>(driver: &Driver, names: &'n mut Names, number: u32) -> Option<&'n [u8]> {
    if number == 0 {
        return None;
    }
    if !names.known.contains_key(&number) {
        let mut room = vec![0; MAX_NAME];
        let mut call = Call::internal(driver.session).output(&mut room);
        let bytes = calls::trace_name(&mut call, number).ok()?;
        room.truncate(usize::try_from(bytes).unwrap_or(MAX_NAME));
        room.shrink_to_fit();
        if names.bytes >= MAX_NAMES {
            *names = Names::default();
        }
        names.bytes += room.len() + ENTRY_BYTES;
        names.known.insert(number, room);
    }
    names.known.get(&number).map(Vec::as_slice)
}
