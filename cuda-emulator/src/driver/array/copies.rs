// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The copies between one row of an array and linear memory.

use std::ffi::c_void;
use std::sync::Arc;

use crate::driver::array::{self, CUarray};
use crate::driver::context;
use crate::driver::copy::submit::{copy_async, copy_now};
use crate::driver::copy::{Given, Side, Transfer};
use crate::driver::device::CUdeviceptr;
use crate::driver::result::CuResult;
use crate::driver::stream::CUstream;

/// A byte of the first row.
fn row(array: CUarray, offset: usize) -> CuResult<Side> {
    Side::in_array(Arc::clone(&array::find_not_null(array)?.array), [offset as u64, 0, 0])
}

fn transfer(to: CuResult<Side>, from: CuResult<Side>, bytes: usize) -> CuResult<Option<Transfer>> {
    context::current()?;
    if bytes == 0 {
        return Ok(None);
    }
    Transfer::new(to?, from?, [bytes as u64, 1, 1])
}

fn device_side(address: CUdeviceptr) -> CuResult<Side> {
    Side::linear(address, Given::Device)
}

fn host_side(address: *const c_void) -> CuResult<Side> {
    Side::linear(address as u64, Given::Host)
}

fn dtoa(to: CUarray, offset: usize, from: CUdeviceptr, bytes: usize) -> CuResult<()> {
    copy_now(transfer(row(to, offset), device_side(from), bytes)?)
}

fn atod(to: CUdeviceptr, from: CUarray, offset: usize, bytes: usize) -> CuResult<()> {
    copy_now(transfer(device_side(to), row(from, offset), bytes)?)
}

fn htoa(to: CUarray, offset: usize, from: *const c_void, bytes: usize) -> CuResult<()> {
    copy_now(transfer(row(to, offset), host_side(from), bytes)?)
}

fn atoh(to: *mut c_void, from: CUarray, offset: usize, bytes: usize) -> CuResult<()> {
    copy_now(transfer(host_side(to), row(from, offset), bytes)?)
}

fn atoa(to: CUarray, to_offset: usize, from: CUarray, from_offset: usize, bytes: usize) -> CuResult<()> {
    copy_now(transfer(row(to, to_offset), row(from, from_offset), bytes)?)
}

fn htoa_async(
    to: CUarray,
    offset: usize,
    from: *const c_void,
    bytes: usize,
    stream: CUstream,
) -> CuResult<()> {
    copy_async(transfer(row(to, offset), host_side(from), bytes)?, stream)
}

fn atoh_async(to: *mut c_void, from: CUarray, offset: usize, bytes: usize, stream: CUstream) -> CuResult<()> {
    copy_async(transfer(host_side(to), row(from, offset), bytes)?, stream)
}

crate::driver::ffi::entries! { after_init
    cuMemcpyDtoA_v2 + cuMemcpyDtoA_v2_ptds => dtoa(to: CUarray, offset: usize, from: CUdeviceptr, bytes: usize);
    cuMemcpyAtoD_v2 + cuMemcpyAtoD_v2_ptds => atod(to: CUdeviceptr, from: CUarray, offset: usize, bytes: usize);
    cuMemcpyHtoA_v2 + cuMemcpyHtoA_v2_ptds => htoa(
        to: CUarray, offset: usize, from: *const c_void, bytes: usize);
    cuMemcpyAtoH_v2 + cuMemcpyAtoH_v2_ptds => atoh(to: *mut c_void, from: CUarray, offset: usize, bytes: usize);
    cuMemcpyAtoA_v2 + cuMemcpyAtoA_v2_ptds => atoa(
        to: CUarray, to_offset: usize, from: CUarray, from_offset: usize, bytes: usize);
    cuMemcpyHtoAAsync_v2 + cuMemcpyHtoAAsync_v2_ptsz => htoa_async(
        to: CUarray, offset: usize, from: *const c_void, bytes: usize, stream: CUstream);
    cuMemcpyAtoHAsync_v2 + cuMemcpyAtoHAsync_v2_ptsz => atoh_async(
        to: *mut c_void, from: CUarray, offset: usize, bytes: usize, stream: CUstream);
}
