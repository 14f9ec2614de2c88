// SPDX-License-Identifier: Apache-2.0 OR MIT
// Further forms of cuBLAS's functions: half precision, many vectors, vectors whose types are arguments, sizes of 64 bits.

#include <cuda_fp16.h>

#include "library.h"

static const int M = 6, N = 5, K = 7, COUNT = 3;
static const int HALF = 2, REAL = 1, SINGLE = 0; // CUDA_R_16F, CUDA_R_64F, CUDA_R_32F
static Handle handle;
static cudaStream_t stream;

template <class T> static std::vector<double> result(const T *memory, int count) {
    CHECK(cudaStreamSynchronize(stream));
    const std::vector<T> values = back(memory, count);
    return std::vector<double>(values.begin(), values.end());
}

template <class T> static std::vector<T> as(const std::vector<double> &values) {
    return std::vector<T>(values.begin(), values.end());
}

static std::vector<double> product(const std::vector<double> &a, const std::vector<double> &b, int m, int k, int n) {
    std::vector<double> c(m * n);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++)
            for (int l = 0; l < k; l++) c[j * m + i] += a[l * m + i] * b[j * k + l];
    return c;
}

static void halves() {
    const std::vector<double> a = numbers<double>(M * K, 1), b = numbers<double>(K * N, 2), wanted = product(a, b, M, K, N);
    __half *da = on_device(as<__half>(a)), *db = on_device(as<__half>(b)), *dc = on_device(std::vector<__half>(M * N));
    const __half one = 1, zero = 0;
    CHECK(call("cublasHgemm", handle, 0, 0, M, N, K, &one, da, M, db, K, &zero, dc, M));
    compare("Hgemm", result(dc, M * N), wanted, 1e-2);
    __half **pa = on_device(std::vector<__half *>{da, da}), **pb = on_device(std::vector<__half *>{db, db});
    __half *first = on_device(std::vector<__half>(M * N)), *second = on_device(std::vector<__half>(M * N));
    __half **pc = on_device(std::vector<__half *>{first, second});
    CHECK(call("cublasHgemmBatched", handle, 0, 0, M, N, K, &one, pa, M, pb, K, &zero, pc, M, 2));
    compare("HgemmBatched", result(second, M * N), wanted, 1e-2);

    // Halves in, floats out.
    const float two = 2, nothing = 0;
    float *dy = on_device(std::vector<float>(M * 2));
    float **py = on_device(std::vector<float *>{dy, dy + M});
    __half **px = on_device(std::vector<__half *>{db, db + K});
    CHECK(call("cublasHSSgemvBatched", handle, 0, M, K, &two, pa, M, px, 1, &nothing, py, 1, 2));
    std::vector<double> columns(wanted.begin(), wanted.begin() + 2 * M);
    for (double &value : columns) value *= 2;
    compare("HSSgemvBatched", result(dy, M * 2), columns, 1e-6);
    __half *dh = on_device(std::vector<__half>(M * 2));
    CHECK(call("cublasHSHgemvStridedBatched", handle, 0, M, K, &two, da, M, 0ll, db, 1, (long long)K, &nothing, dh, 1, (long long)M, 2));
    compare("HSHgemvStridedBatched", result(dh, M * 2), columns, 1e-2);
}

static void many() {
    const std::vector<double> a = numbers<double>(M * K, 3), x = numbers<double>(K * COUNT, 4);
    double *da = on_device(a), *dx = on_device(x), *dy = on_device(std::vector<double>(M * COUNT));
    std::vector<double *> as, xs, ys;
    for (int i = 0; i < COUNT; i++) as.push_back(da), xs.push_back(dx + i * K), ys.push_back(dy + i * M);
    const double one = 1, zero = 0;
    CHECK(call("cublasDgemvBatched", handle, 0, M, K, &one, on_device(as), M, on_device(xs), 1, &zero, on_device(ys), 1, COUNT));
    compare("DgemvBatched", result(dy, M * COUNT), product(a, x, M, K, COUNT), 1e-14);
}

