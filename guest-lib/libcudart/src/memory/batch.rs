// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Batches of copies or hints in one call. Attributes, operations and arrays of pointers have the same layout in both
//! APIs.

use core::ffi::c_void;

use crate::abi::shared::cudaMemLocation;
use crate::abi::{CUdeviceptr, cudaMemcpy3DBatchOp, cudaMemcpyAttributes, cudaStream_t};
use crate::{driver, state};

api! {
    fn cudaMemcpyBatchAsync, cudaMemcpyBatchAsync_ptsz(
        targets: *const *mut c_void, sources: *const *const c_void, sizes: *const usize, count: usize,
        attributes: *mut cudaMemcpyAttributes, first_indices: *mut usize, attribute_count: usize,
        stream: cudaStream_t,
    ) per_thread stream {
        state::context()?;
        let (targets, sources) = (targets.cast_mut().cast::<CUdeviceptr>(), sources.cast_mut().cast::<CUdeviceptr>());
    } => driver::cuMemcpyBatchAsync_v2(
        targets, sources, sizes.cast_mut(), count, attributes, first_indices, attribute_count, stream,
    );

    fn cudaMemcpy3DBatchAsync, cudaMemcpy3DBatchAsync_ptsz(
        count: usize, operations: *mut cudaMemcpy3DBatchOp, flags: u64, stream: cudaStream_t,
    ) per_thread stream {
        state::context()?;
    } => driver::cuMemcpy3DBatchAsync_v2(count, operations, flags, stream);

    fn cudaMemPrefetchBatchAsync, cudaMemPrefetchBatchAsync_ptsz(
        memory: *mut *mut c_void, sizes: *mut usize, count: usize,
        locations: *mut cudaMemLocation, first_indices: *mut usize, location_count: usize, flags: u64,
        stream: cudaStream_t,
    ) per_thread stream {
        state::context()?;
        let memory = memory.cast::<CUdeviceptr>();
    } => driver::cuMemPrefetchBatchAsync(memory, sizes, count, locations, first_indices, location_count, flags, stream);

    fn cudaMemDiscardBatchAsync, cudaMemDiscardBatchAsync_ptsz(
        memory: *mut *mut c_void, sizes: *mut usize, count: usize, flags: u64, stream: cudaStream_t,
    ) per_thread stream {
        state::context()?;
    } => driver::cuMemDiscardBatchAsync(memory.cast::<CUdeviceptr>(), sizes, count, flags, stream);

    fn cudaMemDiscardAndPrefetchBatchAsync, cudaMemDiscardAndPrefetchBatchAsync_ptsz(
        memory: *mut *mut c_void, sizes: *mut usize, count: usize,
        locations: *mut cudaMemLocation, first_indices: *mut usize, location_count: usize, flags: u64,
        stream: cudaStream_t,
    ) per_thread stream {
        state::context()?;
        let memory = memory.cast::<CUdeviceptr>();
    } => driver::cuMemDiscardAndPrefetchBatchAsync(
        memory, sizes, count, locations, first_indices, location_count, flags, stream,
    );
}
