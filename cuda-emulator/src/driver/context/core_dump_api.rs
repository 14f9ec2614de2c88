// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cuCoredump*.

use cuda_environment::core_dump::{Attribute, Value};

use super::core_dump::lock;
use crate::driver::context;
use crate::driver::ffi::{self, In, Out};
use crate::driver::result::{CUresult, CuResult};

/// Whose attributes are meant: the current context's, or the process's.
fn scope(of_context: bool) -> CuResult<Option<u64>> {
    if !of_context {
        return Ok(None);
    }
    if !ffi::initialised() {
        return Err(CUresult::CUDA_ERROR_NOT_INITIALIZED);
    }
    Ok(Some(context::current_unchecked()?.handle.0 as u64))
}

fn get(of_context: bool, attribute: i32, value: Out<u8>, size: *mut usize) -> CuResult<()> {
    let attribute = Attribute::new(attribute)?;
    Out::from_raw(size).check()?;
    let context = scope(of_context)?;
    if value.is_null() {
        Out::from_raw(size).set(attribute.size());
        return Ok(());
    }
    let room = In::from_raw(size.cast_const()).get()?;
    for (at, byte) in lock().get(context, attribute)?.bytes(room)?.into_iter().enumerate() {
        value.element(at).set(byte);
    }
    Ok(())
}

fn set(of_context: bool, attribute: i32, value: In<u8>, size: *mut usize) -> CuResult<()> {
    let attribute = Attribute::new(attribute)?;
    Out::from_raw(size).check()?;
    let context = scope(of_context)?;
    if value.is_null() {
        Out::from_raw(size).set(attribute.size());
        return Ok(());
    }
    let size = In::from_raw(size.cast_const()).get()?;
    // It is not NULL, the only reason for which there is no byte.
    let value = Value::read(attribute, size, |at| value.at(at).unwrap_or(0))?;
    Ok(lock().set(context, attribute, value)?)
}

fn get_of_context(attribute: i32, value: Out<u8>, size: *mut usize) -> CuResult<()> {
    get(true, attribute, value, size)
}

fn get_of_process(attribute: i32, value: Out<u8>, size: *mut usize) -> CuResult<()> {
    get(false, attribute, value, size)
}

fn set_of_context(attribute: i32, value: In<u8>, size: *mut usize) -> CuResult<()> {
    set(true, attribute, value, size)
}

fn set_of_process(attribute: i32, value: In<u8>, size: *mut usize) -> CuResult<()> {
    set(false, attribute, value, size)
}

crate::driver::ffi::entries! { before_init
    cuCoredumpGetAttribute => get_of_context(attribute: i32, value: Out<u8>, size: *mut usize);
    cuCoredumpGetAttributeGlobal => get_of_process(attribute: i32, value: Out<u8>, size: *mut usize);
    cuCoredumpSetAttribute => set_of_context(attribute: i32, value: In<u8>, size: *mut usize);
    cuCoredumpSetAttributeGlobal => set_of_process(attribute: i32, value: In<u8>, size: *mut usize);
}
