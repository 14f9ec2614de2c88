// SPDX-License-Identifier: Apache-2.0 OR MIT
// Compiled for another architecture than the device has (and without PTX): no kernel can be loaded.
#include "check.h"

__device__ int symbol;
__global__ void one() {}
__global__ void two() {}

int main() {
    int n = 0;
    T(cudaGetDeviceCount(&n));
    one<<<1, 1>>>();
    LAUNCHED("one");
    one<<<1, 1>>>();
    LAUNCHED("one again");
    two<<<1, 1>>>();
    LAUNCHED("two");
    void *p = nullptr;
    T(cudaMalloc(&p, 16));
    T(cudaMemcpyToSymbol(symbol, &n, 4));
    cudaFuncAttributes a;
    T(cudaFuncGetAttributes(&a, one));
    T(cudaLaunchKernel((const void *)one, dim3(1), dim3(1), nullptr, 0, 0));
    cudaKernel_t k = nullptr;
    T(cudaGetKernel(&k, (const void *)one));
    T(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&n, one, 32, 0));
    T(cudaFree(p));
    return 0;
}
