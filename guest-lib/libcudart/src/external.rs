// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory and semaphores of other APIs.

use core::ffi::{c_uint, c_void};

use crate::abi::driver::{CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC, Extended};
use crate::abi::version::{self, cudaExternalMemoryMipmappedArrayDesc};
use crate::abi::{
    CUdeviceptr, cudaExternalMemory_t, cudaExternalMemoryBufferDesc, cudaExternalMemoryHandleDesc,
    cudaExternalSemaphore_t, cudaExternalSemaphoreHandleDesc, cudaExternalSemaphoreSignalParams,
    cudaExternalSemaphoreWaitParams, cudaMipmappedArray_t, cudaStream_t,
};
use crate::memory::describe;
use crate::pointers::{In, not_null};
use crate::texture::channel::Format;
use crate::{driver, state};

api! {
    fn cudaImportExternalMemory(
        memory: *mut cudaExternalMemory_t, desc: *const cudaExternalMemoryHandleDesc,
    ) {
        not_null(memory)?;
        // SAFETY: the program promises a null pointer or a description, which has this size.
        let desc = unsafe { Extended::<104>::of(desc, version::EXTERNAL_MEMORY_HANDLE_BYTES) }?;
        state::context()?;
    } => driver::cuImportExternalMemory(memory, desc.as_ptr());

    fn cudaExternalMemoryGetMappedBuffer(
        pointer: *mut *mut c_void, memory: cudaExternalMemory_t, desc: *const cudaExternalMemoryBufferDesc,
    ) {
        not_null(pointer)?;
        // SAFETY: the program promises a null pointer or a description, which has this size.
        let desc = unsafe { Extended::<88>::of(desc, version::EXTERNAL_BUFFER_BYTES) }?;
        state::context()?;
    } => driver::cuExternalMemoryGetMappedBuffer(pointer.cast::<CUdeviceptr>(), memory, desc.as_ptr());

    fn cudaExternalMemoryGetMappedMipmappedArray(
        array: *mut cudaMipmappedArray_t, memory: cudaExternalMemory_t,
        desc: In<cudaExternalMemoryMipmappedArrayDesc>,
    ) {
        let desc = desc.get()?;
        state::context()?;
        Format::of(&desc.formatDesc)?;
        let desc = CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC {
            offset: desc.offset,
            array: describe(&desc.formatDesc, desc.extent, desc.flags)?,
            levels: desc.numLevels,
            ..CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC::ZERO
        };
        not_null(array)?;
    } => driver::cuExternalMemoryGetMappedMipmappedArray(array, memory, &desc);

    fn cudaDestroyExternalMemory(memory: cudaExternalMemory_t) {
        state::context()?;
    } => driver::cuDestroyExternalMemory(memory);

    fn cudaImportExternalSemaphore(
        semaphore: *mut cudaExternalSemaphore_t, desc: *const cudaExternalSemaphoreHandleDesc,
    ) {
        not_null(semaphore)?;
        // SAFETY: the program promises a null pointer or a description, which has this size.
        let desc = unsafe { Extended::<96>::of(desc, version::EXTERNAL_SEMAPHORE_HANDLE_BYTES) }?;
        state::context()?;
    } => driver::cuImportExternalSemaphore(semaphore, desc.as_ptr());

    fn cudaSignalExternalSemaphoresAsync / cudaSignalExternalSemaphoresAsync_v2, cudaSignalExternalSemaphoresAsync_ptsz / cudaSignalExternalSemaphoresAsync_v2_ptsz(
        semaphores: *const cudaExternalSemaphore_t, parameters: *const cudaExternalSemaphoreSignalParams,
        count: c_uint,
        stream: cudaStream_t,
    ) per_thread stream {
        state::context()?;
    } => driver::cuSignalExternalSemaphoresAsync(semaphores, parameters, count, stream);

    fn cudaWaitExternalSemaphoresAsync / cudaWaitExternalSemaphoresAsync_v2, cudaWaitExternalSemaphoresAsync_ptsz / cudaWaitExternalSemaphoresAsync_v2_ptsz(
        semaphores: *const cudaExternalSemaphore_t, parameters: *const cudaExternalSemaphoreWaitParams,
        count: c_uint,
        stream: cudaStream_t,
    ) per_thread stream {
        state::context()?;
    } => driver::cuWaitExternalSemaphoresAsync(semaphores, parameters, count, stream);

    fn cudaDestroyExternalSemaphore(semaphore: cudaExternalSemaphore_t) {
        state::context()?;
    } => driver::cuDestroyExternalSemaphore(semaphore);
}
