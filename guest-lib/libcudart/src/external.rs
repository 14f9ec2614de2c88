// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory and semaphores of other APIs.

use core::ffi::{c_uint, c_void};

use crate::abi::driver::CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC;
use crate::abi::version::cudaExternalMemoryMipmappedArrayDesc;
use crate::abi::{
    CUdeviceptr, cudaExternalMemory_t, cudaExternalMemoryBufferDesc, cudaExternalMemoryHandleDesc,
    cudaExternalSemaphore_t, cudaExternalSemaphoreHandleDesc, cudaExternalSemaphoreSignalParams,
    cudaExternalSemaphoreWaitParams, cudaMipmappedArray_t, cudaStream_t,
};
use crate::api::{load, not_null};
use crate::memory::describe;
use crate::{driver, state};

api! {
    fn cudaImportExternalMemory(
        memory: *mut cudaExternalMemory_t, desc: *const cudaExternalMemoryHandleDesc,
    ) {
        not_null(memory)?;
        state::context()?;
        driver::cuImportExternalMemory(memory, desc)
    }

    fn cudaExternalMemoryGetMappedBuffer(
        pointer: *mut *mut c_void, memory: cudaExternalMemory_t, desc: *const cudaExternalMemoryBufferDesc,
    ) {
        not_null(pointer)?;
        state::context()?;
        driver::cuExternalMemoryGetMappedBuffer(pointer.cast::<CUdeviceptr>(), memory, desc)
    }

    fn cudaExternalMemoryGetMappedMipmappedArray(
        array: *mut cudaMipmappedArray_t, memory: cudaExternalMemory_t,
        desc: *const cudaExternalMemoryMipmappedArrayDesc,
    ) {
        not_null(array)?;
        let desc = load(desc)?;
        state::context()?;
        let desc = CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC {
            offset: desc.offset,
            arrayDesc: describe(&desc.formatDesc, desc.extent, desc.flags)?,
            numLevels: desc.numLevels,
            reserved: [0; 16],
        };
        driver::cuExternalMemoryGetMappedMipmappedArray(array, memory, &desc)
    }

    fn cudaDestroyExternalMemory(memory: cudaExternalMemory_t) {
        state::context()?;
        driver::cuDestroyExternalMemory(memory)
    }

    fn cudaImportExternalSemaphore(
        semaphore: *mut cudaExternalSemaphore_t, desc: *const cudaExternalSemaphoreHandleDesc,
    ) {
        not_null(semaphore)?;
        state::context()?;
        driver::cuImportExternalSemaphore(semaphore, desc)
    }

    fn cudaSignalExternalSemaphoresAsync, cudaSignalExternalSemaphoresAsync_ptsz(
        semaphores: *const cudaExternalSemaphore_t, parameters: *const cudaExternalSemaphoreSignalParams,
        count: c_uint,
        stream: cudaStream_t,
    ) per_thread stream {
        state::context()?;
        driver::cuSignalExternalSemaphoresAsync(semaphores, parameters, count, stream)
    }

    fn cudaWaitExternalSemaphoresAsync, cudaWaitExternalSemaphoresAsync_ptsz(
        semaphores: *const cudaExternalSemaphore_t, parameters: *const cudaExternalSemaphoreWaitParams,
        count: c_uint,
        stream: cudaStream_t,
    ) per_thread stream {
        state::context()?;
        driver::cuWaitExternalSemaphoresAsync(semaphores, parameters, count, stream)
    }

    fn cudaDestroyExternalSemaphore(semaphore: cudaExternalSemaphore_t) {
        state::context()?;
        driver::cuDestroyExternalSemaphore(semaphore)
    }
}
