// SPDX-License-Identifier: Apache-2.0 OR MIT
// Attributes of core dumps: defaults, and what is set. No kernel fails here: nothing is dumped.
#include "check_driver.h"

#include <unistd.h>

#include <cstring>
#include <string>

#define SHOW(call) std::printf("%s: %d\n", #call, (int)(call))

using Getter = CUresult (*)(CUcoredumpSettings, void *, size_t *);

static bool flag(Getter get, CUcoredumpSettings attribute) {
    bool value = false;
    size_t size = sizeof value;
    CHECK_DRIVER(get(attribute, &value, &size));
    return value;
}

static std::string text(Getter get, CUcoredumpSettings attribute) {
    char value[1024] = {};
    size_t size = sizeof value;
    CHECK_DRIVER(get(attribute, value, &size));
    return value;
}

static unsigned contents(Getter get) {
    unsigned value = ~0u;
    size_t size = sizeof value;
    CHECK_DRIVER(get(CU_COREDUMP_GENERATION_FLAGS, &value, &size));
    return value;
}

static void print(const char *whose, Getter get) {
    std::printf("%s: exception %d, host %d, lightweight %d, trigger %d, contents %u\n", whose,
                flag(get, CU_COREDUMP_ENABLE_ON_EXCEPTION), flag(get, CU_COREDUMP_TRIGGER_HOST),
                flag(get, CU_COREDUMP_LIGHTWEIGHT), flag(get, CU_COREDUMP_ENABLE_USER_TRIGGER), contents(get));
}

static CUresult set_text(CUresult (*set)(CUcoredumpSettings, void *, size_t *), CUcoredumpSettings attribute, const char *value) {
    size_t size = std::strlen(value) + 1;
    return set(attribute, const_cast<char *>(value), &size);
}

static CUresult set_flag(CUresult (*set)(CUcoredumpSettings, void *, size_t *), CUcoredumpSettings attribute, bool value) {
    size_t size = sizeof value;
    return set(attribute, &value, &size);
}

int main() {
    for (const char *name : {"CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "CUDA_ENABLE_CPU_COREDUMP_ON_EXCEPTION",
                             "CUDA_ENABLE_LIGHTWEIGHT_COREDUMP", "CUDA_ENABLE_USER_TRIGGERED_COREDUMP",
                             "CUDA_COREDUMP_FILE", "CUDA_COREDUMP_PIPE", "CUDA_COREDUMP_GENERATION_FLAGS"}) {
        unsetenv(name);
    }
    CUdevice device;
    CUcontext context;
    size_t size = 0;
    bool value = false;
    char room[1024];

    CHECK_DRIVER(cuInit(0));
    SHOW(cuCoredumpGetAttribute(CU_COREDUMP_LIGHTWEIGHT, nullptr, &size));
    CHECK_DRIVER(cuDeviceGet(&device, 0));
    CHECK_DRIVER(cuCtxCreate(&context, nullptr, 0, device));

    std::puts("-- defaults");
    print("process", cuCoredumpGetAttributeGlobal);
    std::printf("context: contents %u\n", contents(cuCoredumpGetAttribute));

    std::puts("-- values");
    CHECK_DRIVER(set_flag(cuCoredumpSetAttributeGlobal, CU_COREDUMP_TRIGGER_HOST, false));
    CHECK_DRIVER(set_flag(cuCoredumpSetAttributeGlobal, CU_COREDUMP_LIGHTWEIGHT, true));
    CHECK_DRIVER(set_text(cuCoredumpSetAttributeGlobal, CU_COREDUMP_FILE, "process.file"));
    CHECK_DRIVER(set_text(cuCoredumpSetAttributeGlobal, CU_COREDUMP_PIPE, "process.pipe"));
    REQUIRE(!flag(cuCoredumpGetAttributeGlobal, CU_COREDUMP_TRIGGER_HOST));
    REQUIRE(flag(cuCoredumpGetAttributeGlobal, CU_COREDUMP_LIGHTWEIGHT));
    REQUIRE(text(cuCoredumpGetAttributeGlobal, CU_COREDUMP_FILE) == "process.file");
    REQUIRE(text(cuCoredumpGetAttributeGlobal, CU_COREDUMP_PIPE) == "process.pipe");

    std::puts("-- refused");
    size = sizeof value;
    SHOW(cuCoredumpGetAttribute(CU_COREDUMP_ENABLE_USER_TRIGGER, &value, &size));
    SHOW(cuCoredumpGetAttributeGlobal(CU_COREDUMP_FILE, room, nullptr));
    CHECK_DRIVER(cuCtxDestroy(context));
    return 0;
}
