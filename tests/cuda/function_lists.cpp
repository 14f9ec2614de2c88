// SPDX-License-Identifier: Apache-2.0 OR MIT
// All functions of a module and all kernels of a library, and how large clusters of them may be.
#include "check_driver.h"

#include <algorithm>
#include <string>
#include <vector>

static const char kPtx[] = R"(
.version 7.8
.target sm_90
.address_size 64
.visible .entry third(.param .u64 target) {
    .reg .u64 %rd<3>;
    ld.param.u64 %rd1, [target];
    cvta.to.global.u64 %rd2, %rd1;
    st.global.u32 [%rd2], 33;
    ret;
}
.visible .entry first() { ret; }
.visible .func helper() { ret; }
.visible .entry second(.param .u32 n) { ret; }
)";

static void show(const char *what, std::vector<std::string> names) {
    std::sort(names.begin(), names.end());
    std::printf("%s:", what);
    for (const std::string &name : names) {
        std::printf(" %s", name.c_str());
    }
    std::printf("\n");
}

static void launch(CUfunction function, CUdeviceptr target) {
    unsigned value = 0;
    void *parameters[] = {&target};
    CHECK_DRIVER(cuMemsetD32(target, 0, 1));
    CHECK_DRIVER(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
    CHECK_DRIVER(cuMemcpyDtoH(&value, target, sizeof value));
    std::printf("launched: %u\n", value);
}

static void clusters(CUfunction function) {
    int largest = 0, before = 0;
    CUlaunchAttribute attribute = {};
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    CUlaunchConfig config = {};
    config.gridDimX = 64;
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.blockDimX = 128;
    CHECK_DRIVER(cuOccupancyMaxPotentialClusterSize(&largest, function, &config));
    std::printf("largest cluster: %d\n", largest);
    config.attrs = &attribute;
    config.numAttrs = 1;
    for (unsigned size = 1; size <= 8; size *= 2) {
        int active = 0;
        attribute.value.clusterDim.x = size;
        attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
        CHECK_DRIVER(cuOccupancyMaxActiveClusters(&active, function, &config));
        REQUIRE(active > 0 && (before == 0 || active < before));
        before = active;
    }
    std::puts("fewer clusters where they are larger");
}

int main() {
    use_primary_context();
    CUdeviceptr target;
    CHECK_DRIVER(cuMemAlloc(&target, sizeof(unsigned)));
    CUmodule module;
    unsigned count = 0;
    CHECK_DRIVER(cuModuleLoadData(&module, kPtx));
    CHECK_DRIVER(cuModuleGetFunctionCount(&count, module));
    std::vector<CUfunction> functions(count);
    CHECK_DRIVER(cuModuleEnumerateFunctions(functions.data(), count, module));
    std::vector<std::string> names;
    for (const CUfunction function : functions) {
        const char *name = nullptr;
        CHECK_DRIVER(cuFuncGetName(&name, function));
        names.push_back(name);
    }
    show("functions", names);
    CUfunction third;
    CHECK_DRIVER(cuModuleGetFunction(&third, module, "third"));
    std::printf("the same handle: %d\n", (int)std::count(functions.begin(), functions.end(), third));
    launch(functions[std::find(names.begin(), names.end(), "third") - names.begin()], target);
    CUfunction two[2] = {};
    CHECK_DRIVER(cuModuleEnumerateFunctions(two, 1, module));
    std::printf("with room for one: %d %d\n", two[0] != nullptr, two[1] != nullptr);
    clusters(third);
    CHECK_DRIVER(cuModuleUnload(module));

    CUlibrary library;
    CHECK_DRIVER(cuLibraryLoadData(&library, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CHECK_DRIVER(cuLibraryGetKernelCount(&count, library));
    std::vector<CUkernel> kernels(count);
    CHECK_DRIVER(cuLibraryEnumerateKernels(kernels.data(), count, library));
    names.clear();
    for (const CUkernel kernel : kernels) {
        const char *name = nullptr;
        CHECK_DRIVER(cuKernelGetName(&name, kernel));
        names.push_back(name);
    }
    show("kernels", names);
    launch((CUfunction)kernels[std::find(names.begin(), names.end(), "third") - names.begin()], target);
    CHECK_DRIVER(cuLibraryUnload(library));
    CHECK_DRIVER(cuMemFree(target));
    return 0;
}
