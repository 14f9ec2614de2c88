// SPDX-License-Identifier: Apache-2.0 OR MIT
// nvcc: -Xcompiler -O0
// The driver API: names of versions before the present one, of which programs built long ago hold the addresses.
#define __CUDA_API_VERSION_INTERNAL
#include "bad_input_driver.h"
#include "bad_input_fields.h"

using namespace bad_input;

// Addresses of 32 bits.
static void addresses_32() {
    P(cuDeviceTotalMem);
    P(cuCtxCreate);
    P(cuModuleGetGlobal, _, _, _, "number");
    P(cuMemGetInfo);
    P(cuMemAlloc, _, 16);
    P(cuMemAllocPitch, _, _, 4, 4, 4);
    P(cuMemFree, 0);
    P(cuMemGetAddressRange, _, _, 1);
    P(cuMemAllocHost, _, 16);
    P(cuMemHostGetDevicePointer, _, host, _);
    P(cuMemcpyHtoD, 1, host, 16);
    P(cuMemcpyDtoH, host, 1, 16);
    P(cuMemcpyDtoD, 1, 2, 16);
    P(cuMemcpyDtoA, _, 0, 1, 16);
    P(cuMemcpyAtoD, 1, _, 0, 16);
    P(cuMemcpyHtoA, _, 0, host, 16);
    P(cuMemcpyAtoH, host, _, 0, 16);
    P(cuMemcpyAtoA, _, 0, _, 0, 16);
    P(cuMemcpyHtoAAsync, _, 0, host, 16, _);
    P(cuMemcpyAtoHAsync, host, _, 0, 16, _);
    P(cuMemcpy2D);
    P(cuMemcpy2DUnaligned);
    P(cuMemcpy3D);
    P(cuMemcpyHtoDAsync, 1, host, 16, _);
    P(cuMemcpyDtoHAsync, host, 1, 16, _);
    P(cuMemcpyDtoDAsync, 1, 2, 16, _);
    P(cuMemcpy2DAsync);
    P(cuMemcpy3DAsync);
    P(cuMemsetD8, 1, _, 16);
    P(cuMemsetD16, 2, _, 16);
    P(cuMemsetD32, 4, _, 16);
    P(cuMemsetD2D8, 1, 64, _, 4, 4);
    P(cuMemsetD2D16, 2, 64, _, 4, 4);
    P(cuMemsetD2D32, 4, 64, _, 4, 4);
    P(cuArrayCreate);
    P(cuArrayGetDescriptor);
    P(cuArray3DCreate);
    P(cuArray3DGetDescriptor);
    LINE_CALL(cuDeviceTotalMem, " good", (unsigned *)room, 0);
    LINE_CALL(cuMemGetInfo, " good", (unsigned *)room, (unsigned *)room);
    LINE_CALL(cuMemAlloc, " good", (unsigned *)room, 16);
    LINE_CALL(cuMemAllocHost, " good", (void **)room, 16);
    LINE_CALL(cuModuleGetGlobal, " good", (unsigned *)room, (unsigned *)room, Handle<CUmodule>::good, "number");
    LINE_CALL(cuArrayGetDescriptor, " good", (CUDA_ARRAY_DESCRIPTOR_v1 *)room, Handle<CUarray>::good);
    LINE_CALL(cuMemcpyHtoA, " good", Handle<CUarray>::good, 0, host, 16);
    LINE_CALL(cuMemcpyAtoH, " good", host, Handle<CUarray>::good, 0, 16);
    LINE_CALL(cuMemcpyAtoA, " good", Handle<CUarray>::good, 0, Handle<CUarray>::good, 32, 16);
    LINE_CALL(cuCtxCreate, " good", &Handle<CUcontext>::freed, 0, 0);
    LINE_CALL(cuMemcpyHtoD, " nothing", 0, host, 0);
}

