// SPDX-License-Identifier: Apache-2.0 OR MIT
// Kernels to measure the emulator with. `speed.ptx`: nvcc 13.0 -ptx -arch=sm_90 speed.cu.
extern "C" __global__ void saxpy(float a, const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
extern "C" __global__ void matmul(const float *a, const float *b, float *c, int n) {
    __shared__ float as[16][16], bs[16][16];
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0;
    for (int t = 0; t < n; t += 16) {
        as[threadIdx.y][threadIdx.x] = a[row * n + t + threadIdx.x];
        bs[threadIdx.y][threadIdx.x] = b[(t + threadIdx.y) * n + column];
        __syncthreads();
        for (int k = 0; k < 16; k++) sum += as[threadIdx.y][k] * bs[k][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}
extern "C" __global__ void compute(float *o, int n) {
    float x = threadIdx.x * 0.001f, y = 0.5f;
    #pragma unroll 1
    for (int i = 0; i < n; i++) {
        #pragma unroll
        for (int k = 0; k < 8; k++) { x = x * y + 0.25f; y = y * 0.99f + x * 0.01f; }
    }
    o[blockIdx.x * blockDim.x + threadIdx.x] = x + y;
}
extern "C" __global__ void integers(unsigned *o, int n) {
    unsigned x = threadIdx.x + 1, y = blockIdx.x;
    #pragma unroll 1
    for (int i = 0; i < n; i++) {
        #pragma unroll
        for (int k = 0; k < 8; k++) { x ^= x << 13; x ^= x >> 17; y += x * 0x9e3779b9u; }
    }
    o[blockIdx.x * blockDim.x + threadIdx.x] = x + y;
}
