// SPDX-License-Identifier: Apache-2.0 OR MIT
// The set-up of the tables for the driver API: one good and one destroyed object of each kind.
#pragma once

#include "bad_input.h"

#include <cuda.h>
#include <dlfcn.h>

// Deprecated calls are part of the table.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

BAD_INPUT_HANDLE(CUcontext)
BAD_INPUT_HANDLE(CUmodule)
BAD_INPUT_HANDLE(CUfunction)
BAD_INPUT_HANDLE(CUlibrary)
BAD_INPUT_HANDLE(CUkernel)
BAD_INPUT_HANDLE(CUlinkState)
BAD_INPUT_HANDLE(CUstream)
BAD_INPUT_HANDLE(CUevent)
BAD_INPUT_HANDLE(CUarray)
BAD_INPUT_HANDLE(CUmipmappedArray)
BAD_INPUT_HANDLE(CUtexref)
BAD_INPUT_HANDLE(CUsurfref)
BAD_INPUT_HANDLE(CUmemoryPool)
BAD_INPUT_HANDLE(CUgraph)
BAD_INPUT_HANDLE(CUgraphNode)
BAD_INPUT_HANDLE(CUgraphExec)
BAD_INPUT_HANDLE(CUuserObject)
BAD_INPUT_HANDLE(CUexternalMemory)
BAD_INPUT_HANDLE(CUexternalSemaphore)
BAD_INPUT_HANDLE(CUgraphicsResource)
BAD_INPUT_HANDLE(CUgreenCtx)
BAD_INPUT_HANDLE(CUdevResourceDesc)
BAD_INPUT_HANDLE(CUasyncCallbackHandle)
BAD_INPUT_HANDLE(CUlogsCallbackHandle)

namespace bad_input {

static const char kPtx[] = R"(
.version 7.0
.target sm_52
.address_size 64
.visible .global .align 4 .u32 number;
.visible .entry nothing() { ret; }
.visible .entry one(.param .u32 value) { ret; }
)";

static CUdeviceptr memory;
static void *host;
static char pci_address[64];

#define BAD_INPUT_TEXT_(name) #name
#define BAD_INPUT_TEXT(name) BAD_INPUT_TEXT_(name)
// The name as the header spells it in the library: cuMemAlloc is cuMemAlloc_v2.
#define P(name, ...) probe(BAD_INPUT_TEXT(name), find<decltype(name)>(BAD_INPUT_TEXT(name)), ##__VA_ARGS__)

template <class F>
F *find(const char *name) {
    static void *library = dlopen("libcuda.so.1", RTLD_NOW);
    return library == nullptr ? nullptr : reinterpret_cast<F *>(dlsym(library, name));
}

#define CALL(name, ...) find<decltype(name)>(BAD_INPUT_TEXT(name))(__VA_ARGS__)

inline void objects_of_code() {
    Handle<CUmodule>::good = nullptr;
    CALL(cuModuleLoadData, &Handle<CUmodule>::good, kPtx);
    CALL(cuModuleGetFunction, &Handle<CUfunction>::good, Handle<CUmodule>::good, "nothing");
    CALL(cuLibraryLoadData, &Handle<CUlibrary>::good, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0);
    CALL(cuLibraryGetKernel, &Handle<CUkernel>::good, Handle<CUlibrary>::good, "nothing");
    CALL(cuModuleLoadData, &Handle<CUmodule>::freed, kPtx);
    CALL(cuModuleGetFunction, &Handle<CUfunction>::freed, Handle<CUmodule>::freed, "nothing");
    CALL(cuModuleUnload, Handle<CUmodule>::freed);
    CALL(cuLibraryLoadData, &Handle<CUlibrary>::freed, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0);
    CALL(cuLibraryGetKernel, &Handle<CUkernel>::freed, Handle<CUlibrary>::freed, "nothing");
    CALL(cuLibraryUnload, Handle<CUlibrary>::freed);
    CALL(cuLinkCreate, 0, nullptr, nullptr, &Handle<CUlinkState>::good);
}

inline void objects_of_memory() {
    CALL(cuMemAlloc_v2, &memory, 65536);
    CALL(cuMemHostAlloc, &host, 65536, 0);
    const CUDA_ARRAY_DESCRIPTOR array = {16, 16, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    CALL(cuArrayCreate_v2, &Handle<CUarray>::good, &array);
    CALL(cuArrayCreate_v2, &Handle<CUarray>::freed, &array);
    CALL(cuArrayDestroy, Handle<CUarray>::freed);
    const CUDA_ARRAY3D_DESCRIPTOR levels = {16, 16, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
    CALL(cuMipmappedArrayCreate, &Handle<CUmipmappedArray>::good, &levels, 2);
    CALL(cuMipmappedArrayCreate, &Handle<CUmipmappedArray>::freed, &levels, 2);
    CALL(cuMipmappedArrayDestroy, Handle<CUmipmappedArray>::freed);
    CUmemPoolProps pool = {};
    pool.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    pool.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CALL(cuMemPoolCreate, &Handle<CUmemoryPool>::good, &pool);
    CALL(cuMemPoolCreate, &Handle<CUmemoryPool>::freed, &pool);
    CALL(cuMemPoolDestroy, Handle<CUmemoryPool>::freed);
}

inline void objects_of_streams() {
    CALL(cuStreamCreate, &Handle<CUstream>::good, 0);
    CALL(cuStreamCreate, &Handle<CUstream>::freed, 0);
    CALL(cuStreamDestroy, Handle<CUstream>::freed);
    CALL(cuEventCreate, &Handle<CUevent>::good, 0);
    CALL(cuEventCreate, &Handle<CUevent>::freed, 0);
    CALL(cuEventDestroy, Handle<CUevent>::freed);
}

inline void objects_of_graphs() {
    CALL(cuGraphCreate, &Handle<CUgraph>::good, 0);
    CALL(cuGraphAddEmptyNode, &Handle<CUgraphNode>::good, Handle<CUgraph>::good, nullptr, 0);
    CALL(cuGraphInstantiateWithFlags, &Handle<CUgraphExec>::good, Handle<CUgraph>::good, 0);
    CALL(cuGraphCreate, &Handle<CUgraph>::freed, 0);
    CALL(cuGraphAddEmptyNode, &Handle<CUgraphNode>::freed, Handle<CUgraph>::freed, nullptr, 0);
    CALL(cuGraphInstantiateWithFlags, &Handle<CUgraphExec>::freed, Handle<CUgraph>::freed, 0);
    CALL(cuGraphExecDestroy, Handle<CUgraphExec>::freed);
    CALL(cuGraphDestroy, Handle<CUgraph>::freed);
    CALL(cuUserObjectCreate, &Handle<CUuserObject>::good, host, usual<CUhostFn>(), 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
}

// In a child: whatever is not served stays null.
inline void set_up_driver(void (*table)()) {
    CALL(cuInit, 0);
    CALL(cuDevicePrimaryCtxRetain, &Handle<CUcontext>::good, 0);
    CALL(cuCtxSetCurrent, Handle<CUcontext>::good);
    CALL(cuDeviceGetPCIBusId, pci_address, sizeof pci_address, 0);
    objects_of_code();
    objects_of_memory();
    objects_of_streams();
    objects_of_graphs();
    table();
}

inline bool driver_is_healthy() {
    CUcontext current = nullptr;
    return CALL(cuCtxGetCurrent, &current) == CUDA_SUCCESS && current == Handle<CUcontext>::good &&
           CALL(cuCtxSynchronize) == CUDA_SUCCESS;
}

}  // namespace bad_input
