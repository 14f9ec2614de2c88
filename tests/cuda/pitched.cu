// SPDX-License-Identifier: Apache-2.0 OR MIT
// Pitched rectangles and boxes: allocation, copies in all directions, sets.
#include "check.h"

#include <vector>

__global__ void transform(unsigned char *base, size_t pitch, int width, int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) {
        base[y * pitch + x] ^= (unsigned char)(x + y);
    }
}

static void rectangle() {
    const size_t width = 301, height = 37, host_pitch = 350;
    std::vector<unsigned char> source(host_pitch * height), target(host_pitch * height, 0xee);
    Random(1).fill(source.data(), source.size());
    unsigned char *first, *second;
    size_t pitch, second_pitch;
    CHECK(cudaMallocPitch(&first, &pitch, width, height));
    CHECK(cudaMallocPitch(&second, &second_pitch, width + 600, height));
    REQUIRE(pitch >= width && second_pitch >= width + 600);
    CHECK(cudaMemcpy2D(first, pitch, source.data(), host_pitch, width, height, cudaMemcpyHostToDevice));
    transform<<<dim3((width + 31) / 32, (height + 7) / 8), dim3(32, 8)>>>(first, pitch, width, height);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy2D(second + 13, second_pitch, first, pitch, width, height, cudaMemcpyDeviceToDevice));
    CHECK(cudaMemcpy2D(target.data() + 5, host_pitch, second + 13, second_pitch, width, height, cudaMemcpyDeviceToHost));
    for (size_t y = 0; y < height; y++) {
        for (size_t x = 0; x < width; x++) {
            REQUIRE(target[y * host_pitch + 5 + x] == (unsigned char)(source[y * host_pitch + x] ^ (x + y)));
        }
        for (size_t x = width + 5; x < host_pitch; x++) {
            REQUIRE(target[y * host_pitch + x] == 0xee);
        }
    }
    std::printf("rectangle: %016llx\n", (unsigned long long)hash_bytes(target.data(), target.size()));

    CHECK(cudaMemset2D(first, pitch, 0x11, width, height));
    CHECK(cudaMemset2D(first + 10, pitch, 0x22, 20, 5));
    CHECK(cudaMemcpy2D(target.data(), host_pitch, first, pitch, width, height, cudaMemcpyDeviceToHost));
    for (size_t y = 0; y < height; y++) {
        for (size_t x = 0; x < width; x++) {
            const bool inner = y < 5 && x >= 10 && x < 30;
            REQUIRE(target[y * host_pitch + x] == (inner ? 0x22 : 0x11));
        }
    }
    std::printf("set rectangle: right\n");
    std::printf("width over pitch: %d\n", (int)cudaMemcpy2D(target.data(), width - 1, first, pitch, width, height,
                                                            cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy2D(target.data(), host_pitch, first, pitch, 0, height, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(first));
    CHECK(cudaFree(second));
}

static void box() {
    const size_t width = 67, height = 9, depth = 5;
    std::vector<unsigned char> source(width * height * depth), target(source.size(), 0xee);
    Random(2).fill(source.data(), source.size());
    const cudaExtent extent = make_cudaExtent(width, height, depth);
    cudaPitchedPtr device, other;
    CHECK(cudaMalloc3D(&device, extent));
    CHECK(cudaMalloc3D(&other, make_cudaExtent(width * 2, height + 3, depth + 1)));
    CHECK(cudaMemset3D(other, 0, make_cudaExtent(width * 2, height + 3, depth + 1)));

    cudaMemcpy3DParms in = {};
    in.srcPtr = make_cudaPitchedPtr(source.data(), width, width, height);
    in.dstPtr = device;
    in.extent = extent;
    in.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&in));

    cudaMemcpy3DParms across = {};
    across.srcPtr = device;
    across.dstPtr = other;
    across.dstPos = make_cudaPos(7, 2, 1);
    across.extent = extent;
    across.kind = cudaMemcpyDeviceToDevice;
    CHECK(cudaMemcpy3D(&across));

    cudaMemcpy3DParms out = {};
    out.srcPtr = other;
    out.srcPos = make_cudaPos(7, 2, 1);
    out.dstPtr = make_cudaPitchedPtr(target.data(), width, width, height);
    out.extent = extent;
    out.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpy3D(&out));
    REQUIRE(target == source);

    unsigned char edge = 9;
    CHECK(cudaMemcpy(&edge, (unsigned char *)other.ptr + other.pitch * (other.ysize + 2) + 6, 1, cudaMemcpyDeviceToHost));
    REQUIRE(edge == 0);
    std::printf("box: %016llx\n", (unsigned long long)hash_bytes(target.data(), target.size()));
    CHECK(cudaFree(device.ptr));
    CHECK(cudaFree(other.ptr));
}

int main() {
    rectangle();
    box();
    return 0;
}
