// SPDX-License-Identifier: Apache-2.0 OR MIT
// Textures of every kind of resource, read where the value is certain: at centres of texels, and half-way
// between two of them, which hardware weights exactly.
#include "check.h"

#include <vector>

__global__ void fetch_1d(cudaTextureObject_t texture, const float *at, float *out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = tex1D<float>(texture, at[i]);
    }
}

__global__ void fetch_linear(cudaTextureObject_t texture, int *out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = tex1Dfetch<int>(texture, n - 1 - i);
    }
}

__global__ void fetch_2d(cudaTextureObject_t texture, float *out, int width, int height, float dx, float dy) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x < width && y < height) {
        out[y * width + x] = tex2D<float>(texture, x + dx, y + dy);
    }
}

__global__ void fetch_uchar4(cudaTextureObject_t texture, float4 *out, int width) {
    const int x = threadIdx.x, y = blockIdx.x;
    out[y * width + x] = tex2D<float4>(texture, x + 0.5f, y + 0.5f);
}

__global__ void fetch_3d(cudaTextureObject_t texture, float *out, int width, int height) {
    const int x = threadIdx.x, y = blockIdx.x, z = blockIdx.y;
    out[(z * height + y) * width + x] = tex3D<float>(texture, x + 0.5f, y + 0.5f, z + 0.5f);
}

__global__ void fetch_layers(cudaTextureObject_t texture, float *out, int width, int height) {
    const int x = threadIdx.x, y = blockIdx.x, z = blockIdx.y;
    out[(z * height + y) * width + x] = tex2DLayered<float>(texture, x + 0.5f, y + 0.5f, z);
}

__global__ void fetch_faces(cudaTextureObject_t texture, float *out) {
    const float3 axes[6] = {{1, 0, 0}, {-1, 0, 0}, {0, 1, 0}, {0, -1, 0}, {0, 0, 1}, {0, 0, -1}};
    const float3 axis = axes[threadIdx.x];
    out[threadIdx.x] = texCubemap<float>(texture, axis.x, axis.y, axis.z);
}

__global__ void fetch_levels(cudaTextureObject_t texture, float *out, int levels) {
    for (int level = 0; level < levels; level++) {
        out[level] = tex2DLod<float>(texture, 0.5f, 0.5f, level);
    }
}

static float value(size_t x, size_t y, size_t z) { return (float)(x * 4 + y * 256 + z * 4096); }

static std::vector<float> values(size_t width, size_t height, size_t depth) {
    std::vector<float> all(width * height * depth);
    for (size_t i = 0; i < all.size(); i++) {
        all[i] = value(i % width, i / width % height, i / width / height);
    }
    return all;
}

template <typename T> static T *device_copy(const std::vector<T> &from) {
    T *memory;
    CHECK(cudaMalloc(&memory, from.size() * sizeof(T)));
    CHECK(cudaMemcpy(memory, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
    return memory;
}

template <typename T> static std::vector<T> host_copy(T *from, size_t count) {
    std::vector<T> all(count);
    CHECK(cudaMemcpy(all.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost));
    CHECK(cudaFree(from));
    return all;
}

template <typename T> static T *device_room(size_t count) { return device_copy(std::vector<T>(count)); }

static cudaTextureDesc reading(cudaTextureAddressMode mode, cudaTextureFilterMode filter, bool normalized) {
    cudaTextureDesc desc = {};
    desc.addressMode[0] = desc.addressMode[1] = desc.addressMode[2] = mode;
    desc.filterMode = filter;
    desc.readMode = cudaReadModeElementType;
    desc.normalizedCoords = normalized;
    return desc;
}

static cudaArray_t array_of(const std::vector<float> &from, cudaExtent extent, unsigned int flags) {
    const cudaChannelFormatDesc channels = cudaCreateChannelDesc<float>();
    cudaArray_t array;
    CHECK(cudaMalloc3DArray(&array, &channels, extent, flags));
    cudaMemcpy3DParms copy = {};
    const size_t height = extent.height ? extent.height : 1, depth = extent.depth ? extent.depth : 1;
    copy.srcPtr = make_cudaPitchedPtr((void *)from.data(), extent.width * 4, extent.width, height);
    copy.dstArray = array;
    copy.extent = make_cudaExtent(extent.width, height, depth);
    copy.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&copy));
    return array;
}

static cudaTextureObject_t texture_of(cudaArray_t array, const cudaTextureDesc &desc) {
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaTextureObject_t texture;
    CHECK(cudaCreateTextureObject(&texture, &resource, &desc, nullptr));
    return texture;
}

static void compare(const char *what, const std::vector<float> &got, const std::vector<float> &wanted) {
    int wrong = 0;
    for (size_t i = 0; i < wanted.size(); i++) {
        if (got[i] != wanted[i] && ++wrong == 1) {
            std::fprintf(stderr, "%s: element %zu is %g, not %g\n", what, i, got[i], wanted[i]);
        }
    }
    std::printf("%s: %d wrong\n", what, wrong);
}

