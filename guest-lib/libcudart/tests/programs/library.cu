// SPDX-License-Identifier: Apache-2.0 OR MIT
// cudaLibrary*: a module given as PTX text.
#include "check.h"

static const char ptx[] = R"(
.version 8.0
.target sm_80
.address_size 64
.visible .global .align 4 .u32 word[4];
.visible .entry put(.param .u64 p, .param .u32 v) {
    .reg .b64 %rd<3>;
    .reg .b32 %r<3>;
    ld.param.u64 %rd1, [p];
    ld.param.u32 %r1, [v];
    cvta.to.global.u64 %rd2, %rd1;
    st.global.u32 [%rd2], %r1;
    ret;
}
.visible .entry nothing() { ret; }
)";

int main() {
    cudaLibrary_t library = nullptr;
    T(cudaLibraryLoadData(&library, ptx, nullptr, nullptr, 0, nullptr, nullptr, 0));
    unsigned count = 0;
    T(cudaLibraryGetKernelCount(&count, library));
    SHOW("%u", count);
    cudaKernel_t kernels[2] = {}, put = nullptr;
    T(cudaLibraryEnumerateKernels(kernels, 2, library));
    T(cudaLibraryGetKernel(&put, library, "put"));
    SHOW("%d", put == kernels[0] || put == kernels[1]);
    T(cudaLibraryGetKernel(&kernels[0], library, "absent"));
    int *d = nullptr, v = 77, back = 0;
    T(cudaMalloc(&d, 4));
    void *args[] = {&d, &v};
    T(cudaLaunchKernel((const void *)put, dim3(1), dim3(1), args, 0, 0));
    T(cudaMemcpy(&back, d, 4, cudaMemcpyDeviceToHost));
    SHOW("%d", back);
    void *word = nullptr;
    size_t size = 0;
    T(cudaLibraryGetGlobal(&word, &size, library, "word"));
    SHOW("%d %zu", word != nullptr, size);
    T(cudaLibraryGetGlobal(&word, &size, library, "absent"));
    T(cudaLibraryGetManaged(&word, &size, library, "word"));
    T(cudaKernelSetAttributeForDevice(put, cudaFuncAttributeMaxDynamicSharedMemorySize, 1024, 0));
    cudaFuncAttributes a;
    T(cudaFuncGetAttributes(&a, (const void *)put));
    SHOW("%d", a.maxDynamicSharedSizeBytes);
    T(cudaLibraryUnload(library));
    char log[256] = {};
    cudaJitOption option[] = {cudaJitErrorLogBuffer, cudaJitErrorLogBufferSizeBytes};
    void *value[] = {log, (void *)(size_t)sizeof log};
    T(cudaLibraryLoadData(&library, "not ptx", option, value, 2, nullptr, nullptr, 0));
    T(cudaLibraryLoadFromFile(&library, "/nonexistent", nullptr, nullptr, 0, nullptr, nullptr, 0));
    return 0;
}
