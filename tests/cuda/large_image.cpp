// SPDX-License-Identifier: Apache-2.0 OR MIT
// An image of 1 MiB, loaded as a library and as a module: long enough for the stack to keep it for other processes.
#include "check_driver.h"

#include <string>

static std::string image() {
    std::string ptx = R"(
.version 7.0
.target sm_52
.address_size 64
.visible .entry store(.param .u64 target, .param .u32 value) {
    .reg .u64 %rd<3>;
    .reg .u32 %r<2>;
    ld.param.u64 %rd1, [target];
    cvta.to.global.u64 %rd2, %rd1;
    ld.param.u32 %r1, [value];
    st.global.u32 [%rd2], %r1;
    ret;
}
)";
    while (ptx.size() < 1 << 20) ptx += "// as long as code that does something would be\n";
    return ptx;
}

static void store(CUfunction function, unsigned value) {
    CUdeviceptr memory;
    unsigned found = 0;
    CHECK_DRIVER(cuMemAlloc(&memory, sizeof found));
    void *parameters[] = {&memory, &value};
    CHECK_DRIVER(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
    CHECK_DRIVER(cuMemcpyDtoH(&found, memory, sizeof found));
    CHECK_DRIVER(cuMemFree(memory));
    std::printf("stored %u\n", found);
}

int main() {
    use_primary_context();
    const std::string ptx = image();

    CUlibrary library;
    CUkernel kernel;
    CUfunction function;
    CHECK_DRIVER(cuLibraryLoadData(&library, ptx.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    CHECK_DRIVER(cuLibraryGetKernel(&kernel, library, "store"));
    CHECK_DRIVER(cuKernelGetFunction(&function, kernel));
    store(function, 42);
    CHECK_DRIVER(cuLibraryUnload(library));

    CUmodule module;
    CHECK_DRIVER(cuModuleLoadData(&module, ptx.c_str()));
    CHECK_DRIVER(cuModuleGetFunction(&function, module, "store"));
    store(function, 43);
    CHECK_DRIVER(cuModuleUnload(module));
    return 0;
}
