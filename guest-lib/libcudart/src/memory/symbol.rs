// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Variables of device code, identified by the address of their host shadow.

use core::ffi::{c_uint, c_void};
use core::ptr;

use super::copy::{Direction, Order, linear};
use crate::abi::{CUdeviceptr, cudaStream_t};
use crate::error::{Result, cudaErrorInvalidMemcpyDirection, cudaErrorInvalidValue};
use crate::module::variable_of;
use crate::pointers::Out;
use crate::state;

api! {
    fn cudaGetSymbolAddress(pointer: Out<*mut c_void>, symbol: *const c_void) {
        state::context()?;
        let variable = variable_of(symbol)?;
        pointer.check()?;
        let (address, _) = variable.locate()?;
        pointer.set(ptr::with_exposed_provenance_mut(address as usize))
    }

    fn cudaGetSymbolSize(size: Out<usize>, symbol: *const c_void) {
        state::context()?;
        let variable = variable_of(symbol)?;
        size.check()?;
        size.set(variable.locate_for_copies()?.1)
    }

    fn cudaMemcpyToSymbol, cudaMemcpyToSymbol_ptds(
        symbol: *const c_void, src: *const c_void, size: usize, offset: usize, kind: c_uint,
    ) on stream {} => to_symbol(symbol, src, size, offset, kind, Order::Blocking(stream));

    fn cudaMemcpyToSymbolAsync, cudaMemcpyToSymbolAsync_ptsz(
        symbol: *const c_void, src: *const c_void, size: usize, offset: usize, kind: c_uint,
        stream: cudaStream_t,
    ) per_thread stream {} => to_symbol(symbol, src, size, offset, kind, Order::Queued(stream));

    fn cudaMemcpyFromSymbol, cudaMemcpyFromSymbol_ptds(
        dst: *mut c_void, symbol: *const c_void, size: usize, offset: usize, kind: c_uint,
    ) on stream {} => from_symbol(dst, symbol, size, offset, kind, Order::Blocking(stream));

    fn cudaMemcpyFromSymbolAsync, cudaMemcpyFromSymbolAsync_ptsz(
        dst: *mut c_void, symbol: *const c_void, size: usize, offset: usize, kind: c_uint,
        stream: cudaStream_t,
    ) per_thread stream {} => from_symbol(dst, symbol, size, offset, kind, Order::Queued(stream));
}

/// # Safety
/// The contract of [`linear`].
unsafe fn to_symbol(
    symbol: *const c_void,
    src: *const c_void,
    size: usize,
    offset: usize,
    kind: c_uint,
    order: Order,
) -> Result {
    state::context()?;
    if size == 0 {
        return Ok(());
    }
    let dst = part_of(variable_of(symbol)?.locate_for_copies()?, size, offset)?;
    let direction = write_direction(kind)?;
    // SAFETY: the program's memory has `size` bytes by this function's contract; `part_of` checked the variable's range.
    unsafe { linear(dst, src, size, direction, order) }
}

/// # Safety
/// The contract of [`linear`].
unsafe fn from_symbol(
    dst: *mut c_void,
    symbol: *const c_void,
    size: usize,
    offset: usize,
    kind: c_uint,
    order: Order,
) -> Result {
    state::context()?;
    if size == 0 {
        return Ok(());
    }
    let src = part_of(variable_of(symbol)?.locate_for_copies()?, size, offset)?;
    let direction = read_direction(kind)?;
    // SAFETY: the program's memory has `size` bytes by this function's contract; `part_of` checked the variable's range.
    unsafe { linear(dst, src, size, direction, order) }
}

/// Accepts a direction that ends on the device.
pub fn write_direction(kind: c_uint) -> Result<Direction> {
    match Direction::of(kind)? {
        Direction::HostToHost | Direction::DeviceToHost => Err(cudaErrorInvalidMemcpyDirection),
        direction => Ok(direction),
    }
}

/// Accepts a direction that begins on the device.
pub fn read_direction(kind: c_uint) -> Result<Direction> {
    match Direction::of(kind)? {
        Direction::HostToHost | Direction::HostToDevice => Err(cudaErrorInvalidMemcpyDirection),
        direction => Ok(direction),
    }
}

/// Returns the address of `size` bytes of a variable from `offset` on. Needs a context.
pub fn part(symbol: *const c_void, size: usize, offset: usize) -> Result<*mut c_void> {
    part_of(variable_of(symbol)?.locate()?, size, offset)
}

fn part_of((address, whole): (CUdeviceptr, usize), size: usize, offset: usize) -> Result<*mut c_void> {
    if offset.checked_add(size).is_none_or(|end| end > whole) {
        return Err(cudaErrorInvalidValue);
    }
    Ok(ptr::with_exposed_provenance_mut(address as usize + offset))
}
