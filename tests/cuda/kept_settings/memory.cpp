// SPDX-License-Identifier: Apache-2.0 OR MIT
// Settings of memory, pools, arrays, textures and surfaces. Some things have none that changes: the arguments of their making count.

#include "driver.h"

constexpr size_t BYTES = 2 << 20;

static CUdevice device;
static CUmemoryPool pool;
static CUdeviceptr created, plain, managed;
static CUarray array;
static CUmipmappedArray mipmap;
static CUtexObject texture;
static CUsurfObject surface;
static void *pinned;

static const struct {
    CUmemPool_attribute attribute;
    const char *name;
    cuuint64_t value;
} OF_POOLS[] = {
    {CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, "events", 0},
    {CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, "opportunistic", 0},
    {CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, "internal", 0},
    {CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, "threshold", 1 << 26},
};

static CUmemLocation here() { return {CU_MEM_LOCATION_TYPE_DEVICE, {device}}; }

static void ask_pool(Answers &answers) {
    for (const auto &one : OF_POOLS) {
        cuuint64_t value = 0;
        const int result = one.attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD ? cuMemPoolGetAttribute(pool, one.attribute, &value) : 0;
        if (one.attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
            answers.add("cuMemPoolGetAttribute", one.name, result, value);
            continue;
        }
        int flag = 0;
        answers.add("cuMemPoolGetAttribute", one.name, cuMemPoolGetAttribute(pool, one.attribute, &flag), flag);
    }
    CUmemLocation location = here();
    CUmemAccess_flags access{};
    answers.add("cuMemPoolGetAccess", "device", cuMemPoolGetAccess(&access, pool, &location), access);
    CUmemoryPool current = nullptr;
    const int result = cuDeviceGetMemPool(&current, device);
    answers.add("cuDeviceGetMemPool", "own", result, current == pool);
}

static void ask_memory(Answers &answers) {
    CUmemLocation location = here();
    unsigned long long access = 0;
    answers.add("cuMemGetAccess", "created", cuMemGetAccess(&access, &location, created), access);
    CUmemGenericAllocationHandle handle = 0;
    CHECK_DRIVER(cuMemRetainAllocationHandle(&handle, (void *)created));
    CUmemAllocationProp prop = {};
    const int result = cuMemGetAllocationPropertiesFromHandle(&prop, handle);
    answers.add("cuMemGetAllocationPropertiesFromHandle", "type", result, prop.type);
    answers.add("cuMemGetAllocationPropertiesFromHandle", "handle types", result, prop.requestedHandleTypes);
    CHECK_DRIVER(cuMemRelease(handle));
    for (const auto &[name, memory] : {std::pair{"plain", plain}, {"created", created}, {"pinned", (CUdeviceptr)pinned}, {"managed", managed}}) {
        unsigned value = 0;
        int is_set = 0;
        int asked = cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory);
        answers.add("cuPointerGetAttribute", std::string(name) + " type", asked, value);
        asked = cuPointerGetAttribute(&is_set, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory);
        answers.add("cuPointerGetAttribute", std::string(name) + " synchronous", asked, is_set);
        unsigned long long id = 0;
        asked = cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, memory);
        answers.add("cuPointerGetAttribute", std::string(name) + " id", asked, id);
    }
    unsigned flags = 0;
    answers.add("cuMemHostGetFlags", "pinned", cuMemHostGetFlags(&flags, pinned), flags);
    for (const auto &[name, attribute] : {std::pair{"mostly read", CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY},
                                          {"preferred", CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION},
                                          {"accessed by", CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY}}) {
        int value = 0;
        const int asked = cuMemRangeGetAttribute(&value, sizeof value, attribute, managed, BYTES);
        answers.add("cuMemRangeGetAttribute", name, asked, value);
    }
}

// Without padding.
static void add(Answers &answers, const char *getter, const char *what, int result, std::vector<double> values) {
    for (size_t i = 0; i < values.size(); i++) answers.add(getter, std::string(what) + " " + std::to_string(i), result, values[i]);
}

