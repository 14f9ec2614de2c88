// SPDX-License-Identifier: Apache-2.0 OR MIT
//! cuCoredump*.

use cuda_environment::core_dump::{Attribute, Value};

use super::core_dump::lock;
use crate::driver::context;
use crate::driver::ffi::{self, In, InOut, Out};
use crate::driver::result::{CUresult, CuResult};

/// Returns the owner of the attributes: the current context, or the process.
fn scope(of_context: bool) -> CuResult<Option<u64>> {
    if !of_context {
        return Ok(None);
    }
    if !ffi::initialised() {
        return Err(CUresult::CUDA_ERROR_NOT_INITIALIZED);
    }
    Ok(Some(context::current_unchecked()?.handle.0 as u64))
}

fn get(of_context: bool, attribute: i32, value: Out<u8>, size: InOut<usize>) -> CuResult<()> {
    let attribute = Attribute::new(attribute)?;
    size.check()?;
    let context = scope(of_context)?;
    if value.is_null() {
        size.set_if_wanted(attribute.size());
        return Ok(());
    }
    let room = size.get()?;
    for (at, byte) in lock().get(context, attribute)?.bytes(room)?.into_iter().enumerate() {
        // SAFETY: there are at most `room` bytes, and the caller says in `size` that the buffer has as many.
        unsafe { value.element(at) }.set_if_wanted(byte);
    }
    Ok(())
}

fn set(of_context: bool, attribute: i32, value: In<u8>, size: InOut<usize>) -> CuResult<()> {
    let attribute = Attribute::new(attribute)?;
    size.check()?;
    let context = scope(of_context)?;
    if value.is_null() {
        size.set_if_wanted(attribute.size());
        return Ok(());
    }
    let size = size.get()?;
    // It is not NULL, which is the only reason for a missing byte.
    let value = Value::read(attribute, size, |at| value.at(at).unwrap_or(0))?;
    Ok(lock().set(context, attribute, value)?)
}

fn get_of_context(attribute: i32, value: Out<u8>, size: InOut<usize>) -> CuResult<()> {
    get(true, attribute, value, size)
}

fn get_of_process(attribute: i32, value: Out<u8>, size: InOut<usize>) -> CuResult<()> {
    get(false, attribute, value, size)
}

fn set_of_context(attribute: i32, value: In<u8>, size: InOut<usize>) -> CuResult<()> {
    set(true, attribute, value, size)
}

fn set_of_process(attribute: i32, value: In<u8>, size: InOut<usize>) -> CuResult<()> {
    set(false, attribute, value, size)
}

crate::driver::ffi::entries! { before_init
    cuCoredumpGetAttribute => get_of_context(attribute: i32, value: Out<u8>, size: InOut<usize>);
    cuCoredumpGetAttributeGlobal => get_of_process(attribute: i32, value: Out<u8>, size: InOut<usize>);
    cuCoredumpSetAttribute => set_of_context(attribute: i32, value: In<u8>, size: InOut<usize>);
    cuCoredumpSetAttributeGlobal => set_of_process(attribute: i32, value: In<u8>, size: InOut<usize>);
}
