// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Changes a part of its memory all the time, as a training does, and measures how long it stood still. Arguments: MiB of device memory, and the percentage of it
// that changes per second. Prints "begun" after the first steps. At SIGTERM it compares all of the memory with what it must be, and prints
// the longest time between two results, and "right".

#include "check.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <vector>

#include <unistd.h>

// Memory is allocated in blocks, and a step changes a slice of one.
constexpr size_t BLOCK = 256 << 20;
constexpr size_t SLICE = 2 << 20;
constexpr size_t COUNT = SLICE / sizeof(unsigned);

__host__ __device__ static unsigned next(unsigned value, size_t place) {
    return value * 1664525u + 1013904223u + (unsigned)place;
}

__global__ void change(unsigned *values, size_t first, unsigned *sample) {
    const size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < COUNT; i += step) {
        values[i] = next(values[i], first + i);
        if (i == COUNT - 1) *sample = values[i];
    }
}

__global__ void compare(const unsigned *values, size_t first, unsigned changes, unsigned *wrong) {
    const size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < COUNT; i += step) {
        unsigned expected = 0;
        for (unsigned k = 0; k < changes; k++) expected = next(expected, first + i);
        if (values[i] != expected) atomicAdd(wrong, 1);
    }
}

static volatile std::sig_atomic_t is_ended;

static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Training {
  public:
    explicit Training(size_t bytes) : changes_(bytes / SLICE, 0), samples_(bytes / SLICE, 0) {
        for (size_t left = bytes; left; left -= std::min(left, BLOCK)) {
            const size_t length = std::min(left, BLOCK);
            unsigned char *block;
            CHECK(cudaMalloc(&block, length));
            CHECK(cudaMemset(block, 0, length));
            for (size_t at = 0; at < length; at += SLICE) slices_.push_back((unsigned *)(block + at));
        }
        CHECK(cudaMalloc(&result_, sizeof *result_));
    }

    // Changes the next slice, and waits for its result.
    void step() {
        const size_t slice = steps_++ % slices_.size();
        change<<<32, 256>>>(slices_[slice], slice * COUNT, result_);
        CHECK(cudaGetLastError());
        unsigned found = 0;
        CHECK(cudaMemcpy(&found, result_, sizeof found, cudaMemcpyDeviceToHost));
        changes_[slice]++;
        samples_[slice] = next(samples_[slice], (slice + 1) * COUNT - 1);
        REQUIRE(found == samples_[slice]);
    }

    size_t slices() const { return slices_.size(); }

    void compare_all() {
        CHECK(cudaMemset(result_, 0, sizeof *result_));
        for (size_t slice = 0; slice < slices_.size(); slice++) {
            compare<<<32, 256>>>(slices_[slice], slice * COUNT, changes_[slice], result_);
            CHECK(cudaGetLastError());
        }
        unsigned wrong = 1;
        CHECK(cudaMemcpy(&wrong, result_, sizeof wrong, cudaMemcpyDeviceToHost));
        REQUIRE(wrong == 0);
    }

  private:
    std::vector<unsigned *> slices_;
    std::vector<unsigned> changes_, samples_;
    unsigned *result_;
    size_t steps_ = 0;
};

int main(int argc, char **argv) {
    REQUIRE(argc == 3);
    const size_t bytes = std::strtoull(argv[1], nullptr, 10) << 20;
    REQUIRE(bytes >= SLICE && bytes % SLICE == 0);
    std::signal(SIGTERM, [](int) { is_ended = true; });
    Training training(bytes);
    // Nothing is zeros.
    for (size_t slice = 0; slice < training.slices(); slice++) training.step();
    std::printf("begun\n");
    std::fflush(stdout);
    const double per_second = training.slices() * std::atof(argv[2]) / 100;
    double begun = now(), last = begun, longest = 0;
    while (!is_ended) {
        training.step();
        const double time = now();
        longest = std::max(longest, time - last);
        last = time;
        // What was missed in a pause is not made up for.
        begun = std::max(begun + 1 / per_second, time - 0.1);
        if (begun > time) usleep((unsigned)((begun - time) * 1e6));
    }
    training.compare_all();
    std::printf("the longest time between two results: %.0f ms\nright\n", longest * 1e3);
    return 0;
}
