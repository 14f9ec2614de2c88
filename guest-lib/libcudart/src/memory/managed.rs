// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hints for managed memory. Locations, advice and attributes are the same in both APIs.

use core::ffi::{c_uint, c_void};

use crate::abi::cudaStream_t;
use crate::abi::shared::cudaMemLocation;
use crate::memory::address;
use crate::{driver, state};

api! {
    fn cudaMemAdvise / cudaMemAdvise_v2(memory: *const c_void, size: usize, advice: c_uint, location: cudaMemLocation) {
        state::context()?;
    } => driver::cuMemAdvise_v2(address(memory), size, advice, location);

    fn cudaMemPrefetchAsync / cudaMemPrefetchAsync_v2, cudaMemPrefetchAsync_ptsz / cudaMemPrefetchAsync_v2_ptsz(
        memory: *const c_void, size: usize, location: cudaMemLocation, flags: c_uint, stream: cudaStream_t,
    ) per_thread stream {
        state::context()?;
    } => driver::cuMemPrefetchAsync_v2(address(memory), size, location, flags, stream);

    fn cudaMemRangeGetAttribute(
        data: *mut c_void, data_size: usize, attribute: c_uint, memory: *const c_void, size: usize,
    ) {
        state::context()?;
    } => driver::cuMemRangeGetAttribute(data, data_size, attribute, address(memory), size);

    fn cudaMemRangeGetAttributes(
        data: *mut *mut c_void, data_sizes: *mut usize, attributes: *mut c_uint, count: usize,
        memory: *const c_void, size: usize,
    ) {
        state::context()?;
    } => driver::cuMemRangeGetAttributes(data, data_sizes, attributes, count, address(memory), size);
}
