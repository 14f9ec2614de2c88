// SPDX-License-Identifier: Apache-2.0 OR MIT
// Long managed memory whose preferred location is the host: a running kernel and the program see each other's writes.
#include <atomic>
#include <chrono>
#include <initializer_list>
#include <thread>

#include "check.h"

static const size_t COUNT = 2 << 20, BYTES = COUNT * sizeof(unsigned);

__global__ void add(unsigned *values, size_t count, unsigned by) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) {
        values[i] += by;
    }
}

// Answers each number that the program writes to the first word with the number in the last word.
__global__ void answer(volatile unsigned *values, size_t count, unsigned rounds) {
    for (unsigned round = 1; round <= rounds; round++) {
        while (values[0] != round) {
        }
        values[count - 1] = values[count / 2] + round;
        __threadfence_system();
    }
}

static unsigned long long sum(const unsigned *values) {
    unsigned long long total = 0;
    for (size_t i = 0; i < COUNT; i++) {
        total += values[i];
    }
    return total;
}

static void advise(unsigned *values, size_t bytes, cudaMemoryAdvise advice, cudaMemLocationType type) {
    cudaMemLocation location{};
    location.type = type;
    CHECK(cudaMemAdvise(values, bytes, advice, location));
}

static void launch_add(unsigned *values, unsigned by) {
    add<<<64, 128>>>(values, COUNT, by);
    CHECK(cudaGetLastError());
}

static const auto PREFERRED = cudaMemAdviseSetPreferredLocation;
static const auto NOT_PREFERRED = cudaMemAdviseUnsetPreferredLocation;
static const auto HOST = cudaMemLocationTypeHost, DEVICE = cudaMemLocationTypeDevice;

static unsigned *numbers() {
    unsigned *values;
    CHECK(cudaMallocManaged(&values, BYTES));
    for (size_t i = 0; i < COUNT; i++) {
        values[i] = (unsigned)i;
    }
    return values;
}

static void talk(unsigned *values, unsigned rounds) {
    volatile unsigned *shared = values;
    shared[0] = shared[COUNT - 1] = 0;
    answer<<<1, 1>>>(values, COUNT, rounds);
    CHECK(cudaGetLastError());
    unsigned right = 0;
    for (unsigned round = 1; round <= rounds; round++) {
        shared[COUNT / 2] = 1000 * round;
        std::atomic_thread_fence(std::memory_order_seq_cst);
        shared[0] = round;
        auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (shared[COUNT - 1] != 1001 * round && std::chrono::steady_clock::now() < end) {
            std::this_thread::yield();
        }
        right += shared[COUNT - 1] == 1001 * round;
    }
    CHECK(cudaDeviceSynchronize());
    std::printf("answers of a running kernel: %u of %u\n", right, rounds);
}

int main() {
    int device;
    CHECK(cudaGetDevice(&device));
    unsigned *values = numbers();
    launch_add(values, 1);
    // The advice waits for the kernel, and the memory keeps its contents.
    advise(values, BYTES, PREFERRED, HOST);
    CHECK(cudaDeviceSynchronize());
    std::printf("on the host: %llu\n", sum(values));
    launch_add(values, 1);
    CHECK(cudaDeviceSynchronize());
    std::printf("changed there: %llu\n", sum(values));
    talk(values, 20);
    cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, values + 5));
    REQUIRE(attributes.type == cudaMemoryTypeManaged && attributes.devicePointer == values + 5);

    // Copies and fills there.
    unsigned *plain;
    CHECK(cudaMalloc(&plain, BYTES));
    CHECK(cudaMemset(values, 0, BYTES / 2));
    CHECK(cudaMemcpy(plain, values, BYTES, cudaMemcpyDefault));
    launch_add(plain, 3);
    CHECK(cudaMemcpy(values, plain, BYTES, cudaMemcpyDefault));
    values[7] += 11;
    std::printf("copied: %llu\n", sum(values));

    // Back and forth; a part alone changes nothing that can be seen.
    for (unsigned round = 0; round < 5; round++) {
        advise(values, BYTES, round % 2 ? NOT_PREFERRED : PREFERRED, DEVICE);
        launch_add(values, 1);
        CHECK(cudaDeviceSynchronize());
        values[round] += 100;
        advise(values, BYTES, PREFERRED, HOST);
        launch_add(values, 1);
        CHECK(cudaDeviceSynchronize());
        values[round] += 100;
        advise(values + COUNT / 2, BYTES / 2, PREFERRED, HOST);
    }
    std::printf("back and forth: %llu\n", sum(values));
    talk(values, 3);
    CHECK(cudaFree(plain));
    CHECK(cudaFree(values));

    // Advice before the first touch, and several allocations that end in any state.
    unsigned *many[6];
    for (int i = 0; i < 6; i++) {
        CHECK(cudaMallocManaged(&many[i], BYTES));
        advise(many[i], BYTES, PREFERRED, i % 2 ? HOST : DEVICE);
        CHECK(cudaMemset(many[i], 0, BYTES));
        launch_add(many[i], i + 1);
    }
    CHECK(cudaDeviceSynchronize());
    unsigned long long total = 0;
    for (int i = 0; i < 6; i++) {
        total += sum(many[i]);
        if (i < 3) {
            CHECK(cudaFree(many[i]));
        }
    }
    std::printf("several: %llu\n", total);

    // A graph that was made before.
    cudaStream_t stream;
    cudaGraph_t graph;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    add<<<64, 128, 0, stream>>>(many[3], COUNT, 1);
    CHECK(cudaStreamEndCapture(stream, &graph));
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (auto place : {DEVICE, HOST, DEVICE}) {
        advise(many[3], BYTES, PREFERRED, place);
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
    }
    std::printf("by a graph: %llu\n", sum(many[3]));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    // The rest goes with the device's context.
    CHECK(cudaDeviceReset());
    values = numbers();
    advise(values, BYTES, PREFERRED, HOST);
    launch_add(values, 1);
    CHECK(cudaDeviceSynchronize());
    std::printf("after a reset: %llu\n", sum(values));
    CHECK(cudaFree(values));
    return 0;
}
