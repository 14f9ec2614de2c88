// SPDX-License-Identifier: Apache-2.0 OR MIT
// Arrays of block-compressed formats, BC1 to BC7: how they are made and copied, and what textures read.
#include "check_driver.h"

#include <cstring>
#include <vector>

using Bytes = std::vector<unsigned char>;

struct Compressed {
    const char *name;
    unsigned int format, channels, block, view;
    bool srgb;
};

static const Compressed FORMATS[] = {
    {"BC1", 0x91, 4, 8, 0x19, false},  {"BC1 sRGB", 0x92, 4, 8, 0x19, true},   {"BC2", 0x93, 4, 16, 0x1a, false},
    {"BC2 sRGB", 0x94, 4, 16, 0x1a, true}, {"BC3", 0x95, 4, 16, 0x1b, false},  {"BC3 sRGB", 0x96, 4, 16, 0x1b, true},
    {"BC4", 0x97, 1, 8, 0x1c, false},  {"BC4 signed", 0x98, 1, 8, 0x1d, false}, {"BC5", 0x99, 2, 16, 0x1e, false},
    {"BC5 signed", 0x9a, 2, 16, 0x1f, false}, {"BC6H", 0x9b, 3, 16, 0x20, false}, {"BC6H signed", 0x9c, 3, 16, 0x21, false},
    {"BC7", 0x9d, 4, 16, 0x22, false}, {"BC7 sRGB", 0x9e, 4, 16, 0x22, true}};
static const Compressed &BC1 = FORMATS[0], &BC7 = FORMATS[12];

static CUarray make(size_t width, size_t height, size_t depth, unsigned int format, unsigned int channels, unsigned int flags,
                    CUresult *result = nullptr) {
    const CUDA_ARRAY3D_DESCRIPTOR of = {width, height, depth, (CUarray_format)format, channels, flags};
    CUarray array = nullptr;
    const CUresult made = cuArray3DCreate(&array, &of);
    if (result) {
        *result = made;
    } else {
        CHECK_DRIVER(made);
    }
    return array;
}

// Blocks whose texels make use of all that the format has.
static Bytes blocks_of(const Compressed &of, size_t count) {
    Bytes bytes(count * of.block);
    Random random(of.format);
    random.fill(bytes.data(), bytes.size());
    static const unsigned char modes[] = {0x00, 0x01, 0x02, 0x06, 0x0a, 0x0e, 0x12, 0x16, 0x1a, 0x1e, 0x03, 0x07, 0x0b, 0x0f};
    for (size_t i = 0; i < count; i++) {
        unsigned char &first = bytes[i * of.block];
        if (of.view == 0x20 || of.view == 0x21) {
            const unsigned char mode = modes[i % 14];
            first = (first & (mode < 2 ? 0xfc : 0xe0)) | mode;
        } else if (of.view == 0x22) {
            first = (first & ~((2u << i % 8) - 1)) | 1u << i % 8;
        }
    }
    return bytes;
}

static int copy(CUarray array, unsigned char *memory, size_t pitch, size_t x, size_t y, size_t width, size_t height, bool in) {
    CUDA_MEMCPY2D copy = {};
    (in ? copy.srcMemoryType : copy.dstMemoryType) = CU_MEMORYTYPE_HOST;
    (in ? copy.dstMemoryType : copy.srcMemoryType) = CU_MEMORYTYPE_ARRAY;
    (in ? copy.dstArray : copy.srcArray) = array;
    (in ? copy.dstXInBytes : copy.srcXInBytes) = x;
    (in ? copy.dstY : copy.srcY) = y;
    copy.srcHost = copy.dstHost = memory;
    copy.srcPitch = copy.dstPitch = pitch;
    copy.WidthInBytes = width;
    copy.Height = height;
    return cuMemcpy2D(&copy);
}

static CUtexObject texture_of(CUarray array, CUmipmappedArray levels, unsigned int flags, const CUDA_RESOURCE_VIEW_DESC *view,
                              CUresult *result, bool linear = false) {
    CUDA_RESOURCE_DESC resource = {};
    resource.resType = levels ? CU_RESOURCE_TYPE_MIPMAPPED_ARRAY : CU_RESOURCE_TYPE_ARRAY;
    if (levels) {
        resource.res.mipmap.hMipmappedArray = levels;
    } else {
        resource.res.array.hArray = array;
    }
    CUDA_TEXTURE_DESC desc = {};
    desc.flags = flags;
    desc.filterMode = linear ? CU_TR_FILTER_MODE_LINEAR : CU_TR_FILTER_MODE_POINT;
    desc.addressMode[0] = desc.addressMode[1] = desc.addressMode[2] = CU_TR_ADDRESS_MODE_CLAMP;
    desc.maxMipmapLevelClamp = 20;
    CUtexObject texture = 0;
    *result = cuTexObjectCreate(&texture, &resource, &desc, view);
    return texture;
}

