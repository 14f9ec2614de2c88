// SPDX-License-Identifier: Apache-2.0 OR MIT
// Compiled with --default-stream per-thread: every call below is its _ptsz or _ptds variant.
#include <thread>

#include "check.h"

__constant__ int words[4];
__global__ void bump(int *p) { p[threadIdx.x] += words[threadIdx.x % 4]; }

static void work() {
    int *d = nullptr, h[32], one[4] = {1, 2, 3, 4};
    T(cudaMalloc(&d, 128));
    T(cudaMemset(d, 0, 128));
    T(cudaMemcpyToSymbol(words, one, 16));
    bump<<<1, 32>>>(d);
    LAUNCHED("bump");
    T(cudaMemcpy(h, d, 128, cudaMemcpyDeviceToHost));
    SHOW("%d %d", h[0], h[31]);
    T(cudaMemcpy2D(h, 8, d, 16, 8, 4, cudaMemcpyDeviceToHost));
    SHOW("%d %d", h[0], h[7]);
    T(cudaMemsetAsync(d, 1, 64, 0));
    T(cudaMemcpyAsync(h, d, 128, cudaMemcpyDeviceToHost, 0));
    T(cudaStreamSynchronize(0));
    SHOW("%x %d", h[0], h[31]);
    T(cudaStreamQuery(0));
    T(cudaMemcpy(d, h, 128, cudaMemcpyDefault));
    T(cudaMemcpyFromSymbol(h, words, 16));
    SHOW("%d", h[3]);
    cudaEvent_t e;
    T(cudaEventCreate(&e));
    T(cudaEventRecord(e));
    T(cudaEventSynchronize(e));
    int m = 0;
    T(cudaLaunchHostFunc(0, [](void *p) { *(int *)p = 5; }, &m));
    T(cudaStreamSynchronize(0));
    SHOW("%d", m);
    T(cudaFree(d));
}

int main() {
    work();
    std::thread(work).join();
    return 0;
}
