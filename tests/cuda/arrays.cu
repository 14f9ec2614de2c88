// SPDX-License-Identifier: Apache-2.0 OR MIT
// Arrays of all shapes: filled and read back from pageable, pinned and device memory and other arrays, and seen
// by kernels through surfaces.
#include "check.h"

#include <cstring>
#include <vector>

// What element (x, y, z) holds.
static __host__ __device__ unsigned int pattern(size_t x, size_t y, size_t z) {
    return (unsigned int)(x * 2654435761u + y * 40503u + z * 131071u + 17u);
}

struct Shape {
    const char *name;
    cudaExtent extent;
    unsigned int flags;
    // Of the memory that it is copied to and from.
    size_t width, height, depth;
};

static std::vector<unsigned int> filled(const Shape &shape, size_t pitch) {
    std::vector<unsigned int> memory(pitch / 4 * shape.height * shape.depth, 0xeeeeeeeeu);
    for (size_t z = 0; z < shape.depth; z++) {
        for (size_t y = 0; y < shape.height; y++) {
            for (size_t x = 0; x < shape.width; x++) {
                memory[(z * shape.height + y) * (pitch / 4) + x] = pattern(x, y, z);
            }
        }
    }
    return memory;
}

// Copies between an array and memory of one kind, there and back.
static void round_trip(const Shape &shape, const char *memory, bool async) {
    const size_t pitch = (shape.width + 3) * 4;
    const std::vector<unsigned int> source = filled(shape, pitch);
    std::vector<unsigned int> result(source.size(), 0xeeeeeeeeu);
    const size_t bytes = source.size() * 4;
    void *from = (void *)source.data(), *to = result.data();
    if (!std::strcmp(memory, "pinned")) {
        CHECK(cudaMallocHost(&from, bytes));
        CHECK(cudaMallocHost(&to, bytes));
        std::memcpy(from, source.data(), bytes);
        std::memcpy(to, result.data(), bytes);
    } else if (!std::strcmp(memory, "device")) {
        CHECK(cudaMalloc(&from, bytes));
        CHECK(cudaMalloc(&to, bytes));
        CHECK(cudaMemcpy(from, source.data(), bytes, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(to, result.data(), bytes, cudaMemcpyHostToDevice));
    }
    const cudaChannelFormatDesc channels = cudaCreateChannelDesc<unsigned int>();
    cudaArray_t first, second;
    CHECK(cudaMalloc3DArray(&first, &channels, shape.extent, shape.flags));
    CHECK(cudaMalloc3DArray(&second, &channels, shape.extent, shape.flags));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    auto copy = [=](const cudaMemcpy3DParms &parameters) {
        CHECK(async ? cudaMemcpy3DAsync(&parameters, stream) : cudaMemcpy3D(&parameters));
    };

    cudaMemcpy3DParms up = {};
    up.srcPtr = make_cudaPitchedPtr(from, pitch, shape.width, shape.height);
    up.dstArray = first;
    up.extent = make_cudaExtent(shape.width, shape.height, shape.depth);
    up.kind = cudaMemcpyDefault;
    copy(up);
    cudaMemcpy3DParms across = {};
    across.srcArray = first;
    across.dstArray = second;
    across.extent = up.extent;
    across.kind = cudaMemcpyDeviceToDevice;
    copy(across);
    cudaMemcpy3DParms down = {};
    down.srcArray = second;
    down.dstPtr = make_cudaPitchedPtr(to, pitch, shape.width, shape.height);
    down.extent = up.extent;
    down.kind = cudaMemcpyDefault;
    copy(down);
    CHECK(cudaStreamSynchronize(stream));
    if (to != result.data()) {
        CHECK(cudaMemcpy(result.data(), to, bytes, cudaMemcpyDefault));
    }
    std::printf("%s, %s%s: %s\n", shape.name, memory, async ? ", in a stream" : "",
                result == source ? "right" : "wrong");

    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFreeArray(first));
    CHECK(cudaFreeArray(second));
    if (!std::strcmp(memory, "pinned")) {
        CHECK(cudaFreeHost(from));
        CHECK(cudaFreeHost(to));
    } else if (!std::strcmp(memory, "device")) {
        CHECK(cudaFree(from));
        CHECK(cudaFree(to));
    }
}

