// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Pools of each device that the others may access or not. Without arguments: what the driver's documentation says of it. With "work":
// kernels of all devices use memory of all pools until SIGTERM, and all of it is compared with what it must be. With "illegal": a kernel
// accesses memory of a pool without leave, although peer access is enabled, and the error is printed.
#include "check_driver.h"

#include <csignal>
#include <cstring>
#include <initializer_list>
#include <vector>

constexpr size_t MIB = 1 << 20;

static volatile std::sig_atomic_t is_ended;

static void end(int) { is_ended = 1; }

__global__ void fill(unsigned *memory, size_t n, unsigned value) {
    const size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) memory[i] = value + (unsigned)i;
}

__global__ void check(const unsigned *memory, size_t n, unsigned value, unsigned *wrong) {
    const size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        if (memory[i] != value + (unsigned)i) atomicAdd(wrong, 1);
    }
}

static CUmemLocation location_of(int device) { return CUmemLocation{CU_MEM_LOCATION_TYPE_DEVICE, device}; }

static CUmemoryPool create(int device) {
    CUmemPoolProps props = {};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location = location_of(device);
    CUmemoryPool pool = nullptr;
    CHECK_DRIVER(cuMemPoolCreate(&pool, &props));
    return pool;
}

static CUresult grant(CUmemoryPool pool, int device, CUmemAccess_flags flags) {
    const CUmemAccessDesc access = {location_of(device), flags};
    return cuMemPoolSetAccess(pool, &access, 1);
}

static int access_of(CUmemoryPool pool, int device) {
    CUmemLocation location = location_of(device);
    CUmemAccess_flags flags;
    CHECK_DRIVER(cuMemPoolGetAccess(&flags, pool, &location));
    return flags;
}

static CUdeviceptr allocate(CUmemoryPool pool, size_t bytes, CUstream stream) {
    CUdeviceptr memory = 0;
    CHECK_DRIVER(cuMemAllocFromPoolAsync(&memory, bytes, pool, stream));
    return memory;
}

static int ordinal_of(CUdeviceptr memory) {
    int ordinal = -1;
    CHECK_DRIVER(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory));
    return ordinal;
}

static cudaStream_t stream_of(int device) {
    cudaStream_t stream;
    CHECK(cudaSetDevice(device));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

// A copy from there needs no access.
static void expect(CUdeviceptr memory, size_t n, unsigned value) {
    std::vector<unsigned> found(n);
    CHECK(cudaMemcpy(found.data(), (void *)memory, n * sizeof(unsigned), cudaMemcpyDefault));
    for (size_t i = 0; i < n; i++) REQUIRE(found[i] == value + (unsigned)i);
}

// A kernel of `device` fills it.
static void reaches(int device, cudaStream_t stream, CUdeviceptr memory, size_t n, unsigned value) {
    CHECK(cudaSetDevice(device));
    fill<<<4, 128, 0, stream>>>((unsigned *)memory, n, value);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(stream));
    expect(memory, n, value);
}

static void answers(int device, int peer, CUmemoryPool pool) {
    REQUIRE(access_of(pool, peer) == 3 && access_of(pool, device) == 0);
    REQUIRE(grant(pool, device, CU_MEM_ACCESS_FLAGS_PROT_NONE) == CUDA_SUCCESS);
    REQUIRE(grant(pool, peer, CU_MEM_ACCESS_FLAGS_PROT_READWRITE) == CUDA_SUCCESS);
    REQUIRE(grant(pool, peer, CU_MEM_ACCESS_FLAGS_PROT_NONE) == CUDA_ERROR_INVALID_DEVICE);
    REQUIRE(grant(pool, device, CU_MEM_ACCESS_FLAGS_PROT_READ) == CUDA_ERROR_NOT_SUPPORTED);
    REQUIRE(grant(pool, 77, CU_MEM_ACCESS_FLAGS_PROT_READWRITE) == CUDA_ERROR_INVALID_DEVICE);
    REQUIRE(access_of(pool, peer) == 3 && access_of(pool, device) == 0);
    REQUIRE(cuMemPoolSetAccess(pool, nullptr, 0) == CUDA_ERROR_INVALID_VALUE);
    CUmemLocation nowhere = location_of(77);
    CUmemAccess_flags flags;
    REQUIRE(cuMemPoolGetAccess(&flags, pool, &nowhere) == CUDA_ERROR_INVALID_VALUE);
}

