// SPDX-License-Identifier: Apache-2.0 OR MIT
// Makes and ends objects of every kind more often than any table, number or file of the stack may be used at once, as a program that
// runs for days does. Each is used once. Argument: "memory", "objects", or the name of a kind.
#include "check_driver.h"

#include <cstring>
#include <functional>
#include <thread>

#include <dirent.h>
#include <sys/mman.h>
#include <unistd.h>

static const size_t UNIT = 2 << 20, PAGE = 4096;
static const char IMAGE[] = R"(
.version 7.8
.target sm_75
.address_size 64
.visible .global .u32 word;
.visible .entry set(.param .u32 value)
{
    .reg .b32 %r<2>;
    ld.param.u32 %r1, [value];
    st.global.u32 [word], %r1;
    ret;
}
)";

static CUdevice device;
// Device memory for what the loops compute.
static CUdeviceptr memory;

// Lets the GPU copy a word of host memory, and compares it.
static void use(CUdeviceptr at, unsigned int value) {
    unsigned int back = 0;
    CHECK_DRIVER(cuMemcpyDtoDAsync(memory, at, sizeof value, nullptr));
    CHECK_DRIVER(cuMemcpyDtoH(&back, memory, sizeof back));
    REQUIRE(back == value);
}

static CUmemAllocationProp properties(CUmemLocationType location) {
    CUmemAllocationProp prop;
    std::memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = location;
    return prop;
}

// Maps memory of the host or of the device, at the beginning of `reserved` bytes.
static void map_memory(CUmemLocationType location, size_t reserved, unsigned int value) {
    const CUmemAllocationProp prop = properties(location);
    CUmemAccessDesc access[2];
    std::memset(access, 0, sizeof access);
    for (CUmemAccessDesc &one : access) one.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    access[0].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access[0].location.id = device;
    access[1].location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    const bool of_host = location != CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    CHECK_DRIVER(cuMemCreate(&handle, UNIT, &prop, 0));
    CHECK_DRIVER(cuMemAddressReserve(&at, reserved, 0, 0, 0));
    CHECK_DRIVER(cuMemMap(at, UNIT, 0, handle, 0));
    CHECK_DRIVER(cuMemSetAccess(at, UNIT, access, of_host ? 2 : 1));
    if (of_host) {
        unsigned int *words = reinterpret_cast<unsigned int *>(at);
        REQUIRE(words[0] == 0 && words[UNIT / 4 - 1] == 0);
        words[0] = words[UNIT / 4 - 1] = value;
    } else {
        CHECK_DRIVER(cuMemsetD32(at, value, 1));
    }
    use(at, value);
    CHECK_DRIVER(cuMemUnmap(at, UNIT));
    CHECK_DRIVER(cuMemRelease(handle));
    CHECK_DRIVER(cuMemAddressFree(at, reserved));
}

