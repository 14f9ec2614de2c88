// SPDX-License-Identifier: Apache-2.0 OR MIT
// nvcc: -Xcompiler -O0
// The driver API: descriptions of textures, surfaces, tensor maps, pools and memory to map, of which one member is bad.
#include "bad_input_driver.h"
#include "bad_input_fields.h"

using namespace bad_input;

static CUtexObject object;

static void texture_descriptions() {
    using It = CUDA_TEXTURE_DESC;
    It it = {};
    for (int i = 0; i < 3; i++) {
        it.addressMode[i] = CU_TR_ADDRESS_MODE_CLAMP;
    }
    const Fields fields = {
        FV(addressMode[0], {"wrap", 0}, {"mirror", 2}, {"border", 3}),
        F(addressMode[1]),
        F(addressMode[2]),
        FV(filterMode, {"linear", 1}),
        FV(flags, {"integer", 1}, {"normalised", 2}, {"srgb", 16}, {"trilinear", 32}, {"seamless", 64}, {"128", 128}),
        FV(maxAnisotropy, {"32", 32}),
        FV(mipmapFilterMode, {"linear", 1})};
    static CUDA_RESOURCE_DESC resource;
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = Handle<CUarray>::good;
    SPOIL_CALL(cuTexObjectCreate, " texture", &object, &resource, &it, nullptr);
    static CUDA_RESOURCE_DESC levels;
    levels.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    levels.res.mipmap.hMipmappedArray = Handle<CUmipmappedArray>::good;
    SPOIL_CALL(cuTexObjectCreate, " levels", &object, &levels, &it, nullptr);
}

static CUDA_TEXTURE_DESC clamped;

static void resources() {
    using It = CUDA_RESOURCE_DESC;
    It it = {};
    for (int i = 0; i < 3; i++) {
        clamped.addressMode[i] = CU_TR_ADDRESS_MODE_CLAMP;
    }
    {
        it.resType = CU_RESOURCE_TYPE_ARRAY;
        it.res.array.hArray = Handle<CUarray>::good;
        const Fields fields = {FV(resType, {"levels", 1}, {"linear", 2}, {"pitched", 3}), F(res.array.hArray),
                               FV(flags, {"one", 1})};
        SPOIL_CALL(cuTexObjectCreate, " array", &object, &it, &clamped, nullptr);
        SPOIL_CALL(cuSurfObjectCreate, " array", &object, &it);
    }
    {
        it = {};
        it.resType = CU_RESOURCE_TYPE_LINEAR;
        it.res.linear.devPtr = memory;
        it.res.linear.format = CU_AD_FORMAT_FLOAT;
        it.res.linear.numChannels = 1;
        it.res.linear.sizeInBytes = 4096;
        const Fields fields = {FV(res.linear.devPtr, {"odd", memory + 1}), FV(res.linear.format, {"zero", 0}),
                               FV(res.linear.numChannels, {"three", 3}),
                               FV(res.linear.sizeInBytes, {"three", 3}, {"large", 1ull << 33}), F(flags)};
        SPOIL_CALL(cuTexObjectCreate, " linear", &object, &it, &clamped, nullptr);
        SPOIL_CALL(cuSurfObjectCreate, " linear", &object, &it);
    }
    {
        it = {};
        it.resType = CU_RESOURCE_TYPE_PITCH2D;
        it.res.pitch2D.devPtr = memory;
        it.res.pitch2D.format = CU_AD_FORMAT_FLOAT;
        it.res.pitch2D.numChannels = 1;
        it.res.pitch2D.width = it.res.pitch2D.height = 16;
        it.res.pitch2D.pitchInBytes = 512;
        const Fields fields = {FV(res.pitch2D.devPtr, {"odd", memory + 4}),
                               F(res.pitch2D.format),
                               FV(res.pitch2D.numChannels, {"three", 3}),
                               FV(res.pitch2D.width, {"large", 200000}),
                               FV(res.pitch2D.height, {"large", 200000}),
                               FV(res.pitch2D.pitchInBytes, {"sixteen", 16}, {"hundred", 100})};
        SPOIL_CALL(cuTexObjectCreate, " pitched", &object, &it, &clamped, nullptr);
    }
}

