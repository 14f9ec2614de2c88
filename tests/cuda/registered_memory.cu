// SPDX-License-Identifier: Apache-2.0 OR MIT
// Host memory of the program's own, registered: unaligned, two buffers on one page, longer than one request of
// the stack; the stack in use; many small buffers; and pinned memory longer than that.
#include "check.h"

#include <cstring>
#include <vector>

__global__ void increment(int *values, size_t n) {
    for (size_t i = threadIdx.x + (size_t)blockIdx.x * blockDim.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        values[i] += 1;
    }
}

static void check_values(const int *values, size_t n, int factor, int offset) {
    for (size_t i = 0; i < n; i++) {
        REQUIRE(values[i] == (int)i * factor + offset);
    }
}

static void long_pinned_memory() {
    const size_t bytes = (65u << 20) + 4096, n = bytes / sizeof(int);
    int *host, *device;
    CHECK(cudaMallocHost(&host, bytes));
    CHECK(cudaMalloc(&device, bytes));
    for (size_t i = 0; i < n; i++) {
        host[i] = (int)i;
    }
    CHECK(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
    std::memset(host, 0, bytes);
    CHECK(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost));
    CHECK(cudaDeviceSynchronize());
    check_values(host, n, 1, 0);
    // The end of one piece and the begin of the next.
    int *const middle = host + (64u << 20) / sizeof(int) - 500;
    increment<<<4, 64>>>(middle, 1000);
    CHECK(cudaDeviceSynchronize());
    REQUIRE(middle[0] == host[0] + (int)(middle - host) + 1 && middle[999] == middle[0] + 999);
    CHECK(cudaFree(device));
    CHECK(cudaFreeHost(host));
    std::printf("long pinned memory: right\n");
}

// Uses some stack; the sum depends on all of it.
__attribute__((noinline)) static int deep(int levels) {
    volatile int frame[128];
    for (int i = 0; i < 128; i++) {
        frame[i] = levels + i;
    }
    int sum = levels ? deep(levels - 1) : 0;
    for (int i = 0; i < 128; i++) {
        sum += frame[i];
    }
    return sum;
}

// The program goes on using the pages around a registered variable.
static void stack_in_use() {
    int value = 41;
    const int before = deep(60);
    for (int round = 0; round < 3; round++) {
        int *device;
        CHECK(cudaHostRegister(&value, sizeof value, cudaHostRegisterMapped));
        CHECK(cudaHostGetDevicePointer(&device, &value, 0));
        increment<<<1, 1>>>(device, 1);
        CHECK(cudaGetLastError());
        REQUIRE(deep(60) == before);
        CHECK(cudaDeviceSynchronize());
        value += 10;
        CHECK(cudaHostUnregister(&value));
        REQUIRE(deep(60) == before && value == 41 + 11 * (round + 1));
    }
    std::printf("the stack in use: %d\n", value);
}

static long mappings() {
    std::FILE *file = std::fopen("/proc/self/maps", "r");
    long lines = 0;
    for (int c; (c = std::fgetc(file)) != EOF;) {
        lines += c == '\n';
    }
    std::fclose(file);
    return lines;
}

// Memory of others lies between them, on the same pages.
static void many_buffers() {
    const int count = 1500;
    std::vector<char *> buffers(count);
    const auto bytes = [](int index) { return 200 + (size_t)index * 7919 % 8800; };
    for (int i = 0; i < count; i++) {
        buffers[i] = static_cast<char *>(std::malloc(bytes(i)));
        std::memset(buffers[i], i & 0x7f, bytes(i));
        *static_cast<volatile char *>(std::malloc(64)) = 'x';
    }
    const long before = mappings();
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < count; i++) {
            CHECK(cudaHostRegister(buffers[i], bytes(i), cudaHostRegisterMapped));
        }
        for (int i = 0; i < count; i++) {
            // 701 has no factor in common with the number.
            CHECK(cudaHostUnregister(buffers[i * 701 % count]));
        }
    }
    for (int i = 0; i < count; i++) {
        REQUIRE(buffers[i][0] == (i & 0x7f) && buffers[i][bytes(i) - 1] == (i & 0x7f));
    }
    REQUIRE(mappings() < before + count / 10);
    std::printf("%d small buffers: right\n", count);
}

int main() {
    stack_in_use();
    many_buffers();
    const size_t short_count = 1000, long_count = 100000;
    std::vector<char> memory(3 << 20);
    int *const a = reinterpret_cast<int *>(memory.data() + 4000);
    int *const b = reinterpret_cast<int *>(memory.data() + 16064);
    for (size_t i = 0; i < short_count; i++) {
        a[i] = (int)i;
    }
    for (size_t i = 0; i < long_count; i++) {
        b[i] = 2 * (int)i;
    }
    CHECK(cudaHostRegister(a, short_count * sizeof(int), cudaHostRegisterMapped));
    CHECK(cudaHostRegister(b, long_count * sizeof(int), cudaHostRegisterDefault));
    std::printf("registered again: %d\n", (int)cudaHostRegister(a, 16, cudaHostRegisterDefault));
    cudaGetLastError();

    int *device_a, *device_b;
    CHECK(cudaHostGetDevicePointer(&device_a, a, 0));
    CHECK(cudaHostGetDevicePointer(&device_b, b, 0));
    increment<<<4, 64>>>(device_a, short_count);
    increment<<<4, 64>>>(device_b, long_count);
    CHECK(cudaDeviceSynchronize());
    check_values(a, short_count, 1, 1);
    check_values(b, long_count, 2, 1);

    int *device;
    const size_t bytes = long_count * sizeof(int);
    CHECK(cudaMalloc(&device, bytes));
    CHECK(cudaMemcpyAsync(device, b, bytes, cudaMemcpyHostToDevice));
    increment<<<4, 64>>>(device, long_count);
    CHECK(cudaMemcpyAsync(b, device, bytes, cudaMemcpyDeviceToHost));
    CHECK(cudaStreamSynchronize(nullptr));
    check_values(b, long_count, 2, 2);

    cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, a + 5));
    REQUIRE(attributes.devicePointer == device_a + 5 && attributes.hostPointer == a + 5);
    std::printf("registered: type %d\n", (int)attributes.type);
    CHECK(cudaPointerGetAttributes(&attributes, memory.data()));
    std::printf("beside it: type %d\n", (int)attributes.type);

    CHECK(cudaHostUnregister(a));
    std::printf("unregistered again: %d\n", (int)cudaHostUnregister(a));
    cudaGetLastError();
    check_values(a, short_count, 1, 1);
    CHECK(cudaMemcpy(device, b, bytes, cudaMemcpyDefault));
    CHECK(cudaHostUnregister(b));
    check_values(b, long_count, 2, 2);
    CHECK(cudaFree(device));

    long_pinned_memory();
    return 0;
}
