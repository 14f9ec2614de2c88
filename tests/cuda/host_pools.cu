// SPDX-License-Identifier: Apache-2.0 OR MIT
// Pools of the host's memory and of managed memory: both sides reach what they give, at one address.
#include "check_driver.h"

#include <initializer_list>
#include <thread>
#include <vector>

constexpr size_t MIB = 1 << 20;

struct Kind {
    const char *name;
    CUmemAllocationType type;
    CUmemLocationType place;
};
static const Kind HOST = {"host", CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_HOST};
static const Kind MANAGED = {"managed", CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_NONE};
static const Kind KINDS[] = {
    HOST,
    {"node", CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_HOST_NUMA},
    MANAGED,
    {"managed on the device", CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_DEVICE},
    {"managed on the host", CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_HOST},
    {"managed on a node", CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_HOST_NUMA},
};

__global__ void add(int *values, int n, int amount) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        values[i] += amount;
    }
}

// Adds once a word of the host's is set.
__global__ void add_later(volatile int *go, int *values, int n, int amount) {
    while (*go == 0) {
    }
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        values[i] += amount;
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

static int create(CUmemoryPool *pool, const Kind &kind, size_t most = 0, int handle_types = 0, int id = 0) {
    CUmemPoolProps props = {};
    props.allocType = kind.type;
    props.location.type = kind.place;
    props.location.id = id;
    props.handleTypes = (CUmemAllocationHandleType)handle_types;
    props.maxSize = most;
    return cuMemPoolCreate(pool, &props);
}

static CUmemoryPool make(const Kind &kind, size_t most = 0) {
    CUmemoryPool pool = nullptr;
    CHECK_DRIVER((CUresult)create(&pool, kind, most));
    return pool;
}

static int set_access(CUmemoryPool pool, int place, int id, int flags) {
    CUmemAccessDesc access = {};
    access.location.type = (CUmemLocationType)place;
    access.location.id = id;
    access.flags = (CUmemAccess_flags)flags;
    return cuMemPoolSetAccess(pool, &access, 1);
}

static void print_access(const char *when, CUmemoryPool pool) {
    std::printf("  access %s:", when);
    for (int place = 0; place <= 4; place++) {
        CUmemLocation location = {(CUmemLocationType)place, 0};
        CUmemAccess_flags flags = (CUmemAccess_flags)9;
        const int result = cuMemPoolGetAccess(&flags, pool, &location);
        std::printf(" %d=%d/%d", place, result, (int)flags);
    }
    std::printf("\n");
}

static uint64_t attribute(CUmemoryPool pool, CUmemPool_attribute number) {
    uint64_t value = 0;
    CHECK_DRIVER(cuMemPoolGetAttribute(pool, number, &value));
    return value;
}

static CUdeviceptr allocate(CUmemoryPool pool, size_t bytes, CUstream stream) {
    CUdeviceptr memory = 0;
    CHECK_DRIVER(cuMemAllocFromPoolAsync(&memory, bytes, pool, stream));
    return memory;
}

static void print_pointer(const char *when, CUdeviceptr memory, CUmemoryPool pool) {
    unsigned int type = 9, managed = 9, mapped = 9;
    CUdeviceptr device = 9;
    void *host = nullptr;
    CUcontext context = (CUcontext)9;
    CUmemoryPool of = nullptr;
    size_t bytes = 0, range = 0;
    const int known = cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory);
    if (known != CUDA_SUCCESS) {
        std::printf("  pointer %s: %d\n", when, known);
        return;
    }
    CHECK_DRIVER(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, memory));
    CHECK_DRIVER(cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, memory));
    CHECK_DRIVER(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, memory));
    CHECK_DRIVER(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, memory));
    CHECK_DRIVER(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory));
    CHECK_DRIVER(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, memory));
    const int reached = cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, memory);
    CUdeviceptr base = 0;
    const int found = cuMemGetAddressRange(&base, &range, memory + 5);
    cudaPointerAttributes of_runtime = {};
    CHECK(cudaPointerGetAttributes(&of_runtime, (void *)memory));
    std::printf("  pointer %s: type %u, managed %u, mapped %u, host %d, context %d, pool %d, %zu bytes\n", when, type, managed,
                mapped, (CUdeviceptr)host == memory, context != nullptr, of == pool, bytes);
    std::printf("    device %d %d, range %d %d, runtime: type %d, device %d, host %d\n", reached,
                reached == 0 && device == memory, found, found == 0 && base == memory && range == bytes,
                (int)of_runtime.type, (CUdeviceptr)of_runtime.devicePointer == memory,
                (CUdeviceptr)of_runtime.hostPointer == memory);
}