static void address_modes() {
    const int n = 8;
    const std::vector<float> all = values(n, 1, 1);
    cudaArray_t array = array_of(all, make_cudaExtent(n, 0, 0), cudaArrayDefault);
    struct {
        const char *name;
        cudaTextureAddressMode mode;
        float left, right;
    } const modes[] = {
        {"clamp", cudaAddressModeClamp, all[0], all[n - 1]},
        {"wrap", cudaAddressModeWrap, all[n - 1], all[0]},
        {"mirror", cudaAddressModeMirror, all[0], all[n - 1]},
        {"border", cudaAddressModeBorder, 77.0f, 77.0f},
    };
    std::vector<float> at;
    for (int i = -1; i <= n; i++) {
        at.push_back((i + 0.5f) / n);
    }
    for (const auto &mode : modes) {
        cudaTextureDesc desc = reading(mode.mode, cudaFilterModePoint, true);
        desc.borderColor[0] = 77.0f;
        cudaTextureObject_t texture = texture_of(array, desc);
        float *in = device_copy(at), *out = device_room<float>(at.size());
        fetch_1d<<<1, 32>>>(texture, in, out, (int)at.size());
        std::vector<float> wanted = {mode.left};
        wanted.insert(wanted.end(), all.begin(), all.end());
        wanted.push_back(mode.right);
        compare(mode.name, host_copy(out, at.size()), wanted);
        CHECK(cudaFree(in));
        cudaTextureDesc same = {};
        CHECK(cudaGetTextureObjectTextureDesc(&same, texture));
        CHECK(cudaDestroyTextureObject(texture));
    }
    CHECK(cudaFreeArray(array));
}

static void two_dimensions() {
    const int width = 33, height = 17;
    const std::vector<float> all = values(width, height, 1);
    cudaArray_t array = array_of(all, make_cudaExtent(width, height, 0), cudaArrayDefault);
    const dim3 grid(2, height);
    cudaTextureObject_t point = texture_of(array, reading(cudaAddressModeClamp, cudaFilterModePoint, false));
    float *out = device_room<float>(all.size());
    fetch_2d<<<grid, 32>>>(point, out, width, height, 0.5f, 0.5f);
    compare("2D, nearest", host_copy(out, all.size()), all);
    CHECK(cudaDestroyTextureObject(point));

    cudaTextureObject_t linear = texture_of(array, reading(cudaAddressModeClamp, cudaFilterModeLinear, false));
    out = device_room<float>(all.size());
    fetch_2d<<<grid, 32>>>(linear, out, width, height, 1.0f, 0.5f);
    std::vector<float> between = all;
    for (int i = 0; i < width * height; i++) {
        if (i % width != width - 1) {
            between[i] = (all[i] + all[i + 1]) / 2;
        }
    }
    compare("2D, between two", host_copy(out, all.size()), between);
    CHECK(cudaDestroyTextureObject(linear));
    CHECK(cudaFreeArray(array));

    // The same in pitched memory.
    float *rows;
    size_t pitch;
    CHECK(cudaMallocPitch(&rows, &pitch, width * 4, height));
    CHECK(cudaMemcpy2D(rows, pitch, all.data(), width * 4, width * 4, height, cudaMemcpyHostToDevice));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypePitch2D;
    resource.res.pitch2D = {rows, cudaCreateChannelDesc<float>(), (size_t)width, (size_t)height, pitch};
    const cudaTextureDesc desc = reading(cudaAddressModeClamp, cudaFilterModePoint, false);
    cudaTextureObject_t pitched;
    CHECK(cudaCreateTextureObject(&pitched, &resource, &desc, nullptr));
    cudaResourceDesc same = {};
    CHECK(cudaGetTextureObjectResourceDesc(&same, pitched));
    REQUIRE(same.resType == cudaResourceTypePitch2D && same.res.pitch2D.devPtr == rows);
    REQUIRE(same.res.pitch2D.width == width && same.res.pitch2D.pitchInBytes == pitch);
    out = device_room<float>(all.size());
    fetch_2d<<<grid, 32>>>(pitched, out, width, height, 0.5f, 0.5f);
    compare("2D, pitched", host_copy(out, all.size()), all);
    CHECK(cudaDestroyTextureObject(pitched));
    CHECK(cudaFree(rows));
}

static void normalized_bytes() {
    const int width = 16, height = 16;
    std::vector<uchar4> bytes(width * height);
    for (int i = 0; i < width * height; i++) {
        bytes[i] = make_uchar4(i, 255 - i, i / 2, 255);
    }
    const cudaChannelFormatDesc channels = cudaCreateChannelDesc<uchar4>();
    cudaArray_t array;
    CHECK(cudaMallocArray(&array, &channels, width, height));
    CHECK(cudaMemcpy2DToArray(array, 0, 0, bytes.data(), width * 4, width * 4, height, cudaMemcpyHostToDevice));
    cudaTextureDesc desc = reading(cudaAddressModeClamp, cudaFilterModePoint, false);
    desc.readMode = cudaReadModeNormalizedFloat;
    cudaTextureObject_t texture = texture_of(array, desc);
    float4 *out = device_room<float4>(bytes.size());
    fetch_uchar4<<<height, width>>>(texture, out, width);
    int wrong = 0;
    const std::vector<float4> got = host_copy(out, bytes.size());
    for (size_t i = 0; i < bytes.size(); i++) {
        const float wanted[4] = {bytes[i].x / 255.0f, bytes[i].y / 255.0f, bytes[i].z / 255.0f, 1.0f};
        const float found[4] = {got[i].x, got[i].y, got[i].z, got[i].w};
        for (int c = 0; c < 4; c++) {
            wrong += found[c] - wanted[c] > 1e-6f || wanted[c] - found[c] > 1e-6f;
        }
    }
    std::printf("normalized bytes: %d wrong\n", wrong);
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFreeArray(array));
}

