// SPDX-License-Identifier: Apache-2.0 OR MIT
// The driver API alone: a module from PTX text, launches by parameters and by packed buffer, variables, memory sets,
// streams, events, contexts.
#include "check_driver.h"

#include <cstring>
#include <string>
#include <vector>

static const char kPtx[] = R"(
.version 7.8
.target sm_90
.address_size 64

.visible .global .align 4 .u32 calls = 100;
.visible .const .align 4 .f32 bias = 0f3F000000;

// out[i] = a * in[i] + bias for i < n; counts the threads that took part.
.visible .entry scale(.param .u64 out, .param .u64 in, .param .f32 a, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<8>;
    .reg .f32 %f<5>;
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [in];
    ld.param.f32 %f1, [a];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra done;
    cvta.to.global.u64 %rd3, %rd1;
    cvta.to.global.u64 %rd4, %rd2;
    mul.wide.u32 %rd5, %r5, 4;
    add.s64 %rd6, %rd4, %rd5;
    ld.global.f32 %f2, [%rd6];
    ld.const.f32 %f3, [bias];
    fma.rn.f32 %f4, %f1, %f2, %f3;
    add.s64 %rd7, %rd3, %rd5;
    st.global.f32 [%rd7], %f4;
    atom.global.add.u32 %r6, [calls], 1;
done:
    ret;
}
)";

static void check_scaled(const char *label, CUdeviceptr out, float a, int n) {
    std::vector<float> host(n);
    CHECK_DRIVER(cuMemcpyDtoH(host.data(), out, n * sizeof(float)));
    for (int i = 0; i < n; i++) {
        REQUIRE(host[i] == a * i + 0.5f);
    }
    std::printf("%s: %d elements right\n", label, n);
}