__global__ void read(cudaTextureObject_t texture, float4 *out, int width, float step, float level, int layer) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    const float x = (at % width + 0.5f) * step, y = (at / width + 0.5f) * step;
    out[at] = layer >= 0   ? tex2DLayered<float4>(texture, x, y, layer)
              : level >= 0 ? tex2DLod<float4>(texture, x, y, level)
                           : tex2D<float4>(texture, x, y);
}

static std::vector<float4> texels(CUtexObject texture, int width, int height, float step = 1, float level = -1, int layer = -1) {
    float4 *out;
    CHECK(cudaMalloc(&out, width * height * sizeof(float4)));
    read<<<height, width>>>(texture, out, width, step, level, layer);
    std::vector<float4> values(width * height);
    CHECK(cudaMemcpy(values.data(), out, values.size() * sizeof(float4), cudaMemcpyDeviceToHost));
    CHECK(cudaFree(out));
    return values;
}

static void creation() {
    for (const Compressed &of : FORMATS) {
        std::printf("%s:", of.name);
        for (unsigned int channels = 1; channels <= 4; channels++) {
            CUresult result;
            make(64, 64, 0, of.format, channels, 0, &result);
            std::printf(" %d", result);
        }
        std::printf("\n");
    }
    const struct { const char *name; size_t width, height, depth; unsigned int flags; } kinds[] = {
        {"1D", 64, 0, 0, 0}, {"one texel", 1, 1, 0, 0}, {"odd", 7, 5, 0, 0}, {"layers", 64, 64, 3, CUDA_ARRAY3D_LAYERED},
        {"1D layers", 64, 0, 3, CUDA_ARRAY3D_LAYERED}, {"3D", 64, 64, 8, 0}, {"cube", 64, 64, 6, CUDA_ARRAY3D_CUBEMAP},
        {"to gather", 64, 64, 0, CUDA_ARRAY3D_TEXTURE_GATHER}, {"surface", 64, 64, 0, CUDA_ARRAY3D_SURFACE_LDST},
        {"wide", 131072, 4, 0, 0}, {"too wide", 131076, 4, 0, 0}};
    for (const auto &kind : kinds) {
        CUresult result;
        const CUarray array = make(kind.width, kind.height, kind.depth, BC1.format, 4, kind.flags, &result);
        std::printf("%s: %d", kind.name, result);
        if (result == CUDA_SUCCESS) {
            CUDA_ARRAY3D_DESCRIPTOR is = {};
            CHECK_DRIVER(cuArray3DGetDescriptor(&is, array));
            std::printf(" (%zu %zu %zu)", is.Width, is.Height, is.Depth);
            CHECK_DRIVER(cuArrayDestroy(array));
        }
        std::printf("\n");
    }
}

