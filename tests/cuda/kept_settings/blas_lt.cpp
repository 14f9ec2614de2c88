// SPDX-License-Identifier: Apache-2.0 OR MIT
// cuBLASLt. Its descriptors lie in the program's memory, but for the capacity of the cache of heuristics, which is the process's.

#include "library_part.h"

// cublasLt.h
enum { COMPUTE_32F = 68, R_32F = 0, SPLIT_K = 2 };

static Handle handle, layout, product, transform, preference, emulation;
static char algorithm[64];

// The setting of preferences has 64 bits.
static size_t bytes_of(Handle descriptor) { return descriptor == preference ? sizeof(size_t) : sizeof(int); }

static void ask_attribute(Answers &answers, const char *getter, Handle descriptor, int attribute) {
    size_t value = 0, written = 0;
    const int result = call(getter, descriptor, attribute, (void *)&value, bytes_of(descriptor), &written);
    answers.add(getter, "", result, value);
}

static void ask(Answers &answers) {
    get<size_t>(answers, "cublasLtHeuristicsCacheGetCapacity", "");
    ask_attribute(answers, "cublasLtMatrixLayoutGetAttribute", layout, 1);
    ask_attribute(answers, "cublasLtMatmulDescGetAttribute", product, 3);
    ask_attribute(answers, "cublasLtMatrixTransformDescGetAttribute", transform, 2);
    ask_attribute(answers, "cublasLtMatmulPreferenceGetAttribute", preference, 1);
    ask_attribute(answers, "cublasLtEmulationDescGetAttribute", emulation, 0);
    ask_attribute(answers, "cublasLtMatmulAlgoConfigGetAttribute", algorithm, SPLIT_K);
}

static void set_attribute(const char *setter, Handle descriptor, int attribute, size_t value) {
    set(setter, descriptor, attribute, (const void *)&value, bytes_of(descriptor));
}

static void set_all() {
    set("cublasLtHeuristicsCacheSetCapacity", (size_t)123);
    set_attribute("cublasLtMatrixLayoutSetAttribute", layout, 1, 1);
    set_attribute("cublasLtMatmulDescSetAttribute", product, 3, 1);
    set_attribute("cublasLtMatrixTransformDescSetAttribute", transform, 2, 1);
    set_attribute("cublasLtMatmulPreferenceSetAttribute", preference, 1, 1 << 20);
    set_attribute("cublasLtEmulationDescSetAttribute", emulation, 0, 2);
    set_attribute("cublasLtMatmulAlgoConfigSetAttribute", algorithm, SPLIT_K, 4);
}

Part blas_lt_part() {
    load({"libcublasLt.so.13", "libcublasLt.so.12"});
    CHECK(call("cublasLtCreate", &handle));
    CHECK(call("cublasLtMatrixLayoutCreate", &layout, (int)R_32F, (size_t)16, (size_t)16, (long)16));
    CHECK(call("cublasLtMatmulDescCreate", &product, (int)COMPUTE_32F, (int)R_32F));
    CHECK(call("cublasLtMatrixTransformDescCreate", &transform, (int)R_32F));
    CHECK(call("cublasLtMatmulPreferenceCreate", &preference));
    (void)call("cublasLtEmulationDescCreate", &emulation);
    int number = 0, count = 0;
    (void)call("cublasLtMatmulAlgoGetIds", handle, (int)COMPUTE_32F, (int)R_32F, (int)R_32F, (int)R_32F, (int)R_32F, (int)R_32F, 1, &number, &count);
    (void)call("cublasLtMatmulAlgoInit", handle, (int)COMPUTE_32F, (int)R_32F, (int)R_32F, (int)R_32F, (int)R_32F, (int)R_32F, number, (void *)algorithm);
    return {ask, set_all};
}
