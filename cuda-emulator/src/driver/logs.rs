// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver's error-log API. The log is always empty, so no registered callback is ever called.

use std::ffi::{c_char, c_void};
use std::fs;
use std::sync::Arc;

use super::device::{CUdevice, device};
use super::ffi::{InOut, Out, Text};
use super::handle::{Handle, Registry};
use super::result::{CUresult, CuResult};

/// A program's registration for messages.
pub struct Listener;
/// Its handle.
pub type CUlistener = Handle<Listener>;

static LISTENERS: Registry<Listener> = Registry::new();

impl crate::driver::handle::Object for Listener {
    const KIND: Option<crate::driver::handle::Kind> = None;
}

fn add(callback: *const c_void) -> CuResult<CUlistener> {
    if callback.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let handle = Handle::unique();
    LISTENERS.insert(handle, Arc::new(Listener));
    Ok(handle)
}

fn remove(handle: CUlistener) -> CuResult<()> {
    LISTENERS.remove(handle).map(|_| ()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

fn register(callback: *const c_void, _data: *mut c_void, out: Out<CUlistener>) -> CuResult<()> {
    out.set_if_wanted(add(callback)?);
    Ok(())
}

fn current(iterator: Out<u32>, _flags: u32) -> CuResult<()> {
    iterator.check()?;
    iterator.set_if_wanted(0);
    Ok(())
}

fn dump_to_file(_iterator: *mut u32, path: Text, _flags: u32) -> CuResult<()> {
    fs::write(path.text()?, "").map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)
}

fn dump_to_memory(_iterator: *mut u32, buffer: Out<c_char>, size: InOut<usize>, flags: u32) -> CuResult<()> {
    buffer.check()?;
    if size.get()? == 0 || flags != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    buffer.set_if_wanted(0);
    size.set_if_wanted(0);
    Ok(())
}

fn register_notification(
    ordinal: CUdevice,
    callback: *const c_void,
    _data: *mut c_void,
    out: Out<CUlistener>,
) -> CuResult<()> {
    device(ordinal)?;
    out.check()?;
    out.set_if_wanted(add(callback)?);
    Ok(())
}

fn unregister_notification(_ordinal: CUdevice, handle: CUlistener) -> CuResult<()> {
    remove(handle)
}

super::ffi::entries! { after_init
    cuLogsRegisterCallback => register(callback: *const c_void, data: *mut c_void, out: Out<CUlistener>);
    cuLogsUnregisterCallback => remove(handle: CUlistener);
    cuLogsCurrent => current(iterator: Out<u32>, flags: u32);
    cuLogsDumpToFile => dump_to_file(iterator: *mut u32, path: Text, flags: u32);
    cuLogsDumpToMemory => dump_to_memory(
        iterator: *mut u32, buffer: Out<c_char>, size: InOut<usize>, flags: u32);
    cuDeviceRegisterAsyncNotification => register_notification(
        device: CUdevice, callback: *const c_void, data: *mut c_void, out: Out<CUlistener>);
    cuDeviceUnregisterAsyncNotification => unregister_notification(device: CUdevice, handle: CUlistener);
}