static void copies() {
    for (const Compressed &of : {BC1, BC7}) {
        // 8 by 4 blocks, not all of them whole.
        const CUarray array = make(30, 14, 0, of.format, of.channels, 0);
        const size_t row = 8 * of.block, pitch = 256;
        Bytes from(pitch * 20), to(pitch * 20, 0xee);
        Random(7).fill(from.data(), from.size());
        std::printf("%s:", of.name);
        const size_t sizes[][2] = {{row, 4}, {row, 5}, {row, 14}, {row + of.block, 4}, {row - of.block / 2, 4}, {1, 1}, {of.block, 1}};
        for (const auto &size : sizes) {
            std::printf(" %d", copy(array, from.data(), pitch, 0, 0, size[0], size[1], true));
        }
        const size_t places[][2] = {{of.block, 1}, {row - of.block, 3}, {row, 0}, {of.block / 2, 0}, {0, 4}};
        for (const auto &place : places) {
            std::printf(" %d", copy(array, to.data(), pitch, place[0], place[1], of.block, 1, false));
        }
        CHECK_DRIVER((CUresult)copy(array, from.data(), pitch, 0, 0, row, 4, true));
        std::fill(to.begin(), to.end(), 0xee);
        CHECK_DRIVER((CUresult)copy(array, to.data(), pitch, 0, 0, row, 4, false));
        int wrong = 0;
        for (size_t i = 0; i < to.size(); i++) {
            const bool inside = i < 4 * pitch && i % pitch < row;
            wrong += to[i] != (inside ? from[i] : 0xee);
        }
        // Through device memory and another array, by one row, and in pieces of a 3D array.
        CUdeviceptr memory;
        CHECK_DRIVER(cuMemAlloc(&memory, pitch * 4));
        const CUarray other = make(30, 14, 0, of.format, of.channels, 0);
        CUDA_MEMCPY2D way = {};
        way.srcMemoryType = way.dstMemoryType = CU_MEMORYTYPE_ARRAY;
        way.srcArray = array;
        way.dstArray = other;
        way.WidthInBytes = row;
        way.Height = 4;
        CHECK_DRIVER(cuMemcpy2D(&way));
        way.srcArray = other;
        way.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        way.dstDevice = memory;
        way.dstPitch = pitch;
        CHECK_DRIVER(cuMemcpy2D(&way));
        CHECK_DRIVER(cuMemcpyDtoH(to.data(), memory, 3 * pitch + row));
        for (size_t y = 0; y < 4; y++) {
            wrong += std::memcmp(&to[y * pitch], &from[y * pitch], row) != 0;
        }
        CHECK_DRIVER(cuMemcpyAtoH(to.data(), array, of.block, 3 * of.block));
        wrong += std::memcmp(to.data(), &from[of.block], 3 * of.block) != 0;
        std::printf(", wrong: %d\n", wrong);
        CHECK_DRIVER(cuMemFree(memory));
        CHECK_DRIVER(cuArrayDestroy(other));
        CHECK_DRIVER(cuArrayDestroy(array));
    }
    for (const unsigned int flags : {0, CUDA_ARRAY3D_LAYERED}) {
        const CUarray array = make(16, 16, 6, BC1.format, 4, flags);
        Bytes from(32 * 4 * 7), to(32 * 4 * 7, 0xee);
        Random(9).fill(from.data(), from.size());
        CUDA_MEMCPY3D in = {};
        in.srcMemoryType = CU_MEMORYTYPE_HOST;
        in.srcHost = from.data();
        in.srcPitch = 32;
        in.srcHeight = 4;
        in.dstMemoryType = CU_MEMORYTYPE_ARRAY;
        in.dstArray = array;
        in.WidthInBytes = 32;
        in.Height = 4;
        std::printf("slices:");
        for (const size_t depth : {1, 7, 6}) {
            in.Depth = depth;
            std::printf(" %d", cuMemcpy3D(&in));
        }
        CUDA_MEMCPY3D out = in;
        out.srcMemoryType = CU_MEMORYTYPE_ARRAY;
        out.srcArray = array;
        out.dstMemoryType = CU_MEMORYTYPE_HOST;
        out.dstHost = to.data();
        out.dstPitch = 32;
        out.dstHeight = 4;
        CHECK_DRIVER(cuMemcpy3D(&out));
        std::printf(", equal: %d\n", std::memcmp(from.data(), to.data(), 32 * 4 * 6) == 0 && to[32 * 4 * 6] == 0xee);
        CHECK_DRIVER(cuArrayDestroy(array));
    }
}

static void show(const std::vector<float4> &values, const char *numbers, bool with_sum) {
    double sum = 0;
    for (size_t i = 0; i < values.size(); i++) {
        const float4 v = values[i];
        sum += v.x * (1 + i % 3) + v.y * (1 + i % 5) + v.z * (1 + i % 7) + v.w * (1 + i % 11);
    }
    for (const size_t at : {0, 1, 5, 31, 70, 127}) {
        const float4 v = values[at];
        std::printf(numbers, v.x, v.y, v.z, v.w);
    }
    if (with_sum) {
        std::printf(" | %.3f", sum);
    }
    std::printf("\n");
}

