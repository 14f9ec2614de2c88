// SPDX-License-Identifier: Apache-2.0 OR MIT
// Counts the allocations of this thread during launches, in all libraries of the process: the program's functions take
// the place of the C library's. For `integration`: NVIDIA's libraries allocate as they like.

// nvcc: -Xlinker -export-dynamic

#include <cerrno>
#include <cstddef>
#include <cstdio>

#include "check.h"

extern "C" void *__libc_malloc(size_t bytes);
extern "C" void *__libc_calloc(size_t count, size_t bytes);
extern "C" void *__libc_realloc(void *old, size_t bytes);
extern "C" void *__libc_memalign(size_t alignment, size_t bytes);

// By their names for the linker: nvcc declares functions of the C names for the device, too.
extern "C" void *counted_malloc(size_t bytes) __asm__("malloc");
extern "C" void *counted_calloc(size_t count, size_t bytes) __asm__("calloc");
extern "C" void *counted_realloc(void *old, size_t bytes) __asm__("realloc");
extern "C" int counted_memalign(void **place, size_t alignment, size_t bytes) __asm__("posix_memalign");

static thread_local unsigned allocations;

extern "C" void *counted_malloc(size_t bytes) {
    allocations++;
    return __libc_malloc(bytes);
}

extern "C" void *counted_calloc(size_t count, size_t bytes) {
    allocations++;
    return __libc_calloc(count, bytes);
}

extern "C" void *counted_realloc(void *old, size_t bytes) {
    allocations++;
    return __libc_realloc(old, bytes);
}

extern "C" int counted_memalign(void **place, size_t alignment, size_t bytes) {
    allocations++;
    *place = __libc_memalign(alignment, bytes);
    return *place ? 0 : ENOMEM;
}

struct Values {
    int values[500];
};

// More than the 4 KiB that kernels before CUDA 12.1 took.
struct ManyValues {
    int values[2000];
};

static __global__ void add(int *sum, Values values) { atomicAdd(sum, values.values[threadIdx.x]); }

static __global__ void add_many(int *sum, ManyValues values) { atomicAdd(sum, values.values[1999 - threadIdx.x]); }

static const int LAUNCHES = 1000;

static unsigned allocations_of(void (*launch)(int *), int *sum) {
    unsigned before = allocations;
    for (int i = 0; i < LAUNCHES; i++) {
        launch(sum);
    }
    return allocations - before;
}

static void launch_add(int *sum) {
    static Values values = {{1, 2, 3}};
    add<<<1, 3>>>(sum, values);
}

static void launch_many(int *sum) {
    static ManyValues values;
    values.values[1999] = 5;
    add_many<<<1, 1>>>(sum, values);
}

int main() {
    int *sum, result;
    CHECK(cudaMalloc(&sum, sizeof *sum));
    CHECK(cudaMemset(sum, 0, sizeof *sum));
    // Load the kernels, start the thread's lane and prove the shapes.
    unsigned before = allocations;
    launch_add(sum);
    launch_many(sum);
    CHECK(cudaDeviceSynchronize());
    unsigned first = allocations - before;

    unsigned of_add = allocations_of(launch_add, sum);
    CHECK(cudaDeviceSynchronize());
    unsigned of_many = allocations_of(launch_many, sum);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&result, sum, sizeof result, cudaMemcpyDefault));

    printf("first launches: %s\n", first > 0 ? "allocate" : "allocate nothing");
    printf("%d launches: %u allocations\n", LAUNCHES, of_add);
    printf("%d launches with a long block: %u allocations\n", LAUNCHES, of_many);
    printf("sum: %d\n", result);
    return 0;
}
