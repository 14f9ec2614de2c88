// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Functions that run in the order of the GPU's work: host functions, stream callbacks, copies of pageable memory,
//! destructors of user objects. [`crate::stream::callback_thread`] runs them.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use virtio_cuda_client::CudaError;
use virtio_cuda_client::protocol::CallbackId;

use crate::handles::{Kind, new_handle};
use crate::state::buffers::PageableCopy;

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

    /// Keeps a function. Returns the id with which the worker can request it.
    pub fn add(&self, callback: Callback) -> CallbackId {
        let id = CallbackId(new_handle(Kind::User));
        log::trace!("Function {:#x} is kept", id.0);
        self.table().insert(id.0, Arc::new(callback));
        id
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

    /// Starts the thread that runs the functions by `start`, if it does not run yet.
    pub fn start_once(&self, start: impl FnOnce() -> Result<(), CudaError>) -> Result<(), CudaError> {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        if !*started {
            start()?;
            *started = true;
        }
        Ok(())
    }
}
