// SPDX-License-Identifier: Apache-2.0 OR MIT

//! One thread of this library, started at the first use, asks the worker for the next function of
//! [`crate::state::callbacks`] that is due, and runs it.

use std::ffi::c_void;

use cuda_environment::speed;
use virtio_cuda_client::protocol::{CALLBACK_FORGET, CALLBACK_RUN, CallbackId};
use virtio_cuda_client::{Call, CudaError, Session, calls};

use crate::entry::Api;
use crate::state::callbacks::Callback;
use crate::state::in_callback;

/// Registers a function. Returns the id with which the worker can request it.
pub fn register(api: Api, callback: Callback) -> Result<CallbackId, CudaError> {
    let of_library = Api::of_library(api.driver);
    api.driver.callbacks.start_once(|| {
        let thread = std::thread::Builder::new().name("cuda-callbacks".into());
        with_signals_blocked(|| thread.spawn(move || serve(of_library))).map(drop).map_err(|error| {
            log::error!("No thread for host functions: {error}");
            CudaError::OUT_OF_MEMORY
        })
    })?;
    Ok(api.driver.callbacks.add(callback))
}

/// Runs `body` with all signals blocked, so that threads that it starts never get the program's signals: a thread
/// inherits the mask of its creator.
fn with_signals_blocked<T>(body: impl FnOnce() -> T) -> T {
    // SAFETY: both sets are locals, filled in before they are used; the mask is put back.
    unsafe {
        let (mut all, mut old) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old);
        let result = body();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const old, std::ptr::null_mut());
        result
    }
}

/// Waits for the next function that is due. With `soon`, a lane is watched for a short time. Then, and without `soon`, the thread
/// sleeps in the request queue.
fn next(session: &Session, done: u64, soon: bool) -> Result<(u64, CallbackId, i32, u32), CudaError> {
    let call = Call::internal(session);
    let mut call = if soon { call.unordered() } else { call.direct() };
    calls::session_next_callback(&mut call, done)
}

/// Runs a function of the program between the work before and behind it, which use the same managed memory.
fn run(api: Api, function: impl FnOnce()) {
    api.before_function();
    in_callback::run(function);
    api.after_function();
}

/// Runs due functions, one after the other, until the session or the process ends.
fn serve(api: Api) {
    let (session, callbacks) = (api.driver.session, &api.driver.callbacks);
    in_callback::begin();
    let mut done = 0;
    // A function that follows another one soon is probably part of a step that the program repeats: it delays the GPU.
    while let Ok((ticket, id, status, todo)) = next(session, done, done > 0 && speed::is_on()) {
        done = ticket;
        let callback = callbacks.get(id);
        if todo & CALLBACK_FORGET != 0 {
            callbacks.remove(id);
        }
        match callback.as_deref().filter(|_| todo & CALLBACK_RUN != 0) {
            Some(Callback::Host(function, argument)) => {
                // SAFETY: the program passed a function that may be called with this argument when the GPU is there.
                run(api, || unsafe { function(*argument as *mut c_void) });
            }
            Some(Callback::Stream(function, stream, argument)) => {
                run(api, || function(*stream, status, *argument));
            }
            Some(Callback::Copy(copy)) => copy.run(),
            None => {}
        }
    }
}
