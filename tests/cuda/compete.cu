// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Kernels back to back for so many seconds. Prints every 50 ms how many have ended, as "MILLISECONDS KERNELS", by a clock
// that all processes of the machine share.

#include "check.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>

constexpr int DEPTH = 8;
constexpr int STEPS = 20000;

__global__ void work(int steps, unsigned *result) {
    unsigned value = threadIdx.x;
    for (int step = 0; step < steps; step++) value = value * 1664525u + 1013904223u;
    result[threadIdx.x] = value;
}

static long milliseconds() {
    auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

int main(int count, char **arguments) {
    long limit = count > 1 ? 1000 * std::atol(arguments[1]) : 1000;
    unsigned *result;
    CHECK(cudaMalloc(&result, 32 * sizeof *result));
    cudaEvent_t done[DEPTH];
    for (cudaEvent_t &event : done) CHECK(cudaEventCreate(&event));
    long start = milliseconds(), said = start;
    for (long kernels = 0; said - start < limit; kernels++) {
        cudaEvent_t event = done[kernels % DEPTH];
        if (kernels >= DEPTH) CHECK(cudaEventSynchronize(event));
        work<<<1, 32>>>(STEPS, result);
        CHECK(cudaGetLastError());
        CHECK(cudaEventRecord(event));
        if (milliseconds() - said >= 50) {
            said = milliseconds();
            std::printf("%ld %ld\n", said, kernels);
            std::fflush(stdout);
        }
    }
    CHECK(cudaDeviceSynchronize());
    unsigned values[32], expected = 7;
    CHECK(cudaMemcpy(values, result, sizeof values, cudaMemcpyDeviceToHost));
    for (int step = 0; step < STEPS; step++) expected = expected * 1664525u + 1013904223u;
    std::printf(values[7] == expected ? "right\n" : "wrong\n");
    return 0;
}