int main() {
    int version = 0, count = 0, value = 0;
    CHECK_DRIVER(cuInit(0));
    CHECK_DRIVER(cuDriverGetVersion(&version));
    CHECK_DRIVER(cuDeviceGetCount(&count));
    REQUIRE(version >= 13000 && count >= 1);
    CUdevice device;
    CHECK_DRIVER(cuDeviceGet(&device, 0));
    std::printf("7 devices further: %d\n", (int)cuDeviceGet(&device, count + 7));
    CHECK_DRIVER(cuDeviceGet(&device, 0));
    char name[128] = {};
    size_t total = 0;
    CHECK_DRIVER(cuDeviceGetName(name, sizeof name, device));
    CHECK_DRIVER(cuDeviceTotalMem(&total, device));
    REQUIRE(name[0] != 0 && total > 0);
    CHECK_DRIVER(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device));
    std::printf("warp size %d\n", value);

    // Without a context nothing works.
    CUdeviceptr in = 0, out = 0;
    std::printf("no context: %d\n", (int)cuMemAlloc(&in, 16));

    CUcontext primary, current = nullptr;
    CHECK_DRIVER(cuDevicePrimaryCtxRetain(&primary, device));
    CHECK_DRIVER(cuCtxSetCurrent(primary));
    CHECK_DRIVER(cuCtxGetCurrent(&current));
    REQUIRE(current == primary);

    const int n = 1000;
    std::vector<float> host(n);
    for (int i = 0; i < n; i++) {
        host[i] = (float)i;
    }
    CHECK_DRIVER(cuMemAlloc(&in, n * sizeof(float)));
    CHECK_DRIVER(cuMemAlloc(&out, n * sizeof(float)));
    CHECK_DRIVER(cuMemcpyHtoD(in, host.data(), n * sizeof(float)));

    CUmodule module;
    CUfunction scale;
    CHECK_DRIVER(cuModuleLoadData(&module, kPtx));
    CHECK_DRIVER(cuModuleGetFunction(&scale, module, "scale"));
    CHECK_DRIVER(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, scale));
    REQUIRE(value >= 128);

    // Parameters one by one.
    float a = 2.0f;
    int elements = n;
    void *parameters[] = {&out, &in, &a, &elements};
    CHECK_DRIVER(cuLaunchKernel(scale, (n + 127) / 128, 1, 1, 128, 1, 1, 0, nullptr, parameters, nullptr));
    a = -1;  // the launch has its own copy
    CHECK_DRIVER(cuCtxSynchronize());
    check_scaled("kernelParams", out, 2.0f, n);

    // Parameters packed.
    struct {
        CUdeviceptr out, in;
        float a;
        unsigned n;
    } packed = {out, in, 4.0f, (unsigned)n};
    size_t packed_bytes = sizeof packed;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &packed_bytes,
                     CU_LAUNCH_PARAM_END};
    CUstream stream;
    CHECK_DRIVER(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_DRIVER(cuMemsetD32Async(out, 0, n, stream));
    CHECK_DRIVER(cuLaunchKernel(scale, (n + 127) / 128, 1, 1, 128, 1, 1, 0, stream, nullptr, extra));
    CHECK_DRIVER(cuStreamSynchronize(stream));
    check_scaled("extra", out, 4.0f, n);

    // Variables.
    CUdeviceptr calls, bias;
    size_t bytes = 0;
    CHECK_DRIVER(cuModuleGetGlobal(&calls, &bytes, module, "calls"));
    unsigned seen = 0;
    CHECK_DRIVER(cuMemcpyDtoH(&seen, calls, sizeof seen));
    std::printf("calls: %zu bytes, %u\n", bytes, seen);
    REQUIRE(seen == 100 + 2 * n);
    CHECK_DRIVER(cuModuleGetGlobal(&bias, &bytes, module, "bias"));
    const float no_bias = 0.0f;
    CHECK_DRIVER(cuMemcpyHtoD(bias, &no_bias, sizeof no_bias));
    a = 3.0f;
    CHECK_DRIVER(cuLaunchKernel(scale, 1, 1, 1, 64, 1, 1, 0, nullptr, parameters, nullptr));
    float one = 0;
    CHECK_DRIVER(cuMemcpyDtoH(&one, out + 63 * sizeof(float), sizeof one));
    std::printf("without bias: %g\n", one);

    // Sets, and copies inside the device.
    std::vector<unsigned char> pattern(64);
    CHECK_DRIVER(cuMemsetD8(out, 0xab, 16));
    CHECK_DRIVER(cuMemsetD16(out + 16, 0x1234, 8));
    CHECK_DRIVER(cuMemsetD32(out + 32, 0xdeadbeef, 4));
    CHECK_DRIVER(cuMemcpyDtoD(out + 48, out + 8, 16));
    CHECK_DRIVER(cuMemcpyDtoH(pattern.data(), out, pattern.size()));
    std::printf("pattern:");
    for (unsigned char byte : pattern) {
        std::printf(" %02x", byte);
    }
    std::printf("\n");

    CUdeviceptr base = 0;
    CHECK_DRIVER(cuMemGetAddressRange(&base, &bytes, out + 100));
    REQUIRE(base == out && bytes == n * sizeof(float));

    // Events.
    CUevent start, stop;
    CHECK_DRIVER(cuEventCreate(&start, CU_EVENT_DEFAULT));
    CHECK_DRIVER(cuEventCreate(&stop, CU_EVENT_DEFAULT));
    CHECK_DRIVER(cuEventRecord(start, stream));
    CHECK_DRIVER(cuEventRecord(stop, stream));
    CHECK_DRIVER(cuStreamSynchronize(stream));
    CHECK_DRIVER(cuEventQuery(stop));
    float milliseconds = -1;
    CHECK_DRIVER(cuEventElapsedTime(&milliseconds, start, stop));
    REQUIRE(milliseconds >= 0);
    CHECK_DRIVER(cuEventDestroy(start));
    CHECK_DRIVER(cuEventDestroy(stop));

    // A context of one's own, on the stack of contexts.
    CUcontext own, popped;
    CHECK_DRIVER(cuCtxCreate(&own, nullptr, 0, device));
    CHECK_DRIVER(cuCtxGetCurrent(&current));
    REQUIRE(current == own && own != primary);
    CUdeviceptr there;
    CHECK_DRIVER(cuMemAlloc(&there, 16));
    CHECK_DRIVER(cuMemFree(there));
    CHECK_DRIVER(cuCtxPopCurrent(&popped));
    REQUIRE(popped == own);
    CHECK_DRIVER(cuCtxGetCurrent(&current));
    REQUIRE(current == primary);
    // None needs to be current for that.
    CHECK_DRIVER(cuCtxSetCurrent(nullptr));
    CHECK_DRIVER(cuCtxDestroy(own));
    CHECK_DRIVER(cuCtxSetCurrent(primary));

    // Errors.
    std::printf("free of a bogus address: %d\n", (int)cuMemFree(0x1234));
    std::printf("grid of 0: %d\n", (int)cuLaunchKernel(scale, 0, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
    const char *text = nullptr;
    CHECK_DRIVER(cuGetErrorName(CUDA_ERROR_NOT_FOUND, &text));
    std::printf("500: %s\n", text);
    std::printf("unknown error: %d\n", (int)cuGetErrorString((CUresult)12345, &text));

    CHECK_DRIVER(cuStreamDestroy(stream));
    CHECK_DRIVER(cuModuleUnload(module));
    CHECK_DRIVER(cuMemFree(in));
    CHECK_DRIVER(cuMemFree(out));
    CHECK_DRIVER(cuDevicePrimaryCtxRelease(device));
    return 0;
}
