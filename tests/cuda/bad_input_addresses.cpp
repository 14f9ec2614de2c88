// SPDX-License-Identifier: Apache-2.0 OR MIT
// nvcc: -Xcompiler -O0
// The driver API: addresses of each kind where another is asked for.
#include "bad_input_driver.h"
#include "bad_input_fields.h"

#include <sys/mman.h>

using namespace bad_input;

static CUdeviceptr freed, managed, pooled, range;
static void *unpinned, *registered;
static unsigned char in_program[8192];

static void set_up_addresses() {
    CALL(cuMemAlloc, &freed, 1 << 20);
    CALL(cuMemFree, freed);
    CALL(cuMemAllocManaged, &managed, 65536, CU_MEM_ATTACH_GLOBAL);
    CALL(cuMemAllocAsync, &pooled, 4096, Handle<CUstream>::good);
    CALL(cuStreamSynchronize, Handle<CUstream>::good);
    CALL(cuMemAddressReserve, &range, 1 << 21, 0, 0, 0);
    void *pages = mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    registered = pages;
    CALL(cuMemHostRegister, registered, 65536, 0);
    unpinned = std::calloc(1, 65536);
    CUdeviceptr number = 0;
    CALL(cuModuleGetGlobal, &number, nullptr, Handle<CUmodule>::good, "number");
    static CUdeviceptr small;
    CALL(cuMemAlloc, &small, 16);
    const auto of = [](const void *address) { return (unsigned long long)(uintptr_t)address; };
    addresses = {{"null", 0},
                 {"device", memory},
                 {"device-inside", memory + 100},
                 {"device-last", memory + 65535},
                 {"device-small", small},
                 {"freed", freed},
                 {"variable", number},
                 {"pooled", pooled},
                 {"managed", managed},
                 {"managed-inside", managed + 100},
                 {"pinned", of(host)},
                 {"pinned-inside", of(host) + 100},
                 {"registered", of(registered)},
                 {"registered-inside", of(registered) + 100},
                 {"heap", of(unpinned)},
                 {"static", of(in_program)},
                 {"reserved", range},
                 {"unmapped", 0x10000},
                 {"not-canonical", 0x8000000000000000ull},
                 {"last", ~0ull - 63}};
}