// A part of an array, and nothing beside it.
static void part() {
    const int width = 40, height = 30;
    const cudaChannelFormatDesc channels = cudaCreateChannelDesc<uchar4>();
    cudaArray_t array;
    CHECK(cudaMallocArray(&array, &channels, width, height));
    std::vector<unsigned int> zeros(width * height), rows(11 * 9), back(width * height);
    for (size_t i = 0; i < rows.size(); i++) {
        rows[i] = pattern(i, 1, 2);
    }
    CHECK(cudaMemcpy2DToArray(array, 0, 0, zeros.data(), width * 4, width * 4, height, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy2DToArray(array, 5 * 4, 7, rows.data(), 11 * 4, 11 * 4, 9, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy2DFromArray(back.data(), width * 4, array, 0, 0, width * 4, height, cudaMemcpyDeviceToHost));
    int wrong = 0;
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            const bool inside = x >= 5 && x < 16 && y >= 7 && y < 16;
            wrong += back[y * width + x] != (inside ? rows[(y - 7) * 11 + x - 5] : 0);
        }
    }
    std::printf("part: %d wrong\n", wrong);

    cudaChannelFormatDesc desc;
    cudaExtent extent;
    unsigned int flags;
    CHECK(cudaArrayGetInfo(&desc, &extent, &flags, array));
    std::printf("info: %d %d %d %d kind %d, %zu x %zu x %zu, flags %u\n", desc.x, desc.y, desc.z, desc.w, (int)desc.f,
                extent.width, extent.height, extent.depth, flags);
    // One row too many, one byte too far.
    std::printf("outside: %d %d\n",
                (int)cudaMemcpy2DToArray(array, 0, 1, zeros.data(), width * 4, width * 4, height,
                                         cudaMemcpyHostToDevice),
                (int)cudaMemcpy2DFromArray(back.data(), width * 4, array, 4, 0, width * 4, height,
                                           cudaMemcpyDeviceToHost));
    CHECK(cudaFreeArray(array));
    CHECK(cudaFreeArray(nullptr));
}

__global__ void write(cudaSurfaceObject_t surface, int width, int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x < width && y < height) {
        surf2Dwrite(pattern(x, y, 3), surface, x * 4, y);
    }
}

__global__ void add_one(cudaSurfaceObject_t from, cudaSurfaceObject_t to, int width, int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x < width && y < height) {
        surf2Dwrite(surf2Dread<unsigned int>(from, x * 4, y) + 1, to, x * 4, y);
    }
}

static void surfaces() {
    const int width = 70, height = 20;
    const cudaChannelFormatDesc channels = cudaCreateChannelDesc<unsigned int>();
    cudaArray_t arrays[2];
    cudaSurfaceObject_t objects[2];
    for (int i = 0; i < 2; i++) {
        CHECK(cudaMallocArray(&arrays[i], &channels, width, height, cudaArraySurfaceLoadStore));
        cudaResourceDesc resource = {};
        resource.resType = cudaResourceTypeArray;
        resource.res.array.array = arrays[i];
        CHECK(cudaCreateSurfaceObject(&objects[i], &resource));
        cudaResourceDesc same = {};
        CHECK(cudaGetSurfaceObjectResourceDesc(&same, objects[i]));
        REQUIRE(same.resType == cudaResourceTypeArray && same.res.array.array == arrays[i]);
    }
    write<<<dim3(2, height), 64>>>(objects[0], width, height);
    add_one<<<dim3(2, height), 64>>>(objects[0], objects[1], width, height);
    std::vector<unsigned int> back(width * height);
    CHECK(cudaMemcpy2DFromArray(back.data(), width * 4, arrays[1], 0, 0, width * 4, height, cudaMemcpyDeviceToHost));
    int wrong = 0;
    for (int i = 0; i < width * height; i++) {
        wrong += back[i] != pattern(i % width, i / width, 3) + 1;
    }
    std::printf("surfaces: %d wrong\n", wrong);
    for (int i = 0; i < 2; i++) {
        CHECK(cudaDestroySurfaceObject(objects[i]));
        CHECK(cudaFreeArray(arrays[i]));
    }
}

int main() {
    const Shape shapes[] = {
        {"1D", make_cudaExtent(500, 0, 0), cudaArrayDefault, 500, 1, 1},
        {"2D", make_cudaExtent(37, 29, 0), cudaArrayDefault, 37, 29, 1},
        {"3D", make_cudaExtent(20, 11, 7), cudaArrayDefault, 20, 11, 7},
        {"2D layers", make_cudaExtent(19, 9, 5), cudaArrayLayered, 19, 9, 5},
        {"1D layers", make_cudaExtent(64, 0, 6), cudaArrayLayered, 64, 1, 6},
        {"cube", make_cudaExtent(16, 16, 6), cudaArrayCubemap, 16, 16, 6},
    };
    for (const Shape &shape : shapes) {
        for (const char *memory : {"pageable", "pinned", "device"}) {
            round_trip(shape, memory, false);
        }
        round_trip(shape, "pinned", true);
        round_trip(shape, "device", true);
    }
    part();
    surfaces();
    return 0;
}
