// SPDX-License-Identifier: Apache-2.0 OR MIT
// Pools of device memory in several streams: contents stay until they are freed, whoever gets memory next, and pools count it.
#include "check_driver.h"

#include <initializer_list>
#include <thread>
#include <vector>

constexpr size_t MIB = 1 << 20;
constexpr int STREAMS = 4;

__global__ void fill(unsigned *memory, size_t n, unsigned value) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        memory[i] = value + (unsigned)i;
    }
}

__global__ void check(const unsigned *memory, size_t n, unsigned value, unsigned *wrong) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        if (memory[i] != value + (unsigned)i) {
            atomicAdd(wrong, 1);
        }
    }
}

// What calls answered, in their order.
static void list(const char *label, std::initializer_list<int> results) {
    std::printf("  %s:", label);
    for (int result : results) {
        std::printf(" %d", result);
    }
    std::printf("\n");
}

static CUmemoryPool create(size_t most = 0) {
    CUmemPoolProps props = {};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    props.maxSize = most;
    CUmemoryPool pool = nullptr;
    CHECK_DRIVER(cuMemPoolCreate(&pool, &props));
    return pool;
}

static unsigned long long attribute(CUmemoryPool pool, CUmemPool_attribute number) {
    uint64_t value = 0;
    CHECK_DRIVER(cuMemPoolGetAttribute(pool, number, &value));
    return value;
}

static void keep(CUmemoryPool pool, uint64_t bytes) {
    CHECK_DRIVER(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes));
}

static CUdeviceptr allocate(CUmemoryPool pool, size_t bytes, CUstream stream) {
    CUdeviceptr memory = 0;
    CHECK_DRIVER(pool ? cuMemAllocFromPoolAsync(&memory, bytes, pool, stream)
                      : cuMemAllocAsync(&memory, bytes, stream));
    return memory;
}

struct Piece {
    CUdeviceptr memory;
    size_t n;
    unsigned value;
    int stream;
};

