// SPDX-License-Identifier: Apache-2.0 OR MIT
// Boxes of many shapes: to the device, inside it and back, pageable and pinned, waiting or not; what lies
// outside the box must stay as it was.
#include "check.h"

#include <cstring>

struct Shape {
    size_t width, height, depth;
    // Of the host's memory.
    size_t pitch, rows;
};

static void round_trip(const Shape &shape, bool pinned, bool async) {
    const size_t bytes = shape.pitch * shape.rows * shape.depth;
    unsigned char *source, *result;
    if (pinned) {
        CHECK(cudaMallocHost(&source, bytes));
        CHECK(cudaMallocHost(&result, bytes));
    } else {
        source = new unsigned char[bytes];
        result = new unsigned char[bytes];
    }
    for (size_t i = 0; i < bytes; i++) {
        source[i] = (unsigned char)(i * 31 + i / 255);
    }
    std::memset(result, 0xee, bytes);
    auto copy = [async](const cudaMemcpy3DParms &parameters) {
        CHECK(async ? cudaMemcpy3DAsync(&parameters) : cudaMemcpy3D(&parameters));
    };

    cudaPitchedPtr first, second;
    CHECK(cudaMalloc3D(&first, make_cudaExtent(shape.width + 5, shape.height + 2, shape.depth + 1)));
    CHECK(cudaMalloc3D(&second, make_cudaExtent(shape.width + 9, shape.height + 1, shape.depth)));
    cudaMemcpy3DParms up = {};
    up.srcPtr = make_cudaPitchedPtr(source, shape.pitch, shape.width, shape.rows);
    up.dstPtr = first;
    up.dstPos = make_cudaPos(3, 1, 1);
    up.extent = make_cudaExtent(shape.width, shape.height, shape.depth);
    up.kind = cudaMemcpyHostToDevice;
    copy(up);
    cudaMemcpy3DParms across = {};
    across.srcPtr = first;
    across.srcPos = up.dstPos;
    across.dstPtr = second;
    across.dstPos = make_cudaPos(2, 1, 0);
    across.extent = up.extent;
    across.kind = cudaMemcpyDeviceToDevice;
    copy(across);
    cudaMemcpy3DParms down = {};
    down.srcPtr = second;
    down.srcPos = across.dstPos;
    down.dstPtr = make_cudaPitchedPtr(result, shape.pitch, shape.width, shape.rows);
    down.extent = up.extent;
    down.kind = cudaMemcpyDeviceToHost;
    copy(down);
    CHECK(cudaDeviceSynchronize());

    for (size_t i = 0; i < bytes; i++) {
        const size_t x = i % shape.pitch, y = i / shape.pitch % shape.rows;
        REQUIRE(result[i] == (x < shape.width && y < shape.height ? source[i] : 0xee));
    }
    CHECK(cudaFree(first.ptr));
    CHECK(cudaFree(second.ptr));
    if (pinned) {
        CHECK(cudaFreeHost(source));
        CHECK(cudaFreeHost(result));
    } else {
        delete[] source;
        delete[] result;
    }
}

int main() {
    const Shape shapes[] = {
        {7, 1, 1, 7, 1},
        {10, 3, 2, 10, 3},
        {10, 3, 2, 17, 4},
        {1000, 100, 7, 1024, 100},
        {5000, 1000, 3, 5000, 1000},
        {5001, 1000, 2, 5003, 1001},
        // A row longer than the stack copies at once.
        {6u << 20, 2, 1, 6u << 20, 2},
    };
    for (const Shape &shape : shapes) {
        for (int way = 0; way < 4; way++) {
            round_trip(shape, way & 1, way & 2);
        }
        std::printf("%zu x %zu x %zu: right\n", shape.width, shape.height, shape.depth);
    }

    int from[100], to[100] = {};
    for (int i = 0; i < 100; i++) {
        from[i] = i;
    }
    CHECK(cudaMemcpy2D(to, 40, from, 40, 20, 10, cudaMemcpyHostToHost));
    REQUIRE(to[94] == 94 && to[95] == 0);
    CHECK(cudaMemcpy(to, from, sizeof to, cudaMemcpyHostToHost));
    REQUIRE(to[95] == 95);
    return 0;
}