static void print_copies(CUdeviceptr to, CUdeviceptr from, CUstream stream) {
    char bytes[1000] = {1};
    list("copies, memset", {cuMemcpyHtoD(to, bytes, 1000), cuMemcpyDtoH(bytes, from, 1000), cuMemcpyDtoD(to, from, 1000),
                            cuMemcpy(to, from, 1000), cuMemcpy((CUdeviceptr)bytes, from, 1000), cuMemsetD8(to, 3, 1000),
                            cuMemsetD8Async(to, 3, 1000, stream)});
    CHECK_DRIVER(cuStreamSynchronize(stream));
    std::printf("  copies of the runtime:");
    for (int kind = 0; kind <= 4; kind++) {
        std::printf(" %d", cudaMemcpy((void *)to, (void *)from, 1000, (cudaMemcpyKind)kind));
    }
    cudaGetLastError();
    std::printf("\n");
}

static void print_refusals(CUdeviceptr memory, CUstream stream) {
    const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUdeviceptr device;
    unsigned int flags, sync = 1;
    CUmemGenericAllocationHandle handle;
    int mostly = 9, preferred = 9;
    list("as pinned memory", {cuMemHostGetDevicePointer(&device, (void *)memory, 0), cuMemHostGetFlags(&flags, (void *)memory),
                              cuMemHostRegister((void *)memory, 1000, 0), cuMemHostUnregister((void *)memory),
                              cuMemFreeHost((void *)memory)});
    list("as managed memory",
         {cuMemPrefetchAsync(memory, 1000, here, 0, stream), cuMemAdvise(memory, 1000, CU_MEM_ADVISE_SET_READ_MOSTLY, here),
          cuStreamAttachMemAsync(stream, memory, 0, CU_MEM_ATTACH_GLOBAL),
          cuMemRangeGetAttribute(&mostly, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory, 1000),
          cuMemRangeGetAttribute(&preferred, 4, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, memory, 1000), mostly, preferred});
    list("others, and inside",
         {cuPointerSetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory),
          cuMemRetainAllocationHandle(&handle, (void *)memory), cuMemFreeAsync(memory + 16, stream), cuMemFree(memory + 16)});
}

static void life(const Kind &kind, CUstream stream) {
    std::printf("%s\n", kind.name);
    CUmemoryPool pool = make(kind);
    std::printf("  new: %llu %llu %llu\n", (unsigned long long)attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD),
                (unsigned long long)attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT),
                (unsigned long long)attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH));
    print_access("at first", pool);
    const int n = 250;
    const CUdeviceptr memory = allocate(pool, n * sizeof(int), stream), other = allocate(pool, n * sizeof(int), stream);
    std::printf("  used: %llu, reserved: %d\n", (unsigned long long)attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT),
                attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 2000);
    CHECK_DRIVER(cuStreamSynchronize(stream));
    int *values = (int *)memory;
    for (int i = 0; i < n; i++) {
        values[i] = i;
    }
    print_pointer("at first", memory, pool);
    // Whether the GPU reaches managed memory of the host before it is given access differs from machine to machine.
    if (kind.type != CU_MEM_ALLOCATION_TYPE_MANAGED || kind.place < CU_MEM_LOCATION_TYPE_HOST) {
        print_copies(other, memory, stream);
    }
    list("set access", {set_access(pool, 1, 0, 1), set_access(pool, 1, 0, 3), set_access(pool, 1, 7, 3),
                        set_access(pool, 2, 0, 3), set_access(pool, 2, 0, 0), set_access(pool, 0, 0, 3),
                        set_access(pool, 4, 0, 3)});
    print_access("given", pool);
    print_pointer("given", memory + 100, pool);
    add<<<2, 64, 0, (cudaStream_t)stream>>>(values, n, 5);
    CHECK(cudaGetLastError());
    CHECK_DRIVER(cuStreamSynchronize(stream));
    int wrong = 0;
    for (int i = 0; i < n; i++) {
        wrong += values[i] != i + 5;
    }
    std::printf("  kernel: %d wrong\n", wrong);
    print_copies(other, memory, stream);
    print_refusals(memory, stream);
    CHECK_DRIVER(cuMemFreeAsync(memory, stream));
    print_pointer("freed", memory, pool);
    list("freed twice", {cuMemFreeAsync(memory, stream), cuMemFree(memory)});
    CHECK_DRIVER(cuMemFreeAsync(other, stream));
    CHECK_DRIVER(cuStreamSynchronize(stream));
    CHECK_DRIVER(cuMemPoolTrimTo(pool, 0));
    std::printf("  left: %llu %llu\n", (unsigned long long)attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT),
                (unsigned long long)attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    CUdeviceptr none = 9;
    list("no bytes, and too many",
         {cuMemAllocFromPoolAsync(&none, 0, pool, stream), none == 0,
          cuMemAllocFromPoolAsync(&none, (size_t)1 << 46, pool, stream), cuMemAllocFromPoolAsync(&none, ~(size_t)0, pool, stream)});
    CHECK_DRIVER(cuMemPoolDestroy(pool));
    list("gone", {cuMemPoolDestroy(pool), cuMemAllocFromPoolAsync(&none, 8, pool, stream)});
}

