// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Functions that run in the order of the GPU's work: host functions, stream callbacks, copies of pageable memory,
//! destructors of user objects. One thread of this library, started at the first use, asks the worker for the next
//! function that is due and runs it here.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use virtio_cuda_client::protocol::{CALLBACK_FORGET, CALLBACK_RUN, CallbackId};
use virtio_cuda_client::{CudaError, Session, calls};

use crate::driver::Driver;
use crate::entry::Api;
use crate::graph::pageable_table::PageableCopy;
use crate::handles::{Kind, new_handle};
use crate::stream::in_callback;

/// `CUhostFn`, not NULL.
pub type HostFunction = unsafe extern "C" fn(*mut c_void);
/// `CUstreamCallback`.
pub type StreamFunction = extern "C" fn(u64, i32, usize);

/// A registered function.
#[derive(Debug)]
pub enum Callback {
    /// A host function or destructor, with its argument.
    Host(HostFunction, usize),
    /// A stream callback, with its stream and argument.
    Stream(StreamFunction, u64, usize),
    /// A copy between pageable memory and a pinned buffer.
    Copy(PageableCopy),
}

/// The functions that the worker may request, by id.
#[derive(Debug, Default)]
pub struct Callbacks {
    table: Mutex<HashMap<u64, Arc<Callback>>>,
    started: Mutex<bool>,
}

impl Callbacks {
    fn table(&self) -> MutexGuard<'_, HashMap<u64, Arc<Callback>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a function. Returns the id with which the worker can request it.
    pub fn add(
        &'static self,
        session: &'static Session,
        callback: Callback,
    ) -> Result<CallbackId, CudaError> {
        self.start(session)?;
        let id = CallbackId(new_handle(Kind::User));
        log::trace!("Function {:#x} is kept", id.0);
        self.table().insert(id.0, Arc::new(callback));
        Ok(id)
    }

    /// Returns the function with an id.
    pub fn get(&self, id: CallbackId) -> Option<Arc<Callback>> {
        self.table().get(&id.0).cloned()
    }

    /// Removes a function.
    pub fn remove(&self, id: CallbackId) {
        log::trace!("Function {:#x} is forgotten", id.0);
        self.table().remove(&id.0);
    }

    fn start(&'static self, session: &'static Session) -> Result<(), CudaError> {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        if !*started {
            let run = move || serve(session, self);
            with_signals_blocked(|| std::thread::Builder::new().name("cuda-callbacks".into()).spawn(run))
                .map_err(|error| {
                    log::error!("No thread for host functions: {error}");
                    CudaError::OUT_OF_MEMORY
                })?;
            *started = true;
        }
        Ok(())
    }
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

/// Waits for the next function that is due. Uses the request queue, because a lane would be polled meanwhile.
fn next(session: &Session, done: u64) -> Result<(u64, CallbackId, i32, u32), CudaError> {
    calls::session_next_callback(&mut session.internal().direct(), done)
}

/// Runs a function of the program between the work before and behind it, which use the same managed memory.
fn run(function: impl FnOnce()) {
    let api = Driver::get().map(Api::of_library);
    if let Some(api) = api {
        api.before_function();
    }
    in_callback::run(function);
    if let Some(api) = api {
        api.after_function();
    }
}

/// Runs due functions, one after the other, until the session or the process ends.
fn serve(session: &'static Session, callbacks: &Callbacks) {
    in_callback::begin();
    let mut done = 0;
    while let Ok((ticket, id, status, todo)) = next(session, done) {
        done = ticket;
        let callback = callbacks.get(id);
        if todo & CALLBACK_FORGET != 0 {
            callbacks.remove(id);
        }
        match callback.as_deref().filter(|_| todo & CALLBACK_RUN != 0) {
            Some(Callback::Host(function, argument)) => {
                // SAFETY: the program passed a function that may be called with this argument when the GPU is there.
                run(|| unsafe { function(*argument as *mut c_void) });
            }
            Some(Callback::Stream(function, stream, argument)) => {
                run(|| function(*stream, status, *argument));
            }
            Some(Callback::Copy(copy)) => copy.run(),
            None => {}
        }
    }
}
