// SPDX-License-Identifier: Apache-2.0 OR MIT
// Contexts that are held more than once, and what else is asked of contexts and devices by old names.
#define CUDA_ENABLE_DEPRECATED
#include "check_driver.h"

#include <dlfcn.h>

int main() {
    CUdevice device;
    CUcontext context, same = nullptr;
    CHECK_DRIVER(cuInit(0));
    CHECK_DRIVER(cuDeviceGet(&device, 0));
    std::printf("nothing to hold: %d\n", (int)cuCtxAttach(&same, 0));
    CHECK_DRIVER(cuCtxCreate(&context, nullptr, 0, device));
    CHECK_DRIVER(cuCtxAttach(&same, 0));
    std::printf("held: %s\n", same == context ? "the current context" : "another");
    std::printf("with flags: %d\n", (int)cuCtxAttach(&same, 1));
    CHECK_DRIVER(cuCtxDetach(context));
    CHECK_DRIVER(cuCtxSynchronize());
    std::printf("it is still there\n");

    CUexecAffinityParam affinity = {};
    int count = 0;
    CHECK_DRIVER(cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    CHECK_DRIVER(cuCtxGetExecAffinity(&affinity, CU_EXEC_AFFINITY_TYPE_SM_COUNT));
    std::printf("affinity %d: %s\n", (int)affinity.type,
                (int)affinity.param.smCount.val == count ? "all multiprocessors" : "some multiprocessors");
    std::printf("another affinity: %d\n", (int)cuCtxGetExecAffinity(&affinity, (CUexecAffinityType)7));

    CHECK_DRIVER(cuCtxDetach(context));
    CUcontext current = context;
    CHECK_DRIVER(cuCtxGetCurrent(&current));
    std::printf("without holders: %s\n", current == nullptr ? "no context" : "still current");

    // The name of CUDA 2, which macros hide.
    auto *total_32 = reinterpret_cast<CUresult (*)(unsigned *, CUdevice)>(dlsym(RTLD_DEFAULT, "cuDeviceTotalMem"));
    REQUIRE(total_32 != nullptr);
    unsigned bytes_32 = 0;
    size_t bytes = 0;
    CHECK_DRIVER(cuDeviceTotalMem(&bytes, device));
    CHECK_DRIVER(total_32(&bytes_32, device));
    std::printf("bytes in 32 bits: %s\n", bytes > 0xffffffff && bytes_32 == 0xffffffff ? "as many as fit" : "others");
    return 0;
}
