// SPDX-License-Identifier: Apache-2.0 OR MIT
// cuBLAS by its public API: results in host and device memory, scalars that change after the call, streams, graphs, threads,
// wrong arguments.

#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <fcntl.h>
#include <unistd.h>

#include <thread>

#include "library.h"

template <class F> static F *function(const char *name) {
    void *address = dlsym(library, name);
    if (!address) {
        printf("no %s\n", name);
        exit(1);
    }
    return (F *)address;
}

static int (*create)(Handle *), (*destroy)(Handle), (*set_stream)(Handle, cudaStream_t), (*get_stream)(Handle, cudaStream_t *);
static int (*set_mode)(Handle, int), (*get_mode)(Handle, int *), (*get_version)(Handle, int *);
static int (*set_math)(Handle, int), (*get_math)(Handle, int *);
static int (*set_workspace)(Handle, void *, size_t);
static int (*sgemm)(Handle, int, int, int, int, int, const float *, const float *, int, const float *, int, const float *, float *, int);
static int (*dgemm)(Handle, int, int, int, int, int, const double *, const double *, int, const double *, int, const double *, double *, int);
static int (*sgemm_batched)(Handle, int, int, int, int, int, const float *, const float *const *, int, const float *const *, int, const float *, float *const *, int, int);
static int (*gemm_ex)(Handle, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int, const void *, void *, int, int, int, int);
static int (*sdot)(Handle, int, const float *, int, const float *, int, float *);
static int (*snrm2)(Handle, int, const float *, int, float *);
static int (*saxpy)(Handle, int, const float *, const float *, int, float *, int);
static const char *(*status_name)(int);

static void find() {
    load({"libcublas.so.13", "libcublas.so.12"});
    create = function<int(Handle *)>("cublasCreate_v2");
    destroy = function<int(Handle)>("cublasDestroy_v2");
    set_stream = function<int(Handle, cudaStream_t)>("cublasSetStream_v2");
    get_stream = function<int(Handle, cudaStream_t *)>("cublasGetStream_v2");
    set_mode = function<int(Handle, int)>("cublasSetPointerMode_v2");
    get_mode = function<int(Handle, int *)>("cublasGetPointerMode_v2");
    get_version = function<int(Handle, int *)>("cublasGetVersion_v2");
    set_math = function<int(Handle, int)>("cublasSetMathMode");
    get_math = function<int(Handle, int *)>("cublasGetMathMode");
    set_workspace = function<int(Handle, void *, size_t)>("cublasSetWorkspace_v2");
    sgemm = (decltype(sgemm))function<void>("cublasSgemm_v2");
    dgemm = (decltype(dgemm))function<void>("cublasDgemm_v2");
    sgemm_batched = (decltype(sgemm_batched))function<void>("cublasSgemmBatched");
    gemm_ex = (decltype(gemm_ex))function<void>("cublasGemmEx");
    sdot = (decltype(sdot))function<void>("cublasSdot_v2");
    snrm2 = (decltype(snrm2))function<void>("cublasSnrm2_v2");
    saxpy = (decltype(saxpy))function<void>("cublasSaxpy_v2");
    status_name = (decltype(status_name))function<void>("cublasGetStatusName");
}

static double checksum(const std::vector<float> &values) {
    double sum = 0;
    for (size_t i = 0; i < values.size(); i++) sum += values[i] * (double)(i % 17 + 1);
    return sum;
}

__global__ void fill(float *memory, int count, float value) {
    for (int i = threadIdx.x; i < count; i += blockDim.x) memory[i] = value;
}

static const int M = 33, N = 21, K = 45;