static void properties() {
    std::printf("properties\n");
    for (int type = 1; type <= 2; type++) {
        for (int place = 0; place <= 4; place++) {
            const Kind kind = {"", (CUmemAllocationType)type, (CUmemLocationType)place};
            CUmemoryPool pool;
            std::printf("  %d %d", type, place);
            list("created, far, by file, with a limit",
                 {create(&pool, kind), create(&pool, kind, 0, 0, 99), place == 2 || type == 2 ? create(&pool, kind, 0, 1) : 0,
                  type == 2 ? create(&pool, kind, MIB) : 0});
        }
    }
    CUmemoryPool pool = make(HOST);
    uint64_t big = 1 << 20, none = 0, five = 5;
    int off = 0;
    list("set", {cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &big),
                 cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &off),
                 cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &none),
                 cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &five),
                 cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &none),
                 cuMemPoolSetAttribute(pool, (CUmemPool_attribute)0, &none),
                 cuMemPoolSetAttribute(pool, (CUmemPool_attribute)9, &none)});
    int policy = 9;
    CHECK_DRIVER(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &policy));
    std::printf("  get: %llu %d, %d\n", (unsigned long long)attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), policy,
                cuMemPoolGetAttribute(pool, (CUmemPool_attribute)9, &none));
    CHECK_DRIVER(cuMemPoolDestroy(pool));
}

static void defaults() {
    std::printf("defaults\n");
    CUmemoryPool all[6];
    for (int i = 0; i < 6; i++) {
        CUmemLocation location = {KINDS[i].place, 0}, far = {KINDS[i].place, 5};
        CUmemoryPool now, mine = make(KINDS[i]), farther = nullptr;
        CHECK_DRIVER(cuMemGetDefaultMemPool(&all[i], &location, KINDS[i].type));
        CHECK_DRIVER(cuMemGetMemPool(&now, &location, KINDS[i].type));
        const bool same = now == all[i];
        const int elsewhere = cuMemGetDefaultMemPool(&farther, &far, KINDS[i].type);
        CHECK_DRIVER(cuMemSetMemPool(&location, KINDS[i].type, mine));
        CHECK_DRIVER(cuMemGetMemPool(&now, &location, KINDS[i].type));
        const bool set = now == mine;
        int wrong = 0;
        for (int other = 0; other < 6; other++) {
            CUmemLocation place = {KINDS[other].place, 0};
            wrong += other != i && cuMemSetMemPool(&place, KINDS[other].type, mine) != CUDA_ERROR_INVALID_VALUE;
        }
        const int of_device = cuDeviceSetMemPool(0, mine);
        CHECK_DRIVER(cuMemPoolDestroy(mine));
        CHECK_DRIVER(cuMemGetMemPool(&now, &location, KINDS[i].type));
        std::printf("  %s: first %d, elsewhere %d %d, set %d, set at others' %d, for the device %d, back %d, destroy %d\n",
                    KINDS[i].name, same, elsewhere, farther == all[i], set, wrong, of_device, now == all[i],
                    cuMemPoolDestroy(all[i]));
        for (int other = 0; other < i; other++) {
            REQUIRE(all[other] != all[i]);
        }
    }
    CUmemLocation current = {CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0}, nowhere = {CU_MEM_LOCATION_TYPE_NONE, 0};
    CUmemoryPool pool;
    list("none", {cuMemGetDefaultMemPool(&pool, &current, CU_MEM_ALLOCATION_TYPE_MANAGED),
                  cuMemGetMemPool(&pool, &nowhere, CU_MEM_ALLOCATION_TYPE_PINNED),
                  cuMemGetDefaultMemPool(&pool, nullptr, CU_MEM_ALLOCATION_TYPE_PINNED)});
}

