// SPDX-License-Identifier: Apache-2.0 OR MIT
// Kernels for the tests of the driver API. driver.ptx is this file compiled: nvcc -arch=sm_75 -ptx driver.cu
#include <cassert>
#include <cstdio>

struct Mixed {
    char a;
    double d;
    short s;
};

__device__ int counter = 5;
__constant__ float factor[4] = {1, 2, 3, 4};
__managed__ int managed_counter = 77;
__device__ int *pointer_to_counter = &counter;

extern "C" __global__ void scale(float *out, const float *in, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = in[i] * factor[2];
}

extern "C" __global__ void mixed(int *out, char c, Mixed m, int n, short s)
{
    out[0] = c;
    out[1] = m.a;
    out[2] = (int)m.d;
    out[3] = m.s;
    out[4] = n;
    out[5] = s;
}

extern "C" __global__ void count()
{
    atomicAdd(pointer_to_counter, 1);
    atomicAdd(&managed_counter, 1);
}

extern "C" __global__ void reverse(int *out)
{
    extern __shared__ int staged[];
    staged[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = staged[blockDim.x - 1 - threadIdx.x];
}

extern "C" __global__ void wait_for(volatile int *flag, int *seen)
{
    while (*flag == 0)
        ;
    *seen = *flag;
}

extern "C" __global__ void __launch_bounds__(128) bounded()
{
}

extern "C" __global__ void large_static(int *out)
{
    __shared__ int values[4096];
    values[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = values[threadIdx.x ^ 1];
}

extern "C" __global__ void hello(int n)
{
    printf("hello %d from thread %d\n", n, threadIdx.x);
}

extern "C" __global__ void store(int *to)
{
    *to = 1;
}

extern "C" __global__ void check(int n)
{
    assert(n == 0);
}
