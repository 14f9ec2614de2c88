// SPDX-License-Identifier: Apache-2.0 OR MIT
// cuBLASLt by its public API: layouts, batches, orders, scalars in host and device memory, and epilogues.

#include "library.h"

#include <cstring>

// cublasLt.h
enum { COMPUTE_32F = 68, COMPUTE_64F_EMULATED_FIXEDPOINT = 79, R_32F = 0, R_64F = 1, NOT_SUPPORTED = 15 };
enum { POINTER_MODE = 2, TRANSA = 3, TRANSB = 4, EPILOGUE = 7, BIAS_POINTER = 8, AUX_POINTER = 11, AUX_LD = 12 };
enum { EMULATION_DESCRIPTOR = 38, STRATEGY = 0, MAX_MANTISSA_BIT_COUNT = 3, MANTISSA_BIT_COUNT_POINTER = 5 };
enum { MAX_WORKSPACE_BYTES = 1 };
enum { ORDER = 1, BATCH_COUNT = 5, BATCH_STRIDE = 6 };
enum { RELU = 2, BIAS = 4, GELU = 32, DGELU = 192, AUX = 128 };

static const int M = 16, N = 12, K = 20;
static Handle handle;
static cudaStream_t stream;

static Handle layout(int rows, int columns, int leading, int order = 0, int batch = 1, long stride = 0) {
    Handle made;
    CHECK(call("cublasLtMatrixLayoutCreate", &made, (int)R_32F, (size_t)rows, (size_t)columns, (long)leading));
    CHECK(call("cublasLtMatrixLayoutSetAttribute", made, (int)ORDER, (const void *)&order, sizeof order));
    CHECK(call("cublasLtMatrixLayoutSetAttribute", made, (int)BATCH_COUNT, (const void *)&batch, sizeof batch));
    CHECK(call("cublasLtMatrixLayoutSetAttribute", made, (int)BATCH_STRIDE, (const void *)&stride, sizeof stride));
    return made;
}

template <class T> static void set(Handle description, int attribute, T value) {
    CHECK(call("cublasLtMatmulDescSetAttribute", description, attribute, (const void *)&value, sizeof value));
}

static Handle description() {
    Handle made;
    CHECK(call("cublasLtMatmulDescCreate", &made, (int)COMPUTE_32F, (int)R_32F));
    return made;
}

struct Product {
    Handle what = description(), a = layout(M, K, M), b = layout(K, N, K), c = layout(M, N, M);
    float alpha = 1, beta = 0;
    const void *alpha_place = &alpha, *beta_place = &beta;
    ~Product() {
        CHECK(call("cublasLtMatmulDescDestroy", what));
        for (Handle one : {a, b, c}) CHECK(call("cublasLtMatrixLayoutDestroy", one));
    }
    int run(const float *da, const float *db, float *dc) {
        Handle preference;
        CHECK(call("cublasLtMatmulPreferenceCreate", &preference));
        struct {
            char algorithm[64];
            size_t workspace;
            int state;
            float waves;
            int reserved[4];
        } found[2];
        int count = -1;
        int status = call("cublasLtMatmulAlgoGetHeuristic", handle, what, a, b, c, c, preference, 2, (void *)found, &count);
        CHECK(call("cublasLtMatmulPreferenceDestroy", preference));
        if (status != 0 || count < 1) return status != 0 ? status : 15;
        status = call("cublasLtMatmul", handle, what, alpha_place, (const void *)da, a, (const void *)db, b, beta_place, (const void *)dc, c,
                      (void *)dc, c, (const void *)found[0].algorithm, (void *)nullptr, (size_t)0, stream);
        CHECK(cudaStreamSynchronize(stream));
        return status;
    }
};

static std::vector<float> product(const std::vector<float> &a, const std::vector<float> &b, int offset_a = 0, int offset_b = 0) {
    std::vector<float> c(M * N);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++)
            for (int l = 0; l < K; l++) c[j * M + i] += a[offset_a + l * M + i] * b[offset_b + j * K + l];
    return c;
}

