// SPDX-License-Identifier: Apache-2.0 OR MIT
// Variables that only kernels use: the program never asks for their addresses.
#include "check.h"

#include <unistd.h>

constexpr unsigned ROUNDS = 200;
constexpr unsigned THREADS = 64;

__device__ unsigned counter = 5;
static __device__ unsigned sums[THREADS];

__global__ void step() {
    sums[threadIdx.x] += threadIdx.x + 1;
    if (threadIdx.x == 0) counter += 3;
}

__global__ void read(unsigned *out) {
    out[0] = counter;
    out[1] = 0;
    for (unsigned i = 0; i < THREADS; i++) out[1] += sums[i];
}

int main() {
    unsigned *out, values[2];
    CHECK(cudaMalloc(&out, sizeof values));
    for (unsigned round = 0; round < ROUNDS; round++) {
        step<<<1, THREADS>>>();
        CHECK(cudaGetLastError());
        // Time in which nothing runs.
        if (round % 20 == 0) usleep(1000);
    }
    read<<<1, 1>>>(out);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(values, out, sizeof values, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(out));
    std::printf("counter: %u, sum: %u\n", values[0], values[1]);
    return 0;
}
