// SPDX-License-Identifier: Apache-2.0 OR MIT
// The set-up of the tables for the runtime API: one good and one destroyed object of each kind.
#pragma once

#include "bad_input.h"

#include <cuda_runtime_api.h>

// Deprecated calls are part of the table.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#if CUDART_VERSION >= 13000
BAD_INPUT_HANDLE(cudaLibrary_t)
BAD_INPUT_HANDLE(cudaKernel_t)
BAD_INPUT_HANDLE(cudaLogsCallbackHandle)
#endif
BAD_INPUT_HANDLE(cudaFunction_t)
BAD_INPUT_HANDLE(cudaStream_t)
BAD_INPUT_HANDLE(cudaEvent_t)
BAD_INPUT_HANDLE(cudaArray_t)
BAD_INPUT_HANDLE(cudaArray_const_t)
BAD_INPUT_HANDLE(cudaMipmappedArray_t)
BAD_INPUT_HANDLE(cudaMipmappedArray_const_t)
BAD_INPUT_HANDLE(cudaMemPool_t)
BAD_INPUT_HANDLE(cudaGraph_t)
BAD_INPUT_HANDLE(cudaGraphNode_t)
BAD_INPUT_HANDLE(cudaGraphExec_t)
BAD_INPUT_HANDLE(cudaUserObject_t)
BAD_INPUT_HANDLE(cudaExternalMemory_t)
BAD_INPUT_HANDLE(cudaExternalSemaphore_t)
BAD_INPUT_HANDLE(cudaGraphicsResource_t)
BAD_INPUT_HANDLE(cudaAsyncCallbackHandle_t)

namespace bad_input {

static const char kPtx[] = R"(
.version 7.0
.target sm_52
.address_size 64
.visible .global .align 4 .u32 number;
.visible .entry nothing() { ret; }
)";

static void *memory;
static void *host;
static char pci_address[64];
static const dim3 one = {1, 1, 1};

#define BAD_INPUT_TEXT_(name) #name
#define BAD_INPUT_TEXT(name) BAD_INPUT_TEXT_(name)
#define P(name, ...) probe(BAD_INPUT_TEXT(name), &name, ##__VA_ARGS__)
#define CALL(name, ...) name(__VA_ARGS__)

#if CUDART_VERSION >= 13000
inline void *kernel() { return Handle<cudaKernel_t>::good; }

inline void objects_of_code() {
    cudaLibraryLoadData(&Handle<cudaLibrary_t>::good, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0);
    cudaLibraryGetKernel(&Handle<cudaKernel_t>::good, Handle<cudaLibrary_t>::good, "nothing");
    cudaLibraryLoadData(&Handle<cudaLibrary_t>::freed, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0);
    cudaLibraryGetKernel(&Handle<cudaKernel_t>::freed, Handle<cudaLibrary_t>::freed, "nothing");
    cudaLibraryUnload(Handle<cudaLibrary_t>::freed);
}
#else
inline void objects_of_code() {}
#endif

inline void objects_of_memory() {
    cudaMalloc(&memory, 65536);
    cudaHostAlloc(&host, 65536, 0);
    const cudaChannelFormatDesc bytes = {8, 0, 0, 0, cudaChannelFormatKindUnsigned};
    cudaMallocArray(&Handle<cudaArray_t>::good, &bytes, 16, 16, 0);
    Handle<cudaArray_const_t>::good = Handle<cudaArray_t>::good;
    cudaMallocArray(&Handle<cudaArray_t>::freed, &bytes, 16, 16, 0);
    cudaFreeArray(Handle<cudaArray_t>::freed);
    Handle<cudaArray_const_t>::freed = Handle<cudaArray_t>::freed;
    cudaMallocMipmappedArray(&Handle<cudaMipmappedArray_t>::good, &bytes, {16, 16, 0}, 2, 0);
    Handle<cudaMipmappedArray_const_t>::good = Handle<cudaMipmappedArray_t>::good;
    cudaMallocMipmappedArray(&Handle<cudaMipmappedArray_t>::freed, &bytes, {16, 16, 0}, 2, 0);
    cudaFreeMipmappedArray(Handle<cudaMipmappedArray_t>::freed);
    Handle<cudaMipmappedArray_const_t>::freed = Handle<cudaMipmappedArray_t>::freed;
    cudaMemPoolProps pool = {};
    pool.allocType = cudaMemAllocationTypePinned;
    pool.location.type = cudaMemLocationTypeDevice;
    cudaMemPoolCreate(&Handle<cudaMemPool_t>::good, &pool);
    cudaMemPoolCreate(&Handle<cudaMemPool_t>::freed, &pool);
    cudaMemPoolDestroy(Handle<cudaMemPool_t>::freed);
}

inline void objects_of_graphs() {
    cudaGraphCreate(&Handle<cudaGraph_t>::good, 0);
    cudaGraphAddEmptyNode(&Handle<cudaGraphNode_t>::good, Handle<cudaGraph_t>::good, nullptr, 0);
    cudaGraphInstantiate(&Handle<cudaGraphExec_t>::good, Handle<cudaGraph_t>::good, 0);
    cudaGraphCreate(&Handle<cudaGraph_t>::freed, 0);
    cudaGraphAddEmptyNode(&Handle<cudaGraphNode_t>::freed, Handle<cudaGraph_t>::freed, nullptr, 0);
    cudaGraphInstantiate(&Handle<cudaGraphExec_t>::freed, Handle<cudaGraph_t>::freed, 0);
    cudaGraphExecDestroy(Handle<cudaGraphExec_t>::freed);
    cudaGraphDestroy(Handle<cudaGraph_t>::freed);
    cudaUserObjectCreate(&Handle<cudaUserObject_t>::good, host, usual<cudaHostFn_t>(), 1,
                         cudaUserObjectNoDestructorSync);
}

// In a child: whatever is not served stays null.
inline void set_up_runtime(void (*table)()) {
    cudaFree(nullptr);
    cudaDeviceGetPCIBusId(pci_address, sizeof pci_address, 0);
    objects_of_code();
    cudaStreamCreate(&Handle<cudaStream_t>::good);
    cudaStreamCreate(&Handle<cudaStream_t>::freed);
    cudaStreamDestroy(Handle<cudaStream_t>::freed);
    cudaEventCreate(&Handle<cudaEvent_t>::good);
    cudaEventCreate(&Handle<cudaEvent_t>::freed);
    cudaEventDestroy(Handle<cudaEvent_t>::freed);
    objects_of_memory();
    objects_of_graphs();
    table();
}

inline bool runtime_is_healthy() {
    cudaGetLastError();
    return cudaDeviceSynchronize() == cudaSuccess;
}

}  // namespace bad_input
