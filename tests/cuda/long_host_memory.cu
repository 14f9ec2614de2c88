// SPDX-License-Identifier: Apache-2.0 OR MIT
// Host memory that is longer than one request of the stack has room for is one range to the GPU all the same: whatever
// fills, copies or reads it goes from its first byte to its last.
#include "check.h"

#include <cstdlib>

constexpr size_t kRow = 1 << 16, kRows = 1300, kBytes = kRow * kRows, kWords = kBytes / 4;

__global__ void add(unsigned *words, size_t n, unsigned by) {
    for (size_t i = threadIdx.x + (size_t)blockIdx.x * blockDim.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        words[i] += by;
    }
}

__global__ void fetch(cudaTextureObject_t from, unsigned *to, size_t n) {
    for (size_t i = threadIdx.x + (size_t)blockIdx.x * blockDim.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        to[i] = tex1Dfetch<unsigned>(from, (int)i);
    }
}

// Of one word in a kilobyte, and all around the end of a request.
template <typename Wanted> static void check(const char *what, const unsigned *words, Wanted wanted) {
    CHECK(cudaDeviceSynchronize());
    const size_t middle = (64u << 20) / 4;
    size_t wrong = 0;
    for (size_t i = 0; i < kWords; i += (i + 512 > middle && i < middle + 512) || i + 512 > kWords ? 1 : 256) {
        wrong += words[i] != wanted(i);
    }
    std::printf("  %s: %s\n", what, wrong == 0 ? "right" : "wrong");
}

// `words` to the program, `gpu` to the GPU.
static void use(const char *kind, const unsigned *words, unsigned *gpu) {
    std::printf("%s\n", kind);
    const auto all = [](unsigned value) { return [value](size_t) { return value; }; };
    unsigned *device;
    CHECK(cudaMalloc(&device, kBytes));
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));

    CHECK(cudaMemset(gpu, 0x21, kBytes));
    check("set", words, all(0x21212121));
    CHECK(cudaMemsetAsync(gpu, 0x43, kBytes, stream));
    check("set in a stream", words, all(0x43434343));
    CHECK(cudaMemset2D(gpu, kRow, 0x65, kRow - 4, kRows));
    check("set rows", words, [](size_t i) { return (i + 1) % (kRow / 4) ? 0x65656565u : 0x43434343u; });
    add<<<64, 256>>>(gpu, kWords, 1);
    check("kernel", words, [](size_t i) { return (i + 1) % (kRow / 4) ? 0x65656566u : 0x43434344u; });

    CHECK(cudaMemset(device, 0x11, kBytes));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpyAsync(gpu, device, kBytes, cudaMemcpyDefault, stream));
    check("copy in a stream", words, all(0x11111111));
    CHECK(cudaMemset(device, 0x22, kBytes));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy2DAsync(gpu, kRow, device, kRow, kRow - 4, kRows, cudaMemcpyDefault, stream));
    check("rows in a stream", words, [](size_t i) { return (i + 1) % (kRow / 4) ? 0x22222222u : 0x11111111u; });
    CHECK(cudaMemcpy2D(device, kRow, gpu, kRow, kRow, kRows, cudaMemcpyDefault));
    CHECK(cudaMemset(gpu, 0, kBytes));
    CHECK(cudaMemcpy(gpu, device, kBytes, cudaMemcpyDefault));
    check("rows and back", words, [](size_t i) { return (i + 1) % (kRow / 4) ? 0x22222222u : 0x11111111u; });

    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaMemsetAsync(gpu, 0x77, kBytes, stream));
    add<<<64, 256, 0, stream>>>(gpu, kWords, 2);
    CHECK(cudaMemcpyAsync(device, gpu, kBytes, cudaMemcpyDefault, stream));
    CHECK(cudaMemsetAsync(gpu, 0, kBytes, stream));
    CHECK(cudaMemcpy2DAsync(gpu, kRow, device, kRow, kRow, kRows, cudaMemcpyDefault, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, stream));
    check("graph", words, all(0x77777779));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));

    cudaResourceDesc resource{};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = gpu;
    resource.res.linear.desc = cudaCreateChannelDesc<unsigned>();
    resource.res.linear.sizeInBytes = kBytes;
    cudaTextureDesc texture{};
    cudaTextureObject_t object;
    CHECK(cudaCreateTextureObject(&object, &resource, &texture, nullptr));
    fetch<<<64, 256>>>(object, device, kWords);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaDestroyTextureObject(object));
    CHECK(cudaMemset(gpu, 0, kBytes));
    CHECK(cudaMemcpy(gpu, device, kBytes, cudaMemcpyDefault));
    check("texture", words, all(0x77777779));

    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(device));
}

int main() {
    unsigned *words, *pointer;
    CHECK(cudaHostAlloc(&words, kBytes, cudaHostAllocMapped));
    use("pinned", words, words);
    CHECK(cudaFreeHost(words));

    CHECK(cudaMallocManaged(&words, kBytes));
    use("managed", words, words);
    CHECK(cudaFree(words));

    words = static_cast<unsigned *>(std::aligned_alloc(4096, kBytes));
    REQUIRE(words);
    CHECK(cudaHostRegister(words, kBytes, cudaHostRegisterMapped));
    CHECK(cudaHostGetDevicePointer(&pointer, words, 0));
    use("registered", words, pointer);
    CHECK(cudaHostUnregister(words));
    std::printf("unregistered: %d\n", (int)cudaHostGetDevicePointer(&pointer, words, 0));
    std::free(words);
    return 0;
}
