// SPDX-License-Identifier: Apache-2.0 OR MIT
// CUDA is used before main, by a constructor of the program, and after it, by a function that runs at exit.
#include "check.h"

static const int count = 64;

__global__ void fill(int *values, int value) { values[threadIdx.x] = value + threadIdx.x; }

static int sum_of(int value) {
    int host[count], *device, sum = 0;
    CHECK(cudaMalloc(&device, sizeof host));
    fill<<<1, count>>>(device, value);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(device));
    for (int i = 0; i < count; i++) {
        sum += host[i];
    }
    return sum;
}

// Kernels are registered by a constructor as well, of the same priority: only calls without kernels are certain here.
struct Early {
    int devices = 0;
    size_t free = 0, total = 0;
    Early() {
        CHECK(cudaGetDeviceCount(&devices));
        CHECK(cudaMemGetInfo(&free, &total));
    }
};
static const Early early;

static void late() { std::printf("at exit: %d\n", sum_of(2)); }

int main() {
    REQUIRE(std::atexit(late) == 0);
    std::printf("before main: %s\n", early.devices > 0 && early.free > 0 && early.total >= early.free ? "a device" : "none");
    std::printf("in main: %d\n", sum_of(1));
    return 0;
}