// Memory that a stream still uses is not given to another one.
static void order(const Kind &kind, CUstream first, CUstream second) {
    CUmemoryPool pool = make(kind);
    REQUIRE(set_access(pool, 1, 0, 3) == 0);
    uint64_t keep = ~0ull;
    CHECK_DRIVER(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    int *go;
    CHECK_DRIVER(cuMemAllocHost((void **)&go, sizeof *go));
    *go = 0;
    const int n = 100000;
    const CUdeviceptr memory = allocate(pool, n * sizeof(int), first);
    CHECK_DRIVER(cuMemsetD32Async(memory, 1, n, first));
    CHECK_DRIVER(cuStreamSynchronize(first));
    add_later<<<1, 256, 0, (cudaStream_t)first>>>(go, (int *)memory, n, 1);
    CHECK(cudaGetLastError());
    CHECK_DRIVER(cuMemFreeAsync(memory, first));
    const CUdeviceptr other = allocate(pool, n * sizeof(int), second);
    CHECK_DRIVER(cuMemsetD32Async(other, 7, n, second));
    CHECK_DRIVER(cuStreamSynchronize(second));
    std::printf("  pending: %d", cuStreamQuery(first));
    *(volatile int *)go = 1;
    CHECK_DRIVER(cuStreamSynchronize(first));
    int wrong = 0;
    for (int i = 0; i < n; i++) {
        wrong += ((int *)other)[i] != 7;
    }
    std::printf(", another stream: %d wrong\n", wrong);
    CHECK_DRIVER(cuMemFreeAsync(other, second));
    // Over and over: what is free is used again.
    for (int round = 0; round < 100; round++) {
        const CUstream stream = round % 3 ? first : second;
        const CUdeviceptr again = allocate(pool, 5 * MIB, stream);
        CHECK_DRIVER(cuMemsetD32Async(again, round, 1000, stream));
        CHECK_DRIVER(cuMemFreeAsync(again, stream));
    }
    CHECK_DRIVER(cuCtxSynchronize());
    std::printf("  again and again: used %llu, reserved %d\n",
                (unsigned long long)attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT),
                attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) <= 128 * MIB);
    CHECK_DRIVER(cuMemPoolDestroy(pool));
    CHECK_DRIVER(cuMemFreeHost(go));
}

static void limit(CUstream first, CUstream second) {
    CUmemoryPool pool = make(HOST, 5 * MIB);
    std::vector<CUdeviceptr> held;
    CUdeviceptr memory;
    int result;
    while ((result = cuMemAllocFromPoolAsync(&memory, MIB, pool, first)) == 0) {
        held.push_back(memory);
    }
    std::printf("limit: %zu, then %d", held.size(), result);
    CHECK_DRIVER(cuMemFreeAsync(held.back(), first));
    held.back() = allocate(pool, MIB, first);
    CHECK_DRIVER(cuMemFreeAsync(held.back(), first));
    CHECK_DRIVER(cuStreamSynchronize(first));
    held.back() = allocate(pool, MIB, second);
    std::printf(", %d\n", cuMemAllocFromPoolAsync(&memory, 1, pool, second));
    for (CUdeviceptr each : held) {
        CHECK_DRIVER(cuMemFreeAsync(each, second));
    }
    CHECK_DRIVER(cuMemPoolDestroy(pool));
    CUmemoryPool wide;
    list("limits", {create(&wide, HOST, (size_t)1 << 40), create(&wide, HOST, (size_t)1 << 47)});
}

