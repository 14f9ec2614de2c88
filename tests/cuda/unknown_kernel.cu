// SPDX-License-Identifier: Apache-2.0 OR MIT
// Names that a module does not have, and launches of what is no kernel.
#include "check_driver.h"

static const char kPtx[] = R"(
.version 7.8
.target sm_90
.address_size 64
.visible .global .align 4 .u32 known_variable = 7;
.visible .entry known_kernel()
{
    ret;
}
)";

int main() {
    use_primary_context();
    CUmodule module;
    CUfunction function = nullptr;
    CUdeviceptr address;
    size_t bytes;
    CHECK_DRIVER(cuModuleLoadData(&module, kPtx));
    std::printf("known kernel: %d\n", (int)cuModuleGetFunction(&function, module, "known_kernel"));
    std::printf("unknown kernel: %d\n", (int)cuModuleGetFunction(&function, module, "unknown_kernel"));
    std::printf("a variable is no kernel: %d\n", (int)cuModuleGetFunction(&function, module, "known_variable"));
    std::printf("unknown variable: %d\n", (int)cuModuleGetGlobal(&address, &bytes, module, "unknown_variable"));
    std::printf("empty name: %d\n", (int)cuModuleGetFunction(&function, module, ""));
    CHECK_DRIVER(cuModuleGetFunction(&function, module, "known_kernel"));
    std::printf("no kernel: %d\n", (int)cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    std::printf("launch: %d\n", (int)cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    CHECK_DRIVER(cuCtxSynchronize());
    CHECK_DRIVER(cuModuleUnload(module));
    CHECK_DRIVER(cuDevicePrimaryCtxRelease(0));
    return 0;
}
