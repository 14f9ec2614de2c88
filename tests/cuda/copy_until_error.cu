// SPDX-License-Identifier: Apache-2.0 OR MIT
// Copies back and forth until it is killed (SIGKILL in the middle of a copy) or a call fails (the device or its
// daemon went away): then prints the error, that a later call fails too, and exits with status 3.
// Arguments: bytes of a copy (default 8 MiB); `managed`: kernels and the program take turns at managed memory instead.
#include "check.h"

#include <cstring>
#include <vector>

__global__ void add(unsigned *values, size_t count) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) {
        values[i]++;
    }
}

// Takes turns until a call fails, whose error it answers. What the program reads then no longer matters.
static cudaError_t take_turns(size_t bytes) {
    const size_t count = bytes / sizeof(unsigned);
    unsigned *values;
    CHECK(cudaMallocManaged(&values, bytes));
    for (unsigned round = 0;; round++) {
        for (size_t i = 0; i < count; i += 1000) {
            values[i] += round;
        }
        add<<<8, 64>>>(values, count);
        cudaError_t error = cudaGetLastError();
        if (error == cudaSuccess) {
            error = cudaDeviceSynchronize();
        }
        if (error != cudaSuccess) {
            return error;
        }
        if (round == 0) {
            std::printf("copying\n");
            std::fflush(stdout);
        }
    }
}

int main(int argc, char **argv) {
    const size_t bytes = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 8 << 20;
    if (argc > 2 && !std::strcmp(argv[2], "managed")) {
        cudaError_t error = take_turns(bytes);
        std::printf("error %d, then %d\n", (int)error, (int)cudaDeviceSynchronize());
        return 3;
    }
    std::vector<unsigned char> host(bytes);
    Random(1).fill(host.data(), bytes);
    unsigned char *device;
    CHECK(cudaMalloc(&device, bytes));
    for (unsigned round = 0;; round++) {
        cudaError_t error = cudaMemcpy(device, host.data(), bytes, cudaMemcpyHostToDevice);
        if (error == cudaSuccess) {
            error = cudaMemcpy(host.data(), device, bytes, cudaMemcpyDeviceToHost);
        }
        if (error != cudaSuccess) {
            std::printf("error %d, then %d\n", (int)error, (int)cudaMemset(device, 0, bytes));
            return 3;
        }
        if (round == 0) {
            std::printf("copying\n");
            std::fflush(stdout);
        }
    }
}
