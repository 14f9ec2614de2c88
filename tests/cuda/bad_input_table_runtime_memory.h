// SPDX-License-Identifier: Apache-2.0 OR MIT
// Every entry point of the runtime API with good arguments: memory.
#pragma once

#include "bad_input_runtime.h"

namespace bad_input {

inline void runtime_memory_table() {
    P(cudaIpcGetEventHandle);
    P(cudaIpcOpenEventHandle);
    P(cudaIpcGetMemHandle, _, memory);
    P(cudaIpcOpenMemHandle);
    P(cudaIpcCloseMemHandle, memory);
    P(cudaDeviceGetDefaultMemPool);
    P(cudaDeviceSetMemPool);
    P(cudaDeviceGetMemPool);
    P(cudaImportExternalMemory);
    P(cudaExternalMemoryGetMappedBuffer);
    P(cudaExternalMemoryGetMappedMipmappedArray);
    P(cudaDestroyExternalMemory);
    P(cudaImportExternalSemaphore);
    P(cudaSignalExternalSemaphoresAsync, _, _, keep(1), _);
    P(cudaWaitExternalSemaphoresAsync, _, _, keep(1), _);
    P(cudaDestroyExternalSemaphore);
    P(cudaMallocManaged, _, 16, _);
    P(cudaMalloc, _, 16);
    P(cudaMallocHost, _, 16);
    P(cudaMallocPitch, _, _, 4, 4);
    P(cudaMallocArray, _, _, 4, 4, _);
    P(cudaFree, memory);
    P(cudaFreeHost, host);
    P(cudaFreeArray);
    P(cudaFreeMipmappedArray);
    P(cudaHostAlloc, _, 16, _);
    P(cudaHostRegister, _, 16, _);
    P(cudaHostUnregister, host);
    P(cudaHostGetDevicePointer, _, host, _);
    P(cudaHostGetFlags, _, host);
    P(cudaMalloc3D);
    P(cudaMalloc3DArray);
    P(cudaMallocMipmappedArray);
    P(cudaGetMipmappedArrayLevel);
    P(cudaMemcpy3D);
    P(cudaMemcpy3DPeer);
    P(cudaMemcpy3DAsync);
    P(cudaMemcpy3DPeerAsync);
    P(cudaMemGetInfo);
    P(cudaArrayGetInfo);
    P(cudaArrayGetPlane);
    P(cudaArrayGetMemoryRequirements);
    P(cudaMipmappedArrayGetMemoryRequirements);
    P(cudaArrayGetSparseProperties);
    P(cudaMipmappedArrayGetSparseProperties);
    P(cudaMemcpy, memory, host, 16, cudaMemcpyDefault);
    P(cudaMemcpyPeer, memory, _, host, _, 16);
    P(cudaMemcpy2D, memory, 64, host, 64, 4, 4, cudaMemcpyDefault);
    P(cudaMemcpy2DToArray, _, 0, 0, host, 64, 4, 4, cudaMemcpyDefault);
    P(cudaMemcpy2DFromArray, memory, 64, _, 0, 0, 4, 4, cudaMemcpyDefault);
    P(cudaMemcpy2DArrayToArray, _, 0, 0, _, 0, 0, 4, 4, cudaMemcpyDefault);
    P(cudaMemcpyToSymbol, _, host, 16, 0, cudaMemcpyDefault);
    P(cudaMemcpyFromSymbol, memory, _, 16, 0, cudaMemcpyDefault);
    P(cudaMemcpyAsync, memory, host, 16, cudaMemcpyDefault, _);
    P(cudaMemcpyPeerAsync, memory, _, host, _, 16, _);
    P(cudaMemcpyBatchAsync, _, _, _, keep(1), _, _, keep(0), _);
    P(cudaMemcpy3DBatchAsync, keep(1), _, _, _);
    P(cudaMemcpy2DAsync, memory, 64, host, 64, 4, 4, cudaMemcpyDefault, _);
    P(cudaMemcpy2DToArrayAsync, _, 0, 0, host, 64, 4, 4, cudaMemcpyDefault, _);
    P(cudaMemcpy2DFromArrayAsync, memory, 64, _, 0, 0, 4, 4, cudaMemcpyDefault, _);
    P(cudaMemcpyToSymbolAsync, _, host, 16, 0, cudaMemcpyDefault, _);
    P(cudaMemcpyFromSymbolAsync, memory, _, 16, 0, cudaMemcpyDefault, _);
    P(cudaMemset, memory, _, 16);
    P(cudaMemset2D, memory, 64, _, 4, 4);
    P(cudaMemset3D);
    P(cudaMemsetAsync, memory, _, 16, _);
    P(cudaMemset2DAsync, memory, 64, _, 4, 4, _);
    P(cudaMemset3DAsync);
    P(cudaGetSymbolAddress);
    P(cudaGetSymbolSize);
    P(cudaMemPrefetchAsync, memory, 16, _, _, _);
    P(cudaMemPrefetchBatchAsync, _, _, keep(1), _, _, keep(0), _, _);
    P(cudaMemDiscardBatchAsync, _, _, keep(1), _, _);
    P(cudaMemDiscardAndPrefetchBatchAsync, _, _, keep(1), _, _, keep(0), _, _);
    P(cudaMemAdvise, memory, 16, _, _);
    P(cudaMemRangeGetAttribute, _, keep(4), _, memory, 16);
    P(cudaMemRangeGetAttributes, _, _, _, keep(1), memory, 16);
    P(cudaMemcpyToArray, _, 0, 0, host, 16, cudaMemcpyDefault);
    P(cudaMemcpyFromArray, memory, _, 0, 0, 16, cudaMemcpyDefault);
    P(cudaMemcpyArrayToArray, _, 0, 0, _, 0, 0, 16, cudaMemcpyDefault);
    P(cudaMemcpyToArrayAsync, _, 0, 0, host, 16, cudaMemcpyDefault, _);
    P(cudaMemcpyFromArrayAsync, memory, _, 0, 0, 16, cudaMemcpyDefault, _);
    P(cudaMallocAsync, _, 16, _);
    P(cudaFreeAsync, memory, _);
    P(cudaMemPoolTrimTo, _, 16);
    P(cudaMemPoolSetAttribute);
    P(cudaMemPoolGetAttribute);
    P(cudaMemPoolSetAccess, _, _, keep(1));
    P(cudaMemPoolGetAccess);
    P(cudaMemPoolCreate);
    P(cudaMemPoolDestroy);
    P(cudaMemGetDefaultMemPool);
    P(cudaMemGetMemPool);
    P(cudaMemSetMemPool);
    P(cudaMallocFromPoolAsync, _, 16, _, _);
    P(cudaMemPoolExportToShareableHandle);
    P(cudaMemPoolImportFromShareableHandle);
    P(cudaMemPoolExportPointer, _, memory);
    P(cudaMemPoolImportPointer);
    P(cudaPointerGetAttributes, _, memory);
    P(cudaGetChannelDesc);
    P(cudaCreateTextureObject);
    P(cudaDestroyTextureObject);
    P(cudaGetTextureObjectResourceDesc);
    P(cudaGetTextureObjectTextureDesc);
    P(cudaGetTextureObjectResourceViewDesc);
    P(cudaCreateSurfaceObject);
    P(cudaDestroySurfaceObject);
    P(cudaGetSurfaceObjectResourceDesc);
}

}  // namespace bad_input
