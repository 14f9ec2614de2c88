// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Access of each device to the memory of the others. Without arguments: what the driver's documentation says of it. With "work": kernels
// and copies use it until SIGTERM, and all memory is compared with what it must be. With "illegal": a kernel accesses a peer's memory
// without leave, and the error is printed.
#include "check_driver.h"

#include <atomic>
#include <csignal>
#include <cstring>
#include <thread>
#include <vector>

#include <unistd.h>

constexpr size_t SMALL = 1000;
constexpr size_t LARGE = 1 << 20;
constexpr size_t STRIDE = 997;

static volatile std::sig_atomic_t is_ended;

static void end(int) { is_ended = 1; }

__host__ __device__ static unsigned next(unsigned value, size_t place) {
    return value * 1664525u + 1013904223u + (unsigned)place;
}

__global__ void change(unsigned *values, size_t count, unsigned device) {
    const size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) values[i] = next(values[i], i + device);
}

__global__ void combine(unsigned *own, const unsigned *of_peer, size_t count) {
    const size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) own[i] = of_peer[i] ^ (unsigned)i;
}

__global__ void store(unsigned *place, unsigned value) { *place = value; }

static unsigned *allocate(int device, size_t count) {
    unsigned *memory;
    CHECK(cudaSetDevice(device));
    CHECK(cudaMalloc(&memory, count * sizeof *memory));
    CHECK(cudaMemset(memory, 0, count * sizeof *memory));
    CHECK(cudaDeviceSynchronize());
    return memory;
}

static void release(int device, unsigned *memory) {
    CHECK(cudaSetDevice(device));
    CHECK(cudaFree(memory));
}

static unsigned first_of(int device, const unsigned *memory) {
    unsigned value = 0;
    CHECK(cudaSetDevice(device));
    CHECK(cudaMemcpy(&value, memory, sizeof value, cudaMemcpyDeviceToHost));
    return value;
}

// The kernel of `device` writes there.
static void reaches(int device, int owner, unsigned *memory, unsigned value) {
    CHECK(cudaSetDevice(device));
    store<<<1, 1>>>(memory, value);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    REQUIRE(first_of(owner, memory) == value);
}

static void expect(cudaError_t found, cudaError_t expected) {
    if (found != expected) std::fprintf(stderr, "error %d and not %d\n", (int)found, (int)expected);
    REQUIRE(found == expected);
    (void)cudaGetLastError();
}

static void attributes(int owner, unsigned *memory, size_t count) {
    cudaPointerAttributes found;
    CHECK(cudaPointerGetAttributes(&found, memory + count - 1));
    REQUIRE(found.device == owner && found.type == cudaMemoryTypeDevice);
    CUdeviceptr base;
    size_t bytes;
    // The driver looks in the current context only.
    CHECK(cudaSetDevice(owner));
    CHECK_DRIVER(cuMemGetAddressRange(&base, &bytes, (CUdeviceptr)(memory + count - 1)));
    REQUIRE(base == (CUdeviceptr)memory && bytes == count * sizeof *memory);
}

