// SPDX-License-Identifier: Apache-2.0 OR MIT
// PTX with an instruction that no device knows: CUDA_ERROR_INVALID_PTX (218), and the message names the instruction.
// The log of a caller that asks for one names it; callers that do not must find it on the device's side.
#include "check_driver.h"

#include <cstring>

static const char kPtx[] = R"(
.version 7.8
.target sm_90
.address_size 64
.visible .entry unknown(.param .u64 out)
{
    .reg .b32 %r<3>;
    mov.u32 %r1, 5;
    frobnicate.u32 %r2, %r1;
    ret;
}
)";

int main() {
    use_primary_context();
    CUmodule module;
    std::printf("load: %d\n", (int)cuModuleLoadData(&module, kPtx));
    std::printf("load again: %d\n", (int)cuModuleLoadData(&module, kPtx));
    CUdeviceptr memory;
    CHECK_DRIVER(cuMemAlloc(&memory, 16));
    CHECK_DRIVER(cuMemFree(memory));
    CHECK_DRIVER(cuDevicePrimaryCtxRelease(0));
    return 0;
}
