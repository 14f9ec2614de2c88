// SPDX-License-Identifier: Apache-2.0 OR MIT

//! For the project's own libcupti: tells of calls, and hands over what the worker has measured of their work. No part of CUDA.

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use cuda_abi::{
    ACTIVITY_CONCURRENT_KERNEL, API_DRIVER, TRACE_VERSION, TraceHooks, TraceProvider, TraceSink, TraceWork,
};
use virtio_cuda_client::{CudaError, calls, trace};
use zerocopy::IntoBytes;

use crate::driver::Driver;
use crate::entry::CUresult;

/// Pieces of work that are fetched at a time.
const AT_A_TIME: usize = 500;
/// Calls for more in one drain: a worker is not trusted to come to an end.
const MAX_ROUNDS: usize = 1 << 11;
/// Longest name of a kernel.
const MAX_NAME: usize = 16 << 10;
/// Most bytes of names that are kept.
const MAX_NAMES: usize = 32 << 20;

static HOOKS: AtomicPtr<TraceHooks> = AtomicPtr::new(null_mut());
/// Names of kernels by the worker's numbers.
static NAMES: Mutex<Option<Names>> = Mutex::new(None);

#[derive(Default)]
struct Names {
    known: HashMap<u32, Vec<u8>>,
    bytes: usize,
}

static PROVIDER: TraceProvider =
    TraceProvider { version: TRACE_VERSION, hooks: set_hooks, start, stop, now, drain };

/// What libcupti calls.
#[unsafe(no_mangle)]
pub extern "C" fn virtio_cuda_trace_provider() -> *const TraceProvider {
    &raw const PROVIDER
}

/// Who is told of calls, if anybody.
#[inline]
pub fn hooks() -> Option<&'static TraceHooks> {
    // SAFETY: NULL, or what libcupti passed to `set_hooks`: a constant of a library that stays loaded.
    unsafe { HOOKS.load(Ordering::Relaxed).as_ref() }
}

/// Runs a call between both notices.
#[cold]
pub fn told(hooks: &TraceHooks, name: &'static str, body: impl FnOnce() -> CUresult) -> CUresult {
    (hooks.enter)(API_DRIVER, name.as_ptr(), name.len());
    let result = body();
    (hooks.exit)(API_DRIVER, result);
    result
}

extern "C" fn set_hooks(hooks: *const TraceHooks) {
    // SAFETY: NULL, or a constant of libcupti.
    trace::set(unsafe { hooks.as_ref() }.map(|hooks| hooks.correlation));
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
    code(driver().and_then(|driver| calls::trace_start(&mut driver.session.call())))
}

extern "C" fn stop() -> CUresult {
    code(driver().and_then(|driver| calls::trace_stop(&mut driver.session.call())))
}

extern "C" fn now(ns: &mut u64) -> CUresult {
    code(driver().and_then(|driver| {
        *ns = calls::trace_clock(&mut driver.session.call())?;
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
        let mut call = driver.session.call().output(room.as_mut_bytes());
        let (bytes, left, lost) = calls::trace_read(&mut call)?;
        *dropped = dropped.saturating_add(lost);
        let count = usize::try_from(bytes).map_or(AT_A_TIME, |bytes| bytes / size_of::<TraceWork>());
        for work in &room[..count.min(AT_A_TIME)] {
            let name = match work.kind {
                ACTIVITY_CONCURRENT_KERNEL => name_of(driver, names, work.name),
                _ => None,
            };
            let work = TraceWork { device: number_of(driver, work.device), ..*work };
            let (start, bytes) = name.map_or((null(), 0), |name| (name.as_ptr(), name.len()));
            sink(data, &work, start, bytes);
        }
        if left == 0 || count == 0 {
            break;
        }
    }
    Ok(())
}

/// The program's number of a device that the worker names.
fn number_of(driver: &Driver, device: u32) -> u32 {
    driver.devices.number_of(device).map_or(device, i32::cast_unsigned)
}

/// The name of a kernel, which is asked for once.
fn name_of<'n>(driver: &Driver, names: &'n mut Names, number: u32) -> Option<&'n [u8]> {
    if !names.known.contains_key(&number) {
        let mut room = vec![0; MAX_NAME];
        let mut call = driver.session.call().output(&mut room);
        let bytes = calls::trace_name(&mut call, number).ok()?;
        room.truncate(usize::try_from(bytes).unwrap_or(MAX_NAME));
        room.shrink_to_fit();
        if names.bytes >= MAX_NAMES {
            *names = Names::default();
        }
        names.bytes += room.len();
        names.known.insert(number, room);
    }
    names.known.get(&number).map(Vec::as_slice)
}
