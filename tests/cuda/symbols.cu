// SPDX-License-Identifier: Apache-2.0 OR MIT
// __device__, __constant__ and __managed__ variables: initial values, set and read through symbols, by kernels
// and, for the managed one, directly.
#include "check.h"

__device__ int counters[4] = {10, 20, 30, 40};
__device__ double scalar = 2.5;
__constant__ float coefficients[3] = {0.5f, 0.25f, 0.125f};
__managed__ int managed[4] = {1, 2, 3, 4};

__global__ void bump() {
    counters[threadIdx.x] += (int)(coefficients[threadIdx.x % 3] * 8);
    managed[threadIdx.x] *= 10;
}

__global__ void read_scalar(double *out) { *out = scalar; }

static void print(const char *label, const int *values) {
    std::printf("%s: %d %d %d %d\n", label, values[0], values[1], values[2], values[3]);
}

int main() {
    print("managed, initial", managed);
    int host[4];
    CHECK(cudaMemcpyFromSymbol(host, counters, sizeof host));
    print("counters, initial", host);

    bump<<<1, 4>>>();
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpyFromSymbol(host, counters, sizeof host));
    print("counters, bumped", host);
    print("managed, by kernel", managed);

    const float ones[3] = {1, 2, 3};
    CHECK(cudaMemcpyToSymbol(coefficients, ones, sizeof ones));
    const int two[2] = {-1, -2};
    CHECK(cudaMemcpyToSymbol(counters, two, sizeof two, sizeof(int)));
    managed[0] = 7;
    const int nine = 9;
    CHECK(cudaMemcpyToSymbol(managed, &nine, sizeof nine, 3 * sizeof(int)));
    bump<<<1, 4>>>();
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpyFromSymbol(host, counters, sizeof host));
    print("counters, set and bumped", host);
    print("managed, set and bumped", managed);
    CHECK(cudaMemcpyFromSymbol(host, managed, sizeof host));
    print("managed, through its symbol", host);

    void *address = nullptr;
    size_t bytes = 0;
    CHECK(cudaGetSymbolAddress(&address, scalar));
    CHECK(cudaGetSymbolSize(&bytes, scalar));
    const double replaced = -0.75;
    CHECK(cudaMemcpy(address, &replaced, sizeof replaced, cudaMemcpyHostToDevice));
    double *out, result = 0;
    CHECK(cudaMalloc(&out, sizeof result));
    read_scalar<<<1, 1>>>(out);
    CHECK(cudaMemcpy(&result, out, sizeof result, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(out));
    std::printf("scalar: %zu bytes, %g\n", bytes, result);

    CHECK(cudaGetSymbolSize(&bytes, counters));
    std::printf("counters: %zu bytes\n", bytes);
    std::printf("past the end: %d\n", (int)cudaMemcpyToSymbol(counters, ones, 12, 8));
    std::printf("unknown symbol: %d\n", (int)cudaMemcpyFromSymbol(host, (const void *)host, 4));
    return 0;
}