static void table() {
    addresses_32();
    P(cuMemHostRegister, host, 16, _);
    P(cuLinkCreate, keep(0), _, _, _);
    P(cuLinkAddData, _, CU_JIT_INPUT_PTX, (void *)kPtx, keep(sizeof kPtx), "name", keep(0), _, _);
    P(cuLinkAddFile, _, CU_JIT_INPUT_PTX, "/nonexistent", keep(0), _, _);
    P(cuCtxCreate_v2);
    P(cuCtxCreate_v3, _, _, keep(0), _, _);
    P(cuCtxDestroy);
    P(cuCtxPopCurrent);
    P(cuCtxPushCurrent);
    P(cuStreamDestroy);
    P(cuEventDestroy);
    P(cuEventElapsedTime);
    P(cuDevicePrimaryCtxRelease);
    P(cuDevicePrimaryCtxReset);
    P(cuDevicePrimaryCtxSetFlags);
    P(cuDeviceGetUuid);
    P(cuMemcpyBatchAsync, _, _, _, keep(1), _, _, keep(0), _, _);
    P(cuMemcpyBatchAsync_ptsz, _, _, _, keep(1), _, _, keep(0), _, _);
    P(cuMemcpy3DBatchAsync, keep(1), _, _, _, _);
    P(cuMemcpy3DBatchAsync_ptsz, keep(1), _, _, _, _);
    P(cuStreamGetCtx);
    P(cuStreamGetCtx_v2);
    P(cuStreamWriteValue32, _, memory, _, _);
    P(cuStreamWaitValue32, _, memory, keep(0), _);
    P(cuStreamWriteValue64, _, memory, _, _);
    P(cuStreamWaitValue64, _, memory, keep(0), _);
    P(cuStreamBatchMemOp, _, keep(1), _, _);
    P(cuStreamWriteValue32_ptsz, _, memory, _, _);
    P(cuStreamWaitValue32_ptsz, _, memory, keep(0), _);
    P(cuStreamWriteValue64_ptsz, _, memory, _, _);
    P(cuStreamWaitValue64_ptsz, _, memory, keep(0), _);
    P(cuStreamBatchMemOp_ptsz, _, keep(1), _, _);
    P(cuMemPrefetchAsync, memory, 16, _, _);
    P(cuMemPrefetchAsync_ptsz, memory, 16, _, _);
    P(cuMemAdvise, memory, 16, _, _);
    P(cuStreamBeginCapture);
    P(cuStreamBeginCapture_ptsz);
    P(cuStreamGetCaptureInfo);
    P(cuStreamGetCaptureInfo_ptsz);
    P(cuStreamGetCaptureInfo_v2);
    P(cuStreamGetCaptureInfo_v2_ptsz);
    P(cuStreamUpdateCaptureDependencies, _, _, keep(0), _);
    P(cuStreamUpdateCaptureDependencies_ptsz, _, _, keep(0), _);
    P(cuGraphAddKernelNode, _, _, _, keep(0), _);
    P(cuGraphKernelNodeGetParams);
    P(cuGraphKernelNodeSetParams);
    P(cuGraphExecKernelNodeSetParams);
    P(cuGraphExecUpdate);
    P(cuGraphGetEdges);
    P(cuGraphNodeGetDependencies);
    P(cuGraphNodeGetDependentNodes);
    P(cuGraphAddDependencies, _, _, _, keep(0));
    P(cuGraphRemoveDependencies, _, _, _, keep(0));
    P(cuGraphAddNode, _, _, _, keep(0), _);
    P(cuGraphInstantiate);
    P(cuGraphInstantiate_v2);
    P(cuIpcOpenMemHandle);
    P(cuGetProcAddress, "cuInit", _, 13000, _);
    P(cuGetErrorName);
    P(cuGetErrorString);
    P(cuInit);
    P(cuCtxResetPersistingL2Cache);
    LINE_CALL(cuGetErrorName, " unknown", (CUresult)123456, (const char **)room);
    LINE_CALL(cuGetErrorString, " unknown", (CUresult)123456, (const char **)room);
    LINE_CALL(cuGetErrorString, " unknown-no-room", (CUresult)123456, nullptr);
    LINE_CALL(cuInit, " flags", 1);
    LINE_CALL(cuCtxSynchronize, "");
    LINE_CALL(cuCtxResetPersistingL2Cache, "");
    LINE_CALL(cuGraphAddDependencies, " none", Handle<CUgraph>::good, nullptr, nullptr, 1);
    LINE_CALL(cuStreamUpdateCaptureDependencies, " none", Handle<CUstream>::good, nullptr, 1, 0);
}

int main(int count, char **arguments) {
    return main_of(count, arguments, [] { set_up_driver(table); }, driver_is_healthy);
}
