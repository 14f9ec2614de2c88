// SPDX-License-Identifier: Apache-2.0 OR MIT
// Allocations of cuMemCreate as external memory: what is taken, what may be mapped, how long it lives, another process. And
// external semaphores, which nothing here could make.
#include "check_driver.h"
#include "descriptors.h"

#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#define SHOW(call) std::printf("%s: %d\n", #call, (int)(call))

static const size_t UNIT = 2 << 20;
static const size_t BYTES = 3 * UNIT;

static CUmemGenericAllocationHandle create(size_t bytes) {
    CUmemAllocationProp wanted = {};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle handle;
    CHECK_DRIVER(cuMemCreate(&handle, bytes, &wanted, 0));
    return handle;
}

static int descriptor_of(CUmemGenericAllocationHandle handle) {
    int descriptor = -1;
    const CUmemAllocationHandleType type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CHECK_DRIVER(cuMemExportToShareableHandle(&descriptor, handle, type, 0));
    return descriptor;
}

static bool is_open(int descriptor) {
    return fcntl(descriptor, F_GETFD) >= 0;
}

static CUresult import(CUexternalMemory *memory, int descriptor, size_t bytes, int type = 1, unsigned int flags = 0) {
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc;
    std::memset(&desc, 0, sizeof desc);
    desc.type = (CUexternalMemoryHandleType)type;
    desc.handle.fd = descriptor;
    desc.size = bytes;
    desc.flags = flags;
    return cuImportExternalMemory(memory, &desc);
}

static CUresult map(CUdeviceptr *at, CUexternalMemory memory, size_t offset, size_t bytes, unsigned int flags = 0) {
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC desc;
    std::memset(&desc, 0, sizeof desc);
    desc.offset = offset;
    desc.size = bytes;
    desc.flags = flags;
    return cuExternalMemoryGetMappedBuffer(at, memory, &desc);
}

static unsigned int word(CUdeviceptr at) {
    unsigned int value = 0;
    CHECK_DRIVER(cuMemcpyDtoH(&value, at, sizeof value));
    return value;
}

static void types() {
    std::printf("kinds of handles\n");
    const CUmemGenericAllocationHandle handle = create(UNIT);
    for (int type = -1; type <= 11; type++) {
        for (unsigned int flags = 0; flags < 3; flags++) {
            const int descriptor = descriptor_of(handle);
            CUexternalMemory memory = nullptr;
            const CUresult result = import(&memory, descriptor, UNIT, type, flags);
            std::printf("  kind %d flags %u: %d\n", type, flags, (int)result);
            REQUIRE(is_open(descriptor) == (type != 1 || flags > 1));
            close(descriptor);
            if (result == CUDA_SUCCESS) {
                CHECK_DRIVER(cuDestroyExternalMemory(memory));
            }
        }
    }
    for (int kind = 0; kind < 3; kind++) {
        const int descriptor = kind == 0 ? open("/dev/null", O_RDWR) : kind == 1 ? memfd_create("other", 0) : 700;
        CUexternalMemory memory;
        const CUresult result = import(&memory, descriptor, UNIT);
        std::printf("  other files: %d, open %d\n", (int)result, is_open(descriptor));
    }
    CUexternalMemory memory;
    SHOW(import(&memory, -1, UNIT));
    SHOW(import(&memory, -1, UNIT, 9));
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc;
    std::memset(&desc, 0, sizeof desc);
    desc.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
    desc.handle.fd = descriptor_of(handle);
    desc.size = UNIT;
    desc.reserved[7] = 1;
    SHOW(cuImportExternalMemory(&memory, &desc));
    SHOW(cuImportExternalMemory(nullptr, &desc));
    SHOW(cuImportExternalMemory(&memory, nullptr));
    SHOW(cuDestroyExternalMemory(nullptr));
    CHECK_DRIVER(cuMemRelease(handle));
}

