// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Memory and semaphores of other processes and other APIs.

/// Passes the prototypes of this area to a macro.
#[macro_export]
macro_rules! external_prototypes {
    ($callback:ident) => {
        $callback! {
            fn cuDestroyExternalMemory(extMem: CUexternalMemory);
            fn cuDestroyExternalSemaphore(extSem: CUexternalSemaphore);
            fn cuExternalMemoryGetMappedBuffer(
                devPtr: *mut CUdeviceptr, extMem: CUexternalMemory,
                bufferDesc: *const CUDA_EXTERNAL_MEMORY_BUFFER_DESC,
            );
            fn cuExternalMemoryGetMappedMipmappedArray(
                mipmap: *mut CUmipmappedArray, extMem: CUexternalMemory,
                mipmapDesc: *const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC,
            );
            fn cuImportExternalMemory(
                extMem_out: *mut CUexternalMemory, memHandleDesc: *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
            );
            fn cuImportExternalSemaphore(
                extSem_out: *mut CUexternalSemaphore,
                semHandleDesc: *const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC,
            );
            fn cuIpcCloseMemHandle(dptr: CUdeviceptr);
            fn cuIpcGetEventHandle(pHandle: *mut CUipcEventHandle, event: CUevent);
            fn cuIpcGetMemHandle(pHandle: *mut CUipcMemHandle, dptr: CUdeviceptr);
            fn cuIpcOpenEventHandle(phEvent: *mut CUevent, handle: CUipcEventHandle);
            fn cuIpcOpenMemHandle(pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, Flags: c_uint);
            fn cuIpcOpenMemHandle_v2(pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, Flags: c_uint);
            fn cuSignalExternalSemaphoresAsync(
                extSemArray: *const CUexternalSemaphore,
                paramsArray: *const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, numExtSems: c_uint,
                stream: CUstream,
            );
            fn cuWaitExternalSemaphoresAsync(
                extSemArray: *const CUexternalSemaphore,
                paramsArray: *const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, numExtSems: c_uint,
                stream: CUstream,
            );
        }
    };
}
