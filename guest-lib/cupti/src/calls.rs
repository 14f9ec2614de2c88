// SPDX-License-Identifier: Apache-2.0 OR MIT
//! API calls, which libcuda and libcudart report. A nested call belongs to the outer one: the runtime is built on the
//! driver API, and a program has called only the runtime.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_void};
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use cuda_abi::{
    ACTIVITY_DRIVER, ACTIVITY_EXTERNAL_CORRELATION, ACTIVITY_RUNTIME, API_DRIVER, API_LIBRARY, API_RUNTIME,
    CUpti_ActivityAPI, CUpti_ActivityExternalCorrelation, TraceHooks,
};

use crate::external::{Pushed, tops};
use crate::queue::{self, Record};
use crate::{buffers, callbacks, cbids, clock, kinds};

/// Bits of a call's number that are sent to a worker.
pub const CROSSING_BITS: u32 = 24;
const CROSSING: u32 = (1 << CROSSING_BITS) - 1;
/// The maximum number of library calls whose work is still expected.
const MAX_EXPECTED: usize = 1 << 16;
/// The function of the guest's libcuda through which NVIDIA's libraries call the worker.
const LIBRARY_CALL: &[u8] = b"virtio_cuda_vendor_call";

/// Functions for libcuda and libcudart.
pub static HOOKS: TraceHooks = TraceHooks { enter, exit, correlation, context_ends };

static LAST: AtomicU32 = AtomicU32::new(0);

/// The outermost call of a thread.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub api: u32,
    pub cbid: u32,
    pub name: &'static CStr,
    pub correlation: u32,
    start: u64,
}

thread_local! {
    // Must not have destructors: calls are made while a thread ends, too.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static CALL: Cell<Option<Call>> = const { Cell::new(None) };
    /// Set while this library itself calls, or the program in a callback.
    static QUIET: Cell<bool> = const { Cell::new(false) };
    static THREAD: Cell<u32> = const { Cell::new(0) };
}

/// Runs `body` without recording its calls. Returns `None`, without running `body`, if it is called within itself.
pub fn quietly<T>(body: impl FnOnce() -> T) -> Option<T> {
    if QUIET.replace(true) {
        return None;
    }
    struct Restore;
    impl Drop for Restore {
        fn drop(&mut self) {
            QUIET.set(false);
        }
    }
    let _restore = Restore;
    Some(body())
}

/// Calls of NVIDIA's libraries. Natively these launch kernels through the runtime. Here the worker launches them, and
/// this process learns of the launch with the kernel's record.
static EXPECTED: Mutex<BTreeMap<u32, (CUpti_ActivityAPI, Pushed)>> = Mutex::new(BTreeMap::new());

/// Returns the number of the next call. Numbers whose crossing bits are 0 are skipped, because they mean no call.
fn next() -> u32 {
    loop {
        let next = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if next & CROSSING != 0 {
            return next;
        }
    }
}

/// Returns the number of the last call.
pub fn last() -> u32 {
    LAST.load(Ordering::Relaxed)
}

/// Returns the full number of a call from its low bits, which the worker reports.
pub fn whole(crossing: u32) -> u32 {
    newest(last(), crossing)
}

/// Returns the newest number up to `last` with these low bits.
fn newest(last: u32, crossing: u32) -> u32 {
    match crossing & CROSSING {
        0 => 0,
        low => last.wrapping_sub(last.wrapping_sub(low) & CROSSING),
    }
}

extern "C" fn enter(api: u32, name: *const u8, bytes: usize) {
    let depth = DEPTH.get();
    DEPTH.set(depth.saturating_add(1));
    if depth > 0 || QUIET.get() {
        return;
    }
    // SAFETY: the contract of `TraceHooks::enter`: a constant of that length in libcuda or libcudart, which nobody writes.
    let name = unsafe { slice::from_raw_parts(name, bytes) };
    let api = if name == LIBRARY_CALL { API_LIBRARY } else { api };
    // Compiled programs of CUDA 13 call `__cudaLaunchKernel`, which is `cudaLaunchKernel`.
    let name = name.strip_prefix(b"__").unwrap_or(name);
    let (cbid, name) = match cbids::find(api, name) {
        Some(found) => found,
        None if api == API_LIBRARY => (cbids::LAUNCH_KERNEL, c"cudaLaunchKernel"),
        None => return,
    };
    let call = Call { api, cbid, name, correlation: next(), start: clock::now() };
    CALL.set(Some(call));
    callbacks::tell(&call, None);
}