static void sizes() {
    std::printf("sizes of imports\n");
    for (size_t bytes : {(size_t)0, (size_t)1, (size_t)65536, UNIT - 1, UNIT, UNIT + 1, 4 * UNIT}) {
        const CUmemGenericAllocationHandle handle = create(UNIT);
        CUexternalMemory memory = nullptr;
        const CUresult result = import(&memory, descriptor_of(handle), bytes);
        std::printf("  %zu: %d", bytes, (int)result);
        for (size_t part : {(size_t)4096, bytes, UNIT}) {
            CUdeviceptr at;
            if (result == CUDA_SUCCESS && map(&at, memory, 0, part) == CUDA_SUCCESS) {
                std::printf(", maps %zu", part);
                CHECK_DRIVER(cuMemsetD8(at, 1, part));
                CHECK_DRIVER(cuMemFree(at));
            }
        }
        std::printf("\n");
        if (result == CUDA_SUCCESS) {
            CHECK_DRIVER(cuDestroyExternalMemory(memory));
        }
        CHECK_DRIVER(cuMemRelease(handle));
    }
}

static void parts() {
    std::printf("parts\n");
    const CUmemGenericAllocationHandle handle = create(BYTES);
    CUexternalMemory memory;
    CHECK_DRIVER(import(&memory, descriptor_of(handle), BYTES));
    CUdeviceptr whole;
    CHECK_DRIVER(map(&whole, memory, 0, BYTES));
    const struct {
        size_t offset, bytes;
    } all[] = {{0, 0},        {0, 1},         {1, 4096},        {4, 4},         {4096, 8192}, {65536, 100},
               {UNIT, UNIT},  {UNIT, 2 * UNIT}, {UNIT, 2 * UNIT + 1}, {UNIT / 2, UNIT}, {0, BYTES}, {0, BYTES + 1},
               {BYTES, 1},    {BYTES, 0},     {BYTES - 1, 1},   {~(size_t)0, 2}, {~(size_t)4095, 8192}};
    for (const auto &part : all) {
        CUdeviceptr at = 0;
        const CUresult result = map(&at, memory, part.offset, part.bytes);
        std::printf("  %zu bytes from %zu on: %d\n", part.bytes, part.offset, (int)result);
        if (result == CUDA_SUCCESS) {
            CUdeviceptr base = 0;
            size_t bytes = 0;
            CHECK_DRIVER(cuMemGetAddressRange(&base, &bytes, at + part.bytes - 1));
            REQUIRE(base == at && bytes == part.bytes && at % 65536 == part.offset % 65536);
            CHECK_DRIVER(cuMemsetD8(whole, 0, BYTES));
            CHECK_DRIVER(cuMemsetD8(at, 0x5a, part.bytes));
            std::vector<unsigned char> back(BYTES);
            CHECK_DRIVER(cuMemcpyDtoH(back.data(), whole, BYTES));
            size_t set = 0;
            for (size_t index = 0; index < BYTES; index++) {
                const bool inside = index >= part.offset && index < part.offset + part.bytes;
                REQUIRE(back[index] == (inside ? 0x5a : 0));
                set += back[index] != 0;
            }
            REQUIRE(set == part.bytes);
            CHECK_DRIVER(cuMemFree(at));
        }
    }
    CUdeviceptr at;
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC desc;
    std::memset(&desc, 0, sizeof desc);
    desc.size = UNIT;
    SHOW(map(&at, memory, 0, UNIT, 1));
    SHOW(cuExternalMemoryGetMappedBuffer(nullptr, memory, &desc));
    SHOW(cuExternalMemoryGetMappedBuffer(&at, nullptr, &desc));
    SHOW(cuExternalMemoryGetMappedBuffer(&at, memory, nullptr));
    desc.reserved[0] = 1;
    SHOW(cuExternalMemoryGetMappedBuffer(&at, memory, &desc));
    CHECK_DRIVER(cuMemFree(whole));
    CHECK_DRIVER(cuDestroyExternalMemory(memory));
    CHECK_DRIVER(cuMemRelease(handle));
}

