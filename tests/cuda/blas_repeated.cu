// SPDX-License-Identifier: Apache-2.0 OR MIT
// Calls of cuBLAS and cuBLASLt that come again with the same arguments, while all that they depend on changes in between: settings of
// the handle, contents and owners of the memory, streams, captures, threads.

#include "library.h"

#include <atomic>
#include <thread>

enum { N = 24, TIMES = 40, DEVICE = 1, TENSOR_OPS = 1 };
enum { COMPUTE_32F = 68, R_32F = 0, EPILOGUE = 7, BIAS_POINTER = 8, BIAS = 4 };
typedef std::vector<float> Matrix;

static const float ONE = 1, TWO = 2;
static const Matrix A = numbers(N * N, 1), B = numbers(N * N, 2);

static Matrix product(const Matrix &a, const Matrix &b, float factor) {
    Matrix c(N * N);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            for (int l = 0; l < N; l++) c[j * N + i] += factor * a[l * N + i] * b[j * N + l];
    return c;
}

// A handle with a stream, and C += alpha * A * B by both.
struct Products {
    Handle handle;
    cudaStream_t stream;
    float *a = on_device(A), *b = on_device(B), *c = on_device(Matrix(N * N));
    Products() {
        CHECK(call("cublasCreate_v2", &handle));
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        CHECK(call("cublasSetStream_v2", handle, stream));
    }
    ~Products() {
        CHECK(call("cublasDestroy_v2", handle));
        CHECK(cudaStreamDestroy(stream));
        for (float *memory : {a, b, c}) CHECK(cudaFree(memory));
    }
    void add(const float *alpha = &ONE) {
        CHECK(call("cublasSgemm_v2", handle, 0, 0, (int)N, (int)N, (int)N, alpha, (const float *)a, (int)N, (const float *)b, (int)N,
                   &ONE, c, (int)N));
    }
    void expect(const char *name, const Matrix &wanted) {
        CHECK(cudaStreamSynchronize(stream));
        compare(name, back(c, N * N), wanted, 0);
        CHECK(cudaMemset(c, 0, N * N * sizeof(float)));
        CHECK(cudaStreamSynchronize(cudaStreamLegacy));
    }
};

static void the_same() {
    Products products;
    for (int i = 0; i < TIMES; i++) products.add();
    products.expect("the same", product(A, B, TIMES));
    for (int i = 0; i < TIMES; i++) products.add(i % 3 ? &TWO : &ONE);
    products.expect("two factors", product(A, B, 14 + 2 * (TIMES - 14)));
}

static void contents_and_owners() {
    Products products;
    Matrix sum(N * N), other = numbers(N * N, 3);
    for (int i = 0; i < TIMES; i++) {
        const Matrix &now = i % 2 ? other : B;
        CHECK(cudaMemcpyAsync(products.b, now.data(), N * N * sizeof(float), cudaMemcpyHostToDevice, products.stream));
        products.add();
        const Matrix term = product(A, now, 1);
        for (int j = 0; j < N * N; j++) sum[j] += term[j];
        if (i % 8 == 7) {
            CHECK(cudaStreamSynchronize(products.stream));
            CHECK(cudaFree(products.b));
            products.b = on_device(now);
        }
    }
    products.expect("other contents and other memory", sum);
}

static void settings() {
    Products products;
    float *factor = on_device(Matrix{3});
    for (int i = 0; i < TIMES; i++) {
        const bool on_device = i % 4 > 1;
        CHECK(call("cublasSetPointerMode_v2", products.handle, on_device ? (int)DEVICE : 0));
        CHECK(call("cublasSetMathMode", products.handle, i % 2 ? (int)TENSOR_OPS : 0));
        if (on_device) {
            float *one = ::on_device(Matrix{1});
            CHECK(call("cublasSgemm_v2", products.handle, 0, 0, (int)N, (int)N, (int)N, (const float *)factor, (const float *)products.a,
                       (int)N, (const float *)products.b, (int)N, (const float *)one, products.c, (int)N));
            CHECK(cudaStreamSynchronize(products.stream));
            CHECK(cudaFree(one));
        } else {
            products.add();
        }
    }
    products.expect("pointer and math modes", product(A, B, TIMES / 2 + 3 * TIMES / 2));
    CHECK(call("cublasSetPointerMode_v2", products.handle, 0));
    const size_t bytes = 4 << 20;
    void *workspaces[2];
    for (void *&workspace : workspaces) CHECK(cudaMalloc(&workspace, bytes));
    for (int i = 0; i < TIMES; i++) {
        CHECK(call("cublasSetStream_v2", products.handle, products.stream));
        CHECK(call("cublasSetWorkspace_v2", products.handle, workspaces[i / 16 % 2], bytes));
        products.add();
    }
    products.expect("workspaces", product(A, B, TIMES));
    for (void *workspace : workspaces) CHECK(cudaFree(workspace));
    CHECK(cudaFree(factor));
}

__global__ void write(float *place, float value) { *place = value; }