static void textures() {
    for (const Compressed &of : FORMATS) {
        const int height = 4;
        Bytes blocks = blocks_of(of, 14);
        blocks.resize(14 * of.block);
        const CUarray array = make(56, height, 0, of.format, of.channels, 0);
        CHECK_DRIVER((CUresult)copy(array, blocks.data(), 14 * of.block, 0, 0, 14 * of.block, 1, true));
        std::printf("%s:", of.name);
        const unsigned int flags = of.srgb ? CU_TRSF_SRGB : 0;
        for (const unsigned int more : {0, CU_TRSF_READ_AS_INTEGER, CU_TRSF_SRGB, CU_TRSF_NORMALIZED_COORDINATES}) {
            CUresult result;
            const CUtexObject texture = texture_of(array, nullptr, more, nullptr, &result);
            std::printf(" %d", result);
            if (result == CUDA_SUCCESS) {
                CHECK_DRIVER(cuTexObjectDestroy(texture));
            }
        }
        CUresult result;
        CUtexObject texture = texture_of(array, nullptr, flags, nullptr, &result);
        CHECK_DRIVER(result);
        const bool halves = of.view == 0x20 || of.view == 0x21;
        // What sRGB becomes is not the same on every GPU.
        const char *numbers = halves ? " %.6g,%.6g,%.6g,%g" : of.srgb ? " %.2f,%.2f,%.2f,%.2f" : " %.5f,%.5f,%.5f,%.5f";
        std::vector<float4> direct = texels(texture, 56, height);
        show(direct, numbers, !of.srgb);
        CHECK_DRIVER(cuTexObjectDestroy(texture));
        // The same blocks as elements of a plain array.
        const CUarray plain = make(14, 1, 0, CU_AD_FORMAT_UNSIGNED_INT32, of.block / 4, 0);
        CHECK_DRIVER((CUresult)copy(plain, blocks.data(), 14 * of.block, 0, 0, 14 * of.block, 1, true));
        CUDA_RESOURCE_VIEW_DESC view = {};
        view.format = (CUresourceViewFormat)of.view;
        view.width = 56;
        view.height = height;
        texture = texture_of(plain, nullptr, flags, &view, &result);
        CHECK_DRIVER(result);
        const std::vector<float4> viewed = texels(texture, 56, height);
        int wrong = 0;
        for (size_t i = 0; i < viewed.size(); i++) {
            wrong += std::memcmp(&viewed[i], &direct[i], 3 * sizeof(float)) != 0;
        }
        std::printf("  as a view: %d wrong, %s alpha", wrong, viewed[0].w == direct[0].w ? "the same" : "another");
        CHECK_DRIVER(cuTexObjectDestroy(texture));
        view.width = 14;
        view.height = 1;
        texture_of(plain, nullptr, flags, &view, &result);
        std::printf(", in blocks %d", result);
        view.width = 56;
        view.height = 3;
        texture_of(plain, nullptr, flags, &view, &result);
        std::printf(", lower %d", result);
        view.height = 4;
        texture_of(array, nullptr, flags, &view, &result);
        std::printf(", of itself %d", result);
        const CUarray other = make(14, 1, 0, CU_AD_FORMAT_SIGNED_INT32, of.block / 4, 0);
        texture_of(other, nullptr, flags, &view, &result);
        std::printf(", of signed elements %d\n", result);
        CHECK_DRIVER(cuArrayDestroy(other));
        CHECK_DRIVER(cuArrayDestroy(plain));
        CHECK_DRIVER(cuArrayDestroy(array));
    }
}

static void layers_and_levels() {
    Bytes blocks = blocks_of(BC1, 64);
    const CUarray array = make(8, 8, 3, BC1.format, 4, CUDA_ARRAY3D_LAYERED);
    CUDA_MEMCPY3D in = {};
    in.srcMemoryType = CU_MEMORYTYPE_HOST;
    in.srcHost = blocks.data();
    in.srcPitch = 16;
    in.srcHeight = 2;
    in.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    in.dstArray = array;
    in.WidthInBytes = 16;
    in.Height = 2;
    in.Depth = 3;
    CHECK_DRIVER(cuMemcpy3D(&in));
    CUresult result;
    CUtexObject texture = texture_of(array, nullptr, 0, nullptr, &result);
    CHECK_DRIVER(result);
    for (int layer = 0; layer < 3; layer++) {
        const std::vector<float4> values = texels(texture, 8, 8, 1, -1, layer);
        std::printf("layer %d: %.5f %.5f %.5f\n", layer, values[0].x, values[9].y, values[63].z);
    }
    CHECK_DRIVER(cuTexObjectDestroy(texture));
    CHECK_DRIVER(cuArrayDestroy(array));
    const CUDA_ARRAY3D_DESCRIPTOR of = {20, 12, 0, (CUarray_format)BC1.format, 4, 0};
    CUmipmappedArray levels;
    CHECK_DRIVER(cuMipmappedArrayCreate(&levels, &of, 5));
    for (unsigned int number = 0; number < 5; number++) {
        CUarray level;
        CHECK_DRIVER(cuMipmappedArrayGetLevel(&level, levels, number));
        CUDA_ARRAY3D_DESCRIPTOR is = {};
        CHECK_DRIVER(cuArray3DGetDescriptor(&is, level));
        const size_t row = (is.Width + 3) / 4 * 8, rows = (is.Height + 3) / 4;
        std::printf("level %u: %zu x %zu, %d %d\n", number, is.Width, is.Height,
                    copy(level, &blocks[number * 8], row, 0, 0, row, rows, true),
                    copy(level, blocks.data(), row, 0, 0, row, rows + 1, true));
    }
    texture = texture_of(nullptr, levels, CU_TRSF_NORMALIZED_COORDINATES, nullptr, &result);
    CHECK_DRIVER(result);
    for (int number = 0; number < 5; number++) {
        const std::vector<float4> values = texels(texture, 4, 4, 0.25f, (float)number);
        std::printf("level %d: %.5f %.5f %.5f\n", number, values[0].x, values[5].y, values[15].z);
    }
    CHECK_DRIVER(cuTexObjectDestroy(texture));
    CHECK_DRIVER(cuMipmappedArrayDestroy(levels));
}

