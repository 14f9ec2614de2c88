// SPDX-License-Identifier: Apache-2.0 OR MIT
// cuFFT.

#include "library_part.h"

// cufft.h
enum { PATIENT_JIT = 1 };

static int plan;

static void ask(Answers &answers) { get<long long>(answers, "cufftGetPlanPropertyInt64", "", plan, (int)PATIENT_JIT); }

static void set_all() {
    set("cufftSetPlanPropertyInt64", plan, (int)PATIENT_JIT, 1LL);
    size_t bytes = 0;
    CHECK(call("cufftMakePlan1d", plan, 64, 0x29, 1, &bytes));
}

Part fft_part() {
    load({"libcufft.so.12", "libcufft.so.11"});
    CHECK(cudaFree(nullptr));
    CHECK(call("cufftCreate", &plan));
    return {ask, set_all};
}
