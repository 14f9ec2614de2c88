// SPDX-License-Identifier: Apache-2.0 OR MIT
// __managed__ variables: initial values, changes of either side, by name and by address, in streams, and as the
// target of copies.
#include "busy.h"
#include "check.h"

__managed__ int counter = 5;
__managed__ float values[1000];

__global__ void step() {
    counter += 1;
    for (int i = 0; i < 1000; i++) {
        values[i] = values[i] * 2 + i;
    }
}

__global__ void add(int *target, int amount) { *target += amount; }

__global__ void take(unsigned long long nanoseconds) { stay_busy(nanoseconds); }

// A call that copies or fills may return before the GPU has done so, but the variable has its value.
static void at_once() {
    static const unsigned long long NANOSECONDS = 10000000;
    int *memory, value = 300;
    CHECK(cudaMalloc(&memory, sizeof *memory));
    CHECK(cudaMemcpy(memory, &value, sizeof value, cudaMemcpyHostToDevice));
    take<<<1, 1>>>(NANOSECONDS);
    CHECK(cudaMemcpy(&counter, memory, sizeof counter, cudaMemcpyDefault));
    std::printf("copied on the device: %d\n", counter);
    take<<<1, 1>>>(NANOSECONDS);
    CHECK(cudaMemset(&counter, 1, sizeof counter));
    std::printf("filled: %#x\n", counter);
    value = 500;
    take<<<1, 1>>>(NANOSECONDS);
    CHECK(cudaMemcpy2D(&counter, 4, &value, 4, 4, 1, cudaMemcpyDefault));
    std::printf("copied as a box: %d\n", counter);
    for (int i = 0; i < 200; i++) {
        CHECK(cudaMemcpyToSymbol(counter, &i, sizeof i));
        REQUIRE(counter == i);
    }
    CHECK(cudaFree(memory));
}

int main() {
    std::printf("initial: %d\n", counter);
    counter = 10;
    values[7] = 3;
    step<<<1, 1>>>();
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    std::printf("by name: %d, %g, %g\n", counter, values[7], values[9]);

    counter = 20;
    add<<<1, 1>>>(&counter, 100);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    std::printf("by address: %d\n", counter);

    int value = 77;
    CHECK(cudaMemcpyToSymbol(counter, &value, sizeof value));
    std::printf("copied to the symbol: %d\n", counter);
    counter = 88;
    CHECK(cudaMemcpyFromSymbol(&value, counter, sizeof value));
    std::printf("copied from the symbol: %d\n", value);
    void *address;
    CHECK(cudaGetSymbolAddress(&address, counter));
    REQUIRE(address == &counter);
    value = 99;
    CHECK(cudaMemcpy(&counter, &value, sizeof value, cudaMemcpyDefault));
    std::printf("copied to the address: %d\n", counter);

    cudaStream_t stream;
    cudaEvent_t event;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaEventCreate(&event));
    counter = 1;
    add<<<1, 1, 0, stream>>>(&counter, 100);
    CHECK(cudaStreamSynchronize(stream));
    std::printf("after a stream: %d\n", counter);
    add<<<1, 1, 0, stream>>>(&counter, 100);
    CHECK(cudaEventRecord(event, stream));
    CHECK(cudaEventSynchronize(event));
    std::printf("after an event: %d\n", counter);
    // The program's own value is newer than what the GPU wrote before.
    counter = 7;
    values[3] = 11;
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaEventQuery(event));
    std::printf("changed after the wait: %d, %g, %g\n", counter, values[3], values[7]);
    add<<<1, 1, 0, stream>>>(&counter, 100);
    CHECK(cudaStreamSynchronize(stream));
    std::printf("and added to: %d, %g\n", counter, values[3]);

    // A capture that goes with its stream hides no changes.
    cudaStream_t other;
    CHECK(cudaStreamCreate(&other));
    CHECK(cudaStreamBeginCapture(other, cudaStreamCaptureModeRelaxed));
    cudaStreamDestroy(other);
    cudaGetLastError();
    counter = 40;
    add<<<1, 1, 0, stream>>>(&counter, 2);
    CHECK(cudaStreamSynchronize(stream));
    std::printf("after a lost capture: %d\n", counter);

    CHECK(cudaMemset(&counter, 0, sizeof counter));
    CHECK(cudaDeviceSynchronize());
    std::printf("set: %d\n", counter);
    cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, &counter));
    std::printf("type: %d\n", (int)attributes.type);
    at_once();
    return 0;
}
