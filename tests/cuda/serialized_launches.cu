// SPDX-License-Identifier: Apache-2.0 OR MIT
// Kernels that may begin before the one in front of them has ended (programmatic stream serialization), launched again and again in
// two streams: each sees what the one before has written, and the errors of launches are those of the call.
#include "check.h"

enum { N = 4096, TIMES = 200 };

static __global__ void next(unsigned *values, unsigned step) {
    const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
#endif
    values[index] = values[index] * 3 + step;
}

static cudaError_t launch(unsigned blocks, unsigned threads, cudaStream_t stream, unsigned *values, unsigned step, bool serialize = true) {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = serialize;
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = threads;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, next, values, step);
}

static unsigned expected(unsigned times, bool thirds) {
    unsigned value = 1;
    for (unsigned step = 0; step < times; step++) value = value * 3 + (thirds && step % 3 == 0 ? 7 : step);
    return value;
}

int main() {
    unsigned *values[2];
    cudaStream_t streams[2];
    for (int i = 0; i < 2; i++) {
        CHECK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
        CHECK(cudaMalloc((void **)&values[i], N * sizeof(unsigned)));
        unsigned ones[N];
        for (unsigned &one : ones) one = 1;
        CHECK(cudaMemcpy(values[i], ones, sizeof ones, cudaMemcpyHostToDevice));
    }
    for (unsigned step = 0; step < TIMES; step++) {
        CHECK(launch(N / 128, 128, streams[0], values[0], step));
        // Launches without the attribute, and of another shape, in between.
        if (step % 3 == 0)
            next<<<N / 256, 256, 0, streams[1]>>>(values[1], 7);
        else
            CHECK(launch(N / 256, 256, streams[1], values[1], step, step % 3 == 1));
    }
    CHECK(cudaGetLastError());
    for (int i = 0; i < 2; i++) {
        unsigned got[N];
        CHECK(cudaMemcpyAsync(got, values[i], sizeof got, cudaMemcpyDeviceToHost, streams[i]));
        CHECK(cudaStreamSynchronize(streams[i]));
        for (unsigned value : got) REQUIRE(value == expected(TIMES, i == 1));
    }
    std::printf("values: right\n");

    // After launches that were accepted.
    std::printf("too many threads: %s\n", launch(1, 2048, streams[0], values[0], 0) ? "refused" : "accepted");
    std::printf("no blocks: %s\n", launch(0, 128, streams[0], values[0], 0) ? "refused" : "accepted");
    std::printf("then: %s\n", launch(N / 128, 128, streams[0], values[0], 0) ? "refused" : "accepted");
    CHECK(cudaDeviceSynchronize());

    cudaGraph_t graph;
    size_t nodes = 0;
    CHECK(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeThreadLocal));
    for (unsigned step = 0; step < 3; step++) CHECK(launch(N / 128, 128, streams[0], values[0], step));
    CHECK(cudaStreamEndCapture(streams[0], &graph));
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
    std::printf("captured: %zu\n", nodes);
    CHECK(cudaGraphDestroy(graph));
    return 0;
}
