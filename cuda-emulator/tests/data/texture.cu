// SPDX-License-Identifier: Apache-2.0 OR MIT
// Kernels for the tests of arrays. texture.ptx is this file compiled: nvcc -arch=sm_75 -ptx texture.cu

extern "C" __global__ void sample(cudaTextureObject_t texture, const float2 *at, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = tex2D<float>(texture, at[i].x, at[i].y);
}

extern "C" __global__ void fetch(cudaTextureObject_t texture, int *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = tex1Dfetch<int>(texture, i);
}

extern "C" __global__ void twice(cudaSurfaceObject_t surface, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    float value;
    surf2Dread(&value, surface, x * 4, y);
    surf2Dwrite(2 * value, surface, x * 4, y);
}
