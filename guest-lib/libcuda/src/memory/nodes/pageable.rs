// SPDX-License-Identifier: Apache-2.0 OR MIT

//! Buffers for [`PageableCopy`].

use std::sync::PoisonError;

use virtio_cuda_client::CudaError;
use virtio_cuda_client::protocol::Box3;

use crate::driver::Driver;
use crate::entry::Api;
use crate::memory::host;
use crate::state::buffers::{Buffer, Buffers, PageableCopy};
use crate::state::memory::ranges::HostKind;

/// A free buffer is reused for copies that fill at least a fourth of it.
const WASTE: u64 = 4;
const PAGE_BYTES: u64 = 4096;

impl PageableCopy {
    /// Takes a buffer for a box of `size` at `user`.
    pub fn new(
        api: Api,
        user: u64,
        pitch: u64,
        height: u64,
        size: Box3,
        to_user: bool,
    ) -> Result<Self, CudaError> {
        let bytes = size.width.checked_mul(size.height).and_then(|bytes| bytes.checked_mul(size.depth));
        let bytes = bytes.filter(|&bytes| bytes > 0).ok_or(CudaError::INVALID_VALUE)?;
        let buffer = Some(api.driver.buffers.take(api, bytes)?);
        Ok(Self { user, pitch, height, size, to_user, buffer })
    }

    /// Returns the address of the buffer on the GPU.
    pub fn device_address(&self, api: Api) -> Result<u64, CudaError> {
        let address = self.buffer.as_ref().map_or(0, |buffer| buffer.address);
        let range = api.driver.memory.ranges.host(address).ok_or(CudaError::UNKNOWN)?;
        Ok(range.device_address_of(address))
    }
}

impl Drop for PageableCopy {
    /// Runs when no graph refers to the copy any more: its buffer becomes free for another copy.
    fn drop(&mut self) {
        if let (Some(driver), Some(buffer)) = (Driver::get(), self.buffer.take()) {
            driver.buffers.0.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
        }
    }
}

impl Buffers {
    fn take(&self, api: Api, bytes: u64) -> Result<Buffer, CudaError> {
        let context = api.context()?.0;
        let ranges = &api.driver.memory.ranges;
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The buffers of a destroyed context were freed with it.
        free.retain(|buffer| {
            ranges.host(buffer.address).is_some_and(|range| range.context == buffer.context)
        });
        let fits = |buffer: &Buffer| {
            let most = bytes.max(PAGE_BYTES).saturating_mul(WASTE);
            buffer.context == context && (bytes..=most).contains(&buffer.bytes)
        };
        if let Some(index) = free.iter().position(fits) {
            return Ok(free.swap_remove(index));
        }
        drop(free);
        let bytes = bytes.max(PAGE_BYTES);
        let allocate = || host::allocate(api, bytes as usize, HostKind::Allocated, 0);
        let address = api.with_capture_relaxed(allocate)?;
        Ok(Buffer { address, bytes, context })
    }
}
