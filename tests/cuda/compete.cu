// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Work back to back for so many seconds, or until SIGTERM: kernels, with "long" longer ones, with "graph" graphs of a long
// kernel, with "library" products by cuBLAS. Prints every 50 ms how many pieces have ended, as "MILLISECONDS PIECES", by a clock
// that all processes of the machine share.

#include "library.h"

#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>

constexpr int DEPTH = 8;
constexpr int STEPS = 20000;
constexpr int LONG_STEPS = 20 * STEPS;
// Rows and columns of a product.
constexpr int SIZE = 128;

__global__ void work(int steps, unsigned *result) {
    unsigned value = threadIdx.x;
    for (int step = 0; step < steps; step++) value = value * 1664525u + 1013904223u;
    result[threadIdx.x] = value;
}

static volatile std::sig_atomic_t is_ended;

static void end(int) { is_ended = 1; }

static long milliseconds() {
    auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

static void run(long limit, const std::function<void()> &start) {
    cudaEvent_t done[DEPTH];
    for (cudaEvent_t &event : done) CHECK(cudaEventCreate(&event));
    long begin = milliseconds(), said = begin;
    for (long pieces = 0; said - begin < limit && !is_ended; pieces++) {
        cudaEvent_t event = done[pieces % DEPTH];
        if (pieces >= DEPTH) CHECK(cudaEventSynchronize(event));
        start();
        CHECK(cudaEventRecord(event));
        if (milliseconds() - said >= 50) {
            said = milliseconds();
            std::printf("%ld %ld\n", said, pieces);
            std::fflush(stdout);
        }
    }
    CHECK(cudaDeviceSynchronize());
}

static bool products(long limit) {
    load({"libcublas.so.13", "libcublas.so.12"});
    Handle handle;
    CHECK(call("cublasCreate_v2", &handle));
    const std::vector<float> ones(SIZE * SIZE, 1), twos(SIZE * SIZE, 2);
    const float *left = on_device(ones), *right = on_device(twos), one = 1, zero = 0;
    float *product = on_device(ones);
    const float *factors[] = {&one, &zero};
    run(limit, [&] {
        CHECK(call("cublasSgemm_v2", handle, 0, 0, SIZE, SIZE, SIZE, factors[0], left, SIZE, right, SIZE, factors[1], product, SIZE));
    });
    return back(product, SIZE * SIZE) == std::vector<float>(SIZE * SIZE, 2 * SIZE);
}

int main(int count, char **arguments) {
    long limit = count > 1 ? 1000 * std::atol(arguments[1]) : 1000;
    auto is = [&](const char *mode) { return count > 2 && std::strcmp(arguments[2], mode) == 0; };
    bool is_right;
    std::signal(SIGTERM, end);
    const int steps = is("long") || is("graph") ? LONG_STEPS : STEPS;
    if (is("library")) {
        is_right = products(limit);
    } else {
        unsigned *result;
        CHECK(cudaMalloc(&result, 32 * sizeof *result));
        if (is("graph")) {
            cudaStream_t stream;
            cudaGraph_t graph;
            cudaGraphExec_t launchable;
            CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
            CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
            work<<<1, 32, 0, stream>>>(steps, result);
            CHECK(cudaStreamEndCapture(stream, &graph));
            CHECK(cudaGraphInstantiate(&launchable, graph, 0));
            run(limit, [&] { CHECK(cudaGraphLaunch(launchable, 0)); });
        } else {
            run(limit, [&] {
                work<<<1, 32>>>(steps, result);
                CHECK(cudaGetLastError());
            });
        }
        unsigned values[32], expected = 7;
        CHECK(cudaMemcpy(values, result, sizeof values, cudaMemcpyDeviceToHost));
        for (int step = 0; step < steps; step++) expected = expected * 1664525u + 1013904223u;
        is_right = values[7] == expected;
    }
    std::printf(is_right ? "right\n" : "wrong\n");
    return 0;
}
