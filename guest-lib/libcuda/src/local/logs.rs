// SPDX-License-Identifier: Apache-2.0 OR MIT

//! The driver's error-log API. The log is always empty, so no registered callback is ever called.

use std::collections::BTreeSet;
use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};

use virtio_cuda_client::CudaError;

use crate::entry_points;
use crate::ffi::{HostPtr, Name, Out};
use crate::handles::{Kind, new_handle};

/// The program's callback registrations, including those from before `cuInit`.
static REGISTERED: Registered = Registered(Mutex::new(BTreeSet::new()));

#[derive(Debug)]
struct Registered(Mutex<BTreeSet<u64>>);

impl Registered {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self) -> u64 {
        let handle = new_handle(Kind::Other);
        self.lock().insert(handle);
        handle
    }

    fn remove(&self, handle: u64) -> Result<(), CudaError> {
        if self.lock().remove(&handle) { Ok(()) } else { Err(CudaError::INVALID_VALUE) }
    }
}

fn not_null(pointer: HostPtr) -> Result<(), CudaError> {
    if pointer.address() == 0 { Err(CudaError::INVALID_VALUE) } else { Ok(()) }
}

entry_points! {
    /// Registers a log callback.
    early cuLogsRegisterCallback(_, callbackFunc: HostPtr, _userData: HostPtr, callback_out: Out<u64>) {
        not_null(callbackFunc)?;
        callback_out.set_if_wanted(REGISTERED.add());
        Ok(())
    }

    /// Removes a log callback.
    early cuLogsUnregisterCallback(_, callback: u64) {
        REGISTERED.remove(callback)
    }

    /// Returns the end of the log.
    early cuLogsCurrent(_, iterator_out: Out<u32>, _flags: u32) {
        iterator_out.set(0)
    }

    /// Writes an empty file.
    early cuLogsDumpToFile(_, _iterator: Out<u32>, pathToFile: Name, _flags: u32) {
        let path = pathToFile.get()?.into_string().map_err(|_| CudaError::INVALID_VALUE)?;
        fs::write(&path, "").map_err(|error| {
            log::debug!("{path}: {error}");
            CudaError::INVALID_VALUE
        })
    }

    /// Writes an empty text.
    call cuLogsDumpToMemory(_api, _iterator: Out<u32>, buffer: Out<u8>, size: Out<usize>, flags: u32) {
        buffer.check()?;
        if size.get()? == 0 || flags != 0 {
            return Err(CudaError::INVALID_VALUE);
        }
        buffer.set(0)?;
        size.set(0)
    }

    /// Registers a callback for notifications that the process uses too much memory. These never occur.
    call cuDeviceRegisterAsyncNotification(api, device: i32, callbackFunc: HostPtr, _userData: HostPtr, callback: Out<u64>) {
        api.driver.devices.check(device)?;
        not_null(callbackFunc)?;
        callback.check()?;
        callback.set(REGISTERED.add())
    }

    /// Removes such a callback.
    call cuDeviceUnregisterAsyncNotification(_api, _device: i32, callback: u64) {
        REGISTERED.remove(callback)
    }
}
