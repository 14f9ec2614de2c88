// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Metrics of several threads at once. Each thread has a stream of its own.

#pragma once

#include "measure.h"

#include <atomic>
#include <thread>

__global__ void nothing() {}

// Each of `threads` threads, with a stream on the device of its number modulo `devices`, runs `step` again and again:
// up to `most` times altogether, for at most `limit` seconds. Then it waits for its stream. Microseconds from one step
// to the next one of any thread.
inline void by_threads(const std::string &name, int threads, int devices, long most, double limit,
                       const std::function<void(cudaStream_t)> &step) {
    if (!is_wanted(name.c_str())) return;
    Metric metric(name.c_str());
    std::atomic<int> ready{0};
    std::atomic<bool> begun{false};
    std::atomic<long> steps{0};
    auto run = [&](int index) {
        cudaStream_t stream;
        CHECK(cudaSetDevice(index % devices));
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        for (int i = 0; i < 8; i++) step(stream);
        CHECK(cudaStreamSynchronize(stream));
        ready++;
        while (!begun) std::this_thread::yield();
        auto begin = Clock::now();
        long done = 0;
        while (done < most / threads && (done % 64 || seconds(begin) < limit)) {
            step(stream);
            done++;
        }
        CHECK(cudaStreamSynchronize(stream));
        steps += done;
        ready--;
        // Not before the others are done: that is not what is measured.
        while (ready > 0) std::this_thread::yield();
        CHECK(cudaStreamDestroy(stream));
    };
    std::vector<std::thread> all;
    for (int index = 0; index < threads; index++) all.emplace_back(run, index);
    while (ready < threads) std::this_thread::yield();
    double taken = metric.time(0, [&] {
        begun = true;
        while (ready > 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
    });
    for (std::thread &thread : all) thread.join();
    metric.counted(steps);
    metric.add(1e6 * taken / steps);
    metric.report("us");
}

// A launch and a wait for it, which another thread of the program executes. Both threads watch a word of memory: as quick as
// a program and its worker can be that are different processes, whatever they send each other.
inline void handed_over(double budget) {
    const char *name = "launch_synchronize_handed_over";
    if (!is_wanted(name)) return;
    if (std::thread::hardware_concurrency() < 4) return skip(name, "two threads that watch need processors of their own");
    alignas(64) std::atomic<long> asked{0};
    alignas(64) std::atomic<long> done{0};
    std::atomic<bool> over{false};
    int device;
    CHECK(cudaGetDevice(&device));
    std::thread executor([&] {
        cudaStream_t stream;
        CHECK(cudaSetDevice(device));
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        for (long next = 1; !over; ) {
            if (asked.load(std::memory_order_acquire) < next) continue;
            // Launches have odd numbers, waits even ones.
            if (next % 2) {
                nothing<<<1, 1, 0, stream>>>();
            } else {
                CHECK(cudaStreamSynchronize(stream));
                done.store(next, std::memory_order_release);
            }
            next++;
        }
        CHECK(cudaStreamDestroy(stream));
    });
    long number = 0;
    latency(name, 10, budget, [&] {
        asked.store(++number, std::memory_order_release);
        asked.store(++number, std::memory_order_release);
        while (done.load(std::memory_order_acquire) < number) {
        }
    });
    over = true;
    executor.join();
}

inline void threads(long most, double limit) {
    auto launch = [](cudaStream_t stream) { nothing<<<1, 1, 0, stream>>>(); };
    auto wait = [&](cudaStream_t stream) {
        launch(stream);
        CHECK(cudaStreamSynchronize(stream));
    };
    for (int count : {1, 2, 4, 8}) {
        by_threads("threads_" + std::to_string(count) + "_launch", count, 1, most, limit, launch);
    }
    for (int count : {1, 2, 4, 8}) {
        by_threads("threads_" + std::to_string(count) + "_launch_synchronize", count, 1, most / 4, limit, wait);
    }
    int devices;
    CHECK(cudaGetDeviceCount(&devices));
    // As many threads as GPUs, each on a GPU of its own.
    for (int count : {2, 4, 8}) {
        const std::string name = "devices_" + std::to_string(count) + "_launch";
        if (devices < count) {
            for (const char *end : {"", "_synchronize"}) {
                if (is_wanted((name + end).c_str())) skip((name + end).c_str(), "there are fewer GPUs");
            }
            continue;
        }
        // Wakes all of them up before they are measured.
        for (int device = count - 1; device >= 0; device--) {
            CHECK(cudaSetDevice(device));
            CHECK(cudaFree(nullptr));
        }
        by_threads(name, count, count, most, limit, launch);
        by_threads(name + "_synchronize", count, count, most / 4, limit, wait);
    }
}
