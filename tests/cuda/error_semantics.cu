// SPDX-License-Identifier: Apache-2.0 OR MIT
// What fails with which code, and how errors are remembered.
#include "check.h"

#include <thread>

__device__ int symbol[4];

__global__ void touch(int *out) {
    if (out != nullptr) {
        out[threadIdx.x] = 1;
    }
}

// The last error as three calls see it: looked at, taken, taken again.
static void remembered(const char *label) {
    const int peeked = cudaPeekAtLastError(), taken = cudaGetLastError(), again = cudaGetLastError();
    std::printf("%s: peek %d, get %d, get again %d\n", label, peeked, taken, again);
}

static void arguments(int *device) {
    int host[4] = {}, value = -7;
    void *memory = nullptr;
    cudaFuncAttributes attributes;
    cudaDeviceProp properties;
    std::printf("cudaMalloc(NULL): %d\n", (int)cudaMalloc((void **)nullptr, 8));
    std::printf("cudaMalloc of 0 bytes: %d\n", (int)cudaMalloc(&memory, 0));
    std::printf("cudaMemcpy, kind 9: %d\n", (int)cudaMemcpy(device, host, 4, (cudaMemcpyKind)9));
    std::printf("cudaMemcpy, to NULL: %d\n", (int)cudaMemcpy(nullptr, host, 4, cudaMemcpyHostToDevice));
    std::printf("cudaMemcpy of 0 bytes: %d\n", (int)cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyHostToDevice));
    std::printf("cudaFree(NULL): %d\n", (int)cudaFree(nullptr));
    std::printf("cudaFree of a bogus address: %d\n", (int)cudaFree((void *)0x1234));
    std::printf("unknown symbol: %d\n", (int)cudaMemcpyToSymbol((const void *)host, host, 4));
    std::printf("past the end of a symbol: %d\n", (int)cudaMemcpyToSymbol(symbol, host, 64));
    std::printf("function attributes to NULL: %d\n", (int)cudaFuncGetAttributes((cudaFuncAttributes *)nullptr, touch));
    std::printf("function attributes: %d\n", (int)cudaFuncGetAttributes(&attributes, touch));
    std::printf("unknown device attribute: %d\n", (int)cudaDeviceGetAttribute(&value, (cudaDeviceAttr)9999, 0));
    std::printf("cudaSetDevice(99): %d\n", (int)cudaSetDevice(99));
    std::printf("cudaSetDevice(-1): %d\n", (int)cudaSetDevice(-1));
    std::printf("properties of device 99: %d\n", (int)cudaGetDeviceProperties(&properties, 99));
    const cudaError_t got = cudaGetDevice(&value);
    std::printf("cudaGetDevice: %d, device %d\n", (int)got, value);
    std::printf("last error: %d\n", (int)cudaGetLastError());
}

static void launches(int *device) {
    touch<<<1, 2048>>>(device);
    remembered("block of 2048");
    touch<<<0, 1>>>(device);
    remembered("no blocks");
    touch<<<1, 0>>>(device);
    remembered("no threads");
    touch<<<dim3(1, 70000), 1>>>(device);
    remembered("70000 blocks in y");
    touch<<<1, 1, 1 << 20>>>(device);
    remembered("1 MiB of shared memory");
    touch<<<1, dim3(1, 1, 65)>>>(device);
    remembered("65 threads in z");
    touch<<<1, 4>>>(device);
    remembered("a good launch");
    std::printf("synchronize: %d\n", (int)cudaDeviceSynchronize());
}

int main() {
    int *device;
    CHECK(cudaMalloc(&device, 256));

    void *memory;
    std::printf("impossible malloc: %d\n", (int)cudaMalloc(&memory, (size_t)1 << 50));
    CHECK(cudaMalloc(&memory, 64));  // a success does not clear it
    CHECK(cudaFree(memory));
    remembered("a success later");

    std::printf("cudaSetDevice(5): %d\n", (int)cudaSetDevice(5 + 64));
    std::thread([] { remembered("another thread"); }).join();
    remembered("this thread");

    arguments(device);
    launches(device);

    std::printf("%s: %s\n", cudaGetErrorName(cudaErrorMemoryAllocation), cudaGetErrorString(cudaErrorMemoryAllocation));
    std::printf("%s: %s\n", cudaGetErrorName(cudaErrorIllegalAddress), cudaGetErrorString(cudaErrorIllegalAddress));
    std::printf("%s: %s\n", cudaGetErrorName(cudaSuccess), cudaGetErrorString(cudaSuccess));
    std::printf("%s: %s\n", cudaGetErrorName((cudaError_t)9999), cudaGetErrorString((cudaError_t)9999));

    CHECK(cudaFree(device));
    std::printf("freed twice: %d\n", (int)cudaFree(device));
    remembered("freed twice");

    // Reset forgets everything of the device; the next call starts anew.
    CHECK(cudaMalloc(&device, 256));
    CHECK(cudaDeviceReset());
    CHECK(cudaMalloc(&device, 256));
    touch<<<1, 4>>>(device);
    remembered("a launch after reset");
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(device));
    return 0;
}
