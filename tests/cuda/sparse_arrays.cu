// SPDX-License-Identifier: Apache-2.0 OR MIT
// Arrays that get their memory later: all at once (deferred mapping), or tile by tile (sparse arrays).
#include "check_driver.h"

#include <cstring>
#include <vector>

using Words = std::vector<unsigned int>;
constexpr int SPARSE = CUDA_ARRAY3D_SPARSE, DEFERRED = CUDA_ARRAY3D_DEFERRED_MAPPING;
constexpr int LAYERED = CUDA_ARRAY3D_LAYERED, SURFACE = CUDA_ARRAY3D_SURFACE_LDST, CUBE = CUDA_ARRAY3D_CUBEMAP;
constexpr size_t MIB = 1 << 20, TILE = 64 << 10;

static CUarray make(size_t width, size_t height, size_t depth, int flags, CUresult *result = nullptr,
                    CUarray_format format = CU_AD_FORMAT_UNSIGNED_INT32, unsigned int channels = 1) {
    const CUDA_ARRAY3D_DESCRIPTOR of = {width, height, depth, format, channels, (unsigned int)flags};
    CUarray array = nullptr;
    const CUresult made = cuArray3DCreate(&array, &of);
    if (result) {
        *result = made;
    } else {
        CHECK_DRIVER(made);
    }
    return array;
}

static CUmipmappedArray make_levels(size_t width, size_t height, size_t depth, int flags, unsigned int levels) {
    const CUDA_ARRAY3D_DESCRIPTOR of = {width, height, depth, CU_AD_FORMAT_UNSIGNED_INT32, 1, (unsigned int)flags};
    CUmipmappedArray array = nullptr;
    CHECK_DRIVER(cuMipmappedArrayCreate(&array, &of, levels));
    return array;
}

static CUmemAllocationProp pool_prop() {
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    prop.allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL;
    return prop;
}

static CUmemGenericAllocationHandle make_pool(size_t bytes) {
    const CUmemAllocationProp prop = pool_prop();
    CUmemGenericAllocationHandle pool = 0;
    CHECK_DRIVER(cuMemCreate(&pool, bytes, &prop, 0));
    return pool;
}

static void tell(const char *name, const CUDA_ARRAY_SPARSE_PROPERTIES &is) {
    std::printf("%s: tiles of %u x %u x %u, tail from level %u on, %llu bytes, flags %u\n", name, is.tileExtent.width,
                is.tileExtent.height, is.tileExtent.depth, is.miptailFirstLevel, is.miptailSize, is.flags);
}

static CUDA_ARRAY_SPARSE_PROPERTIES tiles_of(CUarray array) {
    CUDA_ARRAY_SPARSE_PROPERTIES is = {};
    CHECK_DRIVER(cuArrayGetSparseProperties(&is, array));
    return is;
}

static size_t bytes_of(CUarray array) {
    CUDA_ARRAY_MEMORY_REQUIREMENTS needs = {};
    CHECK_DRIVER(cuArrayGetMemoryRequirements(&needs, array, 0));
    REQUIRE(needs.alignment == TILE);
    return needs.size;
}

// What is common to maps of all kinds; without memory it unmaps.
static CUarrayMapInfo whole(CUarray array, CUmemGenericAllocationHandle memory, unsigned long long offset = 0) {
    CUarrayMapInfo map = {};
    map.resourceType = CU_RESOURCE_TYPE_ARRAY;
    map.resource.array = array;
    map.memOperationType = memory ? CU_MEM_OPERATION_TYPE_MAP : CU_MEM_OPERATION_TYPE_UNMAP;
    map.memHandleType = CU_MEM_HANDLE_TYPE_GENERIC;
    map.memHandle.memHandle = memory;
    map.offset = offset;
    map.deviceBitMask = 1;
    return map;
}

