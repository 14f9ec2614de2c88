// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// One of several programs that compete for a GPU: kernels of one length, one after the other. Prints when each of them
// ended, in nanoseconds of the GPU's clock.
//
//   shares --calibrate                  prints how many steps of a kernel take a millisecond
//   shares --steps N --seconds S        keeps kernels of N steps in flight for S seconds
//   shares --steps N --seconds S --depth D  no more than D of them (64)
//   shares --steps N --seconds S --wait waits for each
//   shares --steps N --events           prints the time that events before and after a kernel of N steps show

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        cudaError_t error = (call);                                                                                    \
        if (error != cudaSuccess) {                                                                                    \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));                                        \
            std::exit(1);                                                                                              \
        }                                                                                                              \
    } while (0)

using Clock = std::chrono::steady_clock;

// Room for results.
constexpr long ROOM = 1 << 22;

// A chain of dependent steps: its time on the GPU does not depend on interruptions, as that of a loop by the clock does.
__global__ void work(long steps, unsigned long long *end, unsigned *result) {
    unsigned value = threadIdx.x;
    for (long step = 0; step < steps; step++) value = value * 1664525u + 1013904223u;
    if (threadIdx.x == 0) {
        // The result is used, so that the loop stays.
        if (value == 1) *result = value;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(*end));
    }
}

static double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

static void calibrate(unsigned long long *end, unsigned *result) {
    cudaEvent_t begin, done;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&done));
    long steps = 1000;
    float best = 0;
    // For a second, so that the clocks of the GPU are high.
    for (Clock::time_point start = Clock::now(); seconds_since(start) < 1.5;) {
        float milliseconds;
        CHECK(cudaEventRecord(begin));
        work<<<1, 32>>>(steps, end, result);
        CHECK(cudaEventRecord(done));
        CHECK(cudaEventSynchronize(done));
        CHECK(cudaEventElapsedTime(&milliseconds, begin, done));
        if (milliseconds < 5)
            steps *= 2;
        else if (best == 0 || milliseconds < best)
            best = milliseconds;
    }
    if (best == 0) best = 5;
    std::printf("%ld\n", (long)(steps / best));
}

// Events around `kernels` kernels in a stream that was idle for a moment: minimum and median in microseconds.
static void show(const char *name, long kernels, long steps, unsigned long long *end, unsigned *result) {
    cudaEvent_t begin, done;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&done));
    std::vector<float> times;
    for (int i = 0; i < 300; i++) {
        float milliseconds;
        CHECK(cudaEventRecord(begin));
        for (long kernel = 0; kernel < kernels; kernel++) work<<<1, 32>>>(steps, end, result);
        CHECK(cudaEventRecord(done));
        CHECK(cudaStreamSynchronize(0));
        CHECK(cudaEventElapsedTime(&milliseconds, begin, done));
        times.push_back(1000 * milliseconds);
    }
    std::sort(times.begin(), times.end());
    std::printf("events around %s: %.2f us at least, %.2f us usually\n", name, times[0], times[times.size() / 2]);
}

static void events(long steps, unsigned long long *end, unsigned *result) {
    show("nothing", 0, 0, end, result);
    show("an empty kernel", 1, 0, end, result);
    show("a kernel of that length", 1, steps, end, result);
    show("two kernels of that length", 2, steps, end, result);
    show("one kernel of twice the length", 1, 2 * steps, end, result);
}

int main(int count, char **arguments) {
    long steps = 0, depth = 64;
    double limit = 0;
    bool waits = false, calibrates = false, measures_events = false;
    for (int i = 1; i < count; i++) {
        auto is = [&](const char *name) { return std::strcmp(arguments[i], name) == 0; };
        if (is("--calibrate"))
            calibrates = true;
        else if (is("--wait"))
            waits = true;
        else if (is("--steps") && i + 1 < count)
            steps = std::atol(arguments[++i]);
        else if (is("--events"))
            measures_events = true;
        else if (is("--depth") && i + 1 < count)
            depth = std::max(1L, std::atol(arguments[++i]));
        else if (is("--seconds") && i + 1 < count)
            limit = std::atof(arguments[++i]);
        else {
            std::fprintf(stderr, "unknown option %s\n", arguments[i]);
            return 2;
        }
    }
    unsigned long long *ends;
    unsigned *result;
    CHECK(cudaMalloc(&ends, ROOM * sizeof *ends));
    CHECK(cudaMalloc(&result, sizeof *result));
    if (calibrates) {
        calibrate(ends, result);
        return 0;
    }
    if (measures_events) {
        events(steps, ends, result);
        return 0;
    }
    std::vector<cudaEvent_t> done(depth);
    for (cudaEvent_t &event : done) CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    Clock::time_point start = Clock::now();
    long kernels = 0;
    for (; kernels < ROOM && seconds_since(start) < limit; kernels++) {
        cudaEvent_t event = done[kernels % depth];
        if (!waits && kernels >= depth) CHECK(cudaEventSynchronize(event));
        work<<<1, 32>>>(steps, ends + kernels, result);
        if (waits)
            CHECK(cudaStreamSynchronize(0));
        else
            CHECK(cudaEventRecord(event));
    }
    std::vector<unsigned long long> all(kernels);
    CHECK(cudaMemcpy(all.data(), ends, kernels * sizeof all[0], cudaMemcpyDeviceToHost));
    for (unsigned long long end : all) std::printf("%llu\n", end);
    return 0;
}
