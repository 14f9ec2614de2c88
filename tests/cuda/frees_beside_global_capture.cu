// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// One thread captures in global mode while another gives pinned memory back. CUDA may refuse that and end the capture, but the
// process goes on.

#include "check.h"

#include <sys/mman.h>

#include <cstring>
#include <thread>

__global__ void add(int *value) { atomicAdd(value, 1); }

static bool is_refused(cudaError_t error) { return error == cudaErrorStreamCaptureUnsupported; }

static bool is_ended(cudaError_t error) { return error == cudaErrorStreamCaptureInvalidated; }

int main() {
    const size_t bytes = 1 << 20;
    int *value;
    void *block;
    CHECK(cudaMalloc(&value, sizeof(int)));
    CHECK(cudaMemset(value, 0, sizeof(int)));
    CHECK(cudaMallocHost(&block, bytes));
    void *own = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(own != MAP_FAILED);
    CHECK(cudaHostRegister(own, bytes, cudaHostRegisterDefault));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    cudaError_t freed = cudaErrorUnknown, unregistered = cudaErrorUnknown;
    std::thread other([&] {
        freed = cudaFreeHost(block);
        unregistered = cudaHostUnregister(own);
    });
    other.join();
    REQUIRE(freed == cudaSuccess || is_refused(freed));
    REQUIRE(unregistered == cudaSuccess || is_refused(unregistered));
    add<<<1, 1, 0, stream>>>(value);
    cudaError_t launched = cudaGetLastError();
    REQUIRE(launched == cudaSuccess || is_ended(launched));
    cudaGraph_t graph = nullptr;
    cudaError_t ended = cudaStreamEndCapture(stream, &graph);
    REQUIRE(ended == cudaSuccess || is_ended(ended));
    cudaGetLastError();
    if (graph != nullptr) CHECK(cudaGraphDestroy(graph));
    if (is_refused(freed)) CHECK(cudaFreeHost(block));
    if (is_refused(unregistered)) CHECK(cudaHostUnregister(own));
    int sum = 1;
    CHECK(cudaMemcpy(&sum, value, sizeof(int), cudaMemcpyDeviceToHost));
    // The pages are the program's own.
    std::memset(own, 1, bytes);
    CHECK(cudaHostRegister(own, bytes, cudaHostRegisterDefault));
    CHECK(cudaHostUnregister(own));
    munmap(own, bytes);
    add<<<1, 1, 0, stream>>>(value);
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(&sum, value, sizeof(int), cudaMemcpyDeviceToHost));
    std::printf("%d addition beside a capture that is over\n", sum);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(value));
    return 0;
}
