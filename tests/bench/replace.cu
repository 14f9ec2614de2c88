// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The longest pauses of a program while the daemon's program is replaced: `cargo xtask bench --replace`. One thread launches kernels
// through its lane. Another one launches kernels and waits for each of them: it polls its lane for a moment, and then sleeps with a
// request to the daemon. A third one registers memory and gives it back, for which each time the daemon is asked. All pause for a
// millisecond after each of these. Answers each line of stdin with the figures since the last one: for each thread the number, and the
// longest and the 99.9th percentile in milliseconds. At the end of stdin, each launch must have counted once.

#include "../cuda/check.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

constexpr size_t BYTES = 1 << 20;
constexpr size_t PAGE = 4096;
constexpr useconds_t PAUSE_US = 1000;

static std::atomic<bool> is_over{false};

__global__ void count(unsigned *launches) { atomicAdd(launches, 1); }

class Times {
  public:
    void add(double milliseconds) {
        std::lock_guard<std::mutex> guard(lock_);
        all_.push_back(milliseconds);
    }

    // Prints the figures, and begins anew.
    void print() {
        std::vector<double> all;
        {
            std::lock_guard<std::mutex> guard(lock_);
            all.swap(all_);
        }
        std::sort(all.begin(), all.end());
        const double most = all.empty() ? 0 : all.back();
        const double rare = all.empty() ? 0 : all[all.size() * 999 / 1000];
        std::cout << all.size() << " " << most << " " << rare;
    }

  private:
    std::mutex lock_;
    std::vector<double> all_;
};

static void repeat(Times &times, const std::function<void()> &work) {
    while (!is_over) {
        const auto begin = std::chrono::steady_clock::now();
        work();
        times.add(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() * 1e3);
        usleep(PAUSE_US);
    }
}

int main() {
    unsigned *launches, found = 0;
    std::atomic<unsigned> expected{0};
    CHECK(cudaMalloc(&launches, sizeof *launches));
    CHECK(cudaMemset(launches, 0, sizeof *launches));
    Times of_launches, of_waits, of_calls;
    const auto launch = [&](Times &times, bool waits) {
        cudaStream_t stream;
        CHECK(cudaStreamCreate(&stream));
        repeat(times, [&] {
            count<<<1, 1, 0, stream>>>(launches);
            CHECK(cudaGetLastError());
            if (waits) CHECK(cudaStreamSynchronize(stream));
            expected++;
        });
        CHECK(cudaStreamDestroy(stream));
    };
    std::thread launching([&] { launch(of_launches, false); });
    std::thread waiting([&] { launch(of_waits, true); });
    std::thread calling([&] {
        void *memory = std::aligned_alloc(PAGE, BYTES);
        REQUIRE(memory);
        repeat(of_calls, [&] {
            CHECK(cudaHostRegister(memory, BYTES, cudaHostRegisterDefault));
            CHECK(cudaHostUnregister(memory));
        });
        std::free(memory);
    });
    for (std::string line; std::getline(std::cin, line);) {
        of_launches.print();
        std::cout << " ";
        of_waits.print();
        std::cout << " ";
        of_calls.print();
        std::cout << std::endl;
    }
    is_over = true;
    launching.join();
    waiting.join();
    calling.join();
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&found, launches, sizeof found, cudaMemcpyDeviceToHost));
    REQUIRE(found == expected);
    return 0;
}
