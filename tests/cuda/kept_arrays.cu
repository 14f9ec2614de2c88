// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Arrays of all shapes, which are used after SIGTERM. With the argument "textures" also textures and surfaces: some have ended, so that the
// numbers of the others are not the lowest. Two are of memory.

#include "check.h"

#include <csignal>
#include <cstdio>
#include <vector>

#include <unistd.h>

static volatile std::sig_atomic_t is_ended;

static void end(int) { is_ended = 1; }

struct Shape {
    const char *name;
    cudaExtent extent;
    unsigned flags;
};

// Heights and depths of 0 are of arrays with fewer dimensions; the depth of layers is their number.
static const Shape SHAPES[] = {
    {"1D", {37, 0, 0}, 0},
    {"2D", {37, 19, 0}, 0},
    {"3D", {12, 9, 7}, 0},
    {"layered 1D", {37, 0, 5}, cudaArrayLayered},
    {"layered 2D", {17, 11, 5}, cudaArrayLayered},
    {"cubemap", {8, 8, 6}, cudaArrayCubemap},
    {"layered cubemap", {8, 8, 12}, cudaArrayCubemap | cudaArrayLayered},
};

static cudaExtent whole(cudaExtent extent) {
    return make_cudaExtent(extent.width, extent.height ? extent.height : 1, extent.depth ? extent.depth : 1);
}

template <class T> static std::vector<T> pattern(cudaExtent extent, int seed) {
    const cudaExtent all = whole(extent);
    std::vector<T> values(all.width * all.height * all.depth);
    for (size_t i = 0; i < values.size(); i++) values[i] = (T)(i * 7 % 101 + seed);
    return values;
}

template <class T> static void copy(cudaArray_t array, cudaExtent extent, T *host, bool to_host) {
    const cudaExtent all = whole(extent);
    cudaMemcpy3DParms parameters = {};
    const cudaPitchedPtr memory = make_cudaPitchedPtr(host, all.width * sizeof(T), all.width, all.height);
    parameters.extent = all;
    if (to_host) {
        parameters.srcArray = array;
        parameters.dstPtr = memory;
        parameters.kind = cudaMemcpyDeviceToHost;
    } else {
        parameters.srcPtr = memory;
        parameters.dstArray = array;
        parameters.kind = cudaMemcpyHostToDevice;
    }
    CHECK(cudaMemcpy3D(&parameters));
}

template <class T> static void expect(const char *name, cudaArray_t array, cudaExtent extent, int seed) {
    const auto wanted = pattern<T>(extent, seed);
    std::vector<T> found(wanted.size());
    copy(array, extent, found.data(), true);
    if (found != wanted) {
        std::printf("%s: WRONG\n", name);
        std::exit(1);
    }
}

static cudaTextureObject_t texture_of(cudaArray_t array) {
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaTextureDesc description = {};
    description.readMode = cudaReadModeElementType;
    cudaTextureObject_t made;
    CHECK(cudaCreateTextureObject(&made, &resource, &description, nullptr));
    return made;
}

static cudaTextureObject_t texture_of(cudaMipmappedArray_t array) {
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeMipmappedArray;
    resource.res.mipmap.mipmap = array;
    cudaTextureDesc description = {};
    description.readMode = cudaReadModeElementType;
    description.normalizedCoords = 1;
    description.maxMipmapLevelClamp = 16;
    cudaTextureObject_t made;
    CHECK(cudaCreateTextureObject(&made, &resource, &description, nullptr));
    return made;
}

static cudaTextureObject_t texture_of_memory(float *memory, size_t count) {
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear = {memory, cudaCreateChannelDesc<float>(), count * sizeof(float)};
    cudaTextureDesc description = {};
    cudaTextureObject_t made;
    CHECK(cudaCreateTextureObject(&made, &resource, &description, nullptr));
    return made;
}

static cudaTextureObject_t texture_of_rows(float *memory, cudaExtent sides, size_t pitch) {
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypePitch2D;
    resource.res.pitch2D = {memory, cudaCreateChannelDesc<float>(), sides.width, sides.height, pitch};
    cudaTextureDesc description = {};
    cudaTextureObject_t made;
    CHECK(cudaCreateTextureObject(&made, &resource, &description, nullptr));
    return made;
}

static cudaSurfaceObject_t surface_of(cudaArray_t array) {
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaSurfaceObject_t made;
    CHECK(cudaCreateSurfaceObject(&made, &resource));
    return made;
}

__global__ void read(cudaTextureObject_t plane, cudaTextureObject_t levels, float *values) {
    const int x = threadIdx.x, y = blockIdx.x;
    values[y * blockDim.x + x] = tex2D<float>(plane, x, y) + 1000 * tex2DLod<float>(levels, 0.1f, 0.1f, 2);
}

__global__ void read_memory(cudaTextureObject_t line, cudaTextureObject_t rows, float *values) {
    const int x = threadIdx.x, y = blockIdx.x;
    values[y * blockDim.x + x] = tex1Dfetch<float>(line, y * blockDim.x + x) + 1000 * tex2D<float>(rows, x, y);
}

__global__ void add(cudaSurfaceObject_t surface) {
    const int x = threadIdx.x * sizeof(float), y = blockIdx.x;
    surf2Dwrite(surf2Dread<float>(surface, x, y) + 1, surface, x, y);
}

