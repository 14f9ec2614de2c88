// SPDX-License-Identifier: Apache-2.0 OR MIT
// Long managed allocations, which the program and kernels use in turn, in every way that moves them.
#include <fcntl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "check.h"

static const size_t MIB = 1 << 20;

__global__ void add(unsigned *values, size_t count, unsigned by) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) {
        values[i] += by;
    }
}

// Adds 1 to each element that a list of positions names.
__global__ void scatter(unsigned *values, const unsigned *positions, size_t count) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) {
        atomicAdd(&values[positions[i]], 1);
    }
}

static unsigned long long sum(const unsigned *values, size_t count, size_t step = 1) {
    unsigned long long total = 0;
    for (size_t i = 0; i < count; i += step) {
        total += values[i];
    }
    return total;
}

static unsigned *numbers(size_t count) {
    unsigned *values;
    CHECK(cudaMallocManaged(&values, count * sizeof *values));
    for (size_t i = 0; i < count; i++) {
        values[i] = (unsigned)i;
    }
    return values;
}

static void launch_add(unsigned *values, size_t count, unsigned by, cudaStream_t stream = 0) {
    add<<<64, 128, 0, stream>>>(values, count, by);
    CHECK(cudaGetLastError());
}

static void in_turn() {
    const size_t count = 3 * MIB;
    unsigned *values = numbers(count);
    for (unsigned round = 0; round < 3; round++) {
        launch_add(values, count, 1);
        CHECK(cudaDeviceSynchronize());
        values[round * MIB + 17] += 1000;
        std::printf("round %u: sum %llu\n", round, sum(values, count));
    }
    // Few elements, from back to front.
    launch_add(values, count, 5);
    CHECK(cudaDeviceSynchronize());
    unsigned long long total = 0;
    for (size_t i = count; i >= 100000; i -= 100000) {
        total += values[i - 1];
    }
    std::printf("from back to front: %llu\n", total);
    // Two launches and no touch between them; memory that the program never touched.
    unsigned *fresh;
    CHECK(cudaMallocManaged(&fresh, count * sizeof *fresh));
    CHECK(cudaMemset(fresh, 0, count * sizeof *fresh));
    launch_add(fresh, count, 2);
    launch_add(fresh, count, 3);
    CHECK(cudaDeviceSynchronize());
    std::printf("not touched before: %llu\n", sum(fresh, count));
    CHECK(cudaFree(fresh));
    CHECK(cudaFree(values));
}

static void copies() {
    const size_t count = MIB, bytes = count * sizeof(unsigned);
    unsigned *values = numbers(count), *device;
    std::vector<unsigned> plain(count, 7);
    CHECK(cudaMalloc(&device, bytes));
    CHECK(cudaMemcpy(device, values, bytes, cudaMemcpyHostToDevice));
    launch_add(device, count, 1);
    CHECK(cudaMemcpy(values, device, bytes, cudaMemcpyDeviceToHost));
    std::printf("to the device and back: %llu\n", sum(values, count));
    CHECK(cudaMemcpy(values + count / 4, plain.data(), bytes / 2, cudaMemcpyDefault));
    values[0] = 123;
    CHECK(cudaMemcpy(plain.data(), values, bytes, cudaMemcpyDefault));
    std::printf("part copied: %llu %u\n", sum(plain.data(), count), plain[0]);
    CHECK(cudaMemcpy2D(values, 4096, device, 8192, 4096, 64, cudaMemcpyDefault));
    std::printf("rows: %llu\n", sum(values, count));
    CHECK(cudaMemsetAsync(values + 1000, 1, 4000));
    CHECK(cudaStreamSynchronize(0));
    std::printf("filled: %llu\n", sum(values, count));
    CHECK(cudaFree(device));
    CHECK(cudaFree(values));
}

// The kernel touches the memory for the program: read(2) and write(2).
static void files() {
    const size_t count = MIB;
    unsigned *values = numbers(count);
    launch_add(values, count, 1);
    CHECK(cudaDeviceSynchronize());
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const size_t part = 40000;
    REQUIRE(write(ends[1], values + 300000, part) == (ssize_t)part);
    launch_add(values, count, 1);
    CHECK(cudaDeviceSynchronize());
    REQUIRE(read(ends[0], values + 700000, part) == (ssize_t)part);
    REQUIRE(values[700000] == 300001 && values[700000 + part / 4 - 1] == 300000 + part / 4);
    REQUIRE(values[700000 + part / 4] == 700000 + part / 4 + 2);
    launch_add(values, count, 1);
    CHECK(cudaDeviceSynchronize());
    std::printf("written and read: %llu\n", sum(values, count));
    close(ends[0]);
    close(ends[1]);
    CHECK(cudaFree(values));
}

