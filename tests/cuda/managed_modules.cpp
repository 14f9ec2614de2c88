// SPDX-License-Identifier: Apache-2.0 OR MIT
// Managed variables found through the driver API: what their addresses are, and that both sides see what the other
// one wrote.
#include "check_driver.h"

#include <cstring>

static const char kPtx[] = R"(
.version 7.0
.target sm_52
.address_size 64
.visible .global .attribute(.managed) .align 4 .u32 by_address = 10;
.visible .global .attribute(.managed) .align 4 .u32 by_name[500] = {100, 200, 300};
.visible .global .align 4 .u32 plain = 7;
.visible .entry step(.param .u64 target) {
    .reg .u64 %rd<3>;
    .reg .u32 %r<4>;
    ld.param.u64 %rd1, [target];
    cvta.to.global.u64 %rd2, %rd1;
    ld.global.u32 %r1, [%rd2];
    add.u32 %r1, %r1, 20;
    st.global.u32 [%rd2], %r1;
    ld.global.u32 %r2, [by_name+8];
    add.u32 %r2, %r2, 30;
    st.global.u32 [by_name+8], %r2;
    ld.global.u32 %r3, [by_name+1996];
    add.u32 %r3, %r3, 40;
    st.global.u32 [by_name+1996], %r3;
    ret;
}
)";

static void show(const char *name, CUdeviceptr address, size_t bytes) {
    unsigned managed = 9, type = 9;
    CUdeviceptr on_device = 0;
    CHECK_DRIVER(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address));
    CHECK_DRIVER(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    CHECK_DRIVER(cuPointerGetAttribute(&on_device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address));
    std::printf("%s: %zu bytes, managed %u, type %u, device pointer %d\n", name, bytes, managed, type,
                on_device == address);
    void *host = nullptr;
    const CUresult result = cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, address);
    std::printf("%s: host pointer: %d, the same %d\n", name, (int)result, (CUdeviceptr)host == address);
}

// Both sides of the variables of one module.
static void use(CUmodule module) {
    CUdeviceptr by_address, by_name, plain, again;
    size_t bytes, name_bytes, plain_bytes;
    CUfunction step;
    CHECK_DRIVER(cuModuleGetFunction(&step, module, "step"));
    CHECK_DRIVER(cuModuleGetGlobal(&by_address, &bytes, module, "by_address"));
    CHECK_DRIVER(cuModuleGetGlobal(nullptr, &name_bytes, module, "by_name"));
    CHECK_DRIVER(cuModuleGetGlobal(&by_name, nullptr, module, "by_name"));
    CHECK_DRIVER(cuModuleGetGlobal(&plain, &plain_bytes, module, "plain"));
    CHECK_DRIVER(cuModuleGetGlobal(&again, nullptr, module, "by_address"));
    REQUIRE(again == by_address);
    show("by_address", by_address, bytes);
    show("by_name", by_name, name_bytes);
    show("plain", plain, plain_bytes);

    unsigned *const one = (unsigned *)by_address, *const many = (unsigned *)by_name;
    std::printf("initial: %u; %u %u %u %u\n", *one, many[0], many[1], many[2], many[499]);
    *one += 1;
    many[2] += 2;
    many[499] = 5;
    void *parameters[] = {&by_address};
    CHECK_DRIVER(cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
    CHECK_DRIVER(cuCtxSynchronize());
    std::printf("after both: %u; %u %u %u %u\n", *one, many[0], many[1], many[2], many[499]);

    unsigned value = 1000;
    CHECK_DRIVER(cuMemcpyHtoD(by_address, &value, sizeof value));
    std::printf("copied to: %u\n", *one);
    *one = 1001;
    CHECK_DRIVER(cuMemcpyDtoH(&value, by_address, sizeof value));
    std::printf("copied from: %u\n", value);
    CHECK_DRIVER(cuMemcpyDtoH(&value, plain, sizeof value));
    std::printf("plain: %u\n", value);
}

int main() {
    use_primary_context();
    for (int round = 0; round < 2; round++) {
        CUmodule module;
        CHECK_DRIVER(cuModuleLoadData(&module, kPtx));
        use(module);
        CHECK_DRIVER(cuModuleUnload(module));
    }
    // In a context that goes before the module does.
    CUcontext context;
    CUmodule module;
    CHECK_DRIVER(cuCtxCreate(&context, nullptr, 0, 0));
    CHECK_DRIVER(cuModuleLoadData(&module, kPtx));
    use(module);
    CHECK_DRIVER(cuCtxDestroy(context));

    CUlibrary library;
    CUdeviceptr global, managed, of_module;
    size_t bytes;
    CHECK_DRIVER(cuLibraryLoadData(&library, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CHECK_DRIVER(cuLibraryGetManaged(&managed, &bytes, library, "by_address"));
    show("of a library", managed, bytes);
    CHECK_DRIVER(cuLibraryGetModule(&module, library));
    CHECK_DRIVER(cuModuleGetGlobal(&of_module, nullptr, module, "by_address"));
    REQUIRE(of_module == managed);
    std::printf("of a library: %u\n", *(unsigned *)managed);
    CHECK_DRIVER(cuLibraryGetGlobal(&global, &bytes, library, "plain"));
    show("plain, of a library", global, bytes);
    CHECK_DRIVER(cuLibraryUnload(library));
    return 0;
}
