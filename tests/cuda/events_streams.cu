// SPDX-License-Identifier: Apache-2.0 OR MIT
// Streams, events, waits between streams, queries, timing and their errors.
#include "check.h"

__global__ void spin(unsigned *out, unsigned rounds) {
    unsigned value = *out;
    for (unsigned i = 0; i < rounds; i++) {
        value = value * 1664525u + 1013904223u;
    }
    *out = value;
}
__global__ void add(unsigned *to, const unsigned *from) { *to += *from; }

static cudaError_t settle(cudaError_t (*query)(void *), void *what) {
    cudaError_t error;
    do {
        error = query(what);
    } while (error == cudaErrorNotReady);
    return error;
}

int main() {
    unsigned *a, *b;
    CHECK(cudaMalloc(&a, sizeof *a));
    CHECK(cudaMalloc(&b, sizeof *b));
    CHECK(cudaMemset(a, 0, sizeof *a));
    CHECK(cudaMemset(b, 0, sizeof *b));
    // The streams below do not wait for that.
    CHECK(cudaDeviceSynchronize());

    cudaStream_t first, second;
    int least = 0, greatest = 0, priority = 99;
    CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    REQUIRE(greatest <= least);
    CHECK(cudaStreamCreateWithPriority(&first, cudaStreamNonBlocking, greatest));
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    CHECK(cudaStreamGetPriority(first, &priority));
    REQUIRE(priority == greatest);
    unsigned flags = 99;
    CHECK(cudaStreamGetFlags(first, &flags));
    std::printf("flags of a non-blocking stream: %u\n", flags);

    // first: spin, record; second: wait, add. The sum proves the order.
    cudaEvent_t start, done, untimed;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&done));
    CHECK(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
    CHECK(cudaEventRecord(start, first));
    spin<<<1, 1, 0, first>>>(a, 200000);
    CHECK(cudaGetLastError());
    CHECK(cudaEventRecord(done, first));
    CHECK(cudaStreamWaitEvent(second, done, 0));
    add<<<1, 1, 0, second>>>(b, a);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(second));
    unsigned sum = 0, expected = 0;
    for (int i = 0; i < 200000; i++) {
        expected = expected * 1664525u + 1013904223u;
    }
    CHECK(cudaMemcpy(&sum, b, sizeof sum, cudaMemcpyDeviceToHost));
    std::printf("sum after the wait: %u\n", sum);
    REQUIRE(sum == expected);

    CHECK(cudaEventSynchronize(done));
    CHECK(cudaEventQuery(done));
    CHECK(cudaStreamQuery(first));
    float milliseconds = -1;
    CHECK(cudaEventElapsedTime(&milliseconds, start, done));
    REQUIRE(milliseconds >= 0);
    std::printf("elapsed time is not negative\n");

    CHECK(cudaEventRecord(untimed, second));
    CHECK(cudaEventSynchronize(untimed));
    std::printf("elapsed time without timing: %d\n", (int)cudaEventElapsedTime(&milliseconds, start, untimed));
    std::printf("recorded: %d\n", (int)cudaGetLastError());

    // Not ready is an answer, not an error to remember.
    spin<<<1, 1, 0, first>>>(a, 1000000);
    CHECK(cudaEventRecord(done, first));
    const cudaError_t ready = cudaEventQuery(done);
    REQUIRE(ready == cudaSuccess || ready == cudaErrorNotReady);
    std::printf("recorded after a query: %d\n", (int)cudaPeekAtLastError());
    CHECK(settle([](void *stream) { return cudaStreamQuery((cudaStream_t)stream); }, first));
    CHECK(settle([](void *event) { return cudaEventQuery((cudaEvent_t)event); }, done));
    CHECK(cudaGetLastError());

    // A new event is complete; the legacy and the per-thread stream are valid names.
    cudaEvent_t fresh;
    CHECK(cudaEventCreate(&fresh));
    CHECK(cudaEventQuery(fresh));
    CHECK(cudaEventSynchronize(fresh));
    CHECK(cudaStreamSynchronize(cudaStreamLegacy));
    CHECK(cudaStreamSynchronize(cudaStreamPerThread));
    spin<<<1, 1, 0, cudaStreamPerThread>>>(a, 10);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(cudaStreamPerThread));

    // The legacy stream waits for blocking streams.
    cudaStream_t blocking;
    CHECK(cudaStreamCreate(&blocking));
    CHECK(cudaMemset(a, 0, sizeof *a));
    CHECK(cudaMemset(b, 0, sizeof *b));
    spin<<<1, 1, 0, blocking>>>(a, 200000);
    add<<<1, 1>>>(b, a);
    CHECK(cudaMemcpy(&sum, b, sizeof sum, cudaMemcpyDeviceToHost));
    std::printf("sum after the legacy stream: %u\n", sum);
    REQUIRE(sum == expected);

    CHECK(cudaStreamDestroy(blocking));
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
    for (cudaEvent_t event : {start, done, untimed, fresh}) {
        CHECK(cudaEventDestroy(event));
    }
    CHECK(cudaFree(a));
    CHECK(cudaFree(b));
    return 0;
}
