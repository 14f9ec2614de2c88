// SPDX-License-Identifier: Apache-2.0 OR MIT
// Graphs with calls of cuBLAS: of a handle that has other settings later, beside a kernel, a fill and a copy of the program's own, with and
// without the graph that was captured, updated from another capture, and with a kernel that was replaced in the executable graph.

#include "library.h"

#include <unistd.h>

static const int N = 48, ROUNDS = 24;
static const float ONE = 1, TWO = 2, ZERO = 0;
static Handle handle;
static cudaStream_t stream, other;
static float *a, *b, *c, *d, *sum, *workspace;
static const auto ha = numbers(N *N, 1), hb = numbers(N *N, 2);

__global__ void add(float *to, const float *from, float times) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N * N) to[i] += times * from[i];
}

static void product(float *to, const float *left, const float *right, const float *alpha) {
    CHECK(call("cublasSgemm_v2", handle, 0, 0, N, N, N, alpha, (const float *)left, N, (const float *)right, N, &ZERO, to, N));
}

// c = alpha a b; d = c a; sum = d + times c. The second product is by another workspace.
static cudaGraph_t captured(const float *alpha, float times) {
    cudaGraph_t graph;
    CHECK(call("cublasSetStream_v2", handle, stream));
    CHECK(call("cublasSetWorkspace_v2", handle, (void *)workspace, (size_t)1 << 20));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaMemsetAsync(c, 0, N * N * sizeof(float), stream));
    product(c, a, b, alpha);
    CHECK(call("cublasSetMathMode", handle, 1));
    product(d, c, a, &ONE);
    CHECK(call("cublasSetMathMode", handle, 0));
    CHECK(cudaMemcpyAsync(sum, d, N * N * sizeof(float), cudaMemcpyDeviceToDevice, stream));
    add<<<(N * N + 127) / 128, 128, 0, stream>>>(sum, c, times);
    CHECK(cudaStreamEndCapture(stream, &graph));
    return graph;
}

static std::vector<float> wanted(float alpha, float times) {
    std::vector<float> hc(N * N), hs(N * N);
    const auto multiply = [](std::vector<float> &to, const std::vector<float> &left, const std::vector<float> &right, float alpha) {
        for (int j = 0; j < N; j++)
            for (int i = 0; i < N; i++) {
                float value = 0;
                for (int k = 0; k < N; k++) value += left[k * N + i] * right[j * N + k];
                to[j * N + i] = alpha * value;
            }
    };
    multiply(hc, ha, hb, alpha);
    multiply(hs, hc, ha, 1);
    for (int i = 0; i < N * N; i++) hs[i] += times * hc[i];
    return hs;
}

static void launch(const char *name, cudaGraphExec_t graph, const std::vector<float> &result) {
    CHECK(cudaMemsetAsync(sum, 0xff, N * N * sizeof(float), other));
    CHECK(cudaGraphLaunch(graph, other));
    CHECK(cudaStreamSynchronize(other));
    compare(name, back(sum, N * N), result, 1e-3);
}

int main() {
    load({"libcublas.so.13", "libcublas.so.12"});
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamCreate(&other));
    a = on_device(ha), b = on_device(hb), c = on_device(ha), d = on_device(ha), sum = on_device(ha);
    CHECK(cudaMalloc(&workspace, 4 << 20));
    CHECK(call("cublasCreate_v2", &handle));
    product(c, a, b, &ONE);

    cudaGraph_t kept = captured(&ONE, 3), shown = captured(&TWO, 5), update = captured(&ONE, 7);
    cudaGraphExec_t first, second, third;
    CHECK(cudaGraphInstantiate(&first, kept, 0));
    CHECK(cudaGraphDestroy(kept));
    CHECK(cudaGraphInstantiate(&second, shown, 0));
    CHECK(cudaGraphInstantiate(&third, shown, 0));
    cudaGraphExecUpdateResultInfo info;
    CHECK(cudaGraphExecUpdate(third, update, &info));
    CHECK(cudaGraphDestroy(shown));
    CHECK(cudaGraphDestroy(update));
    const auto of_first = wanted(1, 3), of_second = wanted(2, 5), of_third = wanted(1, 7);
    float *scalars = on_device(std::vector<float>{2, 0});
    for (int round = 0; round < ROUNDS; round++) {
        usleep(30000);
        // Other settings than those of the graphs.
        CHECK(call("cublasSetStream_v2", handle, other));
        CHECK(call("cublasSetWorkspace_v2", handle, (void *)((char *)workspace + (2 << 20)), (size_t)1 << 20));
        CHECK(call("cublasSetPointerMode_v2", handle, 1));
        CHECK(call("cublasSgemm_v2", handle, 0, 0, N, N, N, (const float *)scalars, (const float *)a, N, (const float *)b, N, (const float *)(scalars + 1), c, N));
        if (round % 2) CHECK(call("cublasSetPointerMode_v2", handle, 0));
        launch("without its graph", first, of_first);
        usleep(30000);
        launch("the second", second, of_second);
        launch("updated", third, of_third);
    }
    printf("done\n");
    return 0;
}
