// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Device memory that is moved while nobody uses it: `cargo xtask bench --suspend`. Argument: MiB. Obeys the lines of stdin, and answers
// each with one line:
// * "fill SEED" writes all of the memory, "touch PERCENT" one word in that part of its chunks of 2 MiB;
// * "sum" prints a sum of all words;
// * "first" prints the microseconds of a kernel that reads 100 MiB, with the wait for it;
// * "link" prints GB/s to and from pinned host memory.

#include "../cuda/check.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <string>
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
    atomicAdd(total, part);
}

static double since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

static double rate(void *to, const void *from, cudaMemcpyKind kind) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < COPIES; i++) CHECK(cudaMemcpyAsync(to, from, LINK, kind, 0));
    CHECK(cudaDeviceSynchronize());
    return COPIES * LINK / since(begin) / 1e9;
}

int main(int argc, char **argv) {
    REQUIRE(argc == 2);
    std::vector<Block> blocks;
    for (size_t left = std::strtoull(argv[1], nullptr, 10) * MIB; left;) {
        const size_t bytes = std::min(left, BLOCK);
        Block block{nullptr, bytes / sizeof(unsigned)};
        CHECK(cudaMalloc(&block.words, bytes));
        blocks.push_back(block);
        left -= bytes;
    }
    REQUIRE(!blocks.empty());
    unsigned long long *total;
    CHECK(cudaMallocHost(&total, sizeof *total));
    void *pinned, *linked;
    CHECK(cudaMallocHost(&pinned, LINK));
    CHECK(cudaMalloc(&linked, LINK));
    CHECK(cudaMemset(linked, 0, LINK));
    std::string command;
    for (size_t number; std::cin >> command;) {
        if (command == "fill") {
            std::cin >> number;
            for (size_t i = 0; i < blocks.size(); i++) fill<<<256, 256>>>(blocks[i], (unsigned)(number * 7919 + i));
        } else if (command == "touch") {
            std::cin >> number;
            REQUIRE(number >= 1 && number <= 100);
            for (const Block &block : blocks) touch<<<1, 128>>>(block, 100 / number);
        } else if (command == "first") {
            const auto begin = std::chrono::steady_clock::now();
            *total = 0;
            Block block = blocks[0];
            block.count = std::min(block.count, FIRST / sizeof(unsigned));
            sum<<<256, 256>>>(block, total);
            CHECK(cudaDeviceSynchronize());
            std::cout << (long long)(since(begin) * 1e6) << std::endl;
            continue;
        } else if (command == "sum") {
            *total = 0;
            for (const Block &block : blocks) sum<<<256, 256>>>(block, total);
            CHECK(cudaDeviceSynchronize());
            std::cout << *total << std::endl;
            continue;
        } else if (command == "link") {
            rate(pinned, linked, cudaMemcpyDeviceToHost);
            const double out = rate(pinned, linked, cudaMemcpyDeviceToHost);
            std::cout << out << " " << rate(linked, pinned, cudaMemcpyHostToDevice) << std::endl;
            continue;
        } else {
            REQUIRE(!"a known command");
        }
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
        std::cout << "done" << std::endl;
    }
    return 0;
}