// Memory from before the leave, and from after it, in several parts of the pool.
static void access(int device, int peer, CUmemoryPool pool) {
    const cudaStream_t here = stream_of(device), there = stream_of(peer);
    const CUdeviceptr before = allocate(pool, 4000, there), large = allocate(pool, 33 * MIB, there);
    CHECK(cudaStreamSynchronize(there));
    CHECK_DRIVER(grant(pool, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    REQUIRE(access_of(pool, device) == 3);
    reaches(device, here, before, 1000, 5);
    reaches(device, here, large + 33 * MIB - 4000, 1000, 6);
    const CUdeviceptr after = allocate(pool, 4000, there);
    CHECK(cudaStreamSynchronize(there));
    reaches(device, here, after, 1000, 7);
    expect(before, 1000, 5);
    // Freed by one device, used by the other.
    CHECK_DRIVER(cuMemFreeAsync(large, here));
    CHECK_DRIVER(cuMemFree(before));
    CHECK(cudaStreamSynchronize(here));
    CHECK_DRIVER(grant(pool, device, CU_MEM_ACCESS_FLAGS_PROT_NONE));
    REQUIRE(access_of(pool, device) == 0);
    expect(after, 1000, 7);
    const CUdeviceptr own = allocate(pool, 4000, there);
    reaches(peer, there, own, 1000, 8);
    CHECK_DRIVER(cuMemFreeAsync(own, there));
    CHECK_DRIVER(cuMemFreeAsync(after, there));
    CHECK(cudaStreamSynchronize(there));
    CHECK(cudaStreamDestroy(here));
    CHECK(cudaStreamDestroy(there));
}

// Memory of a pool for streams of another device, and of a stream whose device is not the current one.
static void elsewhere(int device, int peer, CUmemoryPool pool) {
    const cudaStream_t there = stream_of(peer), here = stream_of(device);
    CHECK_DRIVER(grant(pool, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    const CUdeviceptr memory = allocate(pool, 4000, here);
    CUcontext context = nullptr;
    CHECK_DRIVER(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, memory));
    REQUIRE(ordinal_of(memory) == peer && !context);
    reaches(device, here, memory, 1000, 11);
    reaches(peer, there, memory, 1000, 12);
    CHECK(cudaSetDevice(device));
    CUdeviceptr usual = 0;
    CHECK_DRIVER(cuMemAllocAsync(&usual, 4000, there));
    REQUIRE(ordinal_of(usual) == peer);
    CHECK(cudaMemcpyPeerAsync((void *)usual, peer, (void *)memory, peer, 4000, there));
    CHECK(cudaStreamSynchronize(there));
    expect(usual, 1000, 12);
    CHECK_DRIVER(cuMemFreeAsync(usual, there));
    CHECK_DRIVER(cuMemFreeAsync(memory, here));
    CHECK(cudaStreamSynchronize(there));
    CHECK(cudaStreamSynchronize(here));
    CHECK(cudaStreamDestroy(here));
    CHECK(cudaStreamDestroy(there));
}

// Graphs allocate with the access that the pool had then.
static void captured(int device, int peer, CUmemoryPool pool) {
    const cudaStream_t here = stream_of(device);
    CHECK_DRIVER(grant(pool, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    std::vector<unsigned> found(1000);
    CHECK(cudaStreamBeginCapture(here, cudaStreamCaptureModeThreadLocal));
    const CUdeviceptr memory = allocate(pool, 4000, here);
    fill<<<4, 128, 0, here>>>((unsigned *)memory, 1000, 21);
    CHECK(cudaMemcpyAsync(found.data(), (void *)memory, 4000, cudaMemcpyDeviceToHost, here));
    CHECK_DRIVER(cuMemFreeAsync(memory, here));
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamEndCapture(here, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < 3; round++) {
        std::memset(found.data(), 0, 4000);
        CHECK(cudaGraphLaunch(exec, here));
        CHECK(cudaStreamSynchronize(here));
        for (unsigned i = 0; i < found.size(); i++) REQUIRE(found[i] == 21 + i);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(here));
}

struct Piece {
    CUdeviceptr memory;
    size_t n;
    unsigned value;
    int device;
};

// Random allocations of all pools for streams of all devices. They are filled and checked by the device of their stream.
static int work(int count) {
    std::signal(SIGTERM, end);
    std::vector<cudaStream_t> streams;
    std::vector<CUmemoryPool> pools;
    std::vector<unsigned *> wrong(count);
    for (int device = 0; device < count; device++) {
        streams.push_back(stream_of(device));
        pools.push_back(create(device));
        uint64_t keep = device ? ~0ull : 0;
        CHECK_DRIVER(cuMemPoolSetAttribute(pools[device], CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
        CHECK(cudaMalloc(&wrong[device], sizeof(unsigned)));
        CHECK(cudaMemset(wrong[device], 0, sizeof(unsigned)));
        CHECK(cudaDeviceSynchronize());
        for (int peer = 0; peer < count; peer++) {
            CHECK_DRIVER(grant(pools[device], peer, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
        }
    }
    Random random(5);
    std::vector<Piece> live;
    for (unsigned step = 0; !is_ended; step++) {
        if (live.size() > 16 || (!live.empty() && random.next() % 3 == 0)) {
            const size_t index = random.next() % live.size();
            const Piece piece = live[index];
            live[index] = live.back();
            live.pop_back();
            CHECK(cudaSetDevice(piece.device));
            check<<<4, 128, 0, streams[piece.device]>>>((unsigned *)piece.memory, piece.n, piece.value, wrong[piece.device]);
            CHECK(cudaGetLastError());
            CHECK_DRIVER(cuMemFreeAsync(piece.memory, streams[piece.device]));
            continue;
        }
        Piece piece = {0, 1 + random.next() % 20000, (unsigned)random.next(), (int)(random.next() % count)};
        const int owner = (int)(random.next() % count);
        CHECK(cudaSetDevice(piece.device));
        piece.memory = allocate(pools[owner], piece.n * sizeof(unsigned), streams[piece.device]);
        REQUIRE(ordinal_of(piece.memory) == owner);
        fill<<<4, 128, 0, streams[piece.device]>>>((unsigned *)piece.memory, piece.n, piece.value);
        CHECK(cudaGetLastError());
        live.push_back(piece);
        if (step % 50 == 0) CHECK(cudaStreamSynchronize(streams[random.next() % count]));
        if (step == 60) {
            std::printf("begun\n");
            std::fflush(stdout);
        }
    }
    for (int device = 0; device < count; device++) {
        unsigned result = 1;
        CHECK(cudaSetDevice(device));
        CHECK(cudaStreamSynchronize(streams[device]));
        CHECK(cudaMemcpy(&result, wrong[device], sizeof result, cudaMemcpyDeviceToHost));
        REQUIRE(result == 0);
    }
    std::printf("right\n");
    return 0;
}

static int illegal(int count) {
    if (count < 2) return 2;
    const cudaStream_t there = stream_of(1), here = stream_of(0);
    CUmemoryPool pool = create(1);
    const CUdeviceptr memory = allocate(pool, 4000, there);
    CHECK(cudaStreamSynchronize(there));
    CHECK(cudaSetDevice(0));
    CHECK(cudaDeviceEnablePeerAccess(1, 0));
    CHECK_DRIVER(grant(pool, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    reaches(0, here, memory, 1000, 3);
    CHECK_DRIVER(grant(pool, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE));
    fill<<<1, 32, 0, here>>>((unsigned *)memory, 32, 1);
    std::printf("%s\n", cudaGetErrorName(cudaStreamSynchronize(here)));
    return 0;
}

int main(int argc, char **argv) {
    int count = 0;
    CHECK(cudaGetDeviceCount(&count));
    for (int device = 0; device < count; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaFree(nullptr));
    }
    if (argc > 1 && !std::strcmp(argv[1], "work")) return work(count);
    if (argc > 1 && !std::strcmp(argv[1], "illegal")) return illegal(count);
    for (int device = 0; device < count; device++) {
        for (int peer = 0; peer < count; peer++) {
            int can = 0;
            if (peer == device) continue;
            CHECK(cudaDeviceCanAccessPeer(&can, device, peer));
            if (!can) continue;
            CUmemoryPool usual, pool = create(peer);
            CHECK_DRIVER(cuDeviceGetDefaultMemPool(&usual, peer));
            for (CUmemoryPool of : {usual, pool}) {
                CHECK_DRIVER(grant(of, device, CU_MEM_ACCESS_FLAGS_PROT_NONE));
                answers(device, peer, of);
                access(device, peer, of);
                elsewhere(device, peer, of);
                captured(device, peer, of);
            }
            CHECK_DRIVER(cuMemPoolDestroy(pool));
        }
    }
    std::printf("peer pools: right\n");
    return 0;
}