static void linear_memory() {
    const int n = 1000;
    std::vector<int> all(n);
    for (int i = 0; i < n; i++) {
        all[i] = i * i - 7;
    }
    int *memory = device_copy(all), *out = device_room<int>(n);
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear = {memory, cudaCreateChannelDesc<int>(), n * sizeof(int)};
    cudaTextureDesc desc = {};
    desc.readMode = cudaReadModeElementType;
    cudaTextureObject_t texture;
    CHECK(cudaCreateTextureObject(&texture, &resource, &desc, nullptr));
    fetch_linear<<<(n + 127) / 128, 128>>>(texture, out, n);
    const std::vector<int> got = host_copy(out, n);
    int wrong = 0;
    for (int i = 0; i < n; i++) {
        wrong += got[i] != all[n - 1 - i];
    }
    std::printf("linear memory: %d wrong\n", wrong);
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFree(memory));
}

static void many_slices() {
    const int width = 12, height = 10, depth = 6;
    const std::vector<float> all = values(width, height, depth);
    const cudaTextureDesc desc = reading(cudaAddressModeClamp, cudaFilterModePoint, false);
    const cudaExtent extent = make_cudaExtent(width, height, depth);
    cudaArray_t array = array_of(all, extent, cudaArrayDefault);
    cudaTextureObject_t texture = texture_of(array, desc);
    float *out = device_room<float>(all.size());
    fetch_3d<<<dim3(height, depth), width>>>(texture, out, width, height);
    compare("3D", host_copy(out, all.size()), all);
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFreeArray(array));

    array = array_of(all, extent, cudaArrayLayered);
    texture = texture_of(array, desc);
    out = device_room<float>(all.size());
    fetch_layers<<<dim3(height, depth), width>>>(texture, out, width, height);
    compare("layers", host_copy(out, all.size()), all);
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFreeArray(array));

    // All texels of a face are alike, so it does not matter which one is nearest to the axis.
    const int side = 8;
    std::vector<float> faces(side * side * 6), wanted(6);
    for (size_t i = 0; i < faces.size(); i++) {
        faces[i] = (float)(i / (side * side)) * 10 + 1;
    }
    for (int face = 0; face < 6; face++) {
        wanted[face] = (float)face * 10 + 1;
    }
    array = array_of(faces, make_cudaExtent(side, side, 6), cudaArrayCubemap);
    texture = texture_of(array, reading(cudaAddressModeWrap, cudaFilterModePoint, true));
    out = device_room<float>(6);
    fetch_faces<<<1, 6>>>(texture, out);
    compare("cube", host_copy(out, 6), wanted);
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFreeArray(array));
}

static void levels() {
    const int side = 16, count = 5;
    const cudaChannelFormatDesc channels = cudaCreateChannelDesc<float>();
    cudaMipmappedArray_t mipmap;
    CHECK(cudaMallocMipmappedArray(&mipmap, &channels, make_cudaExtent(side, side, 0), count));
    std::vector<float> wanted;
    for (int level = 0; level < count; level++) {
        cudaArray_t array;
        CHECK(cudaGetMipmappedArrayLevel(&array, mipmap, level));
        cudaExtent extent;
        CHECK(cudaArrayGetInfo(nullptr, &extent, nullptr, array));
        std::printf("level %d: %zu x %zu\n", level, extent.width, extent.height);
        const std::vector<float> all(extent.width * extent.height, (float)(level + 1) * 3);
        CHECK(cudaMemcpy2DToArray(array, 0, 0, all.data(), extent.width * 4, extent.width * 4, extent.height,
                                  cudaMemcpyHostToDevice));
        wanted.push_back(all[0]);
    }
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeMipmappedArray;
    resource.res.mipmap.mipmap = mipmap;
    cudaTextureDesc desc = reading(cudaAddressModeClamp, cudaFilterModePoint, true);
    desc.mipmapFilterMode = cudaFilterModePoint;
    desc.maxMipmapLevelClamp = count - 1;
    cudaTextureObject_t texture;
    CHECK(cudaCreateTextureObject(&texture, &resource, &desc, nullptr));
    float *out = device_room<float>(count);
    fetch_levels<<<1, 1>>>(texture, out, count);
    compare("levels", host_copy(out, count), wanted);
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFreeMipmappedArray(mipmap));
}

int main() {
    address_modes();
    two_dimensions();
    normalized_bytes();
    linear_memory();
    many_slices();
    levels();
    return 0;
}
