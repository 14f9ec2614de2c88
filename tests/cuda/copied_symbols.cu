// SPDX-License-Identifier: Apache-2.0 OR MIT
// Variables that the program copies by their symbols, and whose addresses it never asks for: from and to pageable, pinned and device
// memory, in and out of streams, constants, and a long variable.
#include "check.h"

#include <cstring>
#include <unistd.h>
#include <vector>

constexpr unsigned ROUNDS = 100;
constexpr unsigned THREADS = 64;
constexpr size_t LONG = 96 << 10;

__device__ unsigned counters[THREADS];
__device__ unsigned numbers[LONG];
__constant__ unsigned factors[4] = {1, 2, 3, 4};

__global__ void step() { counters[threadIdx.x] += factors[threadIdx.x % 4]; }

__global__ void sum(unsigned *out) {
    unsigned all = 0;
    for (size_t i = threadIdx.x; i < LONG; i += THREADS) all += numbers[i] * (unsigned)(i % 7 + 1);
    atomicAdd(out, all);
}

int main() {
    unsigned *device, *pinned, wrong = 0;
    CHECK(cudaMalloc(&device, THREADS * sizeof *device));
    CHECK(cudaMallocHost(&pinned, THREADS * sizeof *pinned));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    std::vector<unsigned> many(LONG), back(LONG), expected(THREADS, 0);
    unsigned factor[4] = {1, 2, 3, 4}, values[THREADS];
    for (unsigned round = 0; round < ROUNDS; round++) {
        factor[round % 4] = round + 1;
        CHECK(cudaMemcpyToSymbol(factors, &factor[round % 4], sizeof(unsigned), round % 4 * sizeof(unsigned)));
        step<<<1, THREADS>>>();
        CHECK(cudaGetLastError());
        for (unsigned i = 0; i < THREADS; i++) expected[i] += factor[i % 4];
        // Time in which nothing runs.
        if (round % 10 == 0) usleep(1000);
        switch (round % 4) {
        case 0:
            CHECK(cudaMemcpyFromSymbol(values, counters, sizeof values));
            break;
        case 1:
            CHECK(cudaDeviceSynchronize());
            CHECK(cudaMemcpyFromSymbolAsync(pinned, counters, sizeof values, 0, cudaMemcpyDeviceToHost, stream));
            CHECK(cudaStreamSynchronize(stream));
            memcpy(values, pinned, sizeof values);
            break;
        case 2:
            CHECK(cudaMemcpyFromSymbol(device, counters, sizeof values, 0, cudaMemcpyDeviceToDevice));
            CHECK(cudaMemcpy(values, device, sizeof values, cudaMemcpyDeviceToHost));
            break;
        default:
            CHECK(cudaMemcpyFromSymbol(values, counters, sizeof values, 0, cudaMemcpyDefault));
            // All of them begin again.
            for (unsigned i = 0; i < THREADS; i++) pinned[i] = expected[i] = round * i;
            CHECK(cudaMemcpyToSymbolAsync(counters, pinned, sizeof values, 0, cudaMemcpyHostToDevice, stream));
            CHECK(cudaStreamSynchronize(stream));
            memcpy(values, pinned, sizeof values);
        }
        for (unsigned i = 0; i < THREADS; i++) wrong += values[i] != expected[i];
        if (round % 10 == 5) {
            for (size_t i = 0; i < LONG; i++) many[i] = (unsigned)(i * 2654435761u + round);
            CHECK(cudaMemcpyToSymbol(numbers, many.data(), sizeof numbers));
        } else if (round % 10 == 9) {
            CHECK(cudaMemcpyFromSymbol(back.data(), numbers, sizeof numbers));
            wrong += back != many;
        }
    }
    CHECK(cudaMemset(device, 0, sizeof *device));
    sum<<<1, THREADS>>>(device);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(values, device, sizeof *values, cudaMemcpyDeviceToHost));
    unsigned all = 0;
    for (size_t i = 0; i < LONG; i++) all += many[i] * (unsigned)(i % 7 + 1);
    std::printf("wrong: %u, the sum is %s\n", wrong, all == values[0] ? "right" : "wrong");

    size_t bytes = 0;
    CHECK(cudaGetSymbolSize(&bytes, numbers));
    std::printf("bytes: %zu\n", bytes);
    std::printf("behind the end: %d\n", cudaMemcpyToSymbol(factors, factor, sizeof factor, sizeof(unsigned)));
    std::printf("wrong direction: %d\n", cudaMemcpyToSymbol(factors, factor, sizeof factor, 0, cudaMemcpyDeviceToHost));
    std::printf("no symbol: %d\n", cudaMemcpyFromSymbol(values, factor, sizeof factor));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(device));
    return 0;
}