static void ask_arrays(Answers &answers) {
    CUDA_ARRAY3D_DESCRIPTOR of = {};
    int result = cuArray3DGetDescriptor(&of, array);
    add(answers, "cuArray3DGetDescriptor", "array", result,
        {(double)of.Width, (double)of.Height, (double)of.Depth, (double)of.Format, (double)of.NumChannels, (double)of.Flags});
    CUarray level = nullptr;
    CHECK_DRIVER(cuMipmappedArrayGetLevel(&level, mipmap, 1));
    result = cuArray3DGetDescriptor(&of, level);
    add(answers, "cuArray3DGetDescriptor", "level", result,
        {(double)of.Width, (double)of.Height, (double)of.Depth, (double)of.Format, (double)of.NumChannels, (double)of.Flags});
    CUDA_RESOURCE_DESC resource = {};
    result = cuTexObjectGetResourceDesc(&resource, texture);
    answers.add("cuTexObjectGetResourceDesc", "mipmap", result, resource.res.mipmap.hMipmappedArray == mipmap);
    CUDA_TEXTURE_DESC desc = {};
    result = cuTexObjectGetTextureDesc(&desc, texture);
    add(answers, "cuTexObjectGetTextureDesc", "texture", result,
        {(double)desc.addressMode[0], (double)desc.addressMode[1], (double)desc.filterMode, (double)desc.flags, (double)desc.maxAnisotropy,
         (double)desc.mipmapFilterMode, desc.mipmapLevelBias, desc.minMipmapLevelClamp, desc.maxMipmapLevelClamp, desc.borderColor[1]});
    CUDA_RESOURCE_VIEW_DESC view = {};
    result = cuTexObjectGetResourceViewDesc(&view, texture);
    add(answers, "cuTexObjectGetResourceViewDesc", "texture", result,
        {(double)view.format, (double)view.width, (double)view.height, (double)view.firstMipmapLevel, (double)view.lastMipmapLevel});
    result = cuSurfObjectGetResourceDesc(&resource, surface);
    answers.add("cuSurfObjectGetResourceDesc", "array", result, resource.res.array.hArray == array);
    answers.add("objects", "texture", 0, texture);
    answers.add("objects", "surface", 0, surface);
}

static void ask(Answers &answers) {
    ask_pool(answers);
    ask_memory(answers);
    ask_arrays(answers);
}

static void set() {
    for (const auto &one : OF_POOLS) {
        int flag = (int)one.value;
        cuuint64_t value = one.value;
        const bool is_wide = one.attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        CHECK_DRIVER(cuMemPoolSetAttribute(pool, one.attribute, is_wide ? (void *)&value : &flag));
    }
    CUmemAccessDesc access = {here(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK_DRIVER(cuMemPoolSetAccess(pool, &access, 1));
    CHECK_DRIVER(cuDeviceSetMemPool(device, pool));
    CHECK_DRIVER(cuMemSetAccess(created, BYTES, &access, 1));
    unsigned is_set = 1;
    CHECK_DRIVER(cuPointerSetAttribute(&is_set, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, plain));
    CHECK_DRIVER(cuMemAdvise(managed, BYTES, CU_MEM_ADVISE_SET_READ_MOSTLY, here()));
    CHECK_DRIVER(cuMemAdvise(managed, BYTES, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, {CU_MEM_LOCATION_TYPE_HOST, {0}}));
    CHECK_DRIVER(cuMemAdvise(managed, BYTES, CU_MEM_ADVISE_SET_ACCESSED_BY, here()));
}

static void make_arrays() {
    const CUDA_ARRAY3D_DESCRIPTOR of_array = {64, 32, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SURFACE_LDST};
    CHECK_DRIVER(cuArray3DCreate(&array, &of_array));
    const CUDA_ARRAY3D_DESCRIPTOR of_mipmap = {64, 32, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    CHECK_DRIVER(cuMipmappedArrayCreate(&mipmap, &of_mipmap, 3));
    CUDA_RESOURCE_DESC resource = {};
    resource.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    resource.res.mipmap.hMipmappedArray = mipmap;
    CUDA_TEXTURE_DESC desc = {};
    desc.addressMode[0] = CU_TR_ADDRESS_MODE_MIRROR;
    desc.addressMode[1] = CU_TR_ADDRESS_MODE_BORDER;
    desc.filterMode = CU_TR_FILTER_MODE_LINEAR;
    desc.flags = CU_TRSF_NORMALIZED_COORDINATES;
    desc.maxAnisotropy = 4;
    desc.mipmapFilterMode = CU_TR_FILTER_MODE_LINEAR;
    desc.mipmapLevelBias = 0.5;
    desc.minMipmapLevelClamp = 1;
    desc.maxMipmapLevelClamp = 2;
    desc.borderColor[1] = 0.25;
    CUDA_RESOURCE_VIEW_DESC view = {};
    view.format = CU_RES_VIEW_FORMAT_FLOAT_1X32;
    view.width = 64;
    view.height = 32;
    view.lastMipmapLevel = 2;
    CHECK_DRIVER(cuTexObjectCreate(&texture, &resource, &desc, &view));
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = array;
    CHECK_DRIVER(cuSurfObjectCreate(&surface, &resource));
}

Part memory_part() {
    use_primary_context();
    CHECK_DRIVER(cuDeviceGet(&device, 0));
    CUmemPoolProps props = {};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location = here();
    CHECK_DRIVER(cuMemPoolCreate(&pool, &props));
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = here();
    CUmemGenericAllocationHandle handle;
    CHECK_DRIVER(cuMemCreate(&handle, BYTES, &prop, 0));
    CHECK_DRIVER(cuMemAddressReserve(&created, 32 << 20, 0, 0, 0));
    CHECK_DRIVER(cuMemMap(created, BYTES, 0, handle, 0));
    CHECK_DRIVER(cuMemRelease(handle));
    CHECK_DRIVER(cuMemAlloc(&plain, BYTES));
    CHECK_DRIVER(cuMemAllocManaged(&managed, BYTES, CU_MEM_ATTACH_GLOBAL));
    CHECK_DRIVER(cuMemHostAlloc(&pinned, BYTES, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    make_arrays();
    return {ask, set};
}
