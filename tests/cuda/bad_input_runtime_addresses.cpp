// SPDX-License-Identifier: Apache-2.0 OR MIT
// nvcc: -Xcompiler -O0
// The runtime API: addresses of each kind where another is asked for.
#include "bad_input_runtime.h"
#include "bad_input_fields.h"

#include <sys/mman.h>

using namespace bad_input;

static cudaStream_t stream() {
    return Handle<cudaStream_t>::good;
}

static void set_up_addresses() {
    static unsigned char in_program[8192];
    void *freed = nullptr, *managed = nullptr, *pooled = nullptr, *small = nullptr;
    cudaMalloc(&freed, 1 << 20);
    cudaFree(freed);
    cudaMallocManaged(&managed, 65536);
    cudaMallocAsync(&pooled, 4096, stream());
    cudaStreamSynchronize(stream());
    cudaMalloc(&small, 16);
    void *registered = mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cudaHostRegister(registered, 65536, 0);
    void *unpinned = std::calloc(1, 65536);
    const auto of = [](const void *address, size_t more = 0) { return (unsigned long long)(uintptr_t)address + more; };
    addresses = {{"null", 0},
                 {"device", of(memory)},
                 {"device-inside", of(memory, 100)},
                 {"device-last", of(memory, 65535)},
                 {"device-small", of(small)},
                 {"freed", of(freed)},
                 {"pooled", of(pooled)},
                 {"managed", of(managed)},
                 {"managed-inside", of(managed, 100)},
                 {"pinned", of(host)},
                 {"pinned-inside", of(host, 100)},
                 {"registered", of(registered)},
                 {"registered-inside", of(registered, 100)},
                 {"heap", of(unpinned)},
                 {"static", of(in_program)},
                 {"unmapped", 0x10000},
                 {"not-canonical", 0x8000000000000000ull}};
}

static void with_each_address() {
    ADDRESSES("cudaFree", cudaFree((void *)at));
    ADDRESSES("cudaFreeHost", cudaFreeHost((void *)at));
    ADDRESSES("cudaFreeAsync", cudaFreeAsync((void *)at, Handle<cudaStream_t>::good));
    ADDRESSES("cudaHostUnregister", cudaHostUnregister((void *)at));
    ADDRESSES("cudaHostRegister", cudaHostRegister((void *)at, 64, 0));
    ADDRESSES("cudaHostGetDevicePointer", cudaHostGetDevicePointer((void **)room, (void *)at, 0));
    ADDRESSES("cudaHostGetFlags", cudaHostGetFlags((unsigned *)room, (void *)at));
    ADDRESSES("cudaPointerGetAttributes", cudaPointerGetAttributes((cudaPointerAttributes *)room, (void *)at));
    ADDRESSES("cudaPointerGetAttributes type-is", (cudaPointerGetAttributes((cudaPointerAttributes *)room, (void *)at),
                                                   ((cudaPointerAttributes *)room)->type));
    ADDRESSES("cudaIpcGetMemHandle", cudaIpcGetMemHandle((cudaIpcMemHandle_t *)room, (void *)at));
    ADDRESSES("cudaIpcCloseMemHandle", cudaIpcCloseMemHandle((void *)at));
    ADDRESSES("cudaMemPoolExportPointer", cudaMemPoolExportPointer((cudaMemPoolPtrExportData *)room, (void *)at));
    ADDRESSES("cudaMemset", cudaMemset((void *)at, 0, 64));
    ADDRESSES("cudaMemsetAsync", cudaMemsetAsync((void *)at, 0, 64, Handle<cudaStream_t>::good));
    ADDRESSES("cudaMemset2D", cudaMemset2D((void *)at, 64, 0, 16, 4));
    ADDRESSES("cudaMemPrefetchAsync",
              cudaMemPrefetchAsync((void *)at, 64, {cudaMemLocationTypeDevice, 0}, 0, Handle<cudaStream_t>::good));
    ADDRESSES("cudaMemAdvise",
              cudaMemAdvise((void *)at, 64, cudaMemAdviseSetReadMostly, {cudaMemLocationTypeDevice, 0}));
    ADDRESSES("cudaMemRangeGetAttribute",
              cudaMemRangeGetAttribute(room, 4, cudaMemRangeAttributeReadMostly, (void *)at, 64));
    ADDRESSES("cudaStreamAttachMemAsync",
              cudaStreamAttachMemAsync(Handle<cudaStream_t>::good, (void *)at, 0, cudaMemAttachGlobal));
    ADDRESSES("cudaGetSymbolAddress", cudaGetSymbolAddress((void **)room, (void *)at));
    ADDRESSES("cudaFuncGetAttributes", cudaFuncGetAttributes((cudaFuncAttributes *)room, (void *)at));
    ADDRESSES("cudaLaunchKernel", cudaLaunchKernel((void *)at, one, one, nullptr, 0, Handle<cudaStream_t>::good));
    ADDRESSES("cudaMemcpyToSymbol", cudaMemcpyToSymbol((void *)at, room, 16));
#define KIND(kind)                                                                                                \
    ADDRESSES("cudaMemcpy to " #kind, cudaMemcpy((void *)at, memory, 64, (cudaMemcpyKind)kind));                  \
    ADDRESSES("cudaMemcpy from " #kind, cudaMemcpy((char *)memory + 4096, (void *)at, 64, (cudaMemcpyKind)kind)); \
    ADDRESSES("cudaMemcpy host-to " #kind, cudaMemcpy((void *)at, room, 64, (cudaMemcpyKind)kind));               \
    ADDRESSES("cudaMemcpy host-from " #kind, cudaMemcpy(room, (void *)at, 64, (cudaMemcpyKind)kind));             \
    ADDRESSES("cudaMemcpyAsync to " #kind,                                                                        \
              cudaMemcpyAsync((void *)at, memory, 64, (cudaMemcpyKind)kind, Handle<cudaStream_t>::good));         \
    ADDRESSES("cudaMemcpyAsync host-from " #kind,                                                                 \
              cudaMemcpyAsync(room, (void *)at, 64, (cudaMemcpyKind)kind, Handle<cudaStream_t>::good));           \
    ADDRESSES("cudaMemcpy2D to " #kind, cudaMemcpy2D((void *)at, 64, memory, 64, 16, 1, (cudaMemcpyKind)kind));   \
    ADDRESSES("cudaMemcpy2DToArray " #kind,                                                                       \
              cudaMemcpy2DToArray(Handle<cudaArray_t>::good, 0, 0, (void *)at, 16, 16, 1, (cudaMemcpyKind)kind))
    KIND(0);
    KIND(1);
    KIND(2);
    KIND(3);
    KIND(4);
}

static void table() {
    set_up_addresses();
    with_each_address();
}

int main(int count, char **arguments) {
    return main_of(count, arguments, [] { set_up_runtime(table); }, runtime_is_healthy);
}