static CUarrayMapInfo box(CUarray array, CUmemGenericAllocationHandle memory, unsigned long long offset, uint3 at, uint3 size,
                          unsigned int layer = 0) {
    CUarrayMapInfo map = whole(array, memory, offset);
    map.subresource.sparseLevel = {0, layer, at.x, at.y, at.z, size.x, size.y, size.z};
    return map;
}

static int apply(CUarrayMapInfo map) {
    const CUresult result = cuMemMapArrayAsync(&map, 1, nullptr);
    CHECK_DRIVER(cuCtxSynchronize());
    return result;
}

static CUarrayMapInfo of_levels(CUarrayMapInfo map, CUmipmappedArray levels, unsigned int level = 0) {
    map.resourceType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    map.resource.mipmap = levels;
    map.subresource.sparseLevel.level = level;
    return map;
}

static CUarrayMapInfo tail_of(CUmipmappedArray levels, CUmemGenericAllocationHandle memory, unsigned long long offset,
                              unsigned long long bytes, unsigned int layer = 0) {
    CUarrayMapInfo map = of_levels(whole(nullptr, memory, offset), levels);
    map.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL;
    map.subresource.miptail = {layer, 0, bytes};
    return map;
}

static Words counting(size_t count, unsigned int from) {
    Words words(count);
    for (size_t i = 0; i < count; i++) {
        words[i] = from + (unsigned int)i;
    }
    return words;
}

static void copy(CUarray array, Words &words, size_t width, size_t height, bool in, size_t depth = 1) {
    CUDA_MEMCPY3D copy = {};
    (in ? copy.srcMemoryType : copy.dstMemoryType) = CU_MEMORYTYPE_HOST;
    (in ? copy.dstMemoryType : copy.srcMemoryType) = CU_MEMORYTYPE_ARRAY;
    (in ? copy.dstArray : copy.srcArray) = array;
    copy.srcHost = copy.dstHost = words.data();
    copy.srcPitch = copy.dstPitch = copy.WidthInBytes = width * 4;
    copy.srcHeight = copy.dstHeight = copy.Height = height;
    copy.Depth = depth;
    CHECK_DRIVER(cuMemcpy3D(&copy));
}

static void put(CUarray array, unsigned int from, size_t width, size_t height, size_t depth = 1) {
    Words words = counting(width * height * depth, from);
    copy(array, words, width, height, true, depth);
}

static Words get(CUarray array, size_t width, size_t height, size_t depth = 1) {
    Words words(width * height * depth, 0xeeeeeeee);
    copy(array, words, width, height, false, depth);
    return words;
}

static void show(const char *what, const Words &words, size_t width, std::initializer_list<uint2> places) {
    std::printf("%s:", what);
    for (const uint2 at : places) {
        std::printf(" %x", words[at.y * width + at.x]);
    }
    std::printf("\n");
}

__global__ void read_texture(cudaTextureObject_t texture, unsigned int *out, int width) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    out[y * width + x] = tex2D<unsigned int>(texture, x + 0.5f, y + 0.5f);
}

__global__ void add_to_surface(cudaSurfaceObject_t surface, unsigned int more) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    surf2Dwrite(surf2Dread<unsigned int>(surface, x * 4, y) + more, surface, x * 4, y);
}

