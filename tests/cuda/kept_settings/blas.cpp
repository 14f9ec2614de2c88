// SPDX-License-Identifier: Apache-2.0 OR MIT
// cuBLAS.

#include "library_part.h"

static Handle handle;
static cudaStream_t stream;
static int *counts;

static void log_nothing(const char *) {}

static void ask(Answers &answers) {
    get_stream(answers, "cublasGetStream_v2", handle, stream);
    for (const char *getter : {"cublasGetPointerMode_v2", "cublasGetAtomicsMode", "cublasGetMathMode", "cublasGetSmCountTarget", "cublasGetEmulationStrategy",
                               "cublasGetEmulationSpecialValuesSupport", "cublasGetFixedPointEmulationMantissaControl",
                               "cublasGetFixedPointEmulationMaxMantissaBitCount", "cublasGetFixedPointEmulationMantissaBitOffset"})
        get<int>(answers, getter, "", handle);
    get<int *>(answers, "cublasGetFixedPointEmulationMantissaBitCountPointer", "", handle);
    void (*callback)(const char *) = nullptr;
    const int result = call("cublasGetLoggerCallback", &callback);
    answers.add("cublasGetLoggerCallback", "", result, callback == log_nothing);
}

static void set_all() {
    set("cublasSetStream_v2", handle, stream);
    set("cublasSetPointerMode_v2", handle, 1);
    set("cublasSetAtomicsMode", handle, 1);
    set("cublasSetMathMode", handle, 3);
    set("cublasSetSmCountTarget", handle, 16);
    set("cublasSetEmulationStrategy", handle, 2);
    set("cublasSetEmulationSpecialValuesSupport", handle, 1);
    set("cublasSetFixedPointEmulationMantissaControl", handle, 1);
    set("cublasSetFixedPointEmulationMaxMantissaBitCount", handle, 40);
    set("cublasSetFixedPointEmulationMantissaBitOffset", handle, 2);
    set("cublasSetFixedPointEmulationMantissaBitCountPointer", handle, counts);
    set("cublasSetLoggerCallback", log_nothing);
}

Part blas_part() {
    load({"libcublas.so.13", "libcublas.so.12"});
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMalloc(&counts, 64));
    CHECK(call("cublasCreate_v2", &handle));
    return {ask, set_all};
}