static double product(Handle handle, cudaStream_t stream, int transa, int transb) {
    const auto a = numbers(M * K, 1), b = numbers(K * N, 2), c = numbers(M * N, 3);
    float *da = on_device(a), *db = on_device(b), *dc = on_device(c);
    volatile float alpha = 2, beta = -1;
    CHECK(sgemm(handle, transa, transb, M, N, K, (float *)&alpha, da, transa ? K : M, db, transb ? N : K, (float *)&beta, dc, M));
    // The call has read them.
    alpha = beta = 1000;
    CHECK(cudaStreamSynchronize(stream));
    const double sum = checksum(back(dc, M * N));
    CHECK(cudaFree(da));
    CHECK(cudaFree(db));
    CHECK(cudaFree(dc));
    return sum;
}

static void graphs(Handle handle, cudaStream_t stream) {
    float *a = on_device(numbers(M * K, 4)), *b = on_device(numbers(K * N, 5)), *c = on_device(std::vector<float>(M * N, 1));
    const float alpha = 1, beta = 1;
    // What a library loads or allocates at its first call does not belong into a graph.
    CHECK(sgemm(handle, 0, 0, M, N, K, &alpha, a, M, b, K, &beta, c, M));
    CHECK(cudaStreamSynchronize(stream));
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    fill<<<1, 64, 0, stream>>>(c, M * N, 0.5f);
    CHECK(sgemm(handle, 0, 0, M, N, K, &alpha, a, M, b, K, &beta, c, M));
    CHECK(sgemm(handle, 0, 0, M, N, K, &alpha, a, M, b, K, &beta, c, M));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < 3; round++) {
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        printf("graph: %.1f\n", checksum(back(c, M * N)));
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

static void pointer_modes(Handle handle, cudaStream_t stream) {
    const int n = 1000;
    float *x = on_device(numbers(n, 6)), *y = on_device(numbers(n, 7)), result = -1;
    CHECK(sdot(handle, n, x, 1, y, 1, &result));
    printf("dot: %.1f\n", result);
    CHECK(sdot(handle, n / 2, x, 2, y, -2, &result));
    printf("dot of every second, backwards: %.1f\n", result);
    CHECK(snrm2(handle, n, x, 1, &result));
    printf("norm: %.3f\n", result);

    float *scalars = on_device(std::vector<float>{3, 0});
    int mode = -1;
    CHECK(set_mode(handle, 1));
    CHECK(get_mode(handle, &mode));
    CHECK(saxpy(handle, n, scalars, x, 1, y, 1));
    CHECK(sdot(handle, n, y, 1, y, 1, scalars + 1));
    CHECK(cudaStreamSynchronize(stream));
    printf("mode %d: %.1f\n", mode, back(scalars, 2)[1]);
    CHECK(set_mode(handle, 0));
    CHECK(sdot(handle, n, y, 1, y, 1, &result));
    printf("mode 0: %.1f\n", result);
}

static void batches(Handle handle, cudaStream_t stream) {
    const int count = 5, size = 8;
    std::vector<float *> a, b, c;
    for (int i = 0; i < count; i++) {
        a.push_back(on_device(numbers(size * size, 10 + i)));
        b.push_back(on_device(numbers(size * size, 20 + i)));
        c.push_back(on_device(std::vector<float>(size * size, 0)));
    }
    float **da = on_device(a), **db = on_device(b), **dc = on_device(c);
    const float alpha = 1, beta = 0;
    CHECK(sgemm_batched(handle, 0, 1, size, size, size, &alpha, da, size, db, size, &beta, dc, size, count));
    CHECK(cudaStreamSynchronize(stream));
    double sum = 0;
    for (int i = 0; i < count; i++) sum += checksum(back(c[i], size * size)) * (i + 1);
    printf("batch: %.1f\n", sum);
}

static void halves(Handle handle, cudaStream_t stream) {
    const int size = 16;
    const auto a = numbers(size * size, 30), b = numbers(size * size, 31);
    std::vector<__half> ha, hb;
    for (int i = 0; i < size * size; i++) {
        ha.push_back(__float2half(a[i]));
        hb.push_back(__float2half(b[i]));
    }
    __half *da = on_device(ha), *db = on_device(hb);
    float *dc = on_device(std::vector<float>(size * size, 0));
    const float alpha = 1, beta = 0;
    // CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT
    CHECK(gemm_ex(handle, 1, 0, size, size, size, &alpha, da, 2, size, db, 2, size, &beta, dc, 0, size, 68, -1));
    CHECK(cudaStreamSynchronize(stream));
    printf("half: %.1f\n", checksum(back(dc, size * size)));
}

// NVIDIA's cuBLAS prints a line on stdout for some of them.
static void wrong_arguments(Handle handle) {
    float alpha = 1, *memory = on_device(std::vector<float>(64, 1));
    fflush(stdout);
    const int out = dup(1), null = open("/dev/null", O_WRONLY);
    dup2(null, 1);
    const int no_handle = sgemm(nullptr, 0, 0, 4, 4, 4, &alpha, memory, 4, memory, 4, &alpha, memory, 4);
    const int negative = sgemm(handle, 0, 0, -4, 4, 4, &alpha, memory, 4, memory, 4, &alpha, memory, 4);
    const int leading = sgemm(handle, 0, 0, 4, 4, 4, &alpha, memory, 2, memory, 4, &alpha, memory, 4);
    const int operation = sgemm(handle, 7, 0, 4, 4, 4, &alpha, memory, 4, memory, 4, &alpha, memory, 4);
    fflush(stdout);
    dup2(out, 1);
    close(null);
    close(out);
    printf("no handle: %s\n", status_name(no_handle));
    printf("negative size: %s\n", status_name(negative));
    printf("short leading dimension: %s\n", status_name(leading));
    printf("no such operation: %s\n", status_name(operation));
}

static void threads() {
    std::vector<std::thread> all;
    std::vector<double> sums(4);
    for (int i = 0; i < 4; i++)
        all.emplace_back([i, &sums] {
            Handle handle;
            cudaStream_t stream;
            CHECK(create(&handle));
            CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
            CHECK(set_stream(handle, stream));
            for (int round = 0; round < 20; round++) sums[i] += product(handle, stream, 0, 0);
            CHECK(destroy(handle));
            CHECK(cudaStreamDestroy(stream));
        });
    for (auto &thread : all) thread.join();
    printf("threads: %s\n", sums[0] == sums[1] && sums[0] == sums[2] && sums[0] == sums[3] ? "equal" : "different");
}

int main() {
    find();
    Handle handle;
    CHECK(create(&handle));
    int version = 0, math = -1;
    CHECK(get_version(handle, &version));
    printf("version: %s\n", version >= 120000 ? "12 or newer" : "old");
    cudaStream_t stream, found = (cudaStream_t)1;
    CHECK(get_stream(handle, &found));
    printf("stream at first: %s\n", found == nullptr ? "the default one" : "another");
    printf("default stream: %.1f\n", product(handle, nullptr, 0, 0));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(set_stream(handle, stream));
    CHECK(get_stream(handle, &found));
    printf("stream: %s\n", found == stream ? "as set" : "another");
    void *workspace;
    CHECK(cudaMalloc(&workspace, 32 << 20));
    CHECK(set_workspace(handle, workspace, 32 << 20));
    CHECK(set_math(handle, 1));
    CHECK(get_math(handle, &math));
    printf("math mode: %d\n", math);
    CHECK(set_math(handle, 0));
    for (int transa = 0; transa < 2; transa++)
        for (int transb = 0; transb < 2; transb++)
            printf("product %d %d: %.1f\n", transa, transb, product(handle, stream, transa, transb));
    pointer_modes(handle, stream);
    batches(handle, stream);
    halves(handle, stream);
    graphs(handle, stream);
    wrong_arguments(handle);
    threads();
    CHECK(destroy(handle));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaDeviceSynchronize());
    printf("done\n");
    return 0;
}
