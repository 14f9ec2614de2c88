// SPDX-License-Identifier: Apache-2.0 OR MIT
// A kernel breaks device 0. With `other`, device 1 works as before, and as fast. With `reset`, device 0 itself does after
// cudaDeviceReset, if the driver recovers. For `integration`, which counts the calls between two lines on stderr.
#include "check.h"

#include <cstring>
#include <vector>

static const int ROUNDS = 100;
// Below 256 KiB the way of a copy does not follow from measured speeds.
static const size_t BYTES = 192 << 10;

static __global__ void store(int *place, int value) { *place = value; }

// What costs few calls where nothing is broken.
static void work(const char *name) {
    std::fprintf(stderr, "BEGIN %s\n", name);
    for (int round = 0; round < ROUNDS; round++) {
        int *memory;
        CHECK(cudaMalloc((void **)&memory, 4096));
        CHECK(cudaFree(memory));
        CHECK(cudaDeviceSynchronize());
    }
    std::fprintf(stderr, "END %s\n", name);
    int *device, value = 0;
    std::vector<char> there(BYTES, 0x35), back(BYTES);
    CHECK(cudaMalloc((void **)&device, BYTES));
    CHECK(cudaMemcpy(device, there.data(), BYTES, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(back.data(), device, BYTES, cudaMemcpyDeviceToHost));
    REQUIRE(!std::memcmp(there.data(), back.data(), BYTES));
    store<<<1, 1>>>(device, 9);
    CHECK(cudaMemcpy(&value, device, sizeof value, cudaMemcpyDeviceToHost));
    REQUIRE(value == 9);
    CHECK(cudaFree(device));
    std::printf("%s: right\n", name);
}

static void breaks(int *place) {
    store<<<1, 1>>>(place, 1);
    std::printf("broken: %d\n", (int)cudaDeviceSynchronize());
}

int main(int argc, char **argv) {
    const bool other = argc > 1 && !std::strcmp(argv[1], "other");
    const auto illegal = reinterpret_cast<int *>(0x10);
    if (other) {
        CHECK(cudaFree(nullptr));
        CHECK(cudaSetDevice(1));
        work("before");
        CHECK(cudaSetDevice(0));
        breaks(illegal);
        CHECK(cudaSetDevice(1));
        work("beside it");
        CHECK(cudaSetDevice(0));
        std::printf("reset: %d\n", (int)cudaDeviceReset());
        std::printf("malloc: %d\n", (int)cudaMalloc((void **)&argv, 4));
        CHECK(cudaSetDevice(1));
        work("after its reset");
        return 0;
    }
    work("before");
    breaks(illegal);
    std::printf("reset: %d\n", (int)cudaDeviceReset());
    work("after");
    // Nobody has waited for a call that failed.
    int *memory;
    CHECK(cudaMalloc((void **)&memory, 4096));
    CHECK(cudaMemset(memory, 1, 4096));
    CHECK(cudaDeviceSynchronize());
    store<<<1, 1>>>(illegal, 1);
    for (int more = 0; more < 1000; more++) cudaMemsetAsync(memory, 1, 4096, 0);
    std::printf("reset: %d\n", (int)cudaDeviceReset());
    work("after the second reset");
    return 0;
}