static void capture(CUstream stream, CUstream other) {
    for (const Kind &kind : KINDS) {
        CUmemoryPool pool = make(kind);
        const CUdeviceptr before = allocate(pool, 1000, stream);
        CUdeviceptr memory = 0;
        CUgraph graph;
        size_t nodes = 9;
        CHECK_DRIVER(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        const int allocated = cuMemAllocFromPoolAsync(&memory, 1000, pool, stream);
        const int freed = cuMemFreeAsync(before, stream);
        const int freed_here = allocated == 0 ? (int)cuMemFreeAsync(memory, stream) : 0;
        const int beside = cuMemAllocFromPoolAsync(&memory, 1000, pool, other);
        CHECK_DRIVER(cuStreamEndCapture(stream, &graph));
        CHECK_DRIVER(cuGraphGetNodes(graph, nullptr, &nodes));
        std::printf("captured, %s: %d %d %d, beside it %d, %zu nodes", kind.name, allocated, freed, freed_here, beside, nodes);
        CHECK_DRIVER(cuGraphDestroy(graph));
        CHECK_DRIVER(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        const int refused = cuMemAllocFromPoolAsync(&memory, 1000, pool, other);
        cuStreamEndCapture(stream, &graph);
        CUDA_MEM_ALLOC_NODE_PARAMS params = {};
        CUgraphNode node;
        params.poolProps.allocType = kind.type;
        params.poolProps.location.type = kind.place;
        params.bytesize = 1000;
        CHECK_DRIVER(cuGraphCreate(&graph, 0));
        std::printf(", not beside %d, node %d\n", refused, cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &params));
        CHECK_DRIVER(cuMemFreeAsync(before, stream));
        CHECK_DRIVER(cuMemPoolDestroy(pool));
    }
}

// Many threads, a pool, a stream each.
static void threads() {
    CUmemoryPool pool = make(HOST);
    REQUIRE(set_access(pool, 1, 0, 3) == 0);
    CUcontext context;
    CHECK_DRIVER(cuCtxGetCurrent(&context));
    std::vector<std::thread> all;
    int wrong[4] = {};
    for (int which = 0; which < 4; which++) {
        all.emplace_back([&, which] {
            CHECK_DRIVER(cuCtxSetCurrent(context));
            const CUstream stream = CU_STREAM_PER_THREAD;
            for (int round = 0; round < 50; round++) {
                const int n = 1000 + 100 * (round % 7);
                const CUdeviceptr memory = allocate(pool, n * sizeof(int), stream);
                CHECK_DRIVER(cuMemsetD32Async(memory, which * 1000 + round, n, stream));
                add<<<4, 64, 0, cudaStreamPerThread>>>((int *)memory, n, 1);
                CHECK(cudaGetLastError());
                if (round % 5 == 0) {
                    CHECK_DRIVER(cuStreamSynchronize(stream));
                    for (int i = 0; i < n; i++) {
                        wrong[which] += ((int *)memory)[i] != which * 1000 + round + 1;
                    }
                }
                CHECK_DRIVER(cuMemFreeAsync(memory, stream));
            }
            CHECK_DRIVER(cuStreamSynchronize(stream));
        });
    }
    for (std::thread &thread : all) {
        thread.join();
    }
    std::printf("threads: %d wrong, used %llu\n", wrong[0] + wrong[1] + wrong[2] + wrong[3],
                (unsigned long long)attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    CHECK_DRIVER(cuMemPoolDestroy(pool));
}

// Pools belong to no context, and what was allocated outlives its pool.
static void lives() {
    CUcontext own, context;
    CUstream stream;
    CHECK_DRIVER(cuCtxGetCurrent(&own));
    CHECK_DRIVER(cuCtxCreate(&context, nullptr, 0, 0));
    CHECK_DRIVER(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUmemoryPool pool = make(HOST);
    REQUIRE(set_access(pool, 1, 0, 3) == 0);
    const CUdeviceptr memory = allocate(pool, 1000, stream), freed = allocate(pool, 1000, stream);
    CHECK_DRIVER(cuMemsetD8Async(memory, 4, 1000, stream));
    CHECK_DRIVER(cuMemFreeAsync(freed, stream));
    CHECK_DRIVER(cuStreamSynchronize(stream));
    CHECK_DRIVER(cuCtxDestroy(context));
    CHECK_DRIVER(cuCtxSetCurrent(own));
    std::printf("context gone: %x, used %llu\n", *(int *)memory,
                (unsigned long long)attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    add<<<1, 64>>>((int *)memory, 250, 1);
    CHECK(cudaDeviceSynchronize());
    std::printf("  by another: %x %x\n", *(int *)memory, ((int *)memory)[249]);
    CHECK_DRIVER(cuMemPoolDestroy(pool));
    add<<<1, 64>>>((int *)memory, 250, 1);
    CHECK(cudaDeviceSynchronize());
    std::printf("pool gone: %x\n", *(int *)memory);
    CHECK_DRIVER(cuMemFreeAsync(memory, nullptr));
    CHECK_DRIVER(cuStreamSynchronize(nullptr));
    print_pointer("freed", memory, pool);

    pool = make(MANAGED);
    const CUdeviceptr kept = allocate(pool, 1000, nullptr);
    CHECK_DRIVER(cuMemsetD8(kept, 5, 1000));
    CHECK(cudaDeviceReset());
    std::printf("reset: %x, used %llu\n", *(int *)kept,
                (unsigned long long)attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
    CHECK(cudaFree(nullptr));
    CHECK(cudaMemset((void *)kept, 6, 1000));
    CHECK(cudaDeviceSynchronize());
    std::printf("  again: %x\n", *(int *)kept);
    CHECK(cudaFree((void *)kept));
    CHECK_DRIVER(cuMemPoolDestroy(pool));
}

static void runtime() {
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeHost;
    cudaMemPool_t pool, now;
    CHECK(cudaMemPoolCreate(&pool, &props));
    CHECK(cudaMemSetMemPool(&props.location, cudaMemAllocationTypePinned, pool));
    CHECK(cudaMemGetMemPool(&now, &props.location, cudaMemAllocationTypePinned));
    int *memory, *of_device;
    CHECK(cudaMallocFromPoolAsync((void **)&memory, 1000, pool, nullptr));
    CHECK(cudaMallocAsync((void **)&of_device, 1000, nullptr));
    CHECK(cudaMemsetAsync(of_device, 1, 1000, nullptr));
    CHECK(cudaMemcpyAsync(memory, of_device, 1000, cudaMemcpyDefault, nullptr));
    CHECK(cudaStreamSynchronize(nullptr));
    cudaPointerAttributes attributes = {};
    CHECK(cudaPointerGetAttributes(&attributes, of_device));
    std::printf("runtime: current %d, copied %x, cudaMallocAsync's type %d\n", now == pool, memory[249], (int)attributes.type);
    CHECK(cudaFreeAsync(of_device, nullptr));
    CHECK(cudaFreeAsync(memory, nullptr));
    CHECK(cudaMallocFromPoolAsync((void **)&memory, 1000, pool, nullptr));
    CHECK(cudaFree(memory));
    CHECK(cudaMemPoolDestroy(pool));
}

int main() {
    CHECK(cudaFree(nullptr));
    use_primary_context();
    for (int number : {CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED, CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED}) {
        int supported = 9;
        CHECK_DRIVER(cuDeviceGetAttribute(&supported, (CUdevice_attribute)number, 0));
        std::printf("supported: %d\n", supported);
    }
    CUstream first, second;
    CHECK_DRIVER(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    CHECK_DRIVER(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    properties();
    defaults();
    for (const Kind &kind : KINDS) {
        life(kind, first);
    }
    for (const Kind &kind : {HOST, MANAGED}) {
        std::printf("order, %s\n", kind.name);
        order(kind, first, second);
    }
    limit(first, second);
    capture(first, second);
    threads();
    runtime();
    lives();
    return 0;
}
