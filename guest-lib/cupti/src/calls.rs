// SPDX-License-Identifier: Apache-2.0 OR MIT
//! API calls, which libcuda and libcudart report. A nested call belongs to the outer one: the runtime is built on the
//! driver API, and a program has called only the runtime.

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::slice;

use cuda_abi::{
    ACTIVITY_DRIVER, ACTIVITY_RUNTIME, API_DRIVER, API_LIBRARY, API_RUNTIME, CUpti_ActivityAPI, TraceCall,
    TraceHooks,
};

use crate::external::tops;
use crate::quiet::is_quiet;
use crate::{buffers, callbacks, cbids, clock, ids, kinds, library, numbers, pageable, queue, resources};

/// The function of the guest's libcuda through which NVIDIA's libraries call the worker.
const LIBRARY_CALL: &[u8] = b"virtio_cuda_vendor_call";

/// Functions for libcuda and libcudart.
pub static HOOKS: TraceHooks = TraceHooks { enter, exit, correlation, pageable: note_pageable, context_ends };

/// The outermost call of a thread.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub api: u32,
    pub cbid: u32,
    pub name: &'static CStr,
    pub correlation: u32,
    /// The arguments ([`TraceCall::arguments`]).
    pub arguments: *const c_void,
    start: u64,
}

impl Call {
    /// Returns the record of this call of the calling thread.
    fn record(&self, end: u64, result: i32) -> CUpti_ActivityAPI {
        CUpti_ActivityAPI {
            kind: if self.api == API_DRIVER { ACTIVITY_DRIVER } else { ACTIVITY_RUNTIME },
            cbid: self.cbid,
            start: self.start,
            end,
            process: std::process::id(),
            thread: thread(),
            correlation: self.correlation,
            result: result as u32,
        }
    }
}

thread_local! {
    // Must not have destructors: calls are made while a thread ends, too.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static CALL: Cell<Option<Call>> = const { Cell::new(None) };
    static THREAD: Cell<u32> = const { Cell::new(0) };
}

/// Returns the name of a call.
fn name_of(call: &TraceCall) -> &'static [u8] {
    // SAFETY: the contract of `TraceCall::name`: a constant of that length in libcuda or libcudart, which nobody writes.
    unsafe { slice::from_raw_parts(call.name, call.bytes) }
}

/// Reports the beginning or, with a result, the end of a call of the driver that the runtime makes for the program's call. It has
/// that one's number, as in NVIDIA's library.
fn tell_nested(call: &TraceCall, result: Option<i32>) {
    let Some(outer) = CALL.get().filter(|outer| outer.api == API_RUNTIME && call.api == API_DRIVER) else {
        return;
    };
    if let Some((cbid, name)) = cbids::find(API_DRIVER, name_of(call)) {
        callbacks::tell(&Call { api: API_DRIVER, cbid, name, arguments: call.arguments, ..outer }, result);
    }
}

extern "C" fn enter(call: &TraceCall) {
    let depth = DEPTH.get();
    DEPTH.set(depth.saturating_add(1));
    if is_quiet() {
        return;
    }
    let name = name_of(call);
    if depth == 0 {
        begin(call, name);
    } else if callbacks::any() {
        tell_nested(call, None);
    }
    if call.api == API_DRIVER {
        note_launch(call, name);
        resources::tell(name, call.arguments, false);
    }
}

/// Notes which executable graph a call launches.
fn note_launch(call: &TraceCall, name: &[u8]) {
    if kinds::any_work()
        && matches!(name, b"cuGraphLaunch" | b"cuGraphLaunch_ptsz")
        && !call.arguments.is_null()
    {
        // SAFETY: the first argument of this function is the graph.
        let exec = unsafe { call.arguments.cast::<u64>().read() };
        ids::note_launch(correlation(), exec);
    }
}

/// Begins the outermost call of this thread.
fn begin(call: &TraceCall, name: &'static [u8]) {
    let arguments = call.arguments;
    let api = if name == LIBRARY_CALL { API_LIBRARY } else { call.api };
    // Compiled programs of CUDA 13 call `__cudaLaunchKernel`, which is `cudaLaunchKernel`.
    let name = name.strip_prefix(b"__").unwrap_or(name);
    let (cbid, name) = match cbids::find(api, name) {
        Some(found) => found,
        None if api == API_LIBRARY => (cbids::LAUNCH_KERNEL, c"cudaLaunchKernel"),
        None => return,
    };
    let call = Call { api, cbid, name, correlation: numbers::next(), arguments, start: clock::now() };
    CALL.set(Some(call));
    if api == API_LIBRARY && kinds::any_work() {
        library::begin(call.record(call.start, 0), tops());
    }
    callbacks::tell(&call, None);
}

extern "C" fn exit(call: &TraceCall, result: i32) {
    let depth = DEPTH.get().saturating_sub(1);
    DEPTH.set(depth);
    if is_quiet() {
        return;
    }
    if call.api == API_DRIVER && result == 0 {
        resources::tell(name_of(call), call.arguments, true);
    }
    if depth > 0 {
        if callbacks::any() {
            tell_nested(call, Some(result));
        }
        return;
    }
    let Some(call) = CALL.take() else { return };
    callbacks::tell(&call, Some(result));
    if call.api == API_LIBRARY {
        library::end(call.correlation, clock::now());
    } else if kinds::records(call.api, call.cbid) {
        let waiting = queue::push(queue::of_call(call.record(clock::now(), result), tops()));
        buffers::prepare();
        queue::relieve(waiting);
    } else if kinds::any() {
        buffers::prepare();
    }
}

extern "C" fn correlation() -> u32 {
    CALL.get().map_or(0, |call| call.correlation)
}

extern "C" fn note_pageable(source: bool, destination: bool) {
    if let Some(call) = CALL.get() {
        pageable::note(call.correlation, [source, destination]);
    }
}

extern "C" fn context_ends(context: *mut c_void) {
    callbacks::tell_context_end(context);
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
    use std::ptr::null;

    use super::*;
    use crate::quiet::quietly;

    #[test]
    fn a_call_within_a_call_is_not_one() {
        let call = |api, name: &str, body: &dyn Fn()| {
            let call = TraceCall { api, name: name.as_ptr(), bytes: name.len(), arguments: null() };
            (HOOKS.enter)(&call);
            body();
            (HOOKS.exit)(&call, 0);
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
