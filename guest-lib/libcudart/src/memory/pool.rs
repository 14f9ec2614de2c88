// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stream-ordered allocation. Attributes, handle types and structs are the same in both APIs.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr;

use crate::abi::shared::cudaMemLocation;
use crate::abi::{
    CUdeviceptr, cudaMemAccessDesc, cudaMemPool_t, cudaMemPoolProps, cudaMemPoolPtrExportData, cudaStream_t,
};
use crate::error::cudaErrorInvalidValue;
use crate::memory::address;
use crate::pointers::{Out, not_null};
use crate::{driver, state};

api! {
    fn cudaMallocAsync, cudaMallocAsync_ptsz(
        memory: Out<*mut c_void>, size: usize, stream: cudaStream_t,
    ) per_thread stream {
        memory.check()?;
        state::context()?;
        if size == 0 {
            return memory.set(ptr::null_mut());
        }
    } => driver::cuMemAllocAsync(memory.as_ptr().cast::<CUdeviceptr>(), size, stream);

    fn cudaMallocFromPoolAsync, cudaMallocFromPoolAsync_ptsz(
        memory: Out<*mut c_void>, size: usize, pool: cudaMemPool_t, stream: cudaStream_t,
    ) per_thread stream {
        memory.check()?;
        state::context()?;
        if size == 0 {
            return memory.set(ptr::null_mut());
        }
    } => driver::cuMemAllocFromPoolAsync(memory.as_ptr().cast::<CUdeviceptr>(), size, pool, stream);

    fn cudaFreeAsync, cudaFreeAsync_ptsz(memory: *mut c_void, stream: cudaStream_t) per_thread stream {
        state::context()?;
        if memory.is_null() {
            return Ok(());
        }
    } => driver::cuMemFreeAsync(address(memory), stream);

    fn cudaMemPoolCreate(pool: *mut cudaMemPool_t, properties: *const cudaMemPoolProps) {
        not_null(pool)?;
        state::context()?;
    } => driver::cuMemPoolCreate(pool, properties);

    fn cudaMemPoolDestroy(pool: cudaMemPool_t) {
        state::context()?;
    } => driver::cuMemPoolDestroy(pool);

    fn cudaMemPoolTrimTo(pool: cudaMemPool_t, keep: usize) {
        state::context()?;
    } => driver::cuMemPoolTrimTo(pool, keep);

    fn cudaMemPoolSetAttribute(pool: cudaMemPool_t, attribute: c_uint, value: *mut c_void) {
        state::context()?;
    } => driver::cuMemPoolSetAttribute(pool, attribute, value);

    fn cudaMemPoolGetAttribute(pool: cudaMemPool_t, attribute: c_uint, value: *mut c_void) {
        state::context()?;
    } => driver::cuMemPoolGetAttribute(pool, attribute, value);

    fn cudaMemPoolSetAccess(pool: cudaMemPool_t, accesses: *const cudaMemAccessDesc, count: usize) {
        state::context()?;
    } => driver::cuMemPoolSetAccess(pool, accesses, count);

    fn cudaMemPoolGetAccess(flags: *mut c_uint, pool: cudaMemPool_t, location: *mut cudaMemLocation) {
        state::context()?;
    } => driver::cuMemPoolGetAccess(flags, pool, location);

    fn cudaMemPoolExportToShareableHandle(
        handle: *mut c_void, pool: cudaMemPool_t, handle_type: c_uint, flags: c_uint,
    ) {
        state::context()?;
    } => driver::cuMemPoolExportToShareableHandle(handle, pool, handle_type, u64::from(flags));

    fn cudaMemPoolImportFromShareableHandle(
        pool: *mut cudaMemPool_t, handle: *mut c_void, handle_type: c_uint, flags: c_uint,
    ) {
        state::context()?;
    } => driver::cuMemPoolImportFromShareableHandle(pool, handle, handle_type, u64::from(flags));

    fn cudaMemPoolExportPointer(data: *mut cudaMemPoolPtrExportData, memory: *mut c_void) {
        state::context()?;
    } => driver::cuMemPoolExportPointer(data, address(memory));

    fn cudaMemPoolImportPointer(
        memory: *mut *mut c_void, pool: cudaMemPool_t, data: *mut cudaMemPoolPtrExportData,
    ) {
        not_null(memory)?;
        state::context()?;
    } => driver::cuMemPoolImportPointer(memory.cast::<CUdeviceptr>(), pool, data);

    fn cudaDeviceGetDefaultMemPool(pool: *mut cudaMemPool_t, device: c_int) {
        not_null(pool)?;
        let device = state::runtime()?.device(device)?.handle;
    } => driver::cuDeviceGetDefaultMemPool(pool, device);

    fn cudaDeviceGetMemPool(pool: *mut cudaMemPool_t, device: c_int) {
        not_null(pool)?;
        let device = state::runtime()?.device(device).map_err(|_| cudaErrorInvalidValue)?.handle;
    } => driver::cuDeviceGetMemPool(pool, device);

    fn cudaDeviceSetMemPool(device: c_int, pool: cudaMemPool_t) {
        let device = state::runtime()?.device(device).map_err(|_| cudaErrorInvalidValue)?.handle;
    } => driver::cuDeviceSetMemPool(device, pool);

    #[cfg(cuda_major = "13")]
    fn cudaMemGetDefaultMemPool(pool: *mut cudaMemPool_t, location: *mut cudaMemLocation, kind: c_uint) {
        state::runtime()?;
    } => driver::cuMemGetDefaultMemPool(pool, location, kind);

    #[cfg(cuda_major = "13")]
    fn cudaMemGetMemPool(pool: *mut cudaMemPool_t, location: *mut cudaMemLocation, kind: c_uint) {
        state::runtime()?;
    } => driver::cuMemGetMemPool(pool, location, kind);

    #[cfg(cuda_major = "13")]
    fn cudaMemSetMemPool(location: *mut cudaMemLocation, kind: c_uint, pool: cudaMemPool_t) {
        state::runtime()?;
    } => driver::cuMemSetMemPool(location, kind, pool);
}
