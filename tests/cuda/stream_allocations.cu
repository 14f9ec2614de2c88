// SPDX-License-Identifier: Apache-2.0 OR MIT
// Memory that is freed and allocated in stream order again and again: who gets it next, and what other calls see of it.
#include "check.h"

#include <thread>
#include <vector>

static const int N = 1 << 18;
static const size_t BYTES = N * sizeof(int);

__global__ void fill(int *memory, int value) {
    memory[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

__global__ void add(int *memory, int value) {
    memory[blockIdx.x * blockDim.x + threadIdx.x] += value;
}

static int *allocate(cudaStream_t stream, size_t bytes = BYTES) {
    int *memory;
    CHECK(cudaMallocAsync(&memory, bytes, stream));
    return memory;
}

static cudaMemPool_t pool;

static uint64_t used() {
    uint64_t value = 0;
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &value));
    return value;
}

static int wrong(int *memory, int value, cudaStream_t stream) {
    std::vector<int> back(N);
    CHECK(cudaMemcpyAsync(back.data(), memory, BYTES, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    int wrong = 0;
    for (int one : back) {
        wrong += one != value;
    }
    return wrong;
}

// Each result is added up in memory that stays, while the memory of its terms changes hands.
static void in_one_stream(cudaStream_t stream) {
    int *kept = allocate(stream, 2 * BYTES);
    fill<<<N / 256, 256, 0, stream>>>(kept, 0);
    for (int round = 1; round <= 200; round++) {
        int *first = allocate(stream), *second = allocate(stream);
        fill<<<N / 256, 256, 0, stream>>>(first, round);
        fill<<<N / 256, 256, 0, stream>>>(second, -round);
        REQUIRE(first != second);
        CHECK(cudaFreeAsync(first, stream));
        int *third = allocate(stream);
        REQUIRE(third != second);
        add<<<N / 256, 256, 0, stream>>>(kept, round);
        fill<<<N / 256, 256, 0, stream>>>(third, 7);
        CHECK(cudaFreeAsync(second, stream));
        CHECK(cudaFreeAsync(third, stream));
    }
    std::printf("one stream: %d wrong\n", wrong(kept, 200 * 201 / 2, stream));
    CHECK(cudaFreeAsync(kept, stream));
}

static void in_two_streams(cudaStream_t stream, cudaStream_t other) {
    cudaEvent_t event;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    int failures = 0;
    for (int round = 0; round < 20; round++) {
        int *memory = allocate(stream);
        fill<<<N / 256, 256, 0, stream>>>(memory, round);
        CHECK(cudaFreeAsync(memory, stream));
        CHECK(cudaEventRecord(event, stream));
        CHECK(cudaStreamWaitEvent(other, event, 0));
        int *next = allocate(other);
        fill<<<N / 256, 256, 0, other>>>(next, -round);
        failures += wrong(next, -round, other);
        CHECK(cudaFreeAsync(next, stream));
    }
    CHECK(cudaEventDestroy(event));
    std::printf("two streams: %d wrong\n", failures);
}

static void with_a_capture(cudaStream_t stream, cudaStream_t other) {
    CHECK(cudaFreeAsync(allocate(stream), stream));
    CHECK(cudaFreeAsync(allocate(cudaStreamLegacy), cudaStreamLegacy));
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(other, cudaStreamCaptureModeGlobal));
    int *memory = allocate(other);
    fill<<<N / 256, 256, 0, other>>>(memory, 3);
    CHECK(cudaFreeAsync(memory, other));
    CHECK(cudaStreamEndCapture(other, &graph));
    size_t nodes = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
    std::printf("captured: %zu nodes\n", nodes);
    CHECK(cudaGraphDestroy(graph));
}

static void by_threads(cudaStream_t stream) {
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; thread++) {
        threads.emplace_back([=] {
            cudaStream_t own;
            CHECK(cudaStreamCreate(&own));
            int *kept = allocate(stream);
            fill<<<N / 256, 256, 0, stream>>>(kept, thread);
            for (int round = 0; round < 100; round++) {
                int *shared = allocate(stream), *mine = allocate(own);
                fill<<<N / 256, 256, 0, stream>>>(shared, -1);
                fill<<<N / 256, 256, 0, own>>>(mine, -2);
                CHECK(cudaFreeAsync(shared, stream));
                CHECK(cudaFreeAsync(mine, own));
            }
            REQUIRE(wrong(kept, thread, stream) == 0);
            CHECK(cudaFreeAsync(kept, own));
            CHECK(cudaStreamDestroy(own));
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    std::printf("threads: done\n");
}

static void misused(cudaStream_t stream) {
    int *memory = allocate(stream);
    CHECK(cudaFreeAsync(memory, stream));
    std::printf("freed twice: %s\n", cudaGetErrorName(cudaFreeAsync(memory, stream)));
    CHECK(cudaFreeAsync(allocate(stream), stream));
    std::printf("freed in order, then at once: %s\n", cudaGetErrorName(cudaFree(memory)));
    cudaGetLastError();
}

int main() {
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    cudaStream_t stream, other, short_lived;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK(cudaDeviceSynchronize());
    const uint64_t before = used();
    in_one_stream(stream);
    in_one_stream(cudaStreamLegacy);
    in_one_stream(cudaStreamPerThread);
    in_two_streams(stream, other);
    with_a_capture(stream, other);
    by_threads(stream);
    misused(stream);
    CHECK(cudaStreamCreate(&short_lived));
    CHECK(cudaFreeAsync(allocate(short_lived), short_lived));
    CHECK(cudaStreamDestroy(short_lived));
    CHECK(cudaDeviceSynchronize());
    std::printf("nothing is left: %d\n", used() == before);
    CHECK(cudaFreeAsync(allocate(stream), stream));
    CHECK(cudaStreamSynchronize(stream));
    std::printf("nothing is left after a synchronisation: %d\n", used() == before);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaStreamDestroy(other));
    return 0;
}