// Random allocations of several sizes; some are freed in another stream than their own.
static void random_work(const char *label, const CUmemoryPool *pools, int count, uint64_t seed, bool prints) {
    CUstream streams[STREAMS];
    streams[0] = nullptr;
    for (int i = 1; i < STREAMS; i++) {
        CHECK_DRIVER(cuStreamCreate(&streams[i], i == 1 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    }
    CUevent event;
    CHECK_DRIVER(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    unsigned *wrong;
    CHECK(cudaMalloc(&wrong, sizeof *wrong));
    CHECK(cudaMemset(wrong, 0, sizeof *wrong));
    CHECK(cudaDeviceSynchronize());
    Random random(seed);
    std::vector<Piece> live;
    const auto end = [&](size_t index, bool elsewhere) {
        const Piece piece = live[index];
        live[index] = live.back();
        live.pop_back();
        check<<<16, 128, 0, streams[piece.stream]>>>((unsigned *)piece.memory, piece.n, piece.value, wrong);
        const int other = elsewhere ? (int)(random.next() % STREAMS) : piece.stream;
        if (other != piece.stream) {
            CHECK_DRIVER(cuEventRecord(event, streams[piece.stream]));
            CHECK_DRIVER(cuStreamWaitEvent(streams[other], event, 0));
        }
        CHECK_DRIVER(cuMemFreeAsync(piece.memory, streams[other]));
    };
    for (int step = 0; step < 600; step++) {
        if (live.size() > 24 || (!live.empty() && random.next() % 3 == 0)) {
            end(random.next() % live.size(), random.next() % 4 == 0);
            continue;
        }
        const size_t most = random.next() % 8 == 0 ? MIB : 8192;
        Piece piece = {0, 1 + random.next() % most, (unsigned)random.next(), (int)(random.next() % STREAMS)};
        piece.memory = allocate(pools[random.next() % count], piece.n * sizeof(unsigned), streams[piece.stream]);
        fill<<<16, 128, 0, streams[piece.stream]>>>((unsigned *)piece.memory, piece.n, piece.value);
        live.push_back(piece);
        if (random.next() % 50 == 0) {
            CHECK_DRIVER(cuStreamSynchronize(streams[random.next() % STREAMS]));
        }
    }
    while (!live.empty()) {
        end(live.size() - 1, false);
    }
    for (int i = 1; i < STREAMS; i++) {
        CHECK_DRIVER(cuStreamSynchronize(streams[i]));
        CHECK_DRIVER(cuStreamDestroy(streams[i]));
    }
    CHECK_DRIVER(cuStreamSynchronize(nullptr));
    unsigned result = 1;
    CHECK(cudaMemcpy(&result, wrong, sizeof result, cudaMemcpyDeviceToHost));
    REQUIRE(result == 0);
    CHECK(cudaFree(wrong));
    CHECK_DRIVER(cuEventDestroy(event));
    if (prints) {
        std::printf("%s: %u wrong\n", label, result);
    }
}

static void statistics() {
    CUmemoryPool pool = create();
    keep(pool, ~0ull);
    const auto print = [&](const char *label) {
        const unsigned long long reserved = attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
        const unsigned long long used = attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
        std::printf("  %s: used %llu MiB, at most %llu, reserved enough %d, at most enough %d\n", label, used / MIB,
                    attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) / MIB, reserved >= used,
                    attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) >= reserved);
    };
    const auto print_reserved = [&](const char *label) {
        std::printf("  %s: reserved %llu\n", label, attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    };
    std::printf("statistics\n");
    print("new");
    CUstream stream, other;
    CHECK_DRIVER(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_DRIVER(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    const CUdeviceptr first = allocate(pool, 6 * MIB, stream), second = allocate(pool, 10 * MIB, other);
    REQUIRE(first + 6 * MIB <= second || second + 10 * MIB <= first);
    print("two");
    CHECK_DRIVER(cuMemFreeAsync(first, stream));
    CHECK_DRIVER(cuStreamSynchronize(stream));
    print("one freed");
    CHECK_DRIVER(cuMemFreeAsync(allocate(pool, 6 * MIB, stream), stream));
    CHECK_DRIVER(cuMemFreeAsync(second, other));
    CHECK_DRIVER(cuStreamSynchronize(stream));
    CHECK_DRIVER(cuStreamSynchronize(other));
    print("all freed, and kept");
    uint64_t zero = 0;
    CHECK_DRIVER(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
    CHECK_DRIVER(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero));
    print("marks are reset");
    CHECK_DRIVER(cuMemPoolTrimTo(pool, 0));
    print_reserved("trimmed");
    keep(pool, 0);
    CHECK_DRIVER(cuMemFreeAsync(allocate(pool, 3 * MIB, stream), stream));
    CHECK_DRIVER(cuStreamSynchronize(stream));
    print("after a synchronisation");
    print_reserved("after a synchronisation");
    CHECK_DRIVER(cuMemPoolDestroy(pool));
    CHECK_DRIVER(cuStreamDestroy(stream));
    CHECK_DRIVER(cuStreamDestroy(other));
}

static void ends(CUstream stream) {
    std::vector<unsigned> back(1000);
    const auto is_filled = [&](CUdeviceptr memory) {
        CHECK_DRIVER(cuMemcpyDtoHAsync(back.data(), memory, back.size() * sizeof(unsigned), stream));
        CHECK_DRIVER(cuStreamSynchronize(stream));
        for (size_t i = 0; i < back.size(); i++) {
            if (back[i] != 7 + i) {
                return 0;
            }
        }
        return 1;
    };
    std::printf("ends\n");
    // Memory outlives the program's handle of its pool, and a stream that has freed its neighbour.
    CUmemoryPool pool = create();
    const CUdeviceptr memory = allocate(pool, 4000, stream);
    fill<<<4, 128, 0, stream>>>((unsigned *)memory, 1000, 7);
    CHECK_DRIVER(cuMemPoolDestroy(pool));
    std::printf("  without its pool: %d\n", is_filled(memory));
    CHECK_DRIVER(cuMemFreeAsync(memory, stream));
    list("freed twice, and at once", {cuMemFreeAsync(memory, stream), cuMemFree(memory)});

    CUstream brief;
    CHECK_DRIVER(cuStreamCreate(&brief, CU_STREAM_NON_BLOCKING));
    const CUdeviceptr one = allocate(nullptr, 2 * MIB, brief), two = allocate(nullptr, 4000, brief);
    fill<<<4, 128, 0, brief>>>((unsigned *)two, 1000, 7);
    CHECK_DRIVER(cuMemFreeAsync(one, brief));
    CHECK_DRIVER(cuStreamDestroy(brief));
    const CUdeviceptr three = allocate(nullptr, 2 * MIB, stream);
    REQUIRE(three + 2 * MIB <= two || two + 4000 <= three);
    fill<<<16, 128, 0, stream>>>((unsigned *)three, 2 * MIB / 4, 9);
    CHECK(cudaDeviceSynchronize());
    std::printf("  without its stream: %d\n", is_filled(two));
    CHECK_DRIVER(cuMemFree(three));
    CHECK_DRIVER(cuMemFree(two));
    list("freed at once, and again", {cuMemFree(two), cuMemFreeAsync(two, stream)});

    // Of the other kind.
    CUdeviceptr plain;
    CHECK_DRIVER(cuMemAlloc(&plain, 3 * MIB));
    list("of cuMemAlloc, freed in a stream", {cuMemFreeAsync(plain, stream)});
    CHECK_DRIVER(cuStreamSynchronize(stream));
}

static void limits(CUstream stream) {
    std::printf("limits\n");
    CUmemoryPool pool = create(64 * MIB);
    CUdeviceptr first = allocate(pool, 40 * MIB, stream), second = 0;
    std::printf("  a second one: %d\n", cuMemAllocFromPoolAsync(&second, 40 * MIB, pool, stream));
    CHECK_DRIVER(cuMemFreeAsync(first, stream));
    CHECK_DRIVER(cuStreamSynchronize(stream));
    std::printf("  after the first: %d\n", cuMemAllocFromPoolAsync(&second, 40 * MIB, pool, stream));
    CHECK_DRIVER(cuMemFreeAsync(second, stream));
    CHECK_DRIVER(cuStreamSynchronize(stream));
    list("no bytes, and more than there are", {cuMemAllocFromPoolAsync(&second, 0, pool, stream),
                                               cuMemAllocFromPoolAsync(&first, (size_t)1 << 45, pool, stream)});
    CHECK_DRIVER(cuMemPoolDestroy(pool));
}

static void pointers(CUstream stream) {
    std::printf("pointers\n");
    CUmemoryPool pool = create(), usual = nullptr, of = nullptr;
    CHECK_DRIVER(cuDeviceGetDefaultMemPool(&usual, 0));
    const CUdeviceptr memory = allocate(pool, 1000, stream), other = allocate(nullptr, 1000, stream);
    CHECK_DRIVER(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory + 9));
    std::printf("  its pool: %d", of == pool);
    CHECK_DRIVER(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, other));
    CUdeviceptr base = 0;
    size_t bytes = 0;
    CHECK_DRIVER(cuMemGetAddressRange(&base, &bytes, memory + 9));
    std::printf(", the default one: %d, range: %d %zu\n", of == usual, base == memory, bytes);
    CUipcMemHandle handle;
    CUmemPoolPtrExportData data;
    int file = -1;
    list("shared", {cuIpcGetMemHandle(&handle, memory), cuMemPoolExportPointer(&data, memory),
                    cuMemPoolExportToShareableHandle(&file, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)});
    std::printf("  freed inside: %d\n", cuMemFreeAsync(memory + 512, stream));
    CHECK_DRIVER(cuMemFreeAsync(memory, stream));
    CHECK_DRIVER(cuMemFreeAsync(other, stream));
    CHECK_DRIVER(cuStreamSynchronize(stream));
    CHECK_DRIVER(cuMemPoolDestroy(pool));
}

int main() {
    use_primary_context();
    CUmemoryPool usual = nullptr;
    CHECK_DRIVER(cuDeviceGetDefaultMemPool(&usual, 0));
    CUmemoryPool pools[] = {nullptr, create(), create()};
    keep(pools[1], ~0ull);
    random_work("the default pool", pools, 1, 1, true);
    random_work("three pools", pools, 3, 2, true);
    int never = 0;
    for (const auto policy : {CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
                              CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
                              CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES}) {
        CHECK_DRIVER(cuMemPoolSetAttribute(pools[2], policy, &never));
    }
    random_work("without reuse by others", pools + 2, 1, 3, true);
    std::vector<std::thread> threads;
    for (uint64_t seed = 4; seed < 7; seed++) {
        threads.emplace_back([&, seed] {
            use_primary_context();
            random_work("a thread", pools, 3, seed, false);
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    std::printf("threads: done\n");
    CHECK(cudaDeviceSynchronize());
    std::printf("left: %llu %llu %llu\n", attribute(usual, CU_MEMPOOL_ATTR_USED_MEM_CURRENT),
                attribute(pools[1], CU_MEMPOOL_ATTR_USED_MEM_CURRENT),
                attribute(pools[2], CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    CUstream stream;
    CHECK_DRIVER(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    statistics();
    ends(stream);
    limits(stream);
    pointers(stream);
    CHECK_DRIVER(cuMemPoolDestroy(pools[1]));
    CHECK_DRIVER(cuMemPoolDestroy(pools[2]));
    CHECK_DRIVER(cuStreamDestroy(stream));
    return 0;
}