static void views() {
    using It = CUDA_RESOURCE_VIEW_DESC;
    It it = {};
    it.format = CU_RES_VIEW_FORMAT_UINT_1X8;
    it.width = it.height = 16;
    static CUDA_RESOURCE_DESC resource;
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = Handle<CUarray>::good;
    const Fields fields = {FV(format, {"none", 0}, {"wider", CU_RES_VIEW_FORMAT_UINT_4X32}),
                           FV(width, {"seventeen", 17}),
                           FV(height, {"seventeen", 17}),
                           FV(depth, {"one", 1}),
                           FV(firstMipmapLevel, {"one", 1}),
                           FV(lastMipmapLevel, {"one", 1}),
                           FV(firstLayer, {"one", 1}),
                           FV(lastLayer, {"one", 1})};
    SPOIL_CALL(cuTexObjectCreate, " view", &object, &resource, &clamped, &it);
    static CUDA_RESOURCE_DESC linear;
    linear.resType = CU_RESOURCE_TYPE_LINEAR;
    linear.res.linear = {memory, CU_AD_FORMAT_FLOAT, 1, 4096};
    LINE_CALL(cuTexObjectCreate, " view of-linear", &object, &linear, &clamped, (CUDA_RESOURCE_VIEW_DESC *)room);
}

