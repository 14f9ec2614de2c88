// SPDX-License-Identifier: Apache-2.0 OR MIT
// cuSOLVER.

#include "library_part.h"

static Handle dense, sparse, params;
static cudaStream_t stream;

static void ask(Answers &answers) {
    get_stream(answers, "cusolverDnGetStream", dense, stream);
    get_stream(answers, "cusolverSpGetStream", sparse, stream);
    for (const char *getter : {"cusolverDnGetDeterministicMode", "cusolverDnGetMathMode", "cusolverDnGetEmulationStrategy", "cusolverDnGetEmulationSpecialValuesSupport",
                               "cusolverDnGetFixedPointEmulationMantissaControl", "cusolverDnGetFixedPointEmulationMaxMantissaBitCount",
                               "cusolverDnGetFixedPointEmulationMantissaBitOffset"})
        get<int>(answers, getter, "", dense);
    get<int>(answers, "cusolverDnIRSParamsGetMaxIters", "", params);
}

static void set_all() {
    set("cusolverDnSetStream", dense, stream);
    set("cusolverSpSetStream", sparse, stream);
    set("cusolverDnSetDeterministicMode", dense, 2);
    set("cusolverDnSetMathMode", dense, 2);
    set("cusolverDnSetEmulationStrategy", dense, 2);
    set("cusolverDnSetEmulationSpecialValuesSupport", dense, 1);
    set("cusolverDnSetFixedPointEmulationMantissaControl", dense, 1);
    set("cusolverDnSetFixedPointEmulationMaxMantissaBitCount", dense, 40);
    set("cusolverDnSetFixedPointEmulationMantissaBitOffset", dense, 2);
    set("cusolverDnIRSParamsSetMaxIters", params, 7);
}

Part solver_part() {
    load({"libcusolver.so.12", "libcusolver.so.11"});
    CHECK(cudaStreamCreate(&stream));
    CHECK(call("cusolverDnCreate", &dense));
    CHECK(call("cusolverSpCreate", &sparse));
    (void)call("cusolverDnIRSParamsCreate", &params);
    return {ask, set_all};
}
