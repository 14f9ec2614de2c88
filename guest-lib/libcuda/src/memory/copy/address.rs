// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Copies by the GPU between its own addresses.

use virtio_cuda_client::protocol::DevicePtr;
use virtio_cuda_client::{CudaError, calls};

use crate::entry::Api;
use crate::memory::copy::plan::LinearCopy;

/// Executes [`Plan::DeviceToDevice`](super::plan::Plan::DeviceToDevice).
#[inline(always)]
pub fn device_to_device(
    api: Api,
    copy: &LinearCopy,
    dst: DevicePtr,
    src: DevicePtr,
    posted: bool,
) -> Result<(), CudaError> {
    let mut call = api.in_context()?.posted_if(posted);
    calls::cuMemcpyDtoD_v2(&mut call, dst, src, copy.bytes as u64)
}

/// Executes [`Plan::Address`](super::plan::Plan::Address).
#[inline(always)]
pub fn run(
    api: Api,
    copy: &LinearCopy,
    dst: DevicePtr,
    src: DevicePtr,
    posted: bool,
) -> Result<(), CudaError> {
    // If a posted copy fails, the next call that waits returns the error.
    let mut call = api.in_context()?.posted_if(posted);
    calls::cuMemcpyAsync(&mut call, dst, src, copy.bytes as u64, copy.stream)?;
    if copy.waits { api.wait_for_stream(copy.stream) } else { Ok(()) }
}

/// Executes [`Plan::AddressAndWait`](super::plan::Plan::AddressAndWait).
#[inline(always)]
pub fn run_and_wait(api: Api, copy: &LinearCopy, dst: DevicePtr, src: DevicePtr) -> Result<(), CudaError> {
    calls::memcpy_wait(&mut api.in_context()?, dst, src, copy.bytes as u64, copy.stream)
}