static void tensor_maps() {
    struct It {
        CUtensorMapDataType type;
        unsigned rank;
        CUdeviceptr address;
        cuuint64_t sizes[5], strides[4];
        cuuint32_t box[5], steps[5];
        CUtensorMapInterleave interleave;
        CUtensorMapSwizzle swizzle;
        CUtensorMapL2promotion promotion;
        CUtensorMapFloatOOBfill fill;
    };
    It it = {CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
             3,
             memory,
             {32, 16, 8, 1, 1},
             {128, 2048, 16384, 16384},
             {8, 4, 2, 1, 1},
             {1, 1, 1, 1, 1},
             CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_NONE,
             CU_TENSOR_MAP_L2_PROMOTION_NONE,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE};
    const Fields fields = {FV(type, {"bytes", 0}, {"doubles", CU_TENSOR_MAP_DATA_TYPE_FLOAT64},
                              {"packed", CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B}),
                           FV(rank, {"two", 2}, {"six", 6}),
                           ONLY(address, {"null", 0}, {"odd", memory + 8}),
                           ONLY(sizes[0], {"zero", 0}, {"large", 1ull << 33}),
                           ONLY(sizes[2], {"zero", 0}, {"largest", 1ull << 32}),
                           ONLY(strides[0], {"zero", 0}, {"eight", 8}, {"small", 64}, {"large", 1ull << 41}),
                           ONLY(strides[1], {"small", 1024}),
                           ONLY(box[0], {"zero", 0}, {"three", 3}, {"257", 257}, {"256", 256}),
                           ONLY(box[1], {"zero", 0}, {"257", 257}),
                           ONLY(steps[0], {"zero", 0}, {"nine", 9}),
                           ONLY(steps[1], {"zero", 0}, {"eight", 8}, {"nine", 9}),
                           FV(interleave, {"16", 1}, {"32", 2}),
                           FV(swizzle, {"32", 1}, {"64", 2}, {"128", 3}, {"atom", 4}),
                           FV(promotion, {"256", 3}),
                           FV(fill, {"nan", 1})};
    SPOIL_CALL(cuTensorMapEncodeTiled, " of", (CUtensorMap *)room, it.type, it.rank, (void *)it.address, it.sizes,
               it.strides, it.box, it.steps, it.interleave, it.swizzle, it.promotion, it.fill);
    LINE_CALL(cuTensorMapEncodeTiled, " unaligned", (CUtensorMap *)(room + 8), CU_TENSOR_MAP_DATA_TYPE_UINT8, 1,
              (void *)memory, (cuuint64_t *)room, nullptr, (cuuint32_t *)room, (cuuint32_t *)room,
              CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
              CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

static CUmemoryPool pool;

static void pools() {
    {
        using It = CUmemPoolProps;
        It it = {};
        it.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        it.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        const Fields fields = {FV(allocType, {"zero", 0}, {"managed", 2}),
                               FV(handleTypes, {"file", 1}, {"win32", 2}, {"fabric", 8}, {"16", 16}),
                               FV(location.type, {"zero", 0}, {"host", 2}, {"numa", 3}, {"current", 4}),
                               FV(location.id, {"one", 1}),
                               FV(maxSize, {"one", 1}, {"large", 1ull << 40}),
                               FV(usage, {"one", 1}, {"decompress", 2}),
                               ONLY(reserved[0], {"one", 1})};
        SPOIL_CALL(cuMemPoolCreate, " of", &pool, &it);
    }
    {
        using It = CUmemAccessDesc;
        It it = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        const Fields fields = {FV(location.type, {"zero", 0}, {"host", 2}, {"numa", 3}), FV(location.id, {"one", 1}),
                               FV(flags, {"none", 0}, {"read", 1}, {"two", 2})};
        SPOIL_CALL(cuMemPoolSetAccess, " of", Handle<CUmemoryPool>::good, &it, 1);
        SPOIL_CALL(cuMemPoolGetAccess, " of", &it.flags, Handle<CUmemoryPool>::good, &it.location);
    }
    {
        struct It {
            CUmemPool_attribute attribute;
            cuuint64_t value;
        };
        It it = {};
        const Fields fields = {ONLY(attribute, {"zero", 0}, {"one", 1}, {"two", 2}, {"three", 3}, {"four", 4},
                                    {"five", 5}, {"six", 6}, {"seven", 7}, {"eight", 8}, {"nine", 9})};
        it.value = 0;
        SPOIL_CALL(cuMemPoolGetAttribute, " of", Handle<CUmemoryPool>::good, it.attribute, room);
        SPOIL_CALL(cuMemPoolSetAttribute, " zero", Handle<CUmemoryPool>::good, it.attribute, &it.value);
        it.value = 3;
        SPOIL_CALL(cuMemPoolSetAttribute, " three", Handle<CUmemoryPool>::good, it.attribute, &it.value);
    }
    LINE_CALL(cuMemPoolDestroy, " default", ([] {
                  CUmemoryPool usual = nullptr;
                  CALL(cuDeviceGetDefaultMemPool, &usual, 0);
                  return usual;
              }()));
    LINE_CALL(cuMemPoolExportToShareableHandle, " not-shared", room, Handle<CUmemoryPool>::good,
              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    LINE_CALL(cuMemPoolExportPointer, " not-of-a-pool", (CUmemPoolPtrExportData *)room, memory);
    LINE_CALL(cuMemAllocFromPoolAsync, " large", (CUdeviceptr *)room, 1ull << 45, Handle<CUmemoryPool>::good,
              Handle<CUstream>::good);
    LINE_CALL(cuMemAllocAsync, " large", (CUdeviceptr *)room, 1ull << 45, Handle<CUstream>::good);
    LINE_CALL(cuMemFreeAsync, " twice", ([] {
                  CUdeviceptr at = 0;
                  CALL(cuMemAllocAsync, &at, 64, Handle<CUstream>::good);
                  CALL(cuMemFreeAsync, at, Handle<CUstream>::good);
                  return at;
              }()),
              Handle<CUstream>::good);
}

static size_t granularity;

static void mapped_memory() {
    {
        struct It {
            CUmemAllocationProp of;
            size_t size;
            unsigned long long flags;
        };
        It it = {};
        it.of.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        it.of.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        CALL(cuMemGetAllocationGranularity, &granularity, &it.of, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
        it.size = granularity;
        const Fields fields = {FV(of.type, {"zero", 0}, {"managed", 2}),
                               FV(of.requestedHandleTypes, {"file", 1}, {"win32", 2}, {"fabric", 8}, {"16", 16}),
                               FV(of.location.type, {"zero", 0}, {"host", 2}, {"numa", 3}, {"current", 4}),
                               FV(of.location.id, {"one", 1}),
                               ONLY(of.allocFlags.compressionType, {"one", 1}, {"two", 2}),
                               ONLY(of.allocFlags.gpuDirectRDMACapable, {"one", 1}, {"two", 2}),
                               ONLY(of.allocFlags.usage, {"tile", 1}, {"decompress", 2}, {"four", 4}),
                               ONLY(of.allocFlags.reserved[0], {"one", 1}),
                               FV(size, {"half", granularity / 2}),
                               F(flags)};
        SPOIL_CALL(cuMemCreate, " of", (CUmemGenericAllocationHandle *)room, it.size, &it.of, it.flags);
        SPOIL_CALL(cuMemGetAllocationGranularity, " of", (size_t *)room, &it.of, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    }
    static CUdeviceptr range, mapped;
    static CUmemGenericAllocationHandle piece, released;
    CUmemAllocationProp of = {};
    of.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    of.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CALL(cuMemAddressReserve, &range, 4 * granularity, 0, 0, 0);
    mapped = range + 2 * granularity;
    CALL(cuMemCreate, &piece, granularity, &of, 0);
    CALL(cuMemCreate, &released, granularity, &of, 0);
    CALL(cuMemRelease, released);
    CALL(cuMemMap, mapped, granularity, 0, piece, 0);
    {
        struct It {
            CUdeviceptr at;
            size_t size, offset;
            CUmemGenericAllocationHandle piece;
            unsigned long long flags;
        };
        It it = {range, granularity, 0, piece, 0};
        const Fields fields = {
            FV(at, {"odd", range + 4096}, {"taken", mapped}, {"behind", range + 4 * granularity}, {"memory", memory}),
            FV(size, {"half", granularity / 2}, {"two", 2 * granularity}), FV(offset, {"all", granularity}, {"one", 1}),
            FV(piece, {"released", released}), ONLY(flags, {"one", 1})};
        SPOIL_CALL(cuMemMap, " of", it.at, it.size, it.offset, it.piece, it.flags);
    }
    {
        struct It {
            CUdeviceptr at;
            size_t size;
            CUmemAccessDesc of;
            size_t count;
        };
        It it = {mapped, granularity, {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}, 1};
        const Fields fields = {FV(at, {"odd", mapped + 4096}, {"reserved", range}, {"memory", memory}),
                               FV(size, {"half", granularity / 2}, {"two", 2 * granularity}),
                               FV(of.location.type, {"zero", 0}, {"host", 2}),
                               FV(of.location.id, {"one", 1}),
                               FV(of.flags, {"none", 0}, {"read", 1}, {"two", 2}),
                               ONLY(count, {"zero", 0})};
        SPOIL_CALL(cuMemSetAccess, " of", it.at, it.size, &it.of, it.count);
        SPOIL_CALL(cuMemGetAccess, " of", (unsigned long long *)room, &it.of.location, it.at);
        SPOIL_CALL(cuMemUnmap, " of", it.at, it.size);
        SPOIL_CALL(cuMemAddressFree, " of", it.at, it.size);
    }
    {
        struct It {
            size_t size, alignment;
            CUdeviceptr near;
            unsigned long long flags;
        };
        It it = {granularity, 0, 0, 0};
        const Fields fields = {FV(size, {"half", granularity / 2}, {"page", 4096}),
                               FV(alignment, {"three", 3}, {"page", 4096}),
                               ONLY(near, {"taken", memory}, {"odd", 4097}), ONLY(flags, {"one", 1}, {"two", 2})};
        SPOIL_CALL(cuMemAddressReserve, " of", (CUdeviceptr *)room, it.size, it.alignment, it.near, it.flags);
    }
    LINE_CALL(cuMemAddressFree, " all", range, 4 * granularity);
    LINE_CALL(cuMemRelease, " twice", released);
    LINE_CALL(cuMemFree, " mapped", mapped);
    LINE_CALL(cuMemRetainAllocationHandle, " reserved", (CUmemGenericAllocationHandle *)room, (void *)range);
    LINE_CALL(cuMemRetainAllocationHandle, " mapped", (CUmemGenericAllocationHandle *)room, (void *)(mapped + 5));
    LINE_CALL(cuMemExportToShareableHandle, " not-shared", room, piece, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    LINE_CALL(cuMemImportFromShareableHandle, " no-file", (CUmemGenericAllocationHandle *)room, (void *)-1,
              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    LINE_CALL(cuMemGetAllocationPropertiesFromHandle, " released", (CUmemAllocationProp *)room, released);
    LINE_CALL(cuPointerGetAttribute, " reserved", room, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, range);
    LINE_CALL(cuMemsetD8, " reserved", range, 0, 16);
    LINE_CALL(cuMemsetD8, " without-access", mapped, 0, 16);
}

static void table() {
    texture_descriptions();
    resources();
    views();
    tensor_maps();
    pools();
    mapped_memory();
}

int main(int count, char **arguments) {
    return main_of(count, arguments, [] { set_up_driver(table); }, driver_is_healthy);
}
