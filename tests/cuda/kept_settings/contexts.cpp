// SPDX-License-Identifier: Apache-2.0 OR MIT
// Settings of contexts, streams and functions.

#include "driver.h"

static CUdevice device;
static CUcontext primary, own;
static CUstream stream, other_stream;
static CUfunction function;
static CUkernel kernel;

static const struct {
    CUlimit limit;
    const char *name;
    size_t value;
} LIMITS[] = {
    {CU_LIMIT_STACK_SIZE, "stack", 4096},
    {CU_LIMIT_PRINTF_FIFO_SIZE, "printf", 2 << 20},
    {CU_LIMIT_MALLOC_HEAP_SIZE, "heap", 16 << 20},
    {CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, "depth", 3},
    {CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, "launches", 4096},
    {CU_LIMIT_MAX_L2_FETCH_GRANULARITY, "granularity", 32},
    {CU_LIMIT_PERSISTING_L2_CACHE_SIZE, "persisting", 1 << 20},
};

static const struct {
    CUfunction_attribute attribute;
    const char *name;
    int value;
} ATTRIBUTES[] = {
    {CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, "shared", 65536},
    {CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, "carveout", 50},
    {CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, "non-portable", 1},
    {CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, "scheduling", CU_CLUSTER_SCHEDULING_POLICY_SPREAD},
};

static const struct {
    CUstreamAttrID attribute;
    const char *name;
} OF_STREAMS[] = {
    {CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, "window"},
    {CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, "synchronization"},
    {CU_LAUNCH_ATTRIBUTE_PRIORITY, "priority"},
    {CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, "domains"},
    {CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, "domain"},
};

static void ask_context(Answers &answers, const std::string &name, CUcontext context) {
    CHECK_DRIVER(cuCtxSetCurrent(context));
    for (const auto &one : LIMITS) {
        size_t value = 0;
        answers.add("cuCtxGetLimit", name + " " + one.name, cuCtxGetLimit(&value, one.limit), value);
    }
    CUfunc_cache config{};
    answers.add("cuCtxGetCacheConfig", name, cuCtxGetCacheConfig(&config), config);
    unsigned flags = 0, version = 0;
    answers.add("cuCtxGetFlags", name, cuCtxGetFlags(&flags), flags);
    answers.add("cuCtxGetApiVersion", name, cuCtxGetApiVersion(context, &version), version);
    CUsharedconfig banks{};
    answers.add("cuCtxGetSharedMemConfig", name, cuCtxGetSharedMemConfig(&banks), banks);
}

static void ask_stream(Answers &answers, const std::string &name, CUstream stream) {
    int priority = 0;
    unsigned flags = 0;
    unsigned long long id = 0;
    answers.add("cuStreamGetPriority", name, cuStreamGetPriority(stream, &priority), priority);
    answers.add("cuStreamGetFlags", name, cuStreamGetFlags(stream, &flags), flags);
    answers.add("cuStreamGetId", name, cuStreamGetId(stream, &id), id);
    for (const auto &one : OF_STREAMS) {
        CUstreamAttrValue value;
        std::memset(&value, 0, sizeof value);
        const int result = cuStreamGetAttribute(stream, one.attribute, &value);
        answers.add("cuStreamGetAttribute", name + " " + one.name, result, value);
    }
}

static void ask(Answers &answers) {
    unsigned flags = 0;
    int active = 0;
    answers.add("cuDevicePrimaryCtxGetState", "flags", cuDevicePrimaryCtxGetState(device, &flags, &active), flags);
    ask_context(answers, "own", own);
    ask_context(answers, "primary", primary);
    ask_stream(answers, "stream", stream);
    ask_stream(answers, "other", other_stream);
    for (const auto &one : ATTRIBUTES) {
        int value = 0;
        answers.add("cuFuncGetAttribute", one.name, cuFuncGetAttribute(&value, one.attribute, function), value);
        const int result = cuKernelGetAttribute(&value, one.attribute, kernel, device);
        answers.add("cuKernelGetAttribute", one.name, result, value);
    }
}

static void set_stream(CUstreamAttrID attribute, const std::function<void(CUstreamAttrValue &)> &change) {
    CUstreamAttrValue value;
    std::memset(&value, 0, sizeof value);
    change(value);
    CHECK_DRIVER(cuStreamSetAttribute(stream, attribute, &value));
}

static void set_context(CUcontext context, size_t factor) {
    CHECK_DRIVER(cuCtxSetCurrent(context));
    for (const auto &one : LIMITS) {
        // Not every GPU has every limit: the answers tell.
        (void)cuCtxSetLimit(one.limit, one.value * factor);
    }
    CHECK_DRIVER(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
    CHECK_DRIVER(cuCtxSetSharedMemConfig(CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE));
}

static void set() {
    set_context(own, 2);
    CHECK_DRIVER(cuCtxSetFlags(CU_CTX_SCHED_YIELD));
    set_context(primary, 1);
    CHECK_DRIVER(cuDevicePrimaryCtxSetFlags(device, CU_CTX_SCHED_BLOCKING_SYNC));
    set_stream(CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, [](auto &value) { value.syncPolicy = CU_SYNC_POLICY_YIELD; });
    set_stream(CU_LAUNCH_ATTRIBUTE_PRIORITY, [](auto &value) { value.priority = -2; });
    set_stream(CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, [](auto &value) { value.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE; });
    set_stream(CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, [](auto &value) { value.memSyncDomainMap = {1, 0}; });
    set_stream(CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, [](auto &value) {
        CUdeviceptr memory;
        CHECK_DRIVER(cuMemAlloc(&memory, 1 << 20));
        value.accessPolicyWindow = {(void *)memory, 1 << 18, 0.5, CU_ACCESS_PROPERTY_PERSISTING, CU_ACCESS_PROPERTY_STREAMING};
    });
    for (const auto &one : ATTRIBUTES) {
        CHECK_DRIVER(cuFuncSetAttribute(function, one.attribute, one.value));
        CHECK_DRIVER(cuKernelSetAttribute(one.attribute, one.value, kernel, device));
    }
    CHECK_DRIVER(cuFuncSetCacheConfig(function, CU_FUNC_CACHE_PREFER_SHARED));
}

Part contexts_part() {
    CHECK_DRIVER(cuDeviceGet(&device, 0));
    CHECK_DRIVER(cuCtxCreate(&own, nullptr, CU_CTX_SCHED_SPIN, device));
    CHECK_DRIVER(cuDevicePrimaryCtxRetain(&primary, device));
    CHECK_DRIVER(cuCtxSetCurrent(primary));
    CHECK_DRIVER(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -3));
    CHECK_DRIVER(cuStreamCreateWithPriority(&other_stream, CU_STREAM_DEFAULT, -1));
    CUmodule module;
    CHECK_DRIVER(cuModuleLoadData(&module, KEPT_CODE));
    CHECK_DRIVER(cuModuleGetFunction(&function, module, "store"));
    CUlibrary library;
    CHECK_DRIVER(cuLibraryLoadData(&library, KEPT_CODE, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CHECK_DRIVER(cuLibraryGetKernel(&kernel, library, "store"));
    return {ask, set};
}