// Copies need no access.
static void copies(int device, int peer, size_t count) {
    unsigned *here = allocate(device, count), *there = allocate(peer, count), host[2] = {0, 0};
    const size_t bytes = count * sizeof *here;
    cudaStream_t stream;
    CHECK(cudaSetDevice(device));
    CHECK(cudaStreamCreate(&stream));
    auto changed = [&](unsigned value) {
        store<<<1, 1, 0, stream>>>(here, value);
        CHECK(cudaGetLastError());
        return value;
    };
    unsigned value = changed(1);
    CHECK(cudaMemcpyPeer(there, peer, here, device, bytes));
    REQUIRE(first_of(peer, there) == value);
    CHECK(cudaSetDevice(device));
    value = changed(2);
    CHECK(cudaMemcpyPeerAsync(there, peer, here, device, bytes, stream));
    CHECK(cudaStreamSynchronize(stream));
    REQUIRE(first_of(peer, there) == value);
    CHECK(cudaSetDevice(device));
    value = changed(3);
    CHECK(cudaMemcpyAsync(there, here, bytes, cudaMemcpyDefault, stream));
    CHECK(cudaStreamSynchronize(stream));
    REQUIRE(first_of(peer, there) == value);
    // Of a device that is not the current one.
    CHECK(cudaSetDevice(device));
    host[0] = 4;
    CHECK(cudaMemcpy(there, host, sizeof *host, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(host + 1, there, sizeof *host, cudaMemcpyDeviceToHost));
    REQUIRE(host[1] == 4);
    CHECK(cudaMemcpy2D(there, 8, here, 8, 4, 2, cudaMemcpyDefault));
    CHECK(cudaDeviceSynchronize());
    REQUIRE(first_of(peer, there) == 3);
    attributes(device, here, count);
    attributes(peer, there, count);
    CHECK(cudaSetDevice(device));
    CHECK(cudaStreamDestroy(stream));
    release(device, here);
    release(peer, there);
}

static void access(int device, int peer) {
    unsigned *small = allocate(peer, SMALL), *large = allocate(peer, LARGE);
    CHECK(cudaSetDevice(device));
    expect(cudaDeviceDisablePeerAccess(peer), cudaErrorPeerAccessNotEnabled);
    expect(cudaDeviceEnablePeerAccess(peer, 1), cudaErrorInvalidValue);
    CHECK(cudaDeviceEnablePeerAccess(peer, 0));
    expect(cudaDeviceEnablePeerAccess(peer, 0), cudaErrorPeerAccessAlreadyEnabled);
    reaches(device, peer, small, 5);
    reaches(device, peer, large, 6);
    unsigned *later = allocate(peer, SMALL), *large_later = allocate(peer, LARGE);
    reaches(device, peer, later, 7);
    reaches(device, peer, large_later, 8);
    attributes(peer, large, LARGE);
    for (unsigned *memory : {small, large, later, large_later}) release(peer, memory);
    CHECK(cudaSetDevice(device));
    CHECK(cudaDeviceDisablePeerAccess(peer));
    expect(cudaDeviceDisablePeerAccess(peer), cudaErrorPeerAccessNotEnabled);
}

// One thread enables and disables while another one allocates. Then all of that is accessible.
static void threads(int device, int peer) {
    std::vector<unsigned *> blocks;
    std::atomic<bool> is_done{false};
    std::thread toggles([&] {
        CHECK(cudaSetDevice(device));
        while (!is_done) {
            CHECK(cudaDeviceEnablePeerAccess(peer, 0));
            CHECK(cudaDeviceDisablePeerAccess(peer));
        }
        CHECK(cudaDeviceEnablePeerAccess(peer, 0));
    });
    for (size_t i = 0; i < 24; i++) {
        blocks.push_back(allocate(peer, i % 2 ? SMALL : LARGE));
        if (i % 5 == 4) {
            release(peer, blocks.front());
            blocks.erase(blocks.begin());
        }
    }
    is_done = true;
    toggles.join();
    for (size_t i = 0; i < blocks.size(); i++) reaches(device, peer, blocks[i], (unsigned)i + 9);
    for (unsigned *block : blocks) release(peer, block);
    CHECK(cudaSetDevice(device));
    CHECK(cudaDeviceDisablePeerAccess(peer));
}

// A device's memory, and what samples of it must be.
struct Part {
    unsigned *own, *combined, *copied;
    size_t count;
    cudaStream_t stream;
    std::vector<unsigned> expected;
};

static void compare(int device, const unsigned *memory, const Part &of, bool is_combined) {
    std::vector<unsigned> found(of.count);
    CHECK(cudaSetDevice(device));
    CHECK(cudaMemcpy(found.data(), memory, of.count * sizeof *memory, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < of.expected.size(); i++) {
        const size_t at = i * STRIDE;
        REQUIRE(found[at] == (is_combined ? of.expected[i] ^ (unsigned)at : of.expected[i]));
    }
}

static int work(int count, size_t elements) {
    std::signal(SIGTERM, end);
    std::vector<Part> parts(count);
    for (int device = 0; device < count; device++) {
        Part &part = parts[device];
        part = Part{allocate(device, elements), allocate(device, elements), allocate(device, elements), elements, nullptr, {}};
        part.expected.assign((elements + STRIDE - 1) / STRIDE, 0);
        CHECK(cudaStreamCreate(&part.stream));
        for (int peer = 0; peer < count; peer++) {
            if (peer != device) CHECK(cudaDeviceEnablePeerAccess(peer, 0));
        }
    }
    for (unsigned round = 0; !is_ended || round == 0; round++) {
        for (int device = 0; device < count; device++) {
            Part &part = parts[device];
            CHECK(cudaSetDevice(device));
            change<<<8, 128, 0, part.stream>>>(part.own, part.count, (unsigned)device);
            CHECK(cudaGetLastError());
            for (size_t i = 0; i < part.expected.size(); i++) {
                part.expected[i] = next(part.expected[i], i * STRIDE + (unsigned)device);
            }
        }
        for (Part &part : parts) CHECK(cudaStreamSynchronize(part.stream));
        for (int device = 0; device < count; device++) {
            const int after = (device + 1) % count, before = (device + count - 1) % count;
            Part &part = parts[device];
            CHECK(cudaSetDevice(device));
            combine<<<8, 128, 0, part.stream>>>(part.combined, parts[after].own, part.count);
            CHECK(cudaGetLastError());
            CHECK(cudaMemcpyPeerAsync(part.copied, device, parts[before].own, before, part.count * 4, part.stream));
        }
        for (Part &part : parts) CHECK(cudaStreamSynchronize(part.stream));
        if (round % 8 == 0) {
            for (int device = 0; device < count; device++) {
                compare(device, parts[device].own, parts[device], false);
                compare(device, parts[device].combined, parts[(device + 1) % count], true);
                compare(device, parts[device].copied, parts[(device + count - 1) % count], false);
            }
        }
        if (round % 16 == 1 && count > 1) {
            CHECK(cudaSetDevice(0));
            CHECK(cudaDeviceDisablePeerAccess(1));
            unsigned *block = allocate(1, SMALL);
            CHECK(cudaSetDevice(0));
            CHECK(cudaDeviceEnablePeerAccess(1, 0));
            reaches(0, 1, block, round);
            release(1, block);
        }
        if (round == 0) {
            std::printf("begun\n");
            std::fflush(stdout);
        }
    }
    std::printf("right\n");
    return 0;
}

int main(int argc, char **argv) {
    int count = 0;
    CHECK(cudaGetDeviceCount(&count));
    if (argc > 1 && !std::strcmp(argv[1], "work")) return work(count, argc > 2 ? std::strtoull(argv[2], nullptr, 10) : LARGE / 4);
    if (argc > 1 && !std::strcmp(argv[1], "illegal")) {
        if (count < 2) return 2;
        unsigned *there = allocate(1, SMALL), *here = allocate(0, SMALL);
        // A copy gives no access.
        CHECK(cudaMemcpyPeer(there, 1, here, 0, 4));
        CHECK(cudaMemcpyPeerAsync(here, 0, there, 1, 4, nullptr));
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaDeviceEnablePeerAccess(1, 0));
        CHECK(cudaDeviceDisablePeerAccess(1));
        CHECK(cudaSetDevice(0));
        store<<<1, 1>>>(there, 1);
        std::printf("%s\n", cudaGetErrorName(cudaDeviceSynchronize()));
        return 0;
    }
    for (int device = 0; device < count; device++) {
        for (int peer = 0; peer < count; peer++) {
            int can = 0;
            if (peer == device) continue;
            for (size_t elements : {SMALL, LARGE}) copies(device, peer, elements);
            CHECK(cudaDeviceCanAccessPeer(&can, device, peer));
            if (!can) continue;
            access(device, peer);
            threads(device, peer);
        }
    }
    std::printf("peer access: right\n");
    return 0;
}
