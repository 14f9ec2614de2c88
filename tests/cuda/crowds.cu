// SPDX-License-Identifier: Apache-2.0 OR MIT
// Many of everything at once: threads that all use the GPU, allocations, streams and events.
#include "check.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

constexpr int kThreads = 1100, kLaunches = 4, kAllocations = 20000, kStreams = 1000, kEvents = 5000;

__global__ void count(int *counter) {
    atomicAdd(counter, 1);
}

static void threads(int *counter) {
    std::atomic<int> right{0};
    std::mutex mutex;
    std::condition_variable complete;
    int there = 0;
    std::vector<std::thread> all;
    for (int index = 0; index < kThreads; index++) {
        all.emplace_back([&, index] {
            cudaStream_t stream;
            CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
            // None goes on, and none ends, before all have begun.
            {
                std::unique_lock<std::mutex> lock(mutex);
                there++;
                complete.notify_all();
                complete.wait(lock, [&] { return there == kThreads; });
            }
            for (int launch = 0; launch < kLaunches; launch++) {
                count<<<1, 1, 0, stream>>>(counter);
            }
            int *memory, back = 0;
            CHECK(cudaMalloc(&memory, 4096));
            CHECK(cudaMemcpyAsync(memory, &index, sizeof index, cudaMemcpyHostToDevice, stream));
            CHECK(cudaMemcpyAsync(&back, memory, sizeof back, cudaMemcpyDeviceToHost, stream));
            CHECK(cudaStreamSynchronize(stream));
            right += back == index;
            CHECK(cudaFree(memory));
            CHECK(cudaStreamDestroy(stream));
        });
    }
    for (auto &thread : all) {
        thread.join();
    }
    int counted;
    CHECK(cudaMemcpy(&counted, counter, sizeof counted, cudaMemcpyDeviceToHost));
    std::printf("%d threads: %d kernels, %d copies right\n", kThreads, counted, right.load());
}

static void allocations() {
    std::vector<unsigned *> all(kAllocations);
    for (auto &memory : all) {
        CHECK(cudaMalloc(&memory, 256));
    }
    for (int index = 0; index < kAllocations; index += 1000) {
        CHECK(cudaMemset(all[index], index / 1000, 256));
    }
    int right = 0;
    for (int index = 0; index < kAllocations; index += 1000) {
        unsigned char byte = 0xff;
        CHECK(cudaMemcpy(&byte, all[index], 1, cudaMemcpyDeviceToHost));
        right += byte == index / 1000;
    }
    for (auto *memory : all) {
        CHECK(cudaFree(memory));
    }
    std::printf("%d allocations: %d of 20 right\n", kAllocations, right);
    std::printf("freed again: %d\n", (int)cudaFree(all[kAllocations / 2]));
    cudaGetLastError();
}

static void streams(int *counter) {
    CHECK(cudaMemset(counter, 0, sizeof *counter));
    CHECK(cudaDeviceSynchronize());
    std::vector<cudaStream_t> all(kStreams);
    for (auto &stream : all) {
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        count<<<1, 1, 0, stream>>>(counter);
    }
    std::vector<cudaEvent_t> events(kEvents);
    for (int index = 0; index < kEvents; index++) {
        CHECK(cudaEventCreateWithFlags(&events[index], cudaEventDisableTiming));
        CHECK(cudaEventRecord(events[index], all[index % kStreams]));
        CHECK(cudaStreamWaitEvent(all[(index + 1) % kStreams], events[index], 0));
    }
    CHECK(cudaStreamSynchronize(all[kEvents % kStreams]));
    int counted;
    CHECK(cudaMemcpy(&counted, counter, sizeof counted, cudaMemcpyDeviceToHost));
    for (auto event : events) {
        CHECK(cudaEventQuery(event));
        CHECK(cudaEventDestroy(event));
    }
    for (auto stream : all) {
        CHECK(cudaStreamDestroy(stream));
    }
    std::printf("%d streams, each waits for the one before: %d kernels\n", kStreams, counted);
}

int main() {
    int *counter;
    CHECK(cudaMalloc(&counter, sizeof *counter));
    CHECK(cudaMemset(counter, 0, sizeof *counter));
    CHECK(cudaDeviceSynchronize());
    threads(counter);
    allocations();
    streams(counter);
    return 0;
}
