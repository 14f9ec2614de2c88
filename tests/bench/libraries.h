// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Metrics of small calls of cuBLAS. The library is loaded here only, so that the program runs without it, too; its types
// are those of cublas_v2.h.

#pragma once

#include "measure.h"

#include <dlfcn.h>

// The functions of cuBLAS that are measured.
struct Blas {
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, cudaStream_t stream);
    int (*sgemm)(void *handle, int, int, int m, int n, int k, const float *alpha, const float *a, int, const float *b, int,
                 const float *beta, float *c, int);
    int (*sdot)(void *handle, int n, const float *x, int, const float *y, int, float *result);
};

// Ends the program if a call of the library fails.
inline void succeed(int status, const char *call) {
    if (status == 0) return;
    fprintf(stderr, "%s: status %d\n", call, status);
    exit(1);
}

// Small products and a scalar product, as programs call them: products are queued, the scalar comes back to host memory.
inline void libraries(double budget, long most, double limit) {
    const char *names[] = {"cublasSgemm_64", "cublasSgemm_64_loop", "cublasSdot_1000"};
    if (std::none_of(std::begin(names), std::end(names), is_wanted)) return;
    std::string file = "libcublas.so." + std::to_string(CUDART_VERSION / 1000);
    void *library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    const char *symbols[] = {"cublasCreate_v2", "cublasDestroy_v2", "cublasSetStream_v2", "cublasSgemm_v2", "cublasSdot_v2"};
    Blas blas;
    static_assert(sizeof blas == sizeof symbols, "a pointer for each symbol");
    for (size_t i = 0; library && i < sizeof symbols / sizeof *symbols; i++) {
        reinterpret_cast<void **>(&blas)[i] = dlsym(library, symbols[i]);
        if (!reinterpret_cast<void **>(&blas)[i]) library = nullptr;
    }
    void *handle;
    if (!library || blas.create(&handle) != 0) {
        for (const char *name : names)
            if (is_wanted(name)) skip(name, library ? "cublasCreate fails" : "there is no cuBLAS");
        return;
    }
    constexpr int side = 64, count = 1000;
    float *a, *b, *c, one = 1, zero = 0, result;
    for (float **array : {&a, &b, &c}) {
        CHECK(cudaMalloc(array, side * side * sizeof(float)));
        CHECK(cudaMemset(*array, 0, side * side * sizeof(float)));
    }
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    succeed(blas.set_stream(handle, stream), "cublasSetStream");
    auto finish = [&] { CHECK(cudaStreamSynchronize(stream)); };
    auto product = [&] {
        succeed(blas.sgemm(handle, 0, 0, side, side, side, &one, a, side, b, side, &zero, c, side), "cublasSgemm");
    };
    latency(names[0], 100, budget, product, finish);
    sustained(names[1], 0, most, limit, product, finish);
    latency(names[2], 10, budget, [&] { succeed(blas.sdot(handle, count, a, 1, b, 1, &result), "cublasSdot"); });
    succeed(blas.destroy(handle), "cublasDestroy");
    CHECK(cudaStreamDestroy(stream));
    for (float *array : {a, b, c}) CHECK(cudaFree(array));
}
