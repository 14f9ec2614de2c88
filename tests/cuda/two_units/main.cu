// SPDX-License-Identifier: Apache-2.0 OR MIT
// Two translation units, each with its own fat binary, kernel and device variable of the same name.
#include "../check.h"

void run_other_unit(int *device, int n);

static __device__ int offset = 100;

static __global__ void step(int *values) { values[threadIdx.x] = threadIdx.x + offset; }

int main() {
    int host[16];
    int *device;
    CHECK(cudaMalloc(&device, sizeof host));
    step<<<1, 16>>>(device);
    CHECK(cudaGetLastError());
    run_other_unit(device, 16);
    CHECK(cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 16; i++) {
        std::printf("%d%c", host[i], i == 15 ? '\n' : ' ');
        REQUIRE(host[i] == (i + 100) * 3);
    }
    CHECK(cudaFree(device));
    return 0;
}
