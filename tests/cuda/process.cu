// SPDX-License-Identifier: Apache-2.0 OR MIT
// One of several processes at once: fills memory with its own pattern, over and over, and must never see another's.
// Argument: what distinguishes the process (default 1).
#include "check.h"

#include <vector>

__device__ unsigned own;

__global__ void fill(unsigned *values, int n, unsigned seed) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        values[i] = seed * 2654435761u + i;
    }
    if (threadIdx.x == 0) {
        own = seed;
    }
}

int main(int argc, char **argv) {
    const unsigned name = argc > 1 ? (unsigned)std::atoi(argv[1]) : 1;
    const int n = 1 << 14;
    std::vector<unsigned> host(n);
    unsigned *device;
    CHECK(cudaMalloc(&device, n * sizeof(unsigned)));
    for (unsigned round = 0; round < 30; round++) {
        const unsigned seed = name * 100 + round;
        fill<<<1, 256>>>(device, n, seed);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpy(host.data(), device, n * sizeof(unsigned), cudaMemcpyDeviceToHost));
        for (int i = 0; i < n; i++) {
            REQUIRE(host[i] == seed * 2654435761u + i);
        }
        unsigned seen = 0;
        CHECK(cudaMemcpyFromSymbol(&seen, own, sizeof seen));
        REQUIRE(seen == seed);
    }
    CHECK(cudaFree(device));
    std::printf("30 rounds right\n");
    return 0;
}