static void places() {
    const size_t count = MIB, bytes = count * sizeof(unsigned);
    unsigned *values = numbers(count);
    cudaMemLocation device{}, host{};
    device.type = cudaMemLocationTypeDevice;
    host.type = cudaMemLocationTypeHost;
    CHECK(cudaMemPrefetchAsync(values, bytes, device, 0, 0));
    launch_add(values, count, 1);
    CHECK(cudaMemPrefetchAsync(values, bytes / 2, host, 0, 0));
    CHECK(cudaDeviceSynchronize());
    std::printf("fetched in advance: %llu\n", sum(values, count));
    CHECK(cudaMemAdvise(values, bytes, cudaMemAdviseSetReadMostly, device));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamAttachMemAsync(stream, values, 0, cudaMemAttachSingle));
    launch_add(values, count, 1, stream);
    CHECK(cudaStreamSynchronize(stream));
    std::printf("attached: %llu\n", sum(values, count, 1000));
    cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, values + 5));
    REQUIRE(attributes.type == cudaMemoryTypeManaged);
    REQUIRE(attributes.devicePointer == values + 5 && attributes.hostPointer == values + 5);
    cudaIpcMemHandle_t handle;
    REQUIRE(cudaIpcGetMemHandle(&handle, values) != cudaSuccess);
    REQUIRE(cudaHostRegister(values, bytes, 0) != cudaSuccess);
    cudaGetLastError();
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(values));
}

static void host_function(void *data) {
    unsigned *values = (unsigned *)data;
    values[10] += 1;
    values[500000] += values[400000];
}

static void in_order() {
    const size_t count = MIB;
    unsigned *values = numbers(count);
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    launch_add(values, count, 1, stream);
    CHECK(cudaLaunchHostFunc(stream, host_function, values));
    CHECK(cudaStreamSynchronize(stream));
    launch_add(values, count, 1, stream);
    CHECK(cudaStreamSynchronize(stream));
    std::printf("host function: %u %u\n", values[10], values[500000]);

    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    launch_add(values, count, 3, stream);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < 2; round++) {
        values[1] += 100;
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
    }
    std::printf("graph: %u %llu\n", values[1], sum(values, count));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(values));
}

static void threads() {
    const size_t count = MIB;
    std::vector<std::thread> all;
    std::vector<unsigned long long> sums(4);
    for (unsigned number = 0; number < 4; number++) {
        all.emplace_back([number, &sums] {
            unsigned *values = numbers(count);
            cudaStream_t stream;
            CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
            for (unsigned round = 0; round < 5; round++) {
                launch_add(values, count, number + 1, stream);
                CHECK(cudaStreamSynchronize(stream));
                for (size_t i = round; i < count; i += 50000) {
                    values[i]++;
                }
            }
            sums[number] = sum(values, count);
            CHECK(cudaStreamDestroy(stream));
            CHECK(cudaFree(values));
        });
    }
    for (auto &thread : all) {
        thread.join();
    }
    for (auto total : sums) {
        std::printf("thread: %llu\n", total);
    }
}

static void pointers() {
    const size_t count = MIB;
    unsigned *values, *positions;
    CHECK(cudaMallocManaged(&values, count * sizeof *values));
    CHECK(cudaMallocManaged(&positions, count * sizeof *positions));
    for (size_t i = 0; i < count; i++) {
        values[i] = 0;
        positions[i] = (unsigned)((i * 2654435761u) % 1000);
    }
    scatter<<<64, 128>>>(values, positions, count);
    CHECK(cudaDeviceSynchronize());
    std::printf("scattered: %llu, %u\n", sum(values, count), values[7]);
    CHECK(cudaFree(positions));
    // An allocation has an address that another one had.
    unsigned *again = numbers(count);
    launch_add(again, count, 1);
    CHECK(cudaDeviceSynchronize());
    std::printf("after a free: %llu\n", sum(again, count));
    // A child has its own life.
    pid_t child = fork();
    if (child == 0) {
        _exit(5);
    }
    int status;
    REQUIRE(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 5);
    launch_add(again, count, 1);
    CHECK(cudaDeviceSynchronize());
    std::printf("after a fork: %llu\n", sum(again, count));
    CHECK(cudaFree(again));
    CHECK(cudaFree(values));
}

int main() {
    in_turn();
    copies();
    files();
    places();
    in_order();
    threads();
    pointers();
    return 0;
}
