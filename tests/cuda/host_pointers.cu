// SPDX-License-Identifier: Apache-2.0 OR MIT
// Host memory of every origin that a kernel reaches: registered where it lies (heap, static),
// by pointers inside structures, and while the kernel runs: the two sides take turns by system-wide atomics.
#include "check.h"

#include <cstring>
#include <memory>

__global__ void add(int *values, int n, int amount) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        values[i] += amount;
    }
}

static int in_bss[3000];
static int in_data[3000] = {1, 2, 3};

// Whatever page offset the buffer has, the kernel changes it and nothing beside it.
static void registered(const char *label, int *values, int n) {
    const int before = values[-1], after = values[n];
    for (int i = 0; i < n; i++) {
        values[i] = i;
    }
    CHECK(cudaHostRegister(values, n * sizeof *values, cudaHostRegisterDefault));
    int *device;
    CHECK(cudaHostGetDevicePointer(&device, values, 0));
    add<<<1, 128>>>(device, n, 5);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaHostUnregister(values));
    for (int i = 0; i < n; i++) {
        REQUIRE(values[i] == i + 5);
    }
    REQUIRE(values[-1] == before && values[n] == after);
    std::printf("%s: incremented in place\n", label);
}

struct Inner {
    int *values;
    int n;
};

struct Outer {
    Inner inner[4];
    Outer *next;
};

__global__ void follow(Outer *outer) {
    for (; outer != nullptr; outer = outer->next) {
        for (const Inner &inner : outer->inner) {
            for (int i = threadIdx.x; i < inner.n; i += blockDim.x) {
                inner.values[i] = inner.values[i] * 2 + 1;
            }
        }
    }
}

// Structures in pinned and managed memory with pointers to device, pinned, managed and registered memory.
static void structures() {
    const int n = 700;
    const size_t bytes = n * sizeof(int);
    Outer *first, *second;
    CHECK(cudaHostAlloc(&first, sizeof *first, cudaHostAllocMapped));
    CHECK(cudaMallocManaged(&second, sizeof *second));
    auto own = std::make_unique<int[]>(n);
    CHECK(cudaHostRegister(own.get(), bytes, cudaHostRegisterMapped));
    int *device, *pinned, *managed, *of_own, start[n], result[n];
    CHECK(cudaMalloc(&device, bytes));
    CHECK(cudaMallocHost(&pinned, bytes));
    CHECK(cudaMallocManaged(&managed, bytes));
    CHECK(cudaHostGetDevicePointer(&of_own, own.get(), 0));
    for (int i = 0; i < n; i++) {
        start[i] = pinned[i] = managed[i] = own[i] = i;
    }
    CHECK(cudaMemcpy(device, start, bytes, cudaMemcpyHostToDevice));
    const Outer outer = {{{device, n}, {pinned, n}, {managed, n}, {of_own, n}}, nullptr};
    *first = *second = outer;
    first->next = second;
    follow<<<1, 256>>>(first);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(result, device, bytes, cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) {
        const int twice = (i * 2 + 1) * 2 + 1;
        REQUIRE(result[i] == twice && pinned[i] == twice && managed[i] == twice && own[i] == twice);
    }
    std::printf("pointers inside structures: followed\n");
    CHECK(cudaHostUnregister(own.get()));
    CHECK(cudaFree(device));
    CHECK(cudaFree(managed));
    CHECK(cudaFree(second));
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFreeHost(first));
}

struct Turns {
    unsigned turn, sum, bits, highest;
    unsigned long long wide;
};

// Odd turns are the kernel's. It alone changes the words then, and it waits by reading, so the result does not depend on
// what the bus can: there an atomic operation may undo what the CPU writes meanwhile.
__global__ void take_turns(Turns *turns, unsigned rounds) {
    for (unsigned round = 0; round < rounds; round++) {
        while (*static_cast<volatile unsigned *>(&turns->turn) != 2 * round + 1) {
        }
        __threadfence_system();
        atomicAdd_system(&turns->sum, 3);
        atomicXor_system(&turns->bits, 1u << round % 32);
        atomicMax_system(&turns->highest, round);
        atomicCAS_system(&turns->wide, 2ull * round, 2ull * round + 1);
        __threadfence_system();
        atomicExch_system(&turns->turn, 2 * round + 2);
    }
}

static void turns(const char *label, Turns *host, Turns *device) {
    const unsigned rounds = 100;
    std::memset(host, 0, sizeof *host);
    take_turns<<<1, 1>>>(device, rounds);
    CHECK(cudaGetLastError());
    // A kernel may wait in a queue until somebody asks.
    (void)cudaStreamQuery(nullptr);
    for (unsigned round = 0; round < rounds; round++) {
        __atomic_fetch_add(&host->sum, 1, __ATOMIC_SEQ_CST);
        __atomic_fetch_or(&host->bits, 0x80000000u, __ATOMIC_SEQ_CST);
        __atomic_store_n(&host->turn, 2 * round + 1, __ATOMIC_SEQ_CST);
        while (__atomic_load_n(&host->turn, __ATOMIC_SEQ_CST) != 2 * round + 2) {
        }
        REQUIRE(__atomic_fetch_add(&host->wide, 1, __ATOMIC_SEQ_CST) == 2 * round + 1);
    }
    CHECK(cudaDeviceSynchronize());
    std::printf("%s: sum %u, bits %#x, highest %u, wide %llu\n", label, host->sum, host->bits, host->highest,
                host->wide);
}

int main() {
    auto heap = std::make_unique<int[]>(5002);
    registered("heap", heap.get() + 1, 5000);
    registered("bss", in_bss + 1, 2998);
    registered("data", in_data + 1, 2998);
    structures();

    Turns *host, *device;
    CHECK(cudaHostAlloc(&host, sizeof *host, cudaHostAllocMapped));
    CHECK(cudaHostGetDevicePointer(&device, host, 0));
    turns("turns in cudaHostAlloc", host, device);
    CHECK(cudaFreeHost(host));
    auto own = std::make_unique<Turns>();
    CHECK(cudaHostRegister(own.get(), sizeof *own, cudaHostRegisterMapped));
    CHECK(cudaHostGetDevicePointer(&device, own.get(), 0));
    turns("turns in registered memory", own.get(), device);
    CHECK(cudaHostUnregister(own.get()));
    return 0;
}
