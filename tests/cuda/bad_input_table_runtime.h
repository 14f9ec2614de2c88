// SPDX-License-Identifier: Apache-2.0 OR MIT
// Every entry point of the runtime API with good arguments: devices, streams, events, launches, libraries.
#pragma once

#include "bad_input_runtime.h"

namespace bad_input {

inline void runtime_table() {
    P(cudaDeviceSetLimit, _, 16);
    P(cudaDeviceGetLimit);
    P(cudaDeviceGetTexture1DLinearMaxWidth);
    P(cudaDeviceGetCacheConfig);
    P(cudaDeviceGetStreamPriorityRange);
    P(cudaDeviceSetCacheConfig);
    P(cudaDeviceGetByPCIBusId, _, pci_address);
    P(cudaDeviceGetPCIBusId, _, 128, _);
    P(cudaDeviceFlushGPUDirectRDMAWrites);
    P(cudaDeviceRegisterAsyncNotification);
    P(cudaDeviceUnregisterAsyncNotification);
    P(cudaDeviceGetSharedMemConfig);
    P(cudaDeviceSetSharedMemConfig);
    P(cudaGetDeviceCount);
    P(cudaGetDeviceProperties);
    P(cudaDeviceGetAttribute);
    P(cudaDeviceGetHostAtomicCapabilities, _, _, keep(1), _);
    P(cudaDeviceGetNvSciSyncAttributes);
    P(cudaDeviceGetP2PAttribute);
    P(cudaDeviceGetP2PAtomicCapabilities, _, _, keep(1), _, _);
    P(cudaChooseDevice);
    P(cudaInitDevice);
    P(cudaSetDevice);
    P(cudaGetDevice);
    P(cudaSetValidDevices, _, keep(1));
    P(cudaSetDeviceFlags);
    P(cudaGetDeviceFlags);
    P(cudaStreamCreate);
    P(cudaStreamCreateWithFlags);
    P(cudaStreamCreateWithPriority);
    P(cudaStreamGetPriority);
    P(cudaStreamGetFlags);
    P(cudaStreamGetId);
    P(cudaStreamGetDevice);
    P(cudaStreamCopyAttributes);
    P(cudaStreamGetAttribute);
    P(cudaStreamSetAttribute);
    P(cudaStreamDestroy);
    P(cudaStreamWaitEvent);
    P(cudaStreamAddCallback);
    P(cudaStreamSynchronize);
    P(cudaStreamQuery);
    P(cudaStreamAttachMemAsync, _, memory, 16, _);
    P(cudaStreamBeginCapture);
    P(cudaThreadExchangeStreamCaptureMode);
    P(cudaStreamEndCapture);
    P(cudaStreamIsCapturing);
    P(cudaStreamGetCaptureInfo);
    P(cudaStreamUpdateCaptureDependencies, _, _, _, keep(0), _);
    P(cudaEventCreate);
    P(cudaEventCreateWithFlags);
    P(cudaEventRecord);
    P(cudaEventRecordWithFlags);
    P(cudaEventQuery);
    P(cudaEventSynchronize);
    P(cudaEventDestroy);
    P(cudaEventElapsedTime);
    P(cudaLaunchKernel, kernel(), one, one, keep(nullptr), 0, _);
    P(cudaLaunchKernelExC, _, kernel(), keep(nullptr));
    P(cudaLaunchCooperativeKernel, kernel(), one, one, keep(nullptr), 0, _);
    P(cudaFuncSetCacheConfig, kernel(), _);
    P(cudaFuncGetAttributes, _, kernel());
    P(cudaFuncSetAttribute, kernel(), _, _);
    P(cudaFuncGetName, _, kernel());
    P(cudaFuncGetParamInfo, kernel(), 0, _, _);
    P(cudaLaunchHostFunc);
    P(cudaFuncSetSharedMemConfig, kernel(), _);
    P(cudaOccupancyMaxActiveBlocksPerMultiprocessor, _, kernel(), 32, 0);
    P(cudaOccupancyAvailableDynamicSMemPerBlock, _, kernel(), _, 32);
    P(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, _, kernel(), 32, 0, _);
    P(cudaOccupancyMaxPotentialClusterSize, _, kernel(), _);
    P(cudaOccupancyMaxActiveClusters, _, kernel(), _);
    P(cudaDeviceCanAccessPeer);
    P(cudaDeviceEnablePeerAccess);
    P(cudaDeviceDisablePeerAccess);
    P(cudaGraphicsUnregisterResource);
    P(cudaGraphicsResourceSetMapFlags);
    P(cudaGraphicsMapResources, keep(1), _, _);
    P(cudaGraphicsUnmapResources, keep(1), _, _);
    P(cudaGraphicsResourceGetMappedPointer);
    P(cudaGraphicsSubResourceGetMappedArray);
    P(cudaGraphicsResourceGetMappedMipmappedArray);
    P(cudaDriverGetVersion);
    P(cudaRuntimeGetVersion);
    P(cudaLogsRegisterCallback);
    P(cudaLogsUnregisterCallback);
    P(cudaLogsCurrent);
    P(cudaLogsDumpToFile, _, "/dev/null", _);
    P(cudaLogsDumpToMemory);
    P(cudaGetDriverEntryPoint, "cuInit", _, _, _);
    P(cudaGetDriverEntryPointByVersion, "cuInit", _, 13000, _, _);
    P(cudaLibraryLoadData, _, kPtx, _, _, keep(0), _, _, keep(0));
    P(cudaLibraryLoadFromFile, _, "/nonexistent", _, _, keep(0), _, _, keep(0));
    P(cudaLibraryUnload);
    P(cudaLibraryGetKernel, _, _, "nothing");
    P(cudaLibraryGetGlobal, _, _, _, "number");
    P(cudaLibraryGetManaged, _, _, _, "number");
    P(cudaLibraryGetUnifiedFunction, _, _, "nothing");
    P(cudaLibraryGetKernelCount);
    P(cudaLibraryEnumerateKernels, _, keep(1), _);
    P(cudaKernelSetAttributeForDevice);
    P(cudaGetExportTable);
    P(cudaGetFuncBySymbol);
    P(cudaGetKernel, _, kernel());
}

}  // namespace bad_input
