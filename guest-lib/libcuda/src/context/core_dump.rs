// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Attributes of core dumps. They are stored in this process and can be queried, but **no dump is ever written**.
//! NVIDIA's driver would write it on the host, so neither the attributes nor the contexts' core-dump flags are sent to
//! the host.

use virtio_cuda_client::CudaError;

use crate::driver::Driver;
use crate::entry_points;
use crate::ffi::{In, Out};
use crate::state::contexts::current;
use crate::state::dumps::lock;
use cuda_environment::core_dump::{Attribute, Refusal, Value};

fn code(refusal: Refusal) -> CudaError {
    match refusal {
        Refusal::InvalidValue => CudaError::INVALID_VALUE,
        Refusal::NotPermitted => CudaError::NOT_PERMITTED,
    }
}

/// Returns the current context, for calls about a context.
fn of_context() -> Result<Option<u64>, CudaError> {
    let driver = Driver::get().ok_or(CudaError::NOT_INITIALIZED)?;
    let context = current();
    if context == 0 {
        return Err(CudaError::INVALID_CONTEXT);
    }
    if driver.contexts.is_destroyed(context) {
        return Err(CudaError::CONTEXT_IS_DESTROYED);
    }
    Ok(Some(context))
}

fn of_process() -> Result<Option<u64>, CudaError> {
    Ok(None)
}

type Scope = fn() -> Result<Option<u64>, CudaError>;

fn get(scope: Scope, attribute: i32, value: Out<u8>, size: Out<usize>) -> Result<(), CudaError> {
    let attribute = Attribute::new(attribute).map_err(code)?;
    size.check()?;
    let context = scope()?;
    if value.is_null() {
        return size.set(attribute.size());
    }
    let room_for = size.get()?;
    let bytes = lock().get(context, attribute).and_then(|value| value.bytes(room_for)).map_err(code)?;
    bytes.into_iter().enumerate().try_for_each(|(at, byte)| value.set_at(at, byte))
}

fn set(scope: Scope, attribute: i32, value: In<u8>, size: Out<usize>) -> Result<(), CudaError> {
    let attribute = Attribute::new(attribute).map_err(code)?;
    size.check()?;
    let context = scope()?;
    if value.is_null() {
        return size.set(attribute.size());
    }
    // A missing byte is impossible: `at` fails only for NULL, which was refused above.
    let value = Value::read(attribute, size.get()?, |at| value.at(at).unwrap_or(0)).map_err(code)?;
    lock().set(context, attribute, value).map_err(code)
}

entry_points! {
    /// Returns an attribute of the current context.
    early cuCoredumpGetAttribute(_, attrib: i32, value: Out<u8>, size: Out<usize>) {
        get(of_context, attrib, value, size)
    }

    /// Returns an attribute of the process.
    early cuCoredumpGetAttributeGlobal(_, attrib: i32, value: Out<u8>, size: Out<usize>) {
        get(of_process, attrib, value, size)
    }

    /// Sets an attribute of the current context. No dump is written, whatever its value is.
    early cuCoredumpSetAttribute(_, attrib: i32, value: In<u8>, size: Out<usize>) {
        set(of_context, attrib, value, size)
    }

    /// Sets an attribute of the process, for future contexts. No dump is written, whatever its value is.
    early cuCoredumpSetAttributeGlobal(_, attrib: i32, value: In<u8>, size: Out<usize>) {
        set(of_process, attrib, value, size)
    }
}
