// SPDX-License-Identifier: Apache-2.0 OR MIT
// nvcc: -Wno-deprecated-declarations
// The launch calls of CUDA 3, by which a function keeps what the next launch has.
#include "check_driver.h"

#include <cstring>

__global__ void scale(float *out, const float *in, float factor, int count) {
    extern __shared__ float tile[];
    const int own = threadIdx.y * blockDim.x + threadIdx.x;
    const int i = (blockIdx.y * gridDim.x + blockIdx.x) * blockDim.x * blockDim.y + own;
    tile[own] = i < count ? in[i] * factor : 0;
    __syncthreads();
    if (i < count)
        out[i] = tile[own];
}

static const int COUNT = 1024;

static float sum_of(CUdeviceptr memory) {
    static float host[COUNT];
    CHECK_DRIVER(cuMemcpyDtoH(host, memory, sizeof host));
    float sum = 0;
    for (float one : host)
        sum += one;
    return sum;
}

int main() {
    use_primary_context();
    CHECK(cudaFree(0));
    cudaFunction_t found;
    CHECK(cudaGetFuncBySymbol(&found, (const void *)scale));
    const CUfunction function = (CUfunction)found;
    CUdeviceptr in, out;
    CHECK_DRIVER(cuMemAlloc(&in, COUNT * sizeof(float)));
    CHECK_DRIVER(cuMemAlloc(&out, COUNT * sizeof(float)));
    const float one = 1;
    uint32_t bits;
    memcpy(&bits, &one, sizeof bits);
    CHECK_DRIVER(cuMemsetD32(in, bits, COUNT));
    CHECK_DRIVER(cuMemsetD32(out, 0, COUNT));

    CHECK_DRIVER(cuFuncSetBlockShape(function, 16, 8, 1));
    CHECK_DRIVER(cuFuncSetSharedSize(function, 128 * sizeof(float)));
    CHECK_DRIVER(cuParamSetv(function, 0, &out, sizeof out));
    CHECK_DRIVER(cuParamSetv(function, 8, &in, sizeof in));
    CHECK_DRIVER(cuParamSetf(function, 16, 3.0f));
    CHECK_DRIVER(cuParamSeti(function, 20, COUNT));
    CHECK_DRIVER(cuParamSetSize(function, 24));
    CHECK_DRIVER(cuLaunch(function));
    CHECK_DRIVER(cuCtxSynchronize());
    std::printf("one block: %g\n", sum_of(out));
    CHECK_DRIVER(cuLaunchGrid(function, 4, 2));
    CHECK_DRIVER(cuCtxSynchronize());
    std::printf("a grid: %g\n", sum_of(out));

    CUstream stream;
    CHECK_DRIVER(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_DRIVER(cuParamSetf(function, 16, 0.5f));
    CHECK_DRIVER(cuParamSeti(function, 20, 512));
    CHECK_DRIVER(cuLaunchGridAsync(function, 8, 1, stream));
    CHECK_DRIVER(cuStreamSynchronize(stream));
    std::printf("in a stream: %g\n", sum_of(out));
    std::printf("wrong: %d %d %d\n", (int)cuFuncSetBlockShape(function, 0, 1, 1), (int)cuLaunchGrid(function, 0, 1),
                (int)cuParamSeti(function, 1 << 20, 1));
    CHECK_DRIVER(cuStreamDestroy(stream));
    std::printf("done\n");
    return 0;
}