static void register_file(unsigned int value) {
    const int file = memfd_create("without_end", MFD_CLOEXEC);
    REQUIRE(file >= 0 && ftruncate(file, PAGE) == 0);
    void *at = mmap(nullptr, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    REQUIRE(at != MAP_FAILED);
    std::memcpy(at, &value, sizeof value);
    CUdeviceptr on_device;
    CHECK_DRIVER(cuMemHostRegister(at, PAGE, CU_MEMHOSTREGISTER_DEVICEMAP));
    CHECK_DRIVER(cuMemHostGetDevicePointer(&on_device, at, 0));
    use(on_device, value);
    CHECK_DRIVER(cuMemHostUnregister(at));
    REQUIRE(munmap(at, PAGE) == 0 && close(file) == 0);
}

static void export_memory(unsigned int) {
    CUmemAllocationProp prop = properties(CU_MEM_LOCATION_TYPE_DEVICE);
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle handle;
    int file = -1;
    CHECK_DRIVER(cuMemCreate(&handle, UNIT, &prop, 0));
    CHECK_DRIVER(cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CHECK_DRIVER(cuMemRelease(handle));
    REQUIRE(close(file) == 0);
}

static void load_module(unsigned int value) {
    CUmodule module;
    CUfunction function;
    CUdeviceptr word;
    size_t bytes;
    void *arguments[] = {&value};
    CHECK_DRIVER(cuModuleLoadData(&module, IMAGE));
    CHECK_DRIVER(cuModuleGetFunction(&function, module, "set"));
    CHECK_DRIVER(cuModuleGetGlobal(&word, &bytes, module, "word"));
    CHECK_DRIVER(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
    use(word, value);
    CHECK_DRIVER(cuModuleUnload(module));
}

static void load_library(unsigned int) {
    CUlibrary library;
    CUkernel kernel;
    CHECK_DRIVER(cuLibraryLoadData(&library, IMAGE, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CHECK_DRIVER(cuLibraryGetKernel(&kernel, library, "set"));
    CHECK_DRIVER(cuLibraryUnload(library));
}

static void link_code(unsigned int) {
    CUlinkState link;
    CHECK_DRIVER(cuLinkCreate(0, nullptr, nullptr, &link));
    CHECK_DRIVER(cuLinkDestroy(link));
}

static void launch_graph(unsigned int value) {
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node;
    CUDA_MEMSET_NODE_PARAMS fill;
    std::memset(&fill, 0, sizeof fill);
    fill.dst = memory + 64;
    fill.elementSize = sizeof value;
    fill.value = value;
    fill.width = fill.height = 1;
    CUcontext context;
    CHECK_DRIVER(cuCtxGetCurrent(&context));
    CHECK_DRIVER(cuGraphCreate(&graph, 0));
    CHECK_DRIVER(cuGraphAddMemsetNode(&node, graph, nullptr, 0, &fill, context));
    CHECK_DRIVER(cuGraphInstantiate(&exec, graph, 0));
    CHECK_DRIVER(cuGraphLaunch(exec, nullptr));
    use(memory + 64, value);
    CHECK_DRIVER(cuGraphExecDestroy(exec));
    CHECK_DRIVER(cuGraphDestroy(graph));
}

static void capture(unsigned int value) {
    CUstream stream;
    CUgraph graph;
    CHECK_DRIVER(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_DRIVER(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK_DRIVER(cuMemsetD32Async(memory + 64, value, 1, stream));
    CHECK_DRIVER(cuStreamEndCapture(stream, &graph));
    CHECK_DRIVER(cuGraphDestroy(graph));
    CHECK_DRIVER(cuStreamDestroy(stream));
}

static void use_pool(unsigned int value) {
    CUmemPoolProps prop;
    std::memset(&prop, 0, sizeof prop);
    prop.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemoryPool pool;
    CUdeviceptr at;
    CHECK_DRIVER(cuMemPoolCreate(&pool, &prop));
    CHECK_DRIVER(cuMemAllocFromPoolAsync(&at, PAGE, pool, nullptr));
    CHECK_DRIVER(cuMemsetD32Async(at, value, 1, nullptr));
    use(at, value);
    CHECK_DRIVER(cuMemFreeAsync(at, nullptr));
    CHECK_DRIVER(cuStreamSynchronize(nullptr));
    CHECK_DRIVER(cuMemPoolDestroy(pool));
}

static void read_texture(unsigned int) {
    CUDA_ARRAY_DESCRIPTOR layout = {64, 4, CU_AD_FORMAT_FLOAT, 1};
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC texture;
    std::memset(&resource, 0, sizeof resource);
    std::memset(&texture, 0, sizeof texture);
    CUtexObject object;
    CUsurfObject surface;
    CHECK_DRIVER(cuArrayCreate(&resource.res.array.hArray, &layout));
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    CHECK_DRIVER(cuTexObjectCreate(&object, &resource, &texture, nullptr));
    CHECK_DRIVER(cuSurfObjectCreate(&surface, &resource));
    CHECK_DRIVER(cuSurfObjectDestroy(surface));
    CHECK_DRIVER(cuTexObjectDestroy(object));
    CHECK_DRIVER(cuArrayDestroy(resource.res.array.hArray));
}

static void call_back(unsigned int value) {
    static unsigned int called;
    CHECK_DRIVER(cuLaunchHostFunc(nullptr, [](void *data) { called = *static_cast<unsigned int *>(data); }, &value));
    CHECK_DRIVER(cuStreamSynchronize(nullptr));
    REQUIRE(called == value);
}

static void own_object(unsigned int) {
    CUuserObject object;
    CUgraph graph;
    CHECK_DRIVER(cuUserObjectCreate(&object, nullptr, [](void *) {}, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    CHECK_DRIVER(cuGraphCreate(&graph, 0));
    CHECK_DRIVER(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    CHECK_DRIVER(cuGraphDestroy(graph));
}

struct Kind {
    const char *name;
    unsigned int count;
    std::function<void(unsigned int)> once;
};

static const Kind MEMORY[] = {
    // It is not kept for the next one.
    {"host memory in longer reservations", 1100, [](unsigned int i) { map_memory(CU_MEM_LOCATION_TYPE_HOST_NUMA, 2 * UNIT, i); }},
    {"host memory", 1100, [](unsigned int i) { map_memory(CU_MEM_LOCATION_TYPE_HOST_NUMA, UNIT, i); }},
    {"memory of the device", 300, [](unsigned int i) { map_memory(CU_MEM_LOCATION_TYPE_DEVICE, UNIT, i); }},
    {"registered files", 1100, register_file},
    {"pinned memory", 4200,
     [](unsigned int i) {
         void *at;
         CHECK_DRIVER(cuMemHostAlloc(&at, PAGE * (1 + i % 100), 0));
         CHECK_DRIVER(cuMemFreeHost(at));
     }},
    {"managed memory", 2100,
     [](unsigned int i) {
         CUdeviceptr at;
         CHECK_DRIVER(cuMemAllocManaged(&at, PAGE * (1 + i % 100), CU_MEM_ATTACH_GLOBAL));
         *reinterpret_cast<unsigned int *>(at) = i;
         use(at, i);
         CHECK_DRIVER(cuMemFree(at));
     }},
    {"addresses", 4200,
     [](unsigned int) {
         CUdeviceptr at;
         CHECK_DRIVER(cuMemAddressReserve(&at, UNIT, 0, 0, 0));
         CHECK_DRIVER(cuMemAddressFree(at, UNIT));
     }},
    {"exported memory", 4200, export_memory},
    {"shared memory", 4200,
     [](unsigned int) {
         CUipcMemHandle shared;
         CUdeviceptr at;
         CHECK_DRIVER(cuMemAlloc(&at, UNIT));
         CHECK_DRIVER(cuIpcGetMemHandle(&shared, at));
         CHECK_DRIVER(cuMemFree(at));
     }},
};

static const Kind OBJECTS[] = {
    {"contexts", 200,
     [](unsigned int i) {
         CUcontext context;
         CUdeviceptr at;
         CHECK_DRIVER(cuCtxCreate(&context, nullptr, 0, device));
         CHECK_DRIVER(cuMemAlloc(&at, PAGE));
         CHECK_DRIVER(cuMemsetD32(at, i, 1));
         CHECK_DRIVER(cuCtxDestroy(context));
     }},
    {"streams", 4200,
     [](unsigned int i) {
         CUstream stream;
         CHECK_DRIVER(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
         CHECK_DRIVER(cuMemsetD32Async(memory + 64, i, 1, stream));
         CHECK_DRIVER(cuStreamSynchronize(stream));
         CHECK_DRIVER(cuStreamDestroy(stream));
     }},
    {"events", 4200,
     [](unsigned int) {
         CUevent event;
         CHECK_DRIVER(cuEventCreate(&event, 0));
         CHECK_DRIVER(cuEventRecord(event, nullptr));
         CHECK_DRIVER(cuEventSynchronize(event));
         CHECK_DRIVER(cuEventDestroy(event));
     }},
    {"modules", 1100, load_module},
    {"libraries", 1100, load_library},
    {"links", 200, link_code},
    {"graphs", 2100, launch_graph},
    {"captures", 2100, capture},
    {"pools", 1100, use_pool},
    {"textures", 4200, read_texture},
    {"host functions", 2100, call_back},
    {"user objects", 2100, own_object},
    {"threads", 1100,
     [](unsigned int i) {
         std::thread([i] {
             CHECK(cudaSetDevice(0));
             unsigned int value = i;
             CHECK_DRIVER(cuMemcpyHtoD(memory, &value, sizeof value));
         }).join();
     }},
};

static int open_files() {
    DIR *folder = opendir("/proc/self/fd");
    REQUIRE(folder != nullptr);
    int count = 0;
    while (readdir(folder) != nullptr) count++;
    closedir(folder);
    return count;
}

template <size_t N> static void repeat(const char *wanted, const char *group, const Kind (&kinds)[N]) {
    for (const Kind &kind : kinds) {
        if (std::strcmp(wanted, group) != 0 && std::strcmp(wanted, kind.name) != 0) {
            continue;
        }
        kind.once(1);
        const int files = open_files();
        for (unsigned int i = 1; i < kind.count; i++) {
            kind.once(i + 1);
        }
        REQUIRE(open_files() < files + 20);
        std::printf("%s: %u\n", kind.name, kind.count);
    }
}

int main(int, char **argv) {
    std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
    use_primary_context();
    CHECK_DRIVER(cuDeviceGet(&device, 0));
    CHECK_DRIVER(cuMemAlloc(&memory, PAGE));
    REQUIRE(argv[1] != nullptr);
    repeat(argv[1], "memory", MEMORY);
    repeat(argv[1], "objects", OBJECTS);
    CHECK_DRIVER(cuMemFree(memory));
    return 0;
}
