// SPDX-License-Identifier: Apache-2.0 OR MIT
// Page-locked memory: allocated, registered, copied, and read and written by kernels where it lies.
#include "check.h"

#include <sys/mman.h>

__global__ void increment(int *values, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        values[i]++;
    }
}

static const int kElements = 5000;
static const size_t kBytes = kElements * sizeof(int);

static void fill(int *values) {
    for (int i = 0; i < kElements; i++) {
        values[i] = i * 3;
    }
}

static void check_incremented(const char *label, const int *values) {
    for (int i = 0; i < kElements; i++) {
        REQUIRE(values[i] == i * 3 + 1);
    }
    std::printf("%s: incremented in place\n", label);
}

static void zero_copy(const char *label, int *host, int *device) {
    fill(host);
    increment<<<(kElements + 127) / 128, 128>>>(device, kElements);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    check_incremented(label, host);
}

int main() {
    // cudaMallocHost: mapped, and under UVA its device address is its own.
    int *allocated, *alias = nullptr;
    CHECK(cudaMallocHost((void **)&allocated, kBytes));
    CHECK(cudaHostGetDevicePointer((void **)&alias, allocated, 0));
    std::printf("device address is the host's: %s\n", alias == allocated ? "yes" : "no");
    zero_copy("cudaMallocHost", allocated, alias);

    int *portable;
    CHECK(cudaHostAlloc((void **)&portable, kBytes, cudaHostAllocPortable | cudaHostAllocMapped));
    zero_copy("cudaHostAlloc", portable, portable);

    // Copies from and to it, through a stream.
    cudaStream_t stream;
    int *device;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMalloc(&device, kBytes));
    fill(allocated);
    CHECK(cudaMemcpyAsync(device, allocated, kBytes, cudaMemcpyHostToDevice, stream));
    increment<<<(kElements + 127) / 128, 128, 0, stream>>>(device, kElements);
    CHECK(cudaMemcpyAsync(portable, device, kBytes, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    check_incremented("asynchronous copies", portable);

    // The kind may be left to the addresses.
    fill(allocated);
    CHECK(cudaMemcpy(device, allocated, kBytes, cudaMemcpyDefault));
    increment<<<(kElements + 127) / 128, 128>>>(device, kElements);
    CHECK(cudaMemcpy(portable, device, kBytes, cudaMemcpyDefault));
    check_incremented("cudaMemcpyDefault", portable);

    // Pages of the program's own.
    const size_t room = 8 * 4096;
    int *registered = (int *)mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(registered != MAP_FAILED);
    CHECK(cudaHostRegister(registered, room, cudaHostRegisterMapped));
    CHECK(cudaHostGetDevicePointer((void **)&alias, registered, 0));
    zero_copy("cudaHostRegister", registered, alias);
    std::printf("registered twice: %d\n", (int)cudaHostRegister(registered, room, cudaHostRegisterMapped));
    CHECK(cudaHostUnregister(registered));
    std::printf("unregistered twice: %d\n", (int)cudaHostUnregister(registered));
    (void)cudaGetLastError();
    REQUIRE(munmap(registered, room) == 0);

    // What is what.
    int pageable = 0;
    cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, device));
    std::printf("device memory: type %d\n", (int)attributes.type);
    REQUIRE(attributes.devicePointer == device && attributes.device == 0);
    CHECK(cudaPointerGetAttributes(&attributes, allocated));
    std::printf("pinned memory: type %d\n", (int)attributes.type);
    REQUIRE(attributes.hostPointer == allocated);
    CHECK(cudaPointerGetAttributes(&attributes, &pageable));
    std::printf("pageable memory: type %d\n", (int)attributes.type);

    CHECK(cudaFree(device));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFreeHost(allocated));
    CHECK(cudaFreeHost(portable));

    // What was freed is pinned memory no more, wherever the next one lies.
    CHECK(cudaPointerGetAttributes(&attributes, allocated));
    std::printf("freed memory: type %d, freed twice: %d\n", (int)attributes.type, (int)cudaFreeHost(allocated));
    (void)cudaGetLastError();
    for (int round = 0; round < 3; round++) {
        int *again, zeros = 0;
        CHECK(cudaMallocHost((void **)&again, kBytes));
        for (int i = 0; i < kElements; i++) zeros += again[i] == 0;
        std::printf("new memory: %s\n", zeros == kElements ? "zeros" : "other bytes");
        zero_copy("new memory", again, again);
        CHECK(cudaFreeHost(again));
    }
    std::printf("free of pageable memory: %d\n", (int)cudaFreeHost(&pageable));
    return 0;
}