int main(int argc, char **) {
    const bool has_textures = argc > 1;
    std::signal(SIGTERM, end);
    const cudaChannelFormatDesc floats = cudaCreateChannelDesc<float>(), bytes = cudaCreateChannelDesc<unsigned char>();
    std::vector<cudaArray_t> arrays;
    for (const Shape &shape : SHAPES) {
        for (const auto &format : {floats, bytes}) {
            cudaArray_t array;
            CHECK(cudaMalloc3DArray(&array, &format, shape.extent, shape.flags));
            if (format.x == 32) {
                copy(array, shape.extent, pattern<float>(shape.extent, (int)arrays.size()).data(), false);
            } else {
                copy(array, shape.extent, pattern<unsigned char>(shape.extent, (int)arrays.size()).data(), false);
            }
            arrays.push_back(array);
        }
    }
    const int LEVELS = 5;
    const cudaExtent first = {16, 16, 0};
    const auto level_extent = [&](int level) { return make_cudaExtent(first.width >> level, first.height >> level, 0); };
    cudaMipmappedArray_t mipmapped;
    CHECK(cudaMallocMipmappedArray(&mipmapped, &floats, first, LEVELS));
    for (int level = 0; level < LEVELS; level++) {
        cudaArray_t array;
        CHECK(cudaGetMipmappedArrayLevel(&array, mipmapped, level));
        copy(array, level_extent(level), pattern<float>(level_extent(level), 10 * level).data(), false);
    }
    const cudaExtent sides = {32, 24, 0};
    cudaArray_t plane, drawn;
    CHECK(cudaMallocArray(&plane, &floats, sides.width, sides.height));
    CHECK(cudaMallocArray(&drawn, &floats, sides.width, sides.height, cudaArraySurfaceLoadStore));
    copy(plane, sides, pattern<float>(sides, 3).data(), false);
    copy(drawn, sides, pattern<float>(sides, 4).data(), false);
    std::vector<cudaTextureObject_t> ended;
    cudaTextureObject_t texture = 0, levels = 0, line_texture = 0, rows_texture = 0;
    float *line, *rows;
    size_t pitch;
    CHECK(cudaMalloc(&line, sides.width * sides.height * sizeof(float)));
    CHECK(cudaMallocPitch(&rows, &pitch, sides.width * sizeof(float), sides.height));
    cudaSurfaceObject_t surface = 0;
    if (has_textures) {
        for (int i = 0; i < 5; i++) ended.push_back(texture_of(plane));
        texture = texture_of(plane);
        for (auto one : ended) CHECK(cudaDestroyTextureObject(one));
        // It may have the number of one of those.
        levels = texture_of(mipmapped);
        surface = surface_of(drawn);
        line_texture = texture_of_memory(line, sides.width * sides.height);
        rows_texture = texture_of_rows(rows, sides, pitch);
        const auto lines = pattern<float>(sides, 6), all_rows = pattern<float>(sides, 7);
        const size_t row = sides.width * sizeof(float);
        CHECK(cudaMemcpy(line, lines.data(), lines.size() * sizeof(float), cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy2D(rows, pitch, all_rows.data(), row, row, sides.height, cudaMemcpyHostToDevice));
    }
    const int count = (int)(sides.width * sides.height);
    float *values;
    CHECK(cudaMalloc(&values, count * sizeof(float)));
    CHECK(cudaDeviceSynchronize());
    std::printf("begun\n");
    std::fflush(stdout);
    while (!is_ended) usleep(1000);

    for (size_t i = 0; i < arrays.size(); i++) {
        const Shape &shape = SHAPES[i / 2];
        if (i % 2 == 0) {
            expect<float>(shape.name, arrays[i], shape.extent, (int)i);
        } else {
            expect<unsigned char>(shape.name, arrays[i], shape.extent, (int)i);
        }
    }
    for (int level = 0; level < LEVELS; level++) {
        cudaArray_t array;
        CHECK(cudaGetMipmappedArrayLevel(&array, mipmapped, level));
        expect<float>("level", array, level_extent(level), 10 * level);
    }
    expect<float>("plane", plane, sides, 3);
    expect<float>("drawn", drawn, sides, 4);
    if (has_textures) {
        read<<<sides.height, sides.width>>>(texture, levels, values);
        add<<<sides.height, sides.width>>>(surface);
        std::vector<float> found(count);
        CHECK(cudaMemcpy(found.data(), values, count * sizeof(float), cudaMemcpyDeviceToHost));
        const auto wanted = pattern<float>(sides, 3);
        for (int i = 0; i < count; i++) REQUIRE(found[i] == wanted[i] + 1000 * 20);
        expect<float>("drawn", drawn, sides, 5);
        read_memory<<<sides.height, sides.width>>>(line_texture, rows_texture, values);
        CHECK(cudaMemcpy(found.data(), values, count * sizeof(float), cudaMemcpyDeviceToHost));
        const auto lines = pattern<float>(sides, 6), all_rows = pattern<float>(sides, 7);
        for (int i = 0; i < count; i++) REQUIRE(found[i] == lines[i] + 1000 * all_rows[i]);
        for (auto one : {texture, levels, line_texture, rows_texture}) CHECK(cudaDestroyTextureObject(one));
        CHECK(cudaDestroySurfaceObject(surface));
    }
    for (cudaArray_t array : arrays) CHECK(cudaFreeArray(array));
    CHECK(cudaFreeMipmappedArray(mipmapped));
    std::printf("right\n");
    return 0;
}