static void typed() {
    const int n = 50;
    const std::vector<double> x = numbers<double>(n, 5), y = numbers<double>(n, 6);
    double *dx = on_device(x), *dy = on_device(y), length, sum, wanted_length = 0, wanted_sum = 0;
    CHECK(call("cublasNrm2Ex", handle, n, dx, REAL, 1, &length, REAL, REAL));
    CHECK(call("cublasAsumEx", handle, n, dx, REAL, 1, &sum, REAL, REAL));
    for (double value : x) wanted_length += value * value, wanted_sum += fabs(value);
    printf("Nrm2Ex and AsumEx: %s\n", fabs(length - sqrt(wanted_length)) < 1e-12 && sum == wanted_sum ? "right" : "WRONG");
    const double three = 3;
    CHECK(call("cublasAxpyEx", handle, n, &three, REAL, dx, REAL, 1, dy, REAL, 1, REAL));
    std::vector<double> wanted = y;
    for (int i = 0; i < n; i++) wanted[i] += 3 * x[i];
    compare("AxpyEx", result(dy, n), wanted, 1e-14);
    __half *dh = on_device(as<__half>(x));
    const float two = 2;
    CHECK(call("cublasScalEx", handle, n, &two, SINGLE, dh, HALF, 1, SINGLE));
    std::vector<double> twice = x;
    for (double &value : twice) value *= 2;
    compare("ScalEx of halves", result(dh, n), twice, 1e-3);
}

static void long_sizes() {
    const std::vector<double> a = numbers<double>(M * K, 7), b = numbers<double>(K * N, 8);
    double *da = on_device(a), *db = on_device(b), *dc = on_device(std::vector<double>(M * N)), sum, wanted = 0;
    const double one = 1, zero = 0;
    CHECK(call("cublasDgemm_v2_64", handle, 0, 0, (int64_t)M, (int64_t)N, (int64_t)K, &one, da, (int64_t)M, db, (int64_t)K, &zero, dc,
               (int64_t)M));
    compare("Dgemm_64", result(dc, M * N), product(a, b, M, K, N), 1e-14);
    const int64_t n = K * N;
    CHECK(call("cublasDdot_v2_64", handle, n, da, (int64_t)1, db, (int64_t)1, &sum));
    for (int i = 0; i < n; i++) wanted += a[i] * b[i];
    int64_t largest = -1;
    CHECK(call("cublasIdamax_v2_64", handle, n, da, (int64_t)1, &largest));
    int first = 0;
    for (int i = 0; i < n; i++)
        if (fabs(a[i]) > fabs(a[first])) first = i;
    printf("Ddot_64 and Idamax_64: %s\n", sum == wanted && largest == first + 1 ? "right" : "WRONG");
}

// Whether the library takes the operands depends on their alignment, each time: it must not be learnt from earlier calls.
static void aligned_integers() {
    enum { BYTE = 3, INTEGER = 10, IN_INTEGERS = 72, SIZE = 8, NOT_SUPPORTED = 15 };
    const std::vector<double> a = numbers<double>(SIZE * SIZE, 3), b = numbers<double>(SIZE * SIZE, 5), wanted = product(a, b, SIZE, SIZE, SIZE);
    std::vector<signed char> longer = as<signed char>(a);
    longer.resize(SIZE * SIZE + 4);
    signed char *da = on_device(longer), *db = on_device(as<signed char>(b));
    int *dc = on_device(std::vector<int>(SIZE * SIZE));
    const int one = 1, zero = 0;
    const auto multiply = [&](signed char *from) {
        return call("cublasGemmEx", handle, 0, 0, (int)SIZE, (int)SIZE, (int)SIZE, &one, from, (int)BYTE, (int)SIZE, db, (int)BYTE, (int)SIZE, &zero,
                    dc, (int)INTEGER, (int)SIZE, (int)IN_INTEGERS, -1);
    };
    for (int round = 0; round < 3; round++) CHECK(multiply(da));
    for (int offset = 1; offset < 4; offset++) {
        const int status = multiply(da + offset);
        if (status != NOT_SUPPORTED) printf("an operand at %d bytes: WRONG, %d\n", offset, status);
    }
    compare("GemmEx of integers", result(dc, SIZE * SIZE), wanted, 0);
    CHECK(multiply(da + 4));
    CHECK(cudaStreamSynchronize(stream));
}

int main() {
    load({"libcublas.so.13", "libcublas.so.12"});
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(call("cublasCreate_v2", &handle));
    CHECK(call("cublasSetStream_v2", handle, stream));
    halves();
    many();
    typed();
    long_sizes();
    aligned_integers();
    CHECK(call("cublasDestroy_v2", handle));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaDeviceSynchronize());
    printf("done\n");
    return 0;
}