extern "C" fn exit(_api: u32, result: i32) {
    let depth = DEPTH.get().saturating_sub(1);
    DEPTH.set(depth);
    if depth > 0 || QUIET.get() {
        return;
    }
    let Some(call) = CALL.take() else { return };
    callbacks::tell(&call, Some(result));
    let record = CUpti_ActivityAPI {
        kind: if call.api == API_DRIVER { ACTIVITY_DRIVER } else { ACTIVITY_RUNTIME },
        cbid: call.cbid,
        start: call.start,
        end: clock::now(),
        process: std::process::id(),
        thread: thread(),
        correlation: call.correlation,
        result: result as u32,
    };
    if call.api == API_LIBRARY {
        expect(record);
    } else if kinds::records(call.api, call.cbid) {
        push(record, tops());
    }
    if kinds::any() {
        buffers::prepare();
    }
    queue::relieve();
}

extern "C" fn correlation() -> u32 {
    CALL.get().map_or(0, |call| call.correlation)
}

extern "C" fn context_ends(context: *mut c_void) {
    callbacks::tell_context_end(context);
}

fn push(record: CUpti_ActivityAPI, pushed: Pushed) {
    if kinds::is_enabled(ACTIVITY_EXTERNAL_CORRELATION) {
        for (external_kind, external) in (1..).zip(pushed) {
            let Some(external) = external else { continue };
            queue::push(Record::External(CUpti_ActivityExternalCorrelation {
                kind: ACTIVITY_EXTERNAL_CORRELATION,
                external_kind,
                external,
                correlation: record.correlation,
                reserved: 0,
            }));
        }
    }
    queue::push(Record::Api(record));
}

fn expect(record: CUpti_ActivityAPI) {
    if !kinds::any_work() {
        return;
    }
    let mut expected = EXPECTED.lock().unwrap_or_else(PoisonError::into_inner);
    if expected.len() >= MAX_EXPECTED {
        expected.pop_first();
    }
    expected.insert(record.correlation, (record, tops()));
}

/// Handles work of a call: records the call if a library made it.
pub fn note_work(correlation: u32) {
    let found = EXPECTED.lock().unwrap_or_else(PoisonError::into_inner).remove(&correlation);
    if let Some((record, pushed)) = found
        && kinds::records(API_RUNTIME, record.cbid)
    {
        push(record, pushed);
    }
}

/// Forgets all expected library calls.
pub fn forget() {
    EXPECTED.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// Returns the id of the calling thread.
fn thread() -> u32 {
    if THREAD.get() == 0 {
        // SAFETY: gettid has no preconditions.
        THREAD.set(unsafe { libc::gettid() }.cast_unsigned());
    }
    THREAD.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_cross_are_completed() {
        let last = (7 << CROSSING_BITS) + 5;
        assert_eq!(newest(last, 5), last);
        assert_eq!(newest(last, 2), last - 3);
        assert_eq!(newest(last, 6), (6 << CROSSING_BITS) + 6);
        assert_eq!(newest(last, 0), 0);
        assert_ne!(next() & CROSSING, 0);
    }

    #[test]
    fn a_call_within_a_call_is_not_one() {
        let call = |api, name: &str, body: &dyn Fn()| {
            (HOOKS.enter)(api, name.as_ptr(), name.len());
            body();
            (HOOKS.exit)(api, 0);
        };
        assert_eq!((HOOKS.correlation)(), 0);
        call(API_RUNTIME, "cudaLaunchKernel", &|| {
            let outer = (HOOKS.correlation)();
            assert_ne!(outer, 0);
            call(API_DRIVER, "cuLaunchKernel", &|| assert_eq!((HOOKS.correlation)(), outer));
            assert_eq!((HOOKS.correlation)(), outer);
        });
        assert_eq!((HOOKS.correlation)(), 0);
        quietly(|| call(API_DRIVER, "cuLaunchKernel", &|| assert_eq!((HOOKS.correlation)(), 0)));
    }
}