static void by_the_runtime() {
    const cudaChannelFormatDesc formats[] = {cudaCreateChannelDesc<cudaChannelFormatKindUnsignedBlockCompressed1>(),
                                             cudaCreateChannelDesc<cudaChannelFormatKindSignedBlockCompressed4>(),
                                             cudaCreateChannelDesc<cudaChannelFormatKindUnsignedBlockCompressed6H>(),
                                             cudaCreateChannelDesc<cudaChannelFormatKindUnsignedBlockCompressed7SRGB>()};
    for (const cudaChannelFormatDesc &format : formats) {
        const size_t block = format.f == cudaChannelFormatKindUnsignedBlockCompressed1 ||
                                     format.f == cudaChannelFormatKindSignedBlockCompressed4
                                 ? 8
                                 : 16;
        cudaArray_t array;
        CHECK(cudaMallocArray(&array, &format, 32, 16));
        cudaChannelFormatDesc is;
        cudaExtent extent;
        unsigned int flags;
        CHECK(cudaArrayGetInfo(&is, &extent, &flags, array));
        std::printf("runtime: kind %d, %d %d %d %d, %zu x %zu", is.f, is.x, is.y, is.z, is.w, extent.width, extent.height);
        Bytes from(256 * 20), to(256 * 20);
        Random(3).fill(from.data(), from.size());
        for (const size_t rows : {4, 5, 16}) {
            std::printf(" %d", cudaMemcpy2DToArray(array, 0, 0, from.data(), 256, 8 * block, rows, cudaMemcpyHostToDevice));
        }
        std::printf(", boxes of texels:");
        cudaMemcpy3DParms box = {};
        box.srcArray = array;
        box.dstPtr = make_cudaPitchedPtr(to.data(), 256, 32, 16);
        box.kind = cudaMemcpyDeviceToHost;
        const cudaExtent extents[] = {make_cudaExtent(32, 16, 1), make_cudaExtent(31, 13, 1), make_cudaExtent(8, 4, 1),
                                      make_cudaExtent(2, 1, 1), make_cudaExtent(33, 16, 1)};
        for (const cudaExtent &size : extents) {
            std::fill(to.begin(), to.end(), 0xee);
            box.extent = size;
            const int result = cudaMemcpy3D(&box);
            size_t last = 0;
            for (size_t i = 0; i < to.size(); i++) {
                last = to[i] == from[i] && to[i] != 0xee ? i : last;
            }
            std::printf(" %d (%zu)", result, last);
        }
        cudaGetLastError();
        std::printf("\n  textures:");
        for (const int reading : {cudaReadModeElementType, cudaReadModeNormalizedFloat}) {
            for (const int srgb : {0, 1}) {
                cudaResourceDesc resource = {};
                resource.resType = cudaResourceTypeArray;
                resource.res.array.array = array;
                cudaTextureDesc desc = {};
                desc.readMode = (cudaTextureReadMode)reading;
                desc.sRGB = srgb;
                cudaTextureObject_t texture;
                const int result = cudaCreateTextureObject(&texture, &resource, &desc, nullptr);
                std::printf(" %d", result);
                if (result == cudaSuccess) {
                    CHECK(cudaDestroyTextureObject(texture));
                }
            }
        }
        cudaGetLastError();
        std::printf("\n");
        CHECK(cudaFreeArray(array));
    }
}

int main() {
    use_primary_context();
    creation();
    copies();
    textures();
    layers_and_levels();
    by_the_runtime();
    return 0;
}