static void plain() {
    const auto a = numbers(M * K, 1), b = numbers(K * N, 2), c = numbers(M * N, 3);
    float *da = on_device(a), *db = on_device(b), *dc = on_device(c);
    auto wanted = product(a, b);
    {
        Product plain;
        plain.alpha = 2, plain.beta = -1;
        CHECK(plain.run(da, db, dc));
        for (int i = 0; i < M * N; i++) wanted[i] = 2 * wanted[i] - c[i];
        compare("alpha A B + beta C", back(dc, M * N), wanted, 1e-6);
    }
    {
        Product device;
        float *scalars = on_device(std::vector<float>{0.5, 0});
        set(device.what, POINTER_MODE, 1);
        device.alpha_place = scalars, device.beta_place = scalars + 1;
        CHECK(device.run(da, db, dc));
        wanted = product(a, b);
        for (auto &value : wanted) value *= 0.5;
        compare("scalars in device memory", back(dc, M * N), wanted, 1e-6);
    }
    {
        // Lines of A become columns, and the result is stored by rows.
        std::vector<float> turned(M * K), rows(M * N);
        wanted = product(a, b);
        for (int i = 0; i < M; i++)
            for (int l = 0; l < K; l++) turned[i * K + l] = a[l * M + i];
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) rows[i * N + j] = wanted[j * M + i];
        Product other;
        for (Handle one : {other.a, other.b, other.c}) CHECK(call("cublasLtMatrixLayoutDestroy", one));
        other.a = layout(K, M, K), other.b = layout(K, N, K), other.c = layout(M, N, M);
        set(other.what, TRANSA, 1);
        CHECK(other.run(on_device(turned), db, dc));
        compare("transposed", back(dc, M * N), wanted, 1e-6);
        for (Handle one : {other.a, other.b, other.c}) CHECK(call("cublasLtMatrixLayoutDestroy", one));
        std::vector<float> b_rows(K * N);
        for (int l = 0; l < K; l++)
            for (int j = 0; j < N; j++) b_rows[l * N + j] = b[j * K + l];
        set(other.what, TRANSA, 0);
        other.a = layout(M, K, K, 1), other.b = layout(K, N, N, 1), other.c = layout(M, N, N, 1);
        CHECK(other.run(on_device(turned), on_device(b_rows), dc));
        compare("by rows", back(dc, M * N), rows, 1e-6);
    }
}

static void batches() {
    const int count = 3;
    const auto a = numbers(M * K * count, 4), b = numbers(K * N * count, 5);
    float *dc = on_device(std::vector<float>(M * N * count));
    Product batch;
    for (Handle one : {batch.a, batch.b, batch.c}) CHECK(call("cublasLtMatrixLayoutDestroy", one));
    batch.a = layout(M, K, M, 0, count, M * K), batch.b = layout(K, N, K, 0, count, K * N), batch.c = layout(M, N, M, 0, count, M * N);
    CHECK(batch.run(on_device(a), on_device(b), dc));
    std::vector<float> wanted;
    for (int i = 0; i < count; i++) {
        const auto one = product(a, b, i * M * K, i * K * N);
        wanted.insert(wanted.end(), one.begin(), one.end());
    }
    compare("batch", back(dc, M * N * count), wanted, 1e-6);
}

static double gelu(double x) { return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979) * (x + 0.044715 * x * x * x))); }

static void epilogues() {
    auto a = numbers(M * K, 6), b = numbers(K * N, 7), bias = numbers(M, 8);
    for (auto &value : a) value /= 16;
    float *da = on_device(a), *db = on_device(b), *dc = on_device(std::vector<float>(M * N)), *dbias = on_device(bias);
    const auto plain = product(a, b);
    auto wanted = plain;
    {
        Product relu;
        set(relu.what, EPILOGUE, RELU | BIAS);
        set(relu.what, BIAS_POINTER, dbias);
        CHECK(relu.run(da, db, dc));
        for (int i = 0; i < M * N; i++) wanted[i] = std::max(0.f, plain[i] + bias[i % M]);
        compare("relu(A B + bias)", back(dc, M * N), wanted, 1e-5);
    }
    float *inputs = on_device(std::vector<float>(M * N));
    {
        Product forward;
        set(forward.what, EPILOGUE, GELU | AUX | BIAS);
        set(forward.what, BIAS_POINTER, dbias);
        set(forward.what, AUX_POINTER, inputs);
        set(forward.what, AUX_LD, (long)M);
        CHECK(forward.run(da, db, dc));
        for (int i = 0; i < M * N; i++) wanted[i] = gelu(plain[i] + bias[i % M]);
        compare("gelu(A B + bias)", back(dc, M * N), wanted, 1e-3);
        for (int i = 0; i < M * N; i++) wanted[i] = plain[i] + bias[i % M];
        compare("its inputs", back(inputs, M * N), wanted, 1e-5);
    }
    {
        Product backward;
        set(backward.what, EPILOGUE, DGELU);
        set(backward.what, AUX_POINTER, inputs);
        set(backward.what, AUX_LD, (long)M);
        CHECK(backward.run(da, db, dc));
        for (int i = 0; i < M * N; i++) {
            const double x = plain[i] + bias[i % M], step = 1e-5;
            wanted[i] = plain[i] * (gelu(x + step) - gelu(x - step)) / (2 * step);
        }
        compare("gradient of gelu", back(dc, M * N), wanted, 1e-3);
    }
}

// Doubles by sums of integers, which CUDA 12 does not have, and maybe not the GPU. The library tells how many bits it has used.
static bool is_emulator() {
    cudaDeviceProp device;
    CHECK(cudaGetDeviceProperties(&device, 0));
    return !memcmp(device.uuid.bytes, "CUDA-Emulator", 13);
}