static Words textured(CUarray array, int width, int height) {
    CUDA_RESOURCE_DESC resource = {};
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = array;
    CUDA_TEXTURE_DESC desc = {};
    desc.flags = CU_TRSF_READ_AS_INTEGER;
    CUtexObject texture;
    CHECK_DRIVER(cuTexObjectCreate(&texture, &resource, &desc, nullptr));
    unsigned int *out;
    CHECK(cudaMalloc(&out, width * height * 4));
    read_texture<<<dim3(width / 16, height / 16), dim3(16, 16)>>>(texture, out, width);
    Words words(width * height);
    CHECK(cudaMemcpy(words.data(), out, width * height * 4, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(out));
    CHECK_DRIVER(cuTexObjectDestroy(texture));
    return words;
}

static void creation() {
    for (const int attribute : {112, 121}) {
        int value = 0;
        CHECK_DRIVER(cuDeviceGetAttribute(&value, (CUdevice_attribute)attribute, 0));
        std::printf("attribute %d: %d\n", attribute, value);
    }
    const struct { const char *name; size_t width, height, depth; int flags; } kinds[] = {
        {"1D", 64, 0, 0, 0}, {"1D layers", 64, 0, 4, LAYERED}, {"2D", 64, 64, 0, 0}, {"2D layers", 64, 64, 4, LAYERED},
        {"3D", 64, 64, 64, 0}, {"cube", 64, 64, 6, CUBE}, {"with surface", 64, 64, 0, SURFACE}, {"nothing", 0, 0, 0, 0}};
    for (const auto &kind : kinds) {
        std::printf("%s:", kind.name);
        for (const int flags : {SPARSE, DEFERRED, SPARSE | DEFERRED, CUDA_ARRAY3D_VIDEO_ENCODE_DECODE, 0x200}) {
            CUresult result;
            const CUarray array = make(kind.width, kind.height, kind.depth, kind.flags | flags, &result);
            std::printf(" %d", result);
            if (result == CUDA_SUCCESS) {
                CUDA_ARRAY_SPARSE_PROPERTIES tiles;
                CUDA_ARRAY_MEMORY_REQUIREMENTS needs;
                const int properties = cuArrayGetSparseProperties(&tiles, array);
                std::printf(" (%d, %d)", properties, cuArrayGetMemoryRequirements(&needs, array, 0));
                CUDA_ARRAY3D_DESCRIPTOR is = {};
                CHECK_DRIVER(cuArray3DGetDescriptor(&is, array));
                REQUIRE(is.Flags == (unsigned int)(kind.flags | flags) && is.Width == kind.width);
                CHECK_DRIVER(cuArrayDestroy(array));
            }
        }
        std::printf("\n");
    }
    CUdeviceptr range;
    const CUmemGenericAllocationHandle pool = make_pool(2 * MIB);
    CHECK_DRIVER(cuMemAddressReserve(&range, 2 * MIB, 0, 0, 0));
    std::printf("a pool of tiles at addresses: %d\n", cuMemMap(range, 2 * MIB, 0, pool, 0));
    CHECK_DRIVER(cuMemAddressFree(range, 2 * MIB));
    CHECK_DRIVER(cuMemRelease(pool));
    CUmemAllocationProp prop = pool_prop();
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle shared;
    std::printf("a pool of tiles to share: %d\n", cuMemCreate(&shared, 2 * MIB, &prop, 0));
}

static void sizes() {
    const struct { const char *name; CUarray_format format; unsigned int channels; } formats[] = {
        {"uchar1", CU_AD_FORMAT_UNSIGNED_INT8, 1}, {"half1", CU_AD_FORMAT_HALF, 1}, {"float1", CU_AD_FORMAT_FLOAT, 1},
        {"float2", CU_AD_FORMAT_FLOAT, 2}, {"float4", CU_AD_FORMAT_FLOAT, 4}};
    for (const auto &of : formats) {
        for (const size_t depth : {0, 32}) {
            CUarray array = make(300, 300, depth, SPARSE, nullptr, of.format, of.channels);
            tell(of.name, tiles_of(array));
            CHECK_DRIVER(cuArrayDestroy(array));
            array = make(300, 300, depth, DEFERRED, nullptr, of.format, of.channels);
            std::printf("all at once: %zu bytes\n", bytes_of(array));
            CHECK_DRIVER(cuArrayDestroy(array));
        }
    }
    const size_t small[][2] = {{16, 16}, {127, 1000}, {128, 128}, {4096, 127}, {1000, 129}};
    for (const auto &size : small) {
        const CUarray array = make(size[0], size[1], 0, SPARSE);
        std::printf("%zu x %zu ", size[0], size[1]);
        tell("sparse", tiles_of(array));
        CHECK_DRIVER(cuArrayDestroy(array));
    }
    for (const int layers : {0, 3}) {
        const CUmipmappedArray levels = make_levels(1000, 600, layers, SPARSE | (layers ? LAYERED : 0), 10);
        CUDA_ARRAY_SPARSE_PROPERTIES tiles = {};
        CHECK_DRIVER(cuMipmappedArrayGetSparseProperties(&tiles, levels));
        tell(layers ? "levels of layers" : "levels", tiles);
        CHECK_DRIVER(cuMipmappedArrayDestroy(levels));
    }
    const CUmipmappedArray levels = make_levels(1024, 1024, 0, DEFERRED, 5);
    CUDA_ARRAY_MEMORY_REQUIREMENTS needs = {};
    CHECK_DRIVER(cuMipmappedArrayGetMemoryRequirements(&needs, levels, 0));
    std::printf("levels all at once: %zu bytes\n", needs.size);
    CHECK_DRIVER(cuMipmappedArrayDestroy(levels));
}

static void deferred() {
    constexpr size_t W = 256, H = 128;
    const CUarray array = make(W, H, 0, DEFERRED | SURFACE);
    REQUIRE(bytes_of(array) == W * H * 4);
    CUmemGenericAllocationHandle pool = make_pool(2 * MIB), plain = 0;
    CUmemAllocationProp prop = pool_prop();
    prop.allocFlags.usage = 0;
    CHECK_DRIVER(cuMemCreate(&plain, 2 * MIB, &prop, 0));
    std::printf("deferred: unmapped already %d, plain memory %d, unaligned %d, too far %d\n", apply(whole(array, 0)),
                apply(whole(array, plain)), apply(whole(array, pool, 4096)), apply(whole(array, pool, 2 * MIB - TILE)));
    std::printf("mapped %d\n", apply(whole(array, pool)));
    put(array, 0x1000, W, H);
    CUDA_RESOURCE_DESC resource = {};
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = array;
    CUsurfObject surface;
    CHECK_DRIVER(cuSurfObjectCreate(&surface, &resource));
    add_to_surface<<<dim3(W / 16, H / 16), dim3(16, 16)>>>(surface, 0x100);
    REQUIRE(get(array, W, H) == counting(W * H, 0x1100));
    REQUIRE(textured(array, W, H) == counting(W * H, 0x1100));
    // Another place, which is empty, and back. The memory keeps what was written.
    std::printf("elsewhere %d\n", apply(whole(array, pool, 4 * TILE)));
    show("fresh", get(array, W, H), W, {{0, 0}, {255, 127}});
    put(array, 0x9000, W, H);
    std::printf("back %d\n", apply(whole(array, pool)));
    show("back", get(array, W, H), W, {{0, 0}, {255, 127}});
    // Two arrays in the same memory, and memory that only arrays hold.
    const CUarray other = make(W, H, 0, DEFERRED);
    std::printf("both %d\n", apply(whole(other, pool)));
    CHECK_DRIVER(cuMemRelease(pool));
    put(array, 0x5000, W, H);
    REQUIRE(get(other, W, H) == counting(W * H, 0x5000));
    std::printf("unmapped %d\n", apply(whole(array, 0)));
    REQUIRE(get(other, W, H) == counting(W * H, 0x5000));
    CHECK_DRIVER(cuSurfObjectDestroy(surface));
    CHECK_DRIVER(cuArrayDestroy(other));
    CHECK_DRIVER(cuArrayDestroy(array));
    // Levels.
    const CUmipmappedArray levels = make_levels(256, 256, 0, DEFERRED, 4);
    CUarray large, small;
    CHECK_DRIVER(cuMipmappedArrayGetLevel(&large, levels, 0));
    CHECK_DRIVER(cuMipmappedArrayGetLevel(&small, levels, 2));
    pool = make_pool(2 * MIB);
    std::printf("a level alone %d, all levels %d\n", apply(whole(large, pool)), apply(of_levels(whole(nullptr, pool), levels)));
    put(large, 0x10000, 256, 256);
    put(small, 0x70000, 64, 64);
    REQUIRE(get(large, 256, 256) == counting(256 * 256, 0x10000) && get(small, 64, 64) == counting(64 * 64, 0x70000));
    CHECK_DRIVER(cuMipmappedArrayDestroy(levels));
    CHECK_DRIVER(cuMemRelease(pool));
    CHECK_DRIVER(cuMemRelease(plain));
}

static void sparse() {
    constexpr size_t SIDE = 512;
    const uint3 tile = {128, 128, 1};
    const std::initializer_list<uint2> places = {{0, 0}, {127, 127}, {128, 0}, {0, 128}, {128, 128}, {133, 131}, {511, 511}};
    const CUarray array = make(SIDE, SIDE, 0, SPARSE);
    const CUmemGenericAllocationHandle pool = make_pool(4 * MIB);
    put(array, 0x10000, SIDE, SIDE);
    show("without memory", get(array, SIDE, SIDE), SIDE, places);
    std::printf("mapped %d %d\n", apply(box(array, pool, 0, {0, 0, 0}, tile)), apply(box(array, pool, 2 * TILE, {128, 128, 0}, tile)));
    put(array, 0x30000, SIDE, SIDE);
    show("two tiles", get(array, SIDE, SIDE), SIDE, places);
    show("in a texture", textured(array, SIDE, SIDE), SIDE, places);
    std::printf("unmapped %d, again %d\n", apply(box(array, 0, 0, {0, 0, 0}, tile)), apply(box(array, 0, 0, {0, 0, 0}, tile)));
    show("one tile", get(array, SIDE, SIDE), SIDE, places);
    std::printf("the same memory twice %d\n", apply(box(array, pool, 2 * TILE, {256, 0, 0}, tile)));
    show("twice", get(array, SIDE, SIDE), SIDE, {{256, 0}, {261, 3}, {133, 131}});
    std::printf("over it %d\n", apply(box(array, pool, 0, {128, 128, 0}, tile)));
    show("other memory", get(array, SIDE, SIDE), SIDE, places);
    // Several at once lie row by row.
    std::printf("four tiles %d\n", apply(box(array, pool, 4 * TILE, {0, 0, 0}, {256, 256, 1})));
    put(array, 0x40000, SIDE, SIDE);
    std::printf("all unmapped %d\n", apply(box(array, 0, 0, {0, 0, 0}, {512, 512, 1})));
    for (int part = 4; part < 8; part++) {
        REQUIRE(apply(box(array, pool, part * TILE, {384, 384, 0}, tile)) == 0);
        show("part", get(array, SIDE, SIDE), SIDE, {{384, 384}, {0, 0}});
    }
    // The last place of the pool, and what does not fit.
    const struct { const char *name; CUarrayMapInfo map; } bad[] = {
        {"the last place", box(array, pool, 4 * MIB - TILE, {0, 0, 0}, tile)},
        {"behind the last place", box(array, pool, 4 * MIB, {0, 0, 0}, tile)},
        {"partly behind it", box(array, pool, 4 * MIB - TILE, {0, 0, 0}, {256, 128, 1})},
        {"unaligned memory", box(array, pool, 4096, {0, 0, 0}, tile)},
        {"unaligned x", box(array, pool, 0, {1, 0, 0}, tile)},
        {"unaligned y", box(array, pool, 0, {0, 1, 0}, tile)},
        {"z", box(array, pool, 0, {0, 0, 1}, tile)},
        {"half a tile", box(array, pool, 0, {0, 0, 0}, {64, 128, 1})},
        {"no width", box(array, pool, 0, {0, 0, 0}, {0, 128, 1})},
        {"no depth", box(array, pool, 0, {0, 0, 0}, {128, 128, 0})},
        {"two deep", box(array, pool, 0, {0, 0, 0}, {128, 128, 2})},
        {"outside x", box(array, pool, 0, {512, 0, 0}, tile)},
        {"outside y", box(array, pool, 0, {0, 512, 0}, tile)},
        {"too wide", box(array, pool, 0, {0, 0, 0}, {640, 128, 1})},
        {"another layer", box(array, pool, 0, {0, 0, 0}, tile, 1)}};
    for (const auto &one : bad) {
        std::printf("%s: %d\n", one.name, apply(one.map));
    }
    CUarrayMapInfo map = box(array, pool, 0, {0, 0, 0}, tile);
    const auto with = [&](const char *name, auto change) {
        CUarrayMapInfo changed = map;
        change(changed);
        std::printf("%s: %d\n", name, apply(changed));
    };
    with("no device", [](CUarrayMapInfo &one) { one.deviceBitMask = 0; });
    with("flags", [](CUarrayMapInfo &one) { one.flags = 1; });
    with("reserved", [](CUarrayMapInfo &one) { one.reserved[1] = 1; });
    with("no operation", [](CUarrayMapInfo &one) { one.memOperationType = (CUmemOperationType)0; });
    with("another operation", [](CUarrayMapInfo &one) { one.memOperationType = (CUmemOperationType)3; });
    with("a level", [](CUarrayMapInfo &one) { one.subresource.sparseLevel.level = 1; });
    std::printf("no list: %d\n", cuMemMapArrayAsync(nullptr, 1, nullptr));
    // Arrays that are gone leave their memory as it was; it can be seen with other elements.
    REQUIRE(apply(box(array, pool, 0, {0, 0, 0}, tile)) == 0);
    put(array, 0x60000, SIDE, SIDE);
    CHECK_DRIVER(cuArrayDestroy(array));
    const CUarray bytes = make(SIDE, SIDE, 0, SPARSE, nullptr, CU_AD_FORMAT_UNSIGNED_INT8, 4);
    REQUIRE(apply(box(bytes, pool, 0, {128, 0, 0}, tile)) == 0);
    show("other elements", get(bytes, SIDE, SIDE), SIDE, {{0, 0}, {128, 0}, {255, 127}});
    CHECK_DRIVER(cuMemRelease(pool));
    show("only held by it", get(bytes, SIDE, SIDE), SIDE, {{128, 0}});
    CHECK_DRIVER(cuArrayDestroy(bytes));
}

static void layers_and_levels() {
    const CUmemGenericAllocationHandle pool = make_pool(8 * MIB);
    const uint3 tile = {128, 128, 1};
    const CUarray layers = make(256, 256, 3, SPARSE | LAYERED);
    std::printf("layers: %d %d, behind the last %d\n", apply(box(layers, pool, 0, {0, 0, 0}, tile, 1)),
                apply(box(layers, pool, TILE, {128, 128, 0}, tile, 2)), apply(box(layers, pool, 0, {0, 0, 0}, tile, 3)));
    put(layers, 0x1000, 256, 256, 3);
    show("layers", get(layers, 256, 256, 3), 256, {{0, 0}, {0, 256}, {128, 256}, {128, 512 + 128}, {0, 512}});
    CHECK_DRIVER(cuArrayDestroy(layers));
    const CUarray deep = make(64, 64, 32, SPARSE);
    std::printf("3D: %d\n", apply(box(deep, pool, 0, {32, 0, 16}, {32, 32, 16})));
    put(deep, 0x1000, 64, 64, 32);
    show("3D", get(deep, 64, 64, 32), 64, {{0, 0}, {32, 16 * 64}, {63, 31 * 64 + 31}, {32, 15 * 64}, {31, 16 * 64}});
    CHECK_DRIVER(cuArrayDestroy(deep));
    for (const int count : {0, 3}) {
        const CUmipmappedArray levels = make_levels(512, 512, count, SPARSE | (count ? LAYERED : 0), 10);
        CUDA_ARRAY_SPARSE_PROPERTIES tiles = {};
        CHECK_DRIVER(cuMipmappedArrayGetSparseProperties(&tiles, levels));
        tell(count ? "levels of layers" : "levels", tiles);
        std::printf("tiles:");
        for (unsigned int level = 0; level < 11; level++) {
            std::printf(" %d", apply(of_levels(box(nullptr, pool, level * TILE, {0, 0, 0}, tile), levels, level)));
        }
        const unsigned long long bytes = tiles.miptailSize;
        std::printf("\ntail: %d, none %d, odd %d, more %d, unaligned memory %d, another layer %d %d\n",
                    apply(tail_of(levels, pool, MIB, bytes)), apply(tail_of(levels, pool, MIB, 0)),
                    apply(tail_of(levels, pool, MIB, 1)), apply(tail_of(levels, pool, MIB, bytes + TILE)),
                    apply(tail_of(levels, pool, 3, bytes)), apply(tail_of(levels, pool, 2 * MIB, bytes, 1)),
                    apply(tail_of(levels, pool, MIB, bytes, 5)));
        CUarray first, in_tail;
        CHECK_DRIVER(cuMipmappedArrayGetLevel(&first, levels, 0));
        CHECK_DRIVER(cuMipmappedArrayGetLevel(&in_tail, levels, 5));
        std::printf("a level alone: %d\n", apply(box(first, pool, 0, {0, 0, 0}, tile)));
        const size_t depth = count ? count : 1;
        put(first, 0x300, 512, 512, depth);
        put(in_tail, 0x700, 16, 16, depth);
        show("first", get(first, 512, 512, depth), 512, {{0, 0}, {128, 0}, {5, 5}});
        show("in the tail", get(in_tail, 16, 16, depth), 16, {{0, 0}, {3, 3}});
        if (count) {
            show("of layers", get(in_tail, 16, 16, depth), 16, {{0, 16}, {0, 32}});
        }
        std::printf("tail unmapped %d\n", apply(tail_of(levels, 0, 0, bytes)));
        show("in the tail", get(in_tail, 16, 16, depth), 16, {{0, 0}, {3, 3}});
        CHECK_DRIVER(cuMipmappedArrayDestroy(levels));
    }
    CHECK_DRIVER(cuMemRelease(pool));
}

static void by_the_runtime() {
    const cudaChannelFormatDesc floats = cudaCreateChannelDesc<float>();
    for (const unsigned int flags : {cudaArraySparse, cudaArrayDeferredMapping}) {
        cudaArray_t array;
        CHECK(cudaMalloc3DArray(&array, &floats, make_cudaExtent(256, 256, 0), flags));
        cudaArraySparseProperties tiles = {};
        cudaArrayMemoryRequirements needs = {};
        const int is_sparse = cudaArrayGetSparseProperties(&tiles, array);
        const int is_deferred = cudaArrayGetMemoryRequirements(&needs, array, 0);
        std::printf("runtime: %d %d, tiles of %u x %u, %zu bytes\n", is_sparse, is_deferred, tiles.tileExtent.width,
                    tiles.tileExtent.height, needs.size);
        CHECK(cudaFreeArray(array));
        cudaMipmappedArray_t levels;
        CHECK(cudaMallocMipmappedArray(&levels, &floats, make_cudaExtent(512, 512, 0), 5, flags));
        const int levels_sparse = cudaMipmappedArrayGetSparseProperties(&tiles, levels);
        const int levels_deferred = cudaMipmappedArrayGetMemoryRequirements(&needs, levels, 0);
        std::printf("levels: %d %d, tail from level %u on\n", levels_sparse, levels_deferred, tiles.miptailFirstLevel);
        CHECK(cudaFreeMipmappedArray(levels));
        cudaGetLastError();
    }
}

int main() {
    use_primary_context();
    creation();
    sizes();
    deferred();
    sparse();
    layers_and_levels();
    by_the_runtime();
    return 0;
}