static void table() {
    set_up_addresses();
    ADDRESSES_CALL(cuMemFree, "", at);
    ADDRESSES_CALL(cuMemFreeHost, "", (void *)at);
    ADDRESSES_CALL(cuMemHostUnregister, "", (void *)at);
    ADDRESSES_CALL(cuMemHostRegister, "", (void *)at, 64, 0);
    ADDRESSES_CALL(cuMemHostGetDevicePointer, "", (CUdeviceptr *)room, (void *)at, 0);
    ADDRESSES_CALL(cuMemHostGetFlags, "", (unsigned *)room, (void *)at);
    ADDRESSES_CALL(cuMemGetAddressRange, "", (CUdeviceptr *)room, (size_t *)room, at);
    ADDRESSES_CALL(cuMemFreeAsync, "", at, Handle<CUstream>::good);
    ADDRESSES_CALL(cuIpcGetMemHandle, "", (CUipcMemHandle *)room, at);
    ADDRESSES_CALL(cuIpcCloseMemHandle, "", at);
    ADDRESSES_CALL(cuMemPoolExportPointer, "", (CUmemPoolPtrExportData *)room, at);
    ADDRESSES_CALL(cuMemRetainAllocationHandle, "", (CUmemGenericAllocationHandle *)room, (void *)at);
    ADDRESSES_CALL(cuMemGetAccess, "", (unsigned long long *)room, (CUmemLocation *)room, at);
    ADDRESSES_CALL(cuMemAddressFree, "", at, 1 << 21);
    ADDRESSES_CALL(cuMemUnmap, "", at, 1 << 21);
    ADDRESSES_CALL(cuMemGetHandleForAddressRange, "", room, at, 64, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    ADDRESSES_CALL(cuMemcpy, " to", at, memory + 4096, 64);
    ADDRESSES_CALL(cuMemcpy, " from", memory + 4096, at, 64);
    ADDRESSES_CALL(cuMemcpyHtoD, " to", at, room, 64);
    ADDRESSES_CALL(cuMemcpyHtoD, " from", memory + 4096, (void *)at, 64);
    ADDRESSES_CALL(cuMemcpyDtoH, " to", (void *)at, memory + 4096, 64);
    ADDRESSES_CALL(cuMemcpyDtoH, " from", room, at, 64);
    ADDRESSES_CALL(cuMemcpyDtoD, " to", at, memory + 4096, 64);
    ADDRESSES_CALL(cuMemcpyDtoD, " from", memory + 4096, at, 64);
    ADDRESSES_CALL(cuMemcpyAsync, " to", at, memory + 4096, 64, Handle<CUstream>::good);
    ADDRESSES_CALL(cuMemcpyAsync, " from", memory + 4096, at, 64, Handle<CUstream>::good);
    ADDRESSES_CALL(cuMemcpyHtoDAsync, " to", at, room, 64, Handle<CUstream>::good);
    ADDRESSES_CALL(cuMemcpyHtoDAsync, " from", memory + 4096, (void *)at, 64, Handle<CUstream>::good);
    ADDRESSES_CALL(cuMemcpyDtoHAsync, " to", (void *)at, memory + 4096, 64, Handle<CUstream>::good);
    ADDRESSES_CALL(cuMemcpyDtoHAsync, " from", room, at, 64, Handle<CUstream>::good);
    ADDRESSES_CALL(cuMemcpyDtoDAsync, " to", at, memory + 4096, 64, Handle<CUstream>::good);
    ADDRESSES_CALL(cuMemcpyPeer, " to", at, Handle<CUcontext>::good, memory + 4096, Handle<CUcontext>::good, 64);
    ADDRESSES_CALL(cuMemcpyDtoA, "", Handle<CUarray>::good, 0, at, 64);
    ADDRESSES_CALL(cuMemcpyAtoD, "", at, Handle<CUarray>::good, 0, 64);
    ADDRESSES_CALL(cuMemcpyHtoA, "", Handle<CUarray>::good, 0, (void *)at, 64);
    ADDRESSES_CALL(cuMemcpyAtoH, "", (void *)at, Handle<CUarray>::good, 0, 64);
    ADDRESSES_CALL(cuMemsetD8, "", at, 0, 64);
    ADDRESSES_CALL(cuMemsetD16, "", at, 0, 32);
    ADDRESSES_CALL(cuMemsetD32, "", at, 0, 16);
    ADDRESSES_CALL(cuMemsetD8Async, "", at, 0, 64, Handle<CUstream>::good);
    ADDRESSES_CALL(cuMemsetD2D8, "", at, 64, 0, 16, 4);
    ADDRESSES_CALL(cuMemsetD2D32, "", at, 64, 0, 4, 4);
    ADDRESSES_CALL(cuMemPrefetchAsync, "", at, 64, {CU_MEM_LOCATION_TYPE_DEVICE, 0}, 0, Handle<CUstream>::good);
    ADDRESSES_CALL(cuMemAdvise, "", at, 64, CU_MEM_ADVISE_SET_READ_MOSTLY, {CU_MEM_LOCATION_TYPE_DEVICE, 0});
    ADDRESSES_CALL(cuMemRangeGetAttribute, "", room, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, at, 64);
    ADDRESSES_CALL(cuStreamAttachMemAsync, "", Handle<CUstream>::good, at, 0, CU_MEM_ATTACH_GLOBAL);
    ADDRESSES_CALL(cuStreamWriteValue32, "", Handle<CUstream>::good, at & ~3ull, 0, 0);
    ADDRESSES_CALL(cuPointerSetAttribute, "", room, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at);
    for (int attribute = 1; attribute <= 20; attribute++) {
        static const char *const names[] = {
            "0",          "context",      "memory-type", "device-pointer", "host-pointer",
            "tokens",     "sync-memops",  "buffer-id",   "is-managed",     "device",
            "legacy-ipc", "range-start",  "range-size",  "mapped",         "handle-types",
            "gpudirect",  "access-flags", "pool",        "mapping-size",   "mapping-base",
            "block-id"};
        functions++;
        for (const auto &[kind, address] : addresses) {
            const unsigned long long at = address;
            cases.push_back({std::string("cuPointerGetAttribute ") + names[attribute] + " " + kind,
                             [=] { return (int)CALL(cuPointerGetAttribute, room, (CUpointer_attribute)attribute, at); },
                             false, functions});
        }
    }
    ADDRESSES("cuPointerGetAttribute memory-type-is",
              (CALL(cuPointerGetAttribute, room, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at), *(int *)room));
    ADDRESSES("cuPointerGetAttribute is-managed-is",
              (CALL(cuPointerGetAttribute, room, CU_POINTER_ATTRIBUTE_IS_MANAGED, at), *(int *)room));
    ADDRESSES("cuPointerGetAttributes", ([](unsigned long long at) {
                  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                 CU_POINTER_ATTRIBUTE_RANGE_SIZE};
                  void *data[] = {room, room + 64, room + 128};
                  return CALL(cuPointerGetAttributes, 3, which, data, at);
              }(at)));
    ADDRESSES_CALL(cuTensorMapReplaceAddress, "", (CUtensorMap *)room, (void *)at);
    ADDRESSES_CALL(cuGraphAddMemFreeNode, "", (CUgraphNode *)room, Handle<CUgraph>::good, nullptr, 0, at);
    ADDRESSES("cuGraphAddMemsetNode", ([](unsigned long long at) {
                  CUDA_MEMSET_NODE_PARAMS of = {at, 0, 0, 1, 64, 1};
                  return CALL(cuGraphAddMemsetNode, (CUgraphNode *)room, Handle<CUgraph>::good, nullptr, 0, &of,
                              Handle<CUcontext>::good);
              }(at)));
    ADDRESSES("cuGraphAddMemcpyNode to", ([](unsigned long long at) {
                  CUDA_MEMCPY3D of = {};
                  of.srcMemoryType = of.dstMemoryType = CU_MEMORYTYPE_DEVICE;
                  of.srcDevice = memory;
                  of.dstDevice = at;
                  of.WidthInBytes = 64;
                  of.Height = of.Depth = 1;
                  return CALL(cuGraphAddMemcpyNode, (CUgraphNode *)room, Handle<CUgraph>::good, nullptr, 0, &of,
                              Handle<CUcontext>::good);
              }(at)));
    ADDRESSES("cuTexObjectCreate linear", ([](unsigned long long at) {
                  CUDA_RESOURCE_DESC of = {};
                  of.resType = CU_RESOURCE_TYPE_LINEAR;
                  of.res.linear = {at, CU_AD_FORMAT_FLOAT, 1, 64};
                  CUDA_TEXTURE_DESC how = {};
                  return CALL(cuTexObjectCreate, (CUtexObject *)room, &of, &how, nullptr);
              }(at)));
    ADDRESSES("cuMemcpy2D_v2 to", ([](unsigned long long at) {
                  CUDA_MEMCPY2D of = {};
                  of.srcMemoryType = of.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
                  of.srcDevice = memory;
                  of.dstDevice = at;
                  of.WidthInBytes = 16;
                  of.Height = 1;
                  return CALL(cuMemcpy2D, &of);
              }(at)));
}

int main(int count, char **arguments) {
    return main_of(count, arguments, [] { set_up_driver(table); }, driver_is_healthy);
}
