// SPDX-License-Identifier: Apache-2.0 OR MIT
// A bit of everything that nvcc emits for ordinary programs. `tour.ptx`: nvcc 13.0 -ptx -arch=sm_90 tour.cu.
#include <cassert>
#include <cooperative_groups.h>
#include <cstdio>
namespace cg = cooperative_groups;

__global__ void hello(int limit) {
    printf("hello %d %f %s\n", threadIdx.x, 1.5, "abc");
    assert(int(threadIdx.x) < limit);
}
__global__ void vector_add(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
__global__ void reduce(const float *a, float *o) {
    extern __shared__ float s[];
    __shared__ int q[4];
    int t = threadIdx.x;
    s[t] = a[blockIdx.x * blockDim.x + t];
    q[t & 3] = t & 3;
    __syncthreads();
    for (int k = blockDim.x / 2; k; k >>= 1) {
        if (t < k) s[t] += s[t + k];
        __syncthreads();
    }
    if (!t) o[blockIdx.x] = s[0] + q[1];
}
__global__ void cooperative(int *a) {
    cg::grid_group g = cg::this_grid();
    a[g.thread_rank()] = g.thread_rank();
    g.sync();
    int other = a[(g.thread_rank() + 37) % g.size()];
    g.sync();
    a[g.thread_rank()] += other;
}
struct Shape {
    __device__ virtual int f(int) = 0;
};
struct Add : Shape {
    int k;
    __device__ Add(int k) : k(k) {}
    __device__ int f(int x) override { return x + k; }
};
struct Multiply : Shape {
    int k;
    __device__ Multiply(int k) : k(k) {}
    __device__ int f(int x) override { return x * k; }
};
__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
__global__ void virtual_calls(int *o, int n) {
    Shape *v;
    if (threadIdx.x & 1) v = new Add(n); else v = new Multiply(n);
    o[threadIdx.x] = v->f(threadIdx.x) + fib(n + threadIdx.x % 3);
    delete v;
}
struct S {
    int a[10];
    double d;
};
__global__ void by_value(S s, int i, double *o) { o[0] = s.a[i] + s.d; }
typedef int (*Function)(int);
__device__ int plus_one(int x) { return x + 1; }
__device__ int times_three(int x) { return x * 3; }
__device__ Function table[2] = {plus_one, times_three};
__device__ int global_value = 5;
__constant__ float constants[4] = {1, 2, 3, 4};
__managed__ int managed_value = 7;
__device__ int *pointer = &global_value;
__global__ void indirect(int *o, int i) { o[i] = table[i](*pointer) + managed_value + (int)constants[i]; }
__global__ void math(float *x, double *y) {
    int i = threadIdx.x;
    x[i] = sinf(x[i]) + expf(x[i]) / logf(x[i]) + powf(x[i], 2.5f) + rsqrtf(x[i]) + __fdividef(x[i], 3.f);
    y[i] = sin(y[i]) + exp(y[i]) / log(y[i]) + sqrt(y[i]);
}
__global__ void shuffle(int *o) {
    int v = threadIdx.x;
    for (int d = 16; d; d >>= 1) v += __shfl_down_sync(~0u, v, d);
    o[threadIdx.x] = v + __ballot_sync(~0u, v > 3) + __any_sync(~0u, v) + __popc(__activemask());
}
__global__ void aggregate(int *o) {
    if (threadIdx.x % 3) {
        auto t = cg::coalesced_threads();
        if (t.thread_rank() == 0) atomicAdd(o, t.size());
    }
}
__global__ void spin_lock(int *lock, int *count) {
    while (atomicCAS(lock, 0, 1)) {}
    *(volatile int *)count = *(volatile int *)count + 1;
    __threadfence();
    atomicExch(lock, 0);
}
__global__ void local_array(int *o, int n) {
    int a[16];
    for (int i = 0; i < 16; i++) a[i] = i * threadIdx.x;
    o[threadIdx.x] = a[n] + a[(n + threadIdx.x) & 15];
}
__global__ void branches(int *o) {
    int x = threadIdx.x, r = 0;
    switch (x % 7) {
        case 0: r = 10; break;
        case 1: r = x * 3; break;
        case 2: for (int i = 0; i < x; i++) r += i ^ 5; break;
        case 3: r = -x; break;
        case 4: r = x << 3; break;
        case 5: if (x > 16) r = 99; else r = 98; break;
        default: r = 1234; break;
    }
    o[x] = r;
}
