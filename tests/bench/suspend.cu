// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Device memory that is moved while nobody uses it: `cargo xtask bench --suspend`. Argument: MiB on each device that the program sees. Obeys
// the lines of stdin, and answers each with one line:
// * "fill SEED" writes all of the memory, "touch PERCENT" one word in that part of its chunks of 2 MiB;
// * "sum" prints a sum of all words;
// * "first" prints the microseconds of a kernel that reads 100 MiB, with the wait for it;
// * "link" prints GB/s to and from pinned host memory, of all devices at once, and of each one meanwhile if there are several.

#include "../cuda/check.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

constexpr size_t MIB = 1 << 20;
constexpr size_t BLOCK = 256 * MIB;
constexpr size_t CHUNK = 2 * MIB;
constexpr size_t FIRST = 100 * MIB;
constexpr size_t LINK = 64 * MIB;
constexpr int COPIES = 16;

// A part of the memory.
struct Block {
    unsigned *words;
    size_t count;
    int device;
};

// The memory of a device for other purposes.
struct Device {
    unsigned long long *total;
    void *pinned, *linked;
};

__global__ void fill(Block block, unsigned seed) {
    const size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < block.count; i += step) {
        unsigned value = (unsigned)i * 2654435761u + seed;
        value ^= value >> 15;
        block.words[i] = value * 2246822519u;
    }
}

__global__ void touch(Block block, size_t every) {
    const size_t chunks = block.count * sizeof(unsigned) / CHUNK;
    const size_t chunk = (blockIdx.x * blockDim.x + threadIdx.x) * every;
    if (chunk < chunks) block.words[chunk * (CHUNK / sizeof(unsigned))] += 1;
}

__global__ void sum(Block block, unsigned long long *total) {
    unsigned long long part = 0;
    const size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < block.count; i += step) part += block.words[i];
    // The total is in host memory, which takes some microseconds for each addition.
    __shared__ unsigned long long all;
    if (threadIdx.x == 0) all = 0;
    __syncthreads();
    atomicAdd(&all, part);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(total, all);
}

static double since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The rates of all devices, which copy at the same time.
static std::vector<double> rates(const std::vector<Device> &devices, bool out) {
    std::vector<double> found(devices.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < devices.size(); i++) {
        threads.emplace_back([&, i] {
            CHECK(cudaSetDevice((int)i));
            const Device &device = devices[i];
            const auto begin = std::chrono::steady_clock::now();
            for (int copy = 0; copy < COPIES; copy++) {
                CHECK(out ? cudaMemcpyAsync(device.pinned, device.linked, LINK, cudaMemcpyDeviceToHost, 0)
                          : cudaMemcpyAsync(device.linked, device.pinned, LINK, cudaMemcpyHostToDevice, 0));
            }
            CHECK(cudaDeviceSynchronize());
            found[i] = COPIES * LINK / since(begin) / 1e9;
        });
    }
    for (std::thread &thread : threads) thread.join();
    return found;
}

static std::string link_rates(const std::vector<Device> &devices) {
    rates(devices, true);
    const auto out = rates(devices, true), in = rates(devices, false);
    double all_out = 0, all_in = 0;
    std::ostringstream each;
    for (size_t i = 0; i < devices.size(); i++) {
        all_out += out[i];
        all_in += in[i];
        each << "; " << out[i] << " " << in[i];
    }
    std::ostringstream all;
    all << all_out << " " << all_in << (devices.size() > 1 ? each.str() : "");
    return all.str();
}

int main(int argc, char **argv) {
    REQUIRE(argc == 2);
    int count = 0;
    CHECK(cudaGetDeviceCount(&count));
    std::vector<Block> blocks;
    std::vector<Device> devices(count);
    for (int device = 0; device < count; device++) {
        CHECK(cudaSetDevice(device));
        for (size_t left = std::strtoull(argv[1], nullptr, 10) * MIB; left;) {
            const size_t bytes = std::min(left, BLOCK);
            Block block{nullptr, bytes / sizeof(unsigned), device};
            CHECK(cudaMalloc(&block.words, bytes));
            blocks.push_back(block);
            left -= bytes;
        }
        CHECK(cudaMallocHost(&devices[device].total, sizeof *devices[device].total));
        CHECK(cudaMallocHost(&devices[device].pinned, LINK));
        CHECK(cudaMalloc(&devices[device].linked, LINK));
        CHECK(cudaMemset(devices[device].linked, 0, LINK));
    }
    REQUIRE(!blocks.empty());
    const auto on = [](const Block &block) {
        CHECK(cudaSetDevice(block.device));
        return block;
    };
    const auto synchronize = [&] {
        for (int device = 0; device < count; device++) {
            CHECK(cudaSetDevice(device));
            CHECK(cudaGetLastError());
            CHECK(cudaDeviceSynchronize());
        }
    };
    std::string command;
    for (size_t number; std::cin >> command;) {
        if (command == "fill") {
            std::cin >> number;
            for (size_t i = 0; i < blocks.size(); i++) fill<<<256, 256>>>(on(blocks[i]), (unsigned)(number * 7919 + i));
        } else if (command == "touch") {
            std::cin >> number;
            REQUIRE(number >= 1 && number <= 100);
            for (const Block &block : blocks) touch<<<1, 128>>>(on(block), 100 / number);
        } else if (command == "first") {
            const auto begin = std::chrono::steady_clock::now();
            *devices[0].total = 0;
            Block block = on(blocks[0]);
            block.count = std::min(block.count, FIRST / sizeof(unsigned));
            sum<<<256, 256>>>(block, devices[0].total);
            CHECK(cudaDeviceSynchronize());
            std::cout << (long long)(since(begin) * 1e6) << std::endl;
            continue;
        } else if (command == "sum") {
            for (Device &device : devices) *device.total = 0;
            for (const Block &block : blocks) sum<<<256, 256>>>(on(block), devices[block.device].total);
            synchronize();
            unsigned long long total = 0;
            for (const Device &device : devices) total = total * 31 + *device.total;
            std::cout << total << std::endl;
            continue;
        } else if (command == "link") {
            std::cout << link_rates(devices) << std::endl;
            continue;
        } else {
            REQUIRE(!"a known command");
        }
        synchronize();
        std::cout << "done" << std::endl;
    }
    return 0;
}
