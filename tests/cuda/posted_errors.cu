// SPDX-License-Identifier: Apache-2.0 OR MIT
// Calls for which nobody waits fail: a process may have a limited number of events. A later call of the program must return each
// error, whatever the libraries do in between for themselves. For `integration`: natively there is no such limit.
#include "check.h"

#include <thread>
#include <vector>

static const int ALL_EVENTS = 1 << 18;
static const size_t BYTES = 1 << 20;

static __global__ void store(int *place, int value) { *place = value; }

// Returns 0; the event cannot be made.
static void fail() {
    cudaEvent_t event;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDefault));
}

static int synchronize() { return (int)cudaDeviceSynchronize(); }

// Makes events until there can be no more.
static void fill() {
    for (int made = 0; made < ALL_EVENTS - 16; made++) fail();
    CHECK(cudaDeviceSynchronize());
    for (int more = 0; more < 64; more++) {
        fail();
        if (const int error = synchronize()) {
            std::printf("full: %d\n", error);
            return;
        }
    }
    std::exit(2);
}

int main() {
    int *device;
    void *short_lived;
    std::vector<char> pageable(BYTES, 3);
    CHECK(cudaMalloc((void **)&device, BYTES));
    CHECK(cudaMallocAsync(&short_lived, 4096, 0));
    fill();

    fail();
    int first = synchronize();
    std::printf("at once: %d, then %d\n", first, synchronize());

    // The library frees the memory before it waits.
    fail();
    CHECK(cudaFreeAsync(short_lived, 0));
    first = synchronize();
    std::printf("with a deferred free: %d, then %d\n", first, synchronize());

    // The library loads the code.
    fail();
    store<<<1, 1>>>(device, 5);
    first = (int)cudaGetLastError();
    first = first ? first : synchronize();
    std::printf("with the first launch: %d, then %d\n", first, synchronize());
    int value = 0;
    store<<<1, 1>>>(device, 7);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&value, device, sizeof value, cudaMemcpyDeviceToHost));
    std::printf("the next launch: %d\n", value);

    // The library pins memory of its own.
    fail();
    first = (int)cudaMemcpy(device, pageable.data(), BYTES, cudaMemcpyHostToDevice);
    first = first ? first : synchronize();
    std::printf("with a long copy: %d, then %d\n", first, synchronize());

    std::thread(fail).join();
    first = synchronize();
    std::printf("of a thread that has ended: %d, then %d\n", first, synchronize());

    // Another thread finds out that there is no work left.
    fail();
    std::thread([] { std::printf("another thread: %d\n", synchronize()); }).join();
    first = synchronize();
    std::printf("this thread: %d, then %d\n", first, synchronize());
    return 0;
}
