// SPDX-License-Identifier: Apache-2.0 OR MIT
// Device code linked at run time, from parts that need each other, and code that does not compile.
#include "check_driver.h"

#include <cstring>

static const char CALLER[] = R"(
.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 result) triple(.param .b32 value);
.visible .entry run(.param .u64 out)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r1, %tid.x;
    {
        .param .b32 value;
        st.param.b32 [value], %r1;
        .param .b32 result;
        call.uni (result), triple, (value);
        ld.param.b32 %r2, [result];
    }
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd2, %rd2, %rd3;
    st.global.u32 [%rd2], %r2;
    ret;
}
)";

static const char CALLEE[] = R"(
.version 8.0
.target sm_80
.address_size 64
.visible .func (.param .b32 result) triple(.param .b32 value)
{
    .reg .b32 %r<4>;
    ld.param.b32 %r1, [value];
    mul.lo.s32 %r2, %r1, 3;
    add.s32 %r2, %r2, 1;
    st.param.b32 [result], %r2;
    ret;
}
)";

static const char BROKEN[] = R"(
.version 8.0
.target sm_80
.address_size 64
.visible .entry broken()
{
    frobnicate.u32 %r1;
    ret;
}
)";

static void linked() {
    char info[4096] = "", error[4096] = "";
    CUjit_option options[] = {CU_JIT_WALL_TIME,          CU_JIT_INFO_LOG_BUFFER,  CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                              CU_JIT_ERROR_LOG_BUFFER,   CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                              CU_JIT_OPTIMIZATION_LEVEL};
    void *values[] = {nullptr, info, (void *)sizeof info, error, (void *)sizeof error, (void *)3};
    CUlinkState state;
    CHECK_DRIVER(cuLinkCreate(6, options, values, &state));
    CHECK_DRIVER(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)CALLER, sizeof CALLER, "caller", 0, nullptr, nullptr));
    CHECK_DRIVER(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)CALLEE, sizeof CALLEE, "callee", 0, nullptr, nullptr));
    void *image = nullptr;
    size_t bytes = 0;
    CHECK_DRIVER(cuLinkComplete(state, &image, &bytes));
    REQUIRE(image != nullptr && bytes > 0);
    std::printf("error log: \"%s\"\n", error);
    CUmodule module;
    CUfunction function;
    CHECK_DRIVER(cuModuleLoadData(&module, image));
    CHECK_DRIVER(cuLinkDestroy(state));
    CHECK_DRIVER(cuModuleGetFunction(&function, module, "run"));
    CUdeviceptr memory;
    CHECK_DRIVER(cuMemAlloc(&memory, 64 * 4));
    void *parameters[] = {&memory};
    CHECK_DRIVER(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, nullptr, parameters, nullptr));
    unsigned int back[64];
    CHECK_DRIVER(cuMemcpyDtoH(back, memory, sizeof back));
    int wrong = 0;
    for (unsigned int i = 0; i < 64; i++) {
        wrong += back[i] != i * 3 + 1;
    }
    std::printf("linked: %d wrong\n", wrong);
    CHECK_DRIVER(cuMemFree(memory));
    CHECK_DRIVER(cuModuleUnload(module));
}

static void missing() {
    char error[4096] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {error, (void *)sizeof error};
    CUlinkState state;
    CHECK_DRIVER(cuLinkCreate(2, options, values, &state));
    CHECK_DRIVER(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)CALLER, sizeof CALLER, "caller", 0, nullptr, nullptr));
    void *image = nullptr;
    size_t bytes = 0;
    const CUresult result = cuLinkComplete(state, &image, &bytes);
    std::printf("without the callee: %s, named in the log: %d\n", result ? "an error" : "no error",
                std::strstr(error, "triple") != nullptr);
    CHECK_DRIVER(cuLinkDestroy(state));
}

static void broken() {
    char error[4096] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {error, (void *)sizeof error};
    CUmodule module;
    std::printf("broken: %d", (int)cuModuleLoadDataEx(&module, BROKEN, 2, options, values));
    std::printf(", log %s, length %s\n", error[0] ? "written" : "empty",
                (size_t)values[1] > 0 && (size_t)values[1] <= sizeof error ? "told" : "not told");
}

int main() {
    use_primary_context();
    linked();
    missing();
    broken();
    return 0;
}