static void emulated() {
    const auto a = numbers<double>(M * K, 9), b = numbers<double>(K * N, 10);
    std::vector<double> wanted(M * N);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++)
            for (int l = 0; l < K; l++) wanted[j * M + i] += a[l * M + i] * b[j * K + l];
    double *da = on_device(a), *db = on_device(b), *dc = on_device(std::vector<double>(M * N));
    const int nobody = 12345;
    int *bits = on_device(std::vector<int>{nobody});
    Handle emulation, what, preference, of[3];
    bool is_right = true, is_told = true, ran = false;
    if (dlsym(library, "cublasLtEmulationDescCreate") && call("cublasLtEmulationDescCreate", &emulation) == 0) {
        const int eager = 2, most = 52;
        CHECK(call("cublasLtEmulationDescSetAttribute", emulation, (int)STRATEGY, (const void *)&eager, sizeof eager));
        CHECK(call("cublasLtEmulationDescSetAttribute", emulation, (int)MAX_MANTISSA_BIT_COUNT, (const void *)&most, sizeof most));
        CHECK(call("cublasLtEmulationDescSetAttribute", emulation, (int)MANTISSA_BIT_COUNT_POINTER, (const void *)&bits, sizeof bits));
        CHECK(call("cublasLtMatmulDescCreate", &what, (int)COMPUTE_64F_EMULATED_FIXEDPOINT, (int)R_64F));
        set(what, EMULATION_DESCRIPTOR, emulation);
        const int shapes[3][2] = {{M, K}, {K, N}, {M, N}};
        for (int i = 0; i < 3; i++)
            CHECK(call("cublasLtMatrixLayoutCreate", &of[i], (int)R_64F, (size_t)shapes[i][0], (size_t)shapes[i][1], (long)shapes[i][0]));
        const size_t bytes = 32 << 20;
        void *workspace;
        CHECK(cudaMalloc(&workspace, bytes));
        CHECK(call("cublasLtMatmulPreferenceCreate", &preference));
        CHECK(call("cublasLtMatmulPreferenceSetAttribute", preference, (int)MAX_WORKSPACE_BYTES, (const void *)&bytes, sizeof bytes));
        alignas(8) char found[96];
        int count = 0;
        int status = call("cublasLtMatmulAlgoGetHeuristic", handle, what, of[0], of[1], of[2], of[2], preference, 1, (void *)found, &count);
        if (status == 0 && count > 0) {
            const double alpha = 1, beta = 0;
            CHECK(call("cublasLtMatmul", handle, what, (const void *)&alpha, (const void *)da, of[0], (const void *)db, of[1],
                       (const void *)&beta, (const void *)dc, of[2], (void *)dc, of[2], (const void *)found, workspace, bytes, stream));
            CHECK(cudaStreamSynchronize(stream));
            ran = true;
            is_right = back(dc, M * N) == wanted;
            // A GPU whose own double precision is faster does not emulate it.
            is_told = !is_emulator() || back(bits, 1)[0] != nobody;
        } else if (status != 0 && status != NOT_SUPPORTED) {
            printf("emulated precision: %d\n", status);
        }
        for (Handle one : of) CHECK(call("cublasLtMatrixLayoutDestroy", one));
        CHECK(call("cublasLtMatmulPreferenceDestroy", preference));
        CHECK(call("cublasLtMatmulDescDestroy", what));
        CHECK(call("cublasLtEmulationDescDestroy", emulation));
        CHECK(cudaFree(workspace));
    }
    // The emulator always supports it.
    if (!ran && is_emulator()) is_right = false;
    printf("emulated precision, where there is one: %s, its bits are %s\n", is_right ? "right" : "WRONG", is_told ? "told" : "NOT told");
    for (void *memory : {(void *)da, (void *)db, (void *)dc, (void *)bits}) CHECK(cudaFree(memory));
}

static void mistakes() {
    Product wrong;
    CHECK(call("cublasLtMatrixLayoutDestroy", wrong.b));
    wrong.b = layout(K + 1, N, K + 1);
    float *memory = on_device(std::vector<float>(1024));
    printf("sizes that do not fit: %s\n", wrong.run(memory, memory, memory) != 0 ? "refused" : "accepted");
    int value = 0;
    printf("no such attribute: %d\n", call("cublasLtMatmulDescSetAttribute", wrong.what, 99, (const void *)&value, sizeof value));
    printf("a value of another size: %d\n", call("cublasLtMatmulDescSetAttribute", wrong.what, (int)TRANSA, (const void *)&value, (size_t)8));
}

int main() {
    load({"libcublasLt.so.13", "libcublasLt.so.12"});
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(call("cublasLtCreate", &handle));
    plain();
    batches();
    epilogues();
    emulated();
    mistakes();
    CHECK(call("cublasLtDestroy", handle));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaDeviceSynchronize());
    printf("done\n");
    return 0;
}