static void show_attributes(const char *name, CUdeviceptr at, CUcontext context) {
    CUcontext owner = nullptr;
    unsigned int type = 0, managed = 7, shares = 7, mapped = 7, flags = 7;
    int ordinal = -1;
    size_t bytes = 0;
    CUdeviceptr start = 0;
    unsigned long long handles = 7;
    CUmemoryPool pool = nullptr;
    CHECK_DRIVER(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, at));
    CHECK_DRIVER(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
    CHECK_DRIVER(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at));
    CHECK_DRIVER(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at));
    CHECK_DRIVER(cuPointerGetAttribute(&shares, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at));
    CHECK_DRIVER(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at));
    CHECK_DRIVER(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, at));
    CHECK_DRIVER(cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, at));
    CHECK_DRIVER(cuPointerGetAttribute(&handles, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, at));
    CHECK_DRIVER(cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, at));
    CHECK_DRIVER(cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, at));
    std::printf("  %s: context %d type %u managed %u device %d shares %u start %lld bytes %zu mapped %u handles %llu "
                "access %u pool %d\n",
                name, owner == context, type, managed & 0xff, ordinal, shares & 0xff, (long long)(start - at), bytes,
                mapped & 0xff, handles, flags, pool != nullptr);
    cudaPointerAttributes runtime;
    CHECK(cudaPointerGetAttributes(&runtime, (void *)at));
    std::printf("  %s: runtime's type %d device %d pointer %d host %d\n", name, (int)runtime.type, runtime.device,
                runtime.devicePointer == (void *)at, runtime.hostPointer != nullptr);
}

