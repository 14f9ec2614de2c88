// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the driver API answers to odd calls: each is printed with its result, and the results are NVIDIA's.
#include "check_driver.h"

#include <cstring>
#include <thread>

#define SHOW(call) std::printf("%s: %d\n", #call, (int)(call))

static const char kPtx[] = R"(
.version 7.0
.target sm_52
.address_size 64
.global .align 4 .u32 numbers[4] = {1, 2, 3, 4};
.visible .entry store(.param .u64 target, .param .u32 n, .param .u8 c, .param .align 8 .b8 s[24]) {
    .reg .u64 %rd<3>;
    .reg .u32 %r<4>;
    ld.param.u64 %rd1, [target];
    cvta.to.global.u64 %rd2, %rd1;
    ld.param.u32 %r1, [n];
    ld.param.u32 %r2, [s+4];
    add.u32 %r3, %r1, %r2;
    st.global.u32 [%rd2], %r3;
    ret;
}
.visible .entry nothing() { ret; }
)";

static void contexts(CUcontext *context) {
    int number;
    CUcontext other, current;
    CUdevice device;
    CUdeviceptr memory;
    std::puts("-- before initialisation");
    SHOW(cuMemAlloc(&memory, 16));
    SHOW(cuDeviceGetCount(&number));
    SHOW(cuInit(1));
    SHOW(cuInit(0));
    std::puts("-- without a context");
    SHOW(cuDeviceGet(&device, 99));
    SHOW(cuDeviceGet(&device, -1));
    SHOW(cuMemAlloc(&memory, 16));
    SHOW(cuCtxGetDevice(&device));
    SHOW(cuCtxGetCurrent(&current));
    SHOW(cuCtxSynchronize());
    SHOW(cuCtxPopCurrent(&current));
    SHOW(cuCtxSetCurrent(nullptr));
    SHOW(cuCtxPushCurrent(nullptr));
    SHOW(cuStreamSynchronize(nullptr));
    SHOW(cuDevicePrimaryCtxRelease(0));
    std::puts("-- primary context");
    unsigned flags;
    int active;
    CHECK_DRIVER(cuDevicePrimaryCtxGetState(0, &flags, &active));
    std::printf("active %d\n", active);
    CHECK_DRIVER(cuDevicePrimaryCtxRetain(context, 0));
    CHECK_DRIVER(cuDevicePrimaryCtxRetain(&other, 0));
    REQUIRE(*context == other);
    CHECK_DRIVER(cuDevicePrimaryCtxRelease(0));
    CHECK_DRIVER(cuDevicePrimaryCtxGetState(0, &flags, &active));
    std::printf("active %d\n", active);
    CHECK_DRIVER(cuCtxSetCurrent(*context));
    SHOW(cuCtxDestroy(*context));
    SHOW(cuDeviceGetAttribute(&number, (CUdevice_attribute)0, 0));
    SHOW(cuDeviceGetAttribute(&number, (CUdevice_attribute)9999, 0));
    SHOW(cuDeviceGetAttribute(&number, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 99));
    SHOW(cuDeviceGetAttribute(nullptr, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
    std::puts("-- stack of contexts");
    CHECK_DRIVER(cuCtxCreate(&other, nullptr, 0, 0));
    CHECK_DRIVER(cuCtxPopCurrent(&current));
    REQUIRE(current == other);
    CHECK_DRIVER(cuCtxGetCurrent(&current));
    REQUIRE(current == *context);
    CHECK_DRIVER(cuCtxPushCurrent(other));
    CHECK_DRIVER(cuCtxDestroy(other));
    CHECK_DRIVER(cuCtxGetCurrent(&current));
    REQUIRE(current == *context);
}

static void pointers(CUcontext context, CUdeviceptr device) {
    std::puts("-- pointers");
    CUdeviceptr base;
    size_t bytes;
    CHECK_DRIVER(cuMemGetAddressRange(&base, &bytes, device + 10));
    REQUIRE(base == device && bytes == 1000);
    SHOW(cuMemGetAddressRange(&base, &bytes, 0x1000));
    SHOW(cuMemFree(device + 4));
    SHOW(cuMemFree(0));
    void *host;
    CUdeviceptr managed;
    unsigned word = 0;
    CHECK_DRIVER(cuMemHostAlloc(&host, 100, 0));
    CHECK_DRIVER(cuMemAllocManaged(&managed, 100, CU_MEM_ATTACH_GLOBAL));
    const CUdeviceptr all[] = {device, (CUdeviceptr)host, managed, (CUdeviceptr)&word};
    for (const CUdeviceptr pointer : all) {
        CUpointer_attribute attributes[] = {
            CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
            CU_POINTER_ATTRIBUTE_HOST_POINTER, CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
        CUcontext of = nullptr;
        unsigned type = 9, is_managed = 9;
        CUdeviceptr on_device = 1, on_host = 1;
        int ordinal = 9;
        void *data[] = {&of, &type, &on_device, &on_host, &is_managed, &ordinal};
        CHECK_DRIVER(cuPointerGetAttributes(6, attributes, data, pointer));
        std::printf("context %d, type %u, device pointer %d, host pointer %d, managed %u, ordinal %d\n",
                    of == context, type, on_device == pointer, on_host == pointer, is_managed, ordinal);
        std::printf("type alone: %d\n", (int)cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer));
    }
    SHOW(cuMemFree((CUdeviceptr)host));
    SHOW(cuMemFreeHost((void *)managed));
    SHOW(cuMemHostGetDevicePointer(&base, &word, 0));
    SHOW(cuMemHostGetDevicePointer(&base, host, 1));
    CHECK_DRIVER(cuMemFreeHost(host));
    SHOW(cuMemFreeHost(host));
    CHECK_DRIVER(cuMemFree(managed));
    SHOW(cuMemFree(managed));
    SHOW(cuMemHostAlloc(&host, 0, 0));
    SHOW(cuMemHostAlloc(&host, 10, 64));
    SHOW(cuMemAllocManaged(&managed, 0, CU_MEM_ATTACH_GLOBAL));
    SHOW(cuMemAllocManaged(&managed, 100, 7));
    SHOW(cuMemAlloc(&base, 0));
    SHOW(cuMemAlloc(nullptr, 4));
}

static void copies(CUdeviceptr device) {
    std::puts("-- copies");
    char host[1000];
    std::memset(host, 1, sizeof host);
    SHOW(cuMemcpyHtoD(device, host, 1000));
    SHOW(cuMemcpyHtoD(device, host, 1001));
    SHOW(cuMemcpyHtoD(device, nullptr, 0));
    SHOW(cuMemcpyHtoD(0, host, 10));
    SHOW(cuMemcpyDtoH(host, device + 500, 501));
    SHOW(cuMemcpyDtoD(device, 0x1000, 50));
    SHOW(cuMemcpy((CUdeviceptr)host, device, 1000));
    SHOW(cuMemsetD8(device, 0x11, 1001));
    SHOW(cuMemsetD16(device + 1, 0x11, 10));
    SHOW(cuMemsetD32(device, 0x11223344, 250));
    SHOW(cuMemsetD2D8(device, 10, 5, 50, 10));
    for (char i = 0; i < 100; i++) {
        host[(int)i] = i;
    }
    CHECK_DRIVER(cuMemcpyHtoD(device, host, 100));
    for (int way = 0; way < 3; way++) {
        // A pitch of 0 stands for rows without gaps.
        std::memset(host, 0x7f, sizeof host);
        CUDA_MEMCPY2D copy = {};
        copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.srcDevice = device;
        copy.srcPitch = way == 2 ? 0 : 10;
        copy.dstMemoryType = CU_MEMORYTYPE_HOST;
        copy.dstHost = host;
        copy.dstPitch = way == 2 ? 10 : 0;
        copy.dstXInBytes = way == 1 ? 2 : 0;
        copy.WidthInBytes = 4;
        copy.Height = 3;
        CHECK_DRIVER(cuMemcpy2D(&copy));
        for (int i = 0; i < 25; i++) {
            std::printf("%d%c", host[i], i < 24 ? ' ' : '\n');
        }
        copy.srcPitch = 3;
        SHOW(cuMemcpy2D(&copy));
    }
}

static void functions(CUdeviceptr device) {
    std::puts("-- functions");
    CUmodule module, of;
    CUfunction store, again, nothing;
    CUdeviceptr address;
    size_t bytes, offset, size;
    SHOW(cuModuleLoadData(&module, "garbage"));
    SHOW(cuModuleLoad(&module, "/nonexistent"));
    CHECK_DRIVER(cuModuleLoadData(&module, kPtx));
    SHOW(cuModuleGetFunction(&store, module, "missing"));
    CHECK_DRIVER(cuModuleGetFunction(&store, module, "store"));
    CHECK_DRIVER(cuModuleGetFunction(&again, module, "store"));
    CHECK_DRIVER(cuModuleGetFunction(&nothing, module, "nothing"));
    CHECK_DRIVER(cuFuncGetModule(&of, store));
    REQUIRE(store == again && of == module);
    CHECK_DRIVER(cuModuleGetGlobal(&address, &bytes, module, "numbers"));
    std::printf("variable of %zu bytes\n", bytes);
    SHOW(cuModuleGetGlobal(nullptr, nullptr, module, "numbers"));
    SHOW(cuModuleGetGlobal(nullptr, &bytes, module, "numbers"));
    for (size_t i = 0; i < 5; i++) {
        const CUresult result = cuFuncGetParamInfo(store, i, &offset, &size);
        std::printf("parameter %zu: %d", i, (int)result);
        std::printf(result == CUDA_SUCCESS ? " at %zu of %zu\n" : "\n", offset, size);
    }
    unsigned n = 100;
    unsigned char c = 1;
    int s[6] = {0, 23, 0, 0, 0, 0};
    int value;
    void *arguments[] = {&device, &n, &c, s};
    SHOW(cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
    CHECK_DRIVER(cuMemcpyDtoH(&value, device, sizeof value));
    std::printf("stored %d\n", value);
    SHOW(cuLaunchKernel(store, 0, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
    SHOW(cuLaunchKernel(store, 1, 1, 1, 2048, 1, 1, 0, nullptr, arguments, nullptr));
    SHOW(cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    SHOW(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    SHOW(cuLaunchCooperativeKernel(nothing, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr));
    CUlaunchConfig config = {};
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    SHOW(cuLaunchKernelEx(&config, store, arguments, nullptr));
    CHECK_DRIVER(cuModuleUnload(module));

    std::puts("-- libraries");
    CUlibrary library;
    CUkernel kernel;
    CUfunction function;
    const char *name;
    CHECK_DRIVER(cuLibraryLoadData(&library, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
    SHOW(cuLibraryGetKernel(&kernel, library, "missing"));
    CHECK_DRIVER(cuLibraryGetKernel(&kernel, library, "store"));
    CHECK_DRIVER(cuKernelGetFunction(&function, kernel));
    CHECK_DRIVER(cuLibraryGetModule(&module, library));
    CHECK_DRIVER(cuFuncGetModule(&of, function));
    REQUIRE(of == module);
    SHOW(cuFuncGetName(&name, (CUfunction)kernel));
    SHOW(cuLibraryGetManaged(&address, &bytes, library, "numbers"));
    n = 1;
    SHOW(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
    CHECK_DRIVER(cuMemcpyDtoH(&value, device, sizeof value));
    std::printf("stored %d\n", value);
    CHECK_DRIVER(cuLibraryUnload(library));
}

static void streams() {
    std::puts("-- streams and events");
    CUstream stream;
    CUevent event, untimed;
    CUcontext context;
    unsigned flags;
    float milliseconds;
    SHOW(cuStreamCreate(&stream, 77));
    CHECK_DRIVER(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_DRIVER(cuStreamGetFlags(stream, &flags));
    std::printf("flags %u\n", flags);
    CHECK_DRIVER(cuStreamGetFlags(nullptr, &flags));
    std::printf("flags of the default stream %u\n", flags);
    SHOW(cuEventCreate(&event, 0x40));
    CHECK_DRIVER(cuEventCreate(&event, CU_EVENT_DEFAULT));
    CHECK_DRIVER(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    SHOW(cuEventElapsedTime(&milliseconds, event, event));
    SHOW(cuEventQuery(event));
    CHECK_DRIVER(cuCtxPopCurrent(&context));
    // Streams and events know their context.
    SHOW(cuEventRecord(event, stream));
    SHOW(cuEventSynchronize(event));
    SHOW(cuStreamWaitEvent(stream, event, 0));
    SHOW(cuStreamQuery(stream));
    CHECK_DRIVER(cuCtxPushCurrent(context));
    SHOW(cuEventElapsedTime(&milliseconds, event, untimed));
    SHOW(cuStreamDestroy(nullptr));
    SHOW(cuStreamDestroy(stream));
    SHOW(cuEventDestroy(event));
    SHOW(cuEventDestroy(untimed));
}

static void proc_addresses() {
    std::puts("-- addresses of functions");
    const struct {
        const char *name;
        int version;
        cuuint64_t flags;
    } all[] = {{"cuMemAlloc", 12000, 0}, {"cuMemAlloc", 12000, 4},      {"cuMissing", 12000, 0},
               {"", 12000, 0},           {"cuMemAllocAsync", 10000, 0}, {"cuMemcpyHtoD", 12000, 2},
               // Refused on most cards, and found all the same: XGBoost asks for it at its first kernel.
               {"cuMemBatchDecompressAsync", 12080, 0}};
    for (const auto &one : all) {
        void *function = nullptr;
        CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)9;
        const CUresult result = cuGetProcAddress(one.name, &function, one.version, one.flags, &status);
        std::printf("%s, %d, %d: %d, status %d, %s\n", one.name, one.version, (int)one.flags, (int)result, (int)status,
                    function ? "found" : "none");
    }
}

static void resets(CUcontext context) {
    std::puts("-- reset");
    CUdeviceptr memory;
    unsigned flags;
    int active;
    CHECK_DRIVER(cuDevicePrimaryCtxReset(0));
    CHECK_DRIVER(cuDevicePrimaryCtxGetState(0, &flags, &active));
    std::printf("active %d\n", active);
    SHOW(cuMemAlloc(&memory, 4));
    SHOW(cuCtxSynchronize());
    CUcontext again;
    CHECK_DRIVER(cuDevicePrimaryCtxRetain(&again, 0));
    REQUIRE(again == context);
    SHOW(cuMemAlloc(&memory, 4));
}

int main() {
    CUcontext context;
    CUdeviceptr device;
    contexts(&context);
    CHECK_DRIVER(cuMemAlloc(&device, 1000));
    pointers(context, device);
    copies(device);
    functions(device);
    streams();
    proc_addresses();
    std::thread([] {
        CUcontext current = (CUcontext)5;
        CHECK_DRIVER(cuCtxGetCurrent(&current));
        std::printf("-- another thread\ncontext %d\n", current != nullptr);
        SHOW(cuStreamQuery(nullptr));
    }).join();
    resets(context);
    return 0;
}
