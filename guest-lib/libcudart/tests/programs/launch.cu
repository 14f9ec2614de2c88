// SPDX-License-Identifier: Apache-2.0 OR MIT
// Launches in all their forms, kernel attributes, occupancy, printf, reset.
#include <thread>
#include <vector>

#include "check.h"

struct Big {
    int values[20];
    double factor;
};

__device__ int counter;
__managed__ int shared_counter;

__global__ void scale(float *x, int n, float by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= by;
}
template <typename V> __global__ void add(const V *a, const V *b, V *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
__global__ void by_value(Big big, int *out) { out[threadIdx.x] = (int)(big.values[threadIdx.x] * big.factor); }
__global__ void reduce(const int *in, int *out, int n) {
    extern __shared__ int part[];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    part[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (t < s) part[t] += part[t + s];
        __syncthreads();
    }
    if (t == 0) atomicAdd(out, part[0]);
}
__global__ void count() {
    atomicAdd(&counter, 1);
    atomicAdd(&shared_counter, 2);
}
__global__ void say(int x) { printf("  kernel says %d\n", x); }
__global__ void __launch_bounds__(128, 2) bounded(float *p) {
    __shared__ float s[64];
    s[threadIdx.x % 64] = p[0];
    __syncthreads();
    p[threadIdx.x] = s[63 - threadIdx.x % 64];
}

static void kernel_attributes(const char *what, const void *f) {
    cudaFuncAttributes a;
    memset(&a, 0x5a, sizeof a);
    int e = cudaFuncGetAttributes(&a, f);
    SHOW("%s: %d shared %zu const %zu local %zu threads %d regs>0 %d ptx %d binary %d ca %d dynamic %d carveout %d cluster %d %d %d %d %d %d", what, e,
         a.sharedSizeBytes, a.constSizeBytes, a.localSizeBytes, a.maxThreadsPerBlock, a.numRegs > 0, a.ptxVersion, a.binaryVersion,
         a.cacheModeCA, a.maxDynamicSharedSizeBytes, a.preferredShmemCarveout, a.clusterDimMustBeSet, a.requiredClusterWidth,
         a.requiredClusterHeight, a.requiredClusterDepth, a.clusterSchedulingPolicyPreference, a.nonPortableClusterSizeAllowed);
}

static int worker(int id) {
    const int n = 4096;
    std::vector<float> x(n, 1.0f + id);
    float *d = nullptr;
    int bad = cudaSetDevice(0);
    bad |= cudaMalloc(&d, n * 4);
    bad |= cudaMemcpy(d, x.data(), n * 4, cudaMemcpyHostToDevice);
    for (int i = 0; i < 10; i++) scale<<<n / 256, 256, 0, cudaStreamPerThread>>>(d, n, 2);
    bad |= cudaStreamSynchronize(cudaStreamPerThread);
    bad |= cudaMemcpy(x.data(), d, n * 4, cudaMemcpyDeviceToHost);
    bad |= cudaFree(d) | cudaGetLastError();
    for (float v : x) bad |= v != (1.0f + id) * 1024;
    return bad;
}

int main() {
    const int n = 1000;
    std::vector<int> a(n), b(n), c(n);
    for (int i = 0; i < n; i++) a[i] = i, b[i] = 3 * i;
    int *da, *db, *dc;
    T(cudaMalloc(&da, n * 4));
    T(cudaMalloc(&db, n * 4));
    T(cudaMalloc(&dc, n * 4));
    T(cudaMemcpy(da, a.data(), n * 4, cudaMemcpyHostToDevice));
    T(cudaMemcpy(db, b.data(), n * 4, cudaMemcpyHostToDevice));
    add<int><<<(n + 127) / 128, 128>>>(da, db, dc, n);
    LAUNCHED("add<int>");
    T(cudaMemcpy(c.data(), dc, n * 4, cudaMemcpyDeviceToHost));
    int wrong = 0;
    for (int i = 0; i < n; i++) wrong += c[i] != 4 * i;
    SHOW("wrong %d", wrong);
    Big big;
    for (int i = 0; i < 20; i++) big.values[i] = i + 1;
    big.factor = 2.5;
    by_value<<<1, 20>>>(big, dc);
    LAUNCHED("by value");
    T(cudaMemcpy(c.data(), dc, 80, cudaMemcpyDeviceToHost));
    SHOW("%d %d %d", c[0], c[1], c[19]);
    T(cudaMemset(dc, 0, 4));
    reduce<<<4, 256, 1024>>>(da, dc, n);
    LAUNCHED("reduce");
    T(cudaMemcpy(c.data(), dc, 4, cudaMemcpyDeviceToHost));
    SHOW("%d", c[0]);
    count<<<5, 32>>>();
    T(cudaDeviceSynchronize());
    int seen = -1;
    T(cudaMemcpyFromSymbol(&seen, counter, 4));
    SHOW("%d %d", seen, shared_counter);

    // The other ways to launch.
    float *x = (float *)da;
    int m = 16;
    float by = 3, ones[16], back[16];
    for (float &v : ones) v = 1;
    T(cudaMemcpy(x, ones, 64, cudaMemcpyHostToDevice));
    void *args[] = {&x, &m, &by};
    T(cudaLaunchKernel((const void *)scale, dim3(1), dim3(32), args, 0, 0));
    T(cudaLaunchCooperativeKernel((const void *)scale, dim3(1), dim3(32), args, 0, 0));
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(2);
    config.blockDim = dim3(8);
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributePriority;
    attribute.val.priority = 0;
    config.attrs = &attribute;
    config.numAttrs = 1;
    T(cudaLaunchKernelExC(&config, (const void *)scale, args));
    T(cudaLaunchKernelEx(&config, scale, x, m, by));
    cudaKernel_t kernel = nullptr;
    cudaFunction_t function = nullptr;
    T(cudaGetKernel(&kernel, (const void *)scale));
    T(cudaGetFuncBySymbol(&function, (const void *)scale));
    T(cudaLaunchKernel((const void *)kernel, dim3(1), dim3(32), args, 0, 0));
    T(cudaLaunchKernel((const void *)function, dim3(1), dim3(32), args, 0, 0));
    T(cudaMemcpy(back, x, 64, cudaMemcpyDeviceToHost));
    SHOW("%g %g", back[0], back[15]);
    kernel_attributes("scale", (const void *)scale);
    kernel_attributes("bounded", (const void *)bounded);
    kernel_attributes("kernel handle", (const void *)kernel);
    kernel_attributes("function handle", (const void *)function);
    T(cudaGetLastError());
    T(cudaFuncSetAttribute(bounded, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10));
    T(cudaFuncSetAttribute(bounded, cudaFuncAttributePreferredSharedMemoryCarveout, 50));
    kernel_attributes("bounded", (const void *)bounded);
    T(cudaFuncSetCacheConfig(bounded, cudaFuncCachePreferShared));
    const char *name = "";
    T(cudaFuncGetName(&name, (const void *)add<int>));
    SHOW("%s", name);
    for (size_t i = 0; i < 4; i++) {
        size_t offset = 99, size = 99;
        int e = cudaFuncGetParamInfo((const void *)scale, i, &offset, &size);
        SHOW("parameter %zu: %d %zu %zu", i, e, e ? 0 : offset, e ? 0 : size);
    }
    T(cudaGetLastError());
    int blocks = -1, grid = -1, block = -1;
    T(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, scale, 256, 0));
    SHOW("%d", blocks);
    T(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, bounded, 128, 64 << 10));
    SHOW("%d", blocks);
    T(cudaOccupancyMaxPotentialBlockSize(&grid, &block, scale, 0, 0));
    SHOW("%d %d", grid, block);
    size_t dynamic = 0;
    T(cudaOccupancyAvailableDynamicSMemPerBlock(&dynamic, scale, 2, 256));
    SHOW("%zu", dynamic);
    int clusters = -1;
    T(cudaOccupancyMaxPotentialClusterSize(&clusters, scale, &config));
    SHOW("%d", clusters);

    // Threads.
    std::vector<std::thread> threads;
    int results[4] = {};
    for (int i = 0; i < 4; i++) threads.emplace_back([&results, i] { results[i] = worker(i); });
    for (auto &t : threads) t.join();
    SHOW("threads %d %d %d %d", results[0], results[1], results[2], results[3]);

    say<<<1, 1>>>(42);
    T(cudaDeviceSynchronize());

    // Reset: memory and variables are gone, kernels come back by themselves.
    T(cudaDeviceReset());
    T(cudaMalloc(&x, 64));
    T(cudaMemcpy(x, ones, 64, cudaMemcpyHostToDevice));
    scale<<<1, 16>>>(x, 16, 5);
    LAUNCHED("after reset");
    T(cudaMemcpy(back, x, 64, cudaMemcpyDeviceToHost));
    SHOW("%g", back[3]);
    add<float><<<1, 16>>>(x, x, x, 16);
    LAUNCHED("first launch after reset");
    count<<<1, 1>>>();
    T(cudaMemcpyFromSymbol(&seen, counter, 4));
    SHOW("%d %d", seen, shared_counter);
    T(cudaLaunchKernel((const void *)kernel, dim3(1), dim3(32), args, 0, 0));
    T(cudaDeviceReset());
    T(cudaDeviceReset());
    T(cudaDeviceSynchronize());
    std::thread([] {
        void *p = nullptr;
        T(cudaMalloc(&p, 64));
        std::thread([] { T(cudaDeviceReset()); }).join();
        T(cudaMalloc(&p, 64));
        scale<<<1, 1>>>((float *)p, 1, 5);
        LAUNCHED("after another thread's reset");
        T(cudaDeviceSynchronize());
    }).join();
    T(cudaFree(nullptr));
    return 0;
}
