// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Computes until SIGTERM, and compares everything with what the processor computes, while its virtual machine is saved, loaded and
// moved. Arguments: threads, and "managed" for managed memory as well, or "offered" for memory that other processes may open. Prints "begun" after the first round of a thread, and "right" at
// the end. Each thread uses device memory, pinned and pageable memory, a stream, events, objects that end, and a variable of the module.

#include "check.h"

#include <atomic>
#include <csignal>
#include <cstring>
#include <thread>
#include <vector>

constexpr size_t COUNT = 4096;
constexpr size_t BYTES = COUNT * sizeof(unsigned);
// Managed memory of this length moves between program and device.
constexpr size_t MANAGED_BYTES = 2 << 20;
constexpr size_t STRIDE = MANAGED_BYTES / sizeof(unsigned) / 64;

__device__ unsigned long long rounds_of_all;

__host__ __device__ static unsigned next(unsigned value, size_t place) {
    return value * 1664525u + 1013904223u + (unsigned)place;
}

__global__ void change(unsigned *values, size_t count, size_t stride) {
    const size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        values[i * stride] = next(values[i * stride], i);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) atomicAdd(&rounds_of_all, 1ull);
}

static std::atomic<bool> is_ended, has_begun;
static std::atomic<unsigned long long> launches;

class Worker {
  public:
    Worker(unsigned number, bool has_managed) : expected_(COUNT), pageable_(COUNT), places_(64, number) {
        CHECK(cudaStreamCreate(&stream_));
        CHECK(cudaMalloc(&device_, BYTES));
        CHECK(cudaMallocHost(&pinned_, BYTES));
        for (cudaEvent_t &event : events_) CHECK(cudaEventCreate(&event));
        Random(number).fill(expected_.data(), BYTES);
        CHECK(cudaMemcpy(device_, expected_.data(), BYTES, cudaMemcpyHostToDevice));
        if (!has_managed) return;
        CHECK(cudaMallocManaged(&managed_, MANAGED_BYTES));
        for (size_t i = 0; i < places_.size(); i++) managed_[i * STRIDE] = places_[i];
    }

    void offer() {
        cudaIpcMemHandle_t handle;
        CHECK(cudaIpcGetMemHandle(&handle, device_));
    }

    void round(unsigned number) {
        CHECK(cudaEventRecord(events_[0], stream_));
        launch(device_, COUNT, 1);
        CHECK(cudaMemcpyAsync(pinned_, device_, BYTES, cudaMemcpyDeviceToHost, stream_));
        CHECK(cudaEventRecord(events_[1], stream_));
        if (managed_) launch(managed_, places_.size(), STRIDE);
        for (size_t i = 0; i < COUNT; i++) expected_[i] = next(expected_[i], i);
        CHECK(cudaStreamSynchronize(stream_));
        REQUIRE(!std::memcmp(pinned_, expected_.data(), BYTES));
        float passed = -1;
        CHECK(cudaEventElapsedTime(&passed, events_[0], events_[1]));
        REQUIRE(passed >= 0);
        for (size_t i = 0; managed_ && i < places_.size(); i++) {
            places_[i] = next(places_[i], i);
            REQUIRE(managed_[i * STRIDE] == places_[i]);
            managed_[i * STRIDE] = ++places_[i];
        }
        if (number % 4 == 0) come_and_go();
    }

  private:
    void launch(unsigned *values, size_t count, size_t stride) {
        change<<<2, 64, 0, stream_>>>(values, count, stride);
        CHECK(cudaGetLastError());
        launches++;
    }

    // Objects that end, and a copy of pageable memory back and forth.
    void come_and_go() {
        cudaStream_t stream;
        cudaEvent_t event;
        unsigned *copy;
        CHECK(cudaMalloc(&copy, BYTES));
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        CHECK(cudaMemcpyAsync(copy, device_, BYTES, cudaMemcpyDeviceToDevice, stream));
        CHECK(cudaEventRecord(event, stream));
        CHECK(cudaEventSynchronize(event));
        CHECK(cudaMemcpy(pageable_.data(), copy, BYTES, cudaMemcpyDeviceToHost));
        REQUIRE(pageable_ == expected_);
        CHECK(cudaMemcpy(device_, pageable_.data(), BYTES, cudaMemcpyHostToDevice));
        CHECK(cudaEventDestroy(event));
        CHECK(cudaStreamDestroy(stream));
        CHECK(cudaFree(copy));
    }

    std::vector<unsigned> expected_, pageable_, places_;
    cudaStream_t stream_;
    cudaEvent_t events_[2];
    unsigned *device_, *pinned_, *managed_ = nullptr;
};

int main(int argc, char **argv) {
    REQUIRE(argc >= 2);
    const bool has_managed = argc > 2 && !std::strcmp(argv[2], "managed");
    const bool is_offered = argc > 2 && !std::strcmp(argv[2], "offered");
    std::signal(SIGTERM, [](int) { is_ended = true; });
    std::vector<std::thread> threads;
    for (int number = 0; number < std::atoi(argv[1]); number++) {
        threads.emplace_back([=] {
            Worker worker(number, has_managed);
            if (is_offered) worker.offer();
            for (unsigned round = 0; !is_ended; round++) {
                worker.round(round);
                if (!has_begun.exchange(true)) {
                    std::printf("begun\n");
                    std::fflush(stdout);
                }
            }
        });
    }
    for (std::thread &thread : threads) thread.join();
    unsigned long long counted = 0;
    CHECK(cudaMemcpyFromSymbol(&counted, rounds_of_all, sizeof counted));
    REQUIRE(counted == launches);
    std::printf("right after %llu launches\n", counted);
    return 0;
}
