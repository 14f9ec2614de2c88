// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The cost and the accuracy of profiles: `cargo xtask bench --profile`. Obeys the lines of stdin, and answers each with one line:
// * "launch SECONDS NANOSECONDS" launches kernels that run so long (0: empty ones) for so many seconds, with a wait after each 256, and
//   prints microseconds per launch;
// * "begin" starts CUPTI as profilers do (kernels, copies, calls of the runtime), "end" stops it and prints the number of kernels;
// * "kernels NUMBER" compares CUPTI's records of so many kernels of 1 ms with the kernels' own clock, and prints the largest difference
//   in percent. Then as many kernels signal the program and wait for its answer, both in memory that the two share. It prints the
//   shortest times, in microseconds, from the moment before the answer to the record's end, and from its begin to the moment at which
//   the program has seen the signal: the clocks of CPU and GPU differ by no more than the longer one of both.

#include "../cuda/busy.h"
#include "../cuda/library.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <string>

// cupti_activity.h
enum { MEMCPY = 1, RUNTIME = 5, CONCURRENT_KERNEL = 10 };
static const int KINDS[] = {RUNTIME, MEMCPY, CONCURRENT_KERNEL};
struct Kernel {
    uint32_t kind;
    uint8_t config[2];
    uint16_t registers;
    uint32_t partitioned[2];
    uint64_t start, end;
};

static long kernels;
static Kernel last;

static void request(uint8_t **buffer, size_t *bytes, size_t *count) {
    *bytes = 1 << 20;
    *buffer = (uint8_t *)aligned_alloc(8, *bytes);
    *count = 0;
}

static void complete(void *, uint32_t, uint8_t *buffer, size_t, size_t valid) {
    uint8_t *record = nullptr;
    while (call("cuptiActivityGetNextRecord", buffer, valid, &record) == 0) {
        uint32_t kind;
        memcpy(&kind, record, sizeof kind);
        if (kind != CONCURRENT_KERNEL) continue;
        kernels++;
        memcpy(&last, record, sizeof last);
    }
    free(buffer);
}

static void begin() {
    load({"libcupti.so.13", "libcupti.so.12"});
    CHECK(call("cuptiActivityRegisterCallbacks", request, complete));
    for (int kind : KINDS) CHECK(call("cuptiActivityEnable", kind));
    kernels = 0;
}

static void end() {
    CHECK(cudaDeviceSynchronize());
    for (int kind : KINDS) CHECK(call("cuptiActivityDisable", kind));
    CHECK(call("cuptiActivityFlushAll", 0));
    CHECK(call("cuptiFinalize"));
}

__global__ void run(uint64_t ns, uint64_t *took) {
    if (ns) *took = stay_busy(ns);
}

__global__ void answer(volatile uint32_t *signal) {
    signal[0] = 1;
    while (!signal[1]) {}
}

static double launch(double seconds, uint64_t ns, uint64_t *took) {
    typedef std::chrono::steady_clock Clock;
    const auto begun = Clock::now();
    double passed = 0;
    long count = 0;
    while (passed < seconds) {
        for (int i = 0; i < 256; i++) run<<<1, 1>>>(ns, took);
        CHECK(cudaDeviceSynchronize());
        count += 256;
        passed = std::chrono::duration<double>(Clock::now() - begun).count();
    }
    return 1e6 * passed / (double)count;
}

// Returns when the record of the one kernel since `known` has come.
static void wait_for_record(long known) {
    CHECK(cudaDeviceSynchronize());
    CHECK(call("cuptiActivityFlushAll", 0));
    if (kernels != known + 1) {
        printf("a kernel has %ld records\n", kernels - known);
        exit(1);
    }
}

static void compare(int count, volatile uint64_t *took, volatile uint32_t *signal) {
    CHECK(call("cuptiActivityFlushAll", 0));
    double worst = 0, before = 1e9, after = 1e9;
    for (int i = 0; i < count; i++) {
        const long known = kernels;
        run<<<1, 1>>>(1000000, (uint64_t *)took);
        wait_for_record(known);
        const double own = (double)*took, record = (double)(last.end - last.start);
        worst = std::max(worst, 100 * std::fabs(record / own - 1));
    }
    for (int i = 0; i < count; i++) {
        uint64_t seen = 0, answered = 0;
        const long known = kernels;
        signal[0] = signal[1] = 0;
        answer<<<1, 1>>>(signal);
        while (!signal[0]) {}
        CHECK(call("cuptiGetTimestamp", &seen));
        CHECK(call("cuptiGetTimestamp", &answered));
        signal[1] = 1;
        wait_for_record(known);
        before = std::min(before, ((double)last.end - (double)answered) / 1e3);
        after = std::min(after, ((double)seen - (double)last.start) / 1e3);
    }
    printf("%.3f %.1f %.1f\n", worst, before, after);
}

int main() {
    uint64_t *took;
    uint32_t *signal;
    CHECK(cudaMallocHost(&took, sizeof *took));
    CHECK(cudaMallocHost(&signal, 2 * sizeof *signal));
    launch(0, 0, took);
    std::string line;
    while (std::getline(std::cin, line)) {
        double seconds = 0;
        unsigned long long number = 0;
        if (sscanf(line.c_str(), "launch %lf %llu", &seconds, &number) == 2)
            printf("%.3f\n", launch(seconds, number, took));
        else if (sscanf(line.c_str(), "kernels %llu", &number) == 1)
            compare((int)number, took, signal);
        else if (line == "begin") {
            begin();
            printf("ok\n");
        } else if (line == "end") {
            end();
            printf("%ld\n", kernels);
        } else {
            printf("not understood: %s\n", line.c_str());
            return 1;
        }
        fflush(stdout);
    }
    return 0;
}