static void what_it_is(CUcontext context) {
    std::printf("what it is\n");
    const CUmemGenericAllocationHandle handle = create(BYTES);
    CUexternalMemory memory;
    CHECK_DRIVER(import(&memory, descriptor_of(handle), BYTES));
    CUdeviceptr at, part;
    CHECK_DRIVER(map(&at, memory, 0, BYTES));
    CHECK_DRIVER(map(&part, memory, 4096, 8192));
    show_attributes("all", at, context);
    show_attributes("inside", at + 4100, context);
    show_attributes("part", part, context);
    unsigned int yes = 1;
    SHOW(cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at));
    CUipcMemHandle shared;
    SHOW(cuIpcGetMemHandle(&shared, at));
    CUmemGenericAllocationHandle again;
    SHOW(cuMemRetainAllocationHandle(&again, (void *)at));
    CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    unsigned long long access = 7;
    SHOW(cuMemGetAccess(&access, &device, at));
    std::printf("  access %llu\n", access);
    CUmemAccessDesc all = {};
    all.location = device;
    all.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    SHOW(cuMemSetAccess(at, BYTES, &all, 1));
    SHOW(cuMemUnmap(at, BYTES));
    SHOW(cuMemAddressFree(at, BYTES));
    SHOW(cuIpcCloseMemHandle(at));
    SHOW(cuMemFreeHost((void *)at));
    CUmemPoolPtrExportData data;
    SHOW(cuMemPoolExportPointer(&data, at));
    int file = -1;
    SHOW(cuMemGetHandleForAddressRange(&file, at, UNIT, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    SHOW(cuMemFreeAsync(at, 0));
    SHOW(cuMemFree(at + 4));
    SHOW(cuMemFree(at));
    SHOW(cuMemFree(at));
    SHOW(cuMemsetD8(at, 1, 4));
    SHOW(cuStreamWriteValue32(0, part, 5, 0));
    std::printf("  word %u\n", word(part));
    CHECK_DRIVER(cuMemFree(part));
    SHOW(cuMemRelease((CUmemGenericAllocationHandle)memory));
    SHOW(map(&at, (CUexternalMemory)handle, 0, UNIT));
    CHECK_DRIVER(cuDestroyExternalMemory(memory));
    CHECK_DRIVER(cuMemRelease(handle));
}

static void lifetimes() {
    std::printf("lifetimes\n");
    CUmemGenericAllocationHandle handle = create(BYTES);
    const int descriptor = descriptor_of(handle), second = dup(descriptor);
    CUexternalMemory memory, other;
    CHECK_DRIVER(import(&memory, descriptor, BYTES));
    SHOW(import(&other, descriptor, BYTES));
    CHECK_DRIVER(import(&other, second, BYTES));
    REQUIRE(!is_open(second));
    CUdeviceptr one, two, three;
    CHECK_DRIVER(map(&one, memory, 0, BYTES));
    CHECK_DRIVER(map(&two, memory, 0, BYTES));
    CHECK_DRIVER(map(&three, other, UNIT, UNIT));
    REQUIRE(one != two && two != three);
    CHECK_DRIVER(cuMemsetD32(one, 9, BYTES / 4));
    std::printf("  %u %u\n", word(two + BYTES - 4), word(three));
    CHECK_DRIVER(cuMemRelease(handle));
    CHECK_DRIVER(cuDestroyExternalMemory(memory));
    CHECK_DRIVER(cuDestroyExternalMemory(other));
    CHECK_DRIVER(cuMemsetD32(one, 10, BYTES / 4));
    CHECK_DRIVER(cuMemFree(one));
    std::printf("  %u %u\n", word(two), word(three));
    CHECK_DRIVER(cuMemFree(two));
    CHECK_DRIVER(cuMemsetD32(three, 11, UNIT / 4));
    std::printf("  %u\n", word(three + UNIT - 4));
    CHECK_DRIVER(cuMemFree(three));

    handle = create(BYTES);
    CHECK_DRIVER(import(&memory, descriptor_of(handle), BYTES));
    CHECK_DRIVER(cuMemRelease(handle));
    CHECK_DRIVER(map(&one, memory, 0, BYTES));
    CHECK_DRIVER(cuMemsetD32(one, 12, BYTES / 4));
    CHECK_DRIVER(cuMemFree(one));
    CHECK_DRIVER(map(&one, memory, 4, 4));
    std::printf("  %u\n", word(one));
    CHECK_DRIVER(cuMemFree(one));
    CHECK_DRIVER(cuDestroyExternalMemory(memory));
}

static void contexts(CUcontext primary) {
    std::printf("contexts\n");
    CUcontext first;
    CHECK_DRIVER(cuCtxCreate(&first, nullptr, 0, 0));
    const CUmemGenericAllocationHandle handle = create(UNIT);
    CUexternalMemory memory;
    CHECK_DRIVER(import(&memory, descriptor_of(handle), UNIT));
    CHECK_DRIVER(cuCtxSetCurrent(primary));
    CUdeviceptr at;
    CHECK_DRIVER(map(&at, memory, 0, UNIT));
    show_attributes("mapped in another context", at, first);
    CHECK_DRIVER(cuCtxDestroy(first));
    unsigned int type;
    SHOW(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
    CHECK_DRIVER(cuMemRelease(handle));
}

static void captures() {
    std::printf("capture\n");
    const CUmemGenericAllocationHandle handle = create(UNIT);
    CUexternalMemory memory, other;
    CHECK_DRIVER(import(&memory, descriptor_of(handle), UNIT));
    const int descriptor = descriptor_of(handle);
    CUstream stream;
    CHECK_DRIVER(cuStreamCreate(&stream, 0));
    CHECK_DRIVER(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    SHOW(import(&other, descriptor, UNIT));
    SHOW(is_open(descriptor));
    close(descriptor);
    CUdeviceptr at;
    SHOW(map(&at, memory, 0, UNIT));
    SHOW(cuMemsetD8Async(at, 3, UNIT, stream));
    CUgraph graph;
    SHOW(cuStreamEndCapture(stream, &graph));
    CHECK_DRIVER(cuMemFree(at));
    CHECK_DRIVER(cuDestroyExternalMemory(memory));
    CHECK_DRIVER(cuStreamDestroy(stream));
    CHECK_DRIVER(cuMemRelease(handle));
}

__global__ void count(unsigned int *at, unsigned int words, unsigned int first) {
    const unsigned int index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index < words) {
        at[index] += first + index;
    }
}

static void kernels() {
    std::printf("kernels\n");
    const CUmemGenericAllocationHandle handle = create(UNIT);
    CUdeviceptr window, at;
    CHECK_DRIVER(cuMemAddressReserve(&window, UNIT, 0, 0, 0));
    CHECK_DRIVER(cuMemMap(window, UNIT, 0, handle, 0));
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK_DRIVER(cuMemSetAccess(window, UNIT, &access, 1));
    CHECK_DRIVER(cuMemsetD32(window, 0, UNIT / 4));
    CUexternalMemory memory;
    CHECK_DRIVER(import(&memory, descriptor_of(handle), UNIT));
    CHECK_DRIVER(map(&at, memory, 4096, 8192));
    count<<<UNIT / 1024, 256>>>((unsigned int *)window, UNIT / 4, 100);
    count<<<8, 256>>>((unsigned int *)at, 2048, 5000);
    CHECK(cudaDeviceSynchronize());
    std::printf("  %u %u %u\n", word(window), word(window + 4096), word(at + 8188));
    CHECK_DRIVER(cuMemFree(at));
    CHECK_DRIVER(cuDestroyExternalMemory(memory));
    CHECK_DRIVER(cuMemUnmap(window, UNIT));
    CHECK_DRIVER(cuMemAddressFree(window, UNIT));
    CHECK_DRIVER(cuMemRelease(handle));
}

static void arrays() {
    std::printf("mipmapped arrays\n");
    const struct {
        size_t width, height, depth;
        unsigned int channels, flags, levels;
    } all[] = {{64, 0, 0, 1, 0, 1},  {64, 64, 0, 1, 0, 1},  {64, 64, 0, 4, 0, 1},    {64, 64, 0, 1, 2, 1},
               {64, 64, 0, 1, 0, 7}, {64, 64, 0, 1, 0, 8},  {64, 64, 16, 1, 0, 7},   {64, 64, 4, 1, 1, 1},
               {64, 64, 6, 1, 4, 1}, {64, 64, 0, 3, 0, 1},  {64, 64, 0, 1, 0x40, 1}, {64, 64, 0, 1, 0x80, 1},
               {64, 64, 0, 1, 8, 1}};
    for (const auto &of : all) {
        const CUmemGenericAllocationHandle handle = create(BYTES);
        CUexternalMemory memory;
        CHECK_DRIVER(import(&memory, descriptor_of(handle), BYTES));
        CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC desc;
        std::memset(&desc, 0, sizeof desc);
        desc.numLevels = of.levels;
        desc.arrayDesc.Width = of.width;
        desc.arrayDesc.Height = of.height;
        desc.arrayDesc.Depth = of.depth;
        desc.arrayDesc.Format = CU_AD_FORMAT_FLOAT;
        desc.arrayDesc.NumChannels = of.channels;
        desc.arrayDesc.Flags = of.flags;
        CUmipmappedArray array;
        const CUresult result = cuExternalMemoryGetMappedMipmappedArray(&array, memory, &desc);
        std::printf("  %zux%zux%zu channels %u flags %#x levels %u: %d\n", of.width, of.height, of.depth, of.channels,
                    of.flags, of.levels, (int)result);
        if (result != CUDA_SUCCESS) {
            CHECK_DRIVER(cuDestroyExternalMemory(memory));
            CHECK_DRIVER(cuMemRelease(handle));
            continue;
        }
        CUarray level;
        SHOW(cuMipmappedArrayGetLevel(&level, array, of.levels));
        CHECK_DRIVER(cuMipmappedArrayGetLevel(&level, array, 0));
        CUDA_ARRAY3D_DESCRIPTOR is;
        CHECK_DRIVER(cuArray3DGetDescriptor(&is, level));
        REQUIRE(is.Width == of.width && is.Height == of.height && is.Depth == of.depth && is.Flags == of.flags);
        float in[64], out[64] = {};
        for (int index = 0; index < 64; index++) {
            in[index] = (float)index;
        }
        CHECK_DRIVER(cuMemcpyHtoA(level, 0, in, sizeof in));
        CHECK_DRIVER(cuMemcpyAtoH(out, level, 0, sizeof out));
        REQUIRE(std::memcmp(in, out, sizeof in) == 0);
        CUDA_ARRAY_SPARSE_PROPERTIES sparse;
        CUDA_ARRAY_MEMORY_REQUIREMENTS needs;
        SHOW(cuMipmappedArrayGetSparseProperties(&sparse, array));
        SHOW(cuMipmappedArrayGetMemoryRequirements(&needs, array, 0));
        CHECK_DRIVER(cuMipmappedArrayDestroy(array));
        CHECK_DRIVER(cuDestroyExternalMemory(memory));
        CHECK_DRIVER(cuMemRelease(handle));
    }
}

static void runtime() {
    std::printf("runtime\n");
    const CUmemGenericAllocationHandle handle = create(UNIT);
    cudaExternalMemoryHandleDesc desc;
    std::memset(&desc, 0, sizeof desc);
    desc.type = cudaExternalMemoryHandleTypeOpaqueFd;
    desc.handle.fd = descriptor_of(handle);
    desc.size = UNIT;
    cudaExternalMemory_t memory;
    CHECK(cudaImportExternalMemory(&memory, &desc));
    cudaExternalMemoryBufferDesc part;
    std::memset(&part, 0, sizeof part);
    part.size = UNIT;
    void *at;
    CHECK(cudaExternalMemoryGetMappedBuffer(&at, memory, &part));
    CHECK(cudaMemset(at, 1, UNIT));
    part.flags = 1;
    void *none;
    SHOW(cudaExternalMemoryGetMappedBuffer(&none, memory, &part));
    SHOW(cudaGetLastError());
    CHECK(cudaDestroyExternalMemory(memory));
    SHOW(cudaFree(at));
    SHOW(cudaFree(at));
    desc.type = cudaExternalMemoryHandleTypeOpaqueWin32;
    desc.handle.fd = descriptor_of(handle);
    SHOW(cudaImportExternalMemory(&memory, &desc));
    SHOW(cudaGetLastError());
    CHECK_DRIVER(cuMemRelease(handle));
}

// The other process, which got the descriptor of an allocation.
static void other_process(int socket) {
    char byte = 0;
    int descriptor;
    REQUIRE(receive_descriptor(socket, &byte, 1, &descriptor));
    use_primary_context();
    CUexternalMemory memory;
    CUdeviceptr at;
    CHECK_DRIVER(import(&memory, descriptor, UNIT));
    CHECK_DRIVER(map(&at, memory, 0, UNIT));
    REQUIRE(word(at) == 42 && word(at + UNIT - 4) == 42);
    CHECK_DRIVER(cuMemsetD32(at, 43, UNIT / 4));
    CHECK_DRIVER(cuCtxSynchronize());
    REQUIRE(write(socket, "x", 1) == 1);
    // Until the other one has ended.
    REQUIRE(read(socket, &byte, 1) == 0);
    REQUIRE(word(at) == 43);
    CHECK_DRIVER(cuDestroyExternalMemory(memory));
    CHECK_DRIVER(cuMemFree(at));
}

static void offer(int socket) {
    use_primary_context();
    const CUmemGenericAllocationHandle handle = create(UNIT);
    CUexternalMemory memory;
    CUdeviceptr at;
    CHECK_DRIVER(import(&memory, descriptor_of(handle), UNIT));
    CHECK_DRIVER(map(&at, memory, 0, UNIT));
    CHECK_DRIVER(cuMemsetD32(at, 42, UNIT / 4));
    CHECK_DRIVER(cuCtxSynchronize());
    char byte = 0;
    REQUIRE(send_descriptor(socket, &byte, 1, descriptor_of(handle)));
    REQUIRE(read(socket, &byte, 1) == 1);
    REQUIRE(word(at) == 43);
}

// Both begin before this process has used CUDA.
static void two_processes() {
    int sockets[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    int good = 0;
    for (int side = 0; side < 2; side++) {
        const pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            alarm(60);
            close(sockets[!side]);
            side == 0 ? offer(sockets[0]) : other_process(sockets[1]);
            std::fflush(stdout);
            _exit(0);
        }
    }
    close(sockets[0]);
    close(sockets[1]);
    for (int side = 0; side < 2; side++) {
        int status = 1;
        REQUIRE(wait(&status) > 0);
        good += status == 0;
    }
    std::printf("another process: %d of 2 are content\n", good);
}

static void semaphores() {
    std::printf("semaphores\n");
    for (int type = 0; type <= 11; type++) {
        const int file = open("/dev/null", O_RDWR);
        CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC desc;
        std::memset(&desc, 0, sizeof desc);
        desc.type = (CUexternalSemaphoreHandleType)type;
        CUexternalSemaphore semaphore;
        std::printf("  kind %d:", type);
        if (type != 1 && type != 9) {
            std::printf(" none %d", (int)cuImportExternalSemaphore(&semaphore, &desc));
        }
        desc.handle.fd = file;
        std::printf(" a file %d", (int)cuImportExternalSemaphore(&semaphore, &desc));
        desc.flags = 1;
        std::printf(" with flags %d\n", (int)cuImportExternalSemaphore(&semaphore, &desc));
        REQUIRE(is_open(file));
        close(file);
    }
    static char zeros[4096];
    const auto handles = (CUexternalSemaphore *)zeros;
    const auto signals = (CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *)zeros;
    const auto waits = (CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *)zeros;
    SHOW(cuSignalExternalSemaphoresAsync(handles, signals, 0, 0));
    SHOW(cuWaitExternalSemaphoresAsync(handles, waits, 0, 0));
    SHOW(cuSignalExternalSemaphoresAsync(nullptr, signals, 1, 0));
    SHOW(cuWaitExternalSemaphoresAsync(handles, nullptr, 1, 0));
    SHOW(cuDestroyExternalSemaphore(nullptr));

    CUgraph graph;
    CUgraphNode signal, wait;
    CUDA_EXT_SEM_SIGNAL_NODE_PARAMS nothing = {};
    CUDA_EXT_SEM_WAIT_NODE_PARAMS none = {};
    CHECK_DRIVER(cuGraphCreate(&graph, 0));
    SHOW(cuGraphAddExternalSemaphoresSignalNode(&signal, graph, nullptr, 0, &nothing));
    SHOW(cuGraphAddExternalSemaphoresWaitNode(&wait, graph, &signal, 1, &none));
    CUgraphNodeType types[2];
    CHECK_DRIVER(cuGraphNodeGetType(signal, &types[0]));
    CHECK_DRIVER(cuGraphNodeGetType(wait, &types[1]));
    std::printf("  types %d %d\n", (int)types[0], (int)types[1]);
    nothing.numExtSems = none.numExtSems = 7;
    SHOW(cuGraphExternalSemaphoresSignalNodeGetParams(signal, &nothing));
    SHOW(cuGraphExternalSemaphoresWaitNodeGetParams(wait, &none));
    std::printf("  semaphores %u %u\n", nothing.numExtSems, none.numExtSems);
    SHOW(cuGraphExternalSemaphoresSignalNodeGetParams(wait, &nothing));
    SHOW(cuGraphExternalSemaphoresWaitNodeGetParams(signal, &none));
    SHOW(cuGraphExternalSemaphoresSignalNodeGetParams(signal, nullptr));
    SHOW(cuGraphExternalSemaphoresSignalNodeSetParams(signal, &nothing));
    SHOW(cuGraphExternalSemaphoresSignalNodeSetParams(wait, &nothing));
    SHOW(cuGraphExternalSemaphoresWaitNodeSetParams(wait, &none));
    SHOW(cuGraphExternalSemaphoresWaitNodeSetParams(signal, &none));
    SHOW(cuGraphExternalSemaphoresWaitNodeSetParams(wait, nullptr));
    CUgraphExec exec;
    CHECK_DRIVER(cuGraphInstantiate(&exec, graph, 0));
    SHOW(cuGraphExecExternalSemaphoresSignalNodeSetParams(exec, signal, &nothing));
    SHOW(cuGraphExecExternalSemaphoresSignalNodeSetParams(exec, wait, &nothing));
    SHOW(cuGraphExecExternalSemaphoresWaitNodeSetParams(exec, wait, &none));
    SHOW(cuGraphExecExternalSemaphoresWaitNodeSetParams(exec, signal, &none));
    SHOW(cuGraphLaunch(exec, 0));
    SHOW(cuStreamSynchronize(0));
}

int main() {
    two_processes();
    const CUcontext context = use_primary_context();
    CHECK(cudaFree(nullptr));
    types();
    sizes();
    parts();
    what_it_is(context);
    lifetimes();
    contexts(context);
    captures();
    kernels();
    arrays();
    runtime();
    semaphores();
    return 0;
}
