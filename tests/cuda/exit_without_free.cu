// SPDX-License-Identifier: Apache-2.0 OR MIT
// Leaves memory, a stream, an event, pinned memory and a running kernel behind.
#include "check.h"

__global__ void busy(unsigned *out, unsigned rounds) {
    unsigned value = threadIdx.x;
    for (unsigned i = 0; i < rounds; i++) {
        value = value * 1664525u + 1013904223u;
    }
    out[threadIdx.x] = value;
}

int main() {
    unsigned *device;
    void *pinned;
    cudaStream_t stream;
    cudaEvent_t event;
    CHECK(cudaMalloc(&device, 1 << 20));
    CHECK(cudaMallocHost(&pinned, 1 << 16));
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaEventCreate(&event));
    busy<<<1, 32, 0, stream>>>(device, 10000);
    CHECK(cudaGetLastError());
    CHECK(cudaEventRecord(event, stream));
    std::printf("leaving everything behind\n");
    return 0;
}