// The product comes after the kernel in its stream, and before the next one.
static void streams() {
    Products products;
    cudaStream_t other;
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    float *ones = on_device(Matrix(N * N));
    std::swap(ones, products.b);
    Matrix sum(N * N);
    for (int i = 0; i < TIMES; i++) {
        cudaStream_t stream = i % 5 == 4 ? nullptr : i % 2 ? other : products.stream;
        CHECK(call("cublasSetStream_v2", products.handle, stream));
        write<<<1, 1, 0, stream>>>(products.b, (float)(i + 1));
        products.add();
        write<<<1, 1, 0, stream>>>(products.b, 100);
        CHECK(cudaStreamSynchronize(stream));
        for (int j = 0; j < N; j++) sum[j] += (i + 1) * A[j];
    }
    products.expect("three streams", sum);
    CHECK(cudaStreamSynchronize(other));
    CHECK(cudaStreamDestroy(other));
    CHECK(cudaFree(ones));
}

static void captured() {
    Products products;
    for (int i = 0; i < TIMES; i++) products.add();
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(products.stream, cudaStreamCaptureModeThreadLocal));
    products.add();
    products.add();
    CHECK(cudaStreamEndCapture(products.stream, &graph));
    size_t nodes = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 5; i++) {
        CHECK(cudaGraphLaunch(exec, products.stream));
        products.add();
    }
    products.expect(nodes > 1 ? "captured" : "captured NOTHING", product(A, B, TIMES + 15));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

static void handles_and_threads() {
    for (int i = 0; i < 4; i++) {
        Products products;
        for (int j = 0; j < TIMES; j++) products.add();
        if (i == 3) products.expect("new handles", product(A, B, TIMES));
    }
    std::vector<std::thread> threads;
    Products own[3];
    for (Products &products : own)
        threads.emplace_back([&products] {
            for (int i = 0; i < TIMES; i++) products.add();
        });
    for (std::thread &thread : threads) thread.join();
    for (Products &products : own) products.expect("a thread's", product(A, B, TIMES));
    // Two threads with one handle, one after the other.
    for (int i = 0; i < 2; i++) std::thread([&] { for (int j = 0; j < TIMES; j++) own[0].add(); }).join();
    own[0].expect("by turns", product(A, B, 2 * TIMES));
}

// The driver refuses to wait for a context in which a stream captures: a program that captures nothing must not notice.
static void beside_waits() {
    Products products;
    std::atomic<bool> over(false);
    std::thread waits([&] {
        while (!over) CHECK(cudaDeviceSynchronize());
    });
    Matrix sum(N * N);
    for (int depth = 1; depth <= N; depth++) {
        for (int i = 0; i < TIMES; i++)
            CHECK(call("cublasSgemm_v2", products.handle, 0, 0, (int)N, (int)N, depth, &ONE, (const float *)products.a, (int)N,
                       (const float *)products.b, (int)N, &ONE, products.c, (int)N));
        for (int i = 0; i < N * N; i++)
            for (int l = 0; l < depth; l++) sum[i] += TIMES * A[l * N + i % N] * B[i / N * N + l];
    }
    products.expect("beside waits for the device", sum);
    over = true;
    waits.join();
}

static void layouts_and_epilogues(void *blas, void *lt) {
    Products products;
    library = lt;
    Handle what, layout, own;
    CHECK(call("cublasLtCreate", &own));
    CHECK(call("cublasLtMatmulDescCreate", &what, (int)COMPUTE_32F, (int)R_32F));
    CHECK(call("cublasLtMatrixLayoutCreate", &layout, (int)R_32F, (size_t)N, (size_t)N, (long)N));
    const int epilogue = BIAS;
    CHECK(call("cublasLtMatmulDescSetAttribute", what, (int)EPILOGUE, (const void *)&epilogue, sizeof epilogue));
    const Matrix biases[2] = {numbers(N, 4), numbers(N, 5)};
    float *on[2] = {on_device(biases[0]), on_device(biases[1])};
    Matrix sum(N * N);
    const Matrix term = product(A, B, 2);
    for (int i = 0; i < TIMES; i++) {
        const int which = i / 4 % 2;
        CHECK(call("cublasLtMatmulDescSetAttribute", what, (int)BIAS_POINTER, (const void *)&on[which], sizeof on[which]));
        // A handle of cuBLAS is one of cuBLASLt, too.
        CHECK(call("cublasLtMatmul", i % 2 ? own : products.handle, what, (const void *)&TWO, (const void *)products.a, layout,
                   (const void *)products.b, layout, (const void *)&ONE, (const void *)products.c, layout, (void *)products.c, layout,
                   (const void *)nullptr, (void *)nullptr, (size_t)0, products.stream));
        for (int j = 0; j < N * N; j++) sum[j] += term[j] + biases[which][j % N];
    }
    products.expect("a bias", sum);
    CHECK(call("cublasLtMatrixLayoutDestroy", layout));
    CHECK(call("cublasLtMatmulDescDestroy", what));
    CHECK(call("cublasLtDestroy", own));
    for (float *memory : on) CHECK(cudaFree(memory));
    library = blas;
}

int main() {
    load({"libcublas.so.13", "libcublas.so.12"});
    void *blas = library;
    library = nullptr;
    load({"libcublasLt.so.13", "libcublasLt.so.12"});
    void *lt = library;
    library = blas;
    the_same();
    contents_and_owners();
    settings();
    streams();
    captured();
    handles_and_threads();
    beside_waits();
    layouts_and_epilogues(blas, lt);
    printf("done\n");
    return 0;
}
