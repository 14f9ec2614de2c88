// SPDX-License-Identifier: Apache-2.0 OR MIT
// Every function that takes or returns the number of a device, for each device that the program sees. With the argument
// `list` it prints each device's memory, too, by which tests tell devices apart.
#include "check_driver.h"

#include <cstring>

__global__ void store(int *place, int value) { *place = value; }

static CUmemLocation location_of(int device) { return CUmemLocation{CU_MEM_LOCATION_TYPE_DEVICE, device}; }

static int ordinal_of(CUdeviceptr address) {
    int ordinal = -1;
    CHECK_DRIVER(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
    return ordinal;
}

static int stored(void *place, int value) {
    int back = 0;
    store<<<1, 1>>>(static_cast<int *>(place), value);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&back, place, sizeof back, cudaMemcpyDeviceToHost));
    return back;
}

static void plain_memory(int device) {
    void *memory;
    CUdevice current = -1;
    CHECK(cudaMalloc(&memory, 4096));
    CHECK_DRIVER(cuCtxGetDevice(&current));
    REQUIRE(current == device);
    cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, memory));
    REQUIRE(attributes.device == device && stored(memory, 3) == 3);
    CHECK(cudaFree(memory));
    size_t free_bytes, total_bytes;
    cudaDeviceProp prop;
    CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    CHECK(cudaGetDeviceProperties(&prop, device));
    REQUIRE(total_bytes == prop.totalGlobalMem);
    char bus[32];
    int found = -1;
    CHECK(cudaDeviceGetPCIBusId(bus, sizeof bus, device));
    CHECK(cudaDeviceGetByPCIBusId(&found, bus));
    REQUIRE(found == device);
    cudaStream_t stream;
    CUdevice of_stream = -1;
    CHECK(cudaStreamCreate(&stream));
    CHECK_DRIVER(cuStreamGetDevice(stream, &of_stream));
    REQUIRE(of_stream == device);
    CHECK(cudaStreamDestroy(stream));
}

static void pools(int device, int count) {
    cudaMemPool_t pool, made;
    CHECK(cudaDeviceGetDefaultMemPool(&pool, device));
    const cudaMemLocation location{cudaMemLocationTypeDevice, {device}};
    cudaMemLocation where = location;
    cudaMemAccessFlags flags;
    CHECK(cudaMemPoolGetAccess(&flags, pool, &where));
    REQUIRE(flags == cudaMemAccessFlagsProtReadWrite);
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned;
    props.location = location;
    CHECK(cudaMemPoolCreate(&made, &props));
    CHECK(cudaDeviceSetMemPool(device, made));
    void *memory;
    CHECK(cudaMallocAsync(&memory, 4096, nullptr));
    REQUIRE(stored(memory, 4) == 4 && ordinal_of((CUdeviceptr)memory) == device);
    CHECK(cudaFreeAsync(memory, nullptr));
    CHECK(cudaDeviceSynchronize());
    props.location.id = count;
    REQUIRE(cudaMemPoolCreate(&made, &props) == cudaErrorInvalidValue);
    cudaGetLastError();
    CHECK(cudaDeviceSetMemPool(device, pool));
}

static void placed_memory(int device, int count) {
    CUmemAllocationProp prop = {}, actual = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = location_of(device);
    size_t unit = 0;
    CHECK_DRIVER(cuMemGetAllocationGranularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    CHECK_DRIVER(cuMemCreate(&handle, unit, &prop, 0));
    CHECK_DRIVER(cuMemGetAllocationPropertiesFromHandle(&actual, handle));
    REQUIRE(actual.location.id == device);
    CHECK_DRIVER(cuMemAddressReserve(&address, unit, 0, 0, 0));
    CHECK_DRIVER(cuMemMap(address, unit, 0, handle, 0));
    CUmemAccessDesc access = {location_of(device), CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK_DRIVER(cuMemSetAccess(address, unit, &access, 1));
    unsigned long long flags = 0;
    CHECK_DRIVER(cuMemGetAccess(&flags, &prop.location, address));
    REQUIRE(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE && ordinal_of(address) == device);
    REQUIRE(stored((void *)address, 5) == 5);
    CHECK_DRIVER(cuMemUnmap(address, unit));
    CHECK_DRIVER(cuMemAddressFree(address, unit));
    CHECK_DRIVER(cuMemRelease(handle));
    prop.location.id = count;
    REQUIRE(cuMemCreate(&handle, unit, &prop, 0) == CUDA_ERROR_INVALID_DEVICE);
}

static void graph_memory(int device) {
    cudaGraph_t graph;
    cudaGraphNode_t allocate, release;
    cudaGraphExec_t exec;
    cudaMemAllocNodeParams params = {}, actual = {};
    params.poolProps.allocType = cudaMemAllocationTypePinned;
    params.poolProps.location = cudaMemLocation{cudaMemLocationTypeDevice, {device}};
    params.bytesize = 4096;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddMemAllocNode(&allocate, graph, nullptr, 0, &params));
    CHECK(cudaGraphMemAllocNodeGetParams(allocate, &actual));
    REQUIRE(actual.poolProps.location.id == device);
    CHECK(cudaGraphAddMemFreeNode(&release, graph, &allocate, 1, params.dptr));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, nullptr));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaDeviceGraphMemTrim(device));
}

__global__ void add(unsigned *values, size_t count, unsigned by) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) {
        values[i] += by;
    }
}

// Long managed memory of this device, which the program and the kernels of each device change in turn.
static void managed_memory(int device, int count) {
    const size_t elements = 1 << 20;
    unsigned *values;
    CHECK(cudaMallocManaged(&values, elements * sizeof *values));
    for (size_t i = 0; i < elements; i++) {
        values[i] = (unsigned)i;
    }
    unsigned added = 0;
    for (int user = 0; user < count; user++) {
        CHECK(cudaSetDevice(user));
        add<<<32, 128>>>(values, elements, 10);
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
        added += 10;
        // Some blocks go back, the others stay with that device.
        for (size_t i = 0; i < elements / 2; i += 1000) {
            REQUIRE(values[i] == i + added);
            values[i]++;
            values[i]--;
        }
    }
    for (size_t i = 0; i < elements; i++) {
        REQUIRE(values[i] == i + added);
    }
    CHECK(cudaSetDevice(device));
    CHECK(cudaFree(values));
}

// Stores a value after a while.
__global__ void store_late(int *there, int value) {
    unsigned number = 1;
    for (int step = 0; step < 200000; step++) number = number * 1664525u + 1013904223u;
    *there = number == 0 ? 0 : value;
}

// A copy without a stream between two devices comes after earlier work of both, and before later work.
static void copies_in_order(int device, int peer, int *here, int *there) {
    int value = 1;
    auto copy_of = [&](int number, auto copy) {
        CHECK(cudaSetDevice(device));
        store_late<<<1, 1>>>(here, number);
        CHECK(cudaGetLastError());
        CHECK(cudaSetDevice(peer));
        CHECK(copy());
        CHECK(cudaSetDevice(device));
        CHECK(cudaMemset(here, 0, sizeof *here));
        CHECK(cudaSetDevice(peer));
        CHECK(cudaMemcpy(&value, there, sizeof value, cudaMemcpyDeviceToHost));
        return value;
    };
    REQUIRE(copy_of(8, [&] { return cudaMemcpyPeer(there, peer, here, device, sizeof value); }) == 8);
    REQUIRE(copy_of(9, [&] { return cudaMemcpy(there, here, sizeof value, cudaMemcpyDefault); }) == 9);
    cudaMemcpy3DPeerParms rows = {};
    rows.dstPtr = make_cudaPitchedPtr(there, 256, sizeof value, 2);
    rows.dstDevice = peer;
    rows.srcPtr = make_cudaPitchedPtr(here, 256, sizeof value, 2);
    rows.srcDevice = device;
    rows.extent = make_cudaExtent(sizeof value, 2, 1);
    REQUIRE(copy_of(10, [&] { return cudaMemcpy3DPeer(&rows); }) == 10);
    CHECK(cudaSetDevice(device));
}

static void peers(int device, int count) {
    for (int peer = 0; peer < count; peer++) {
        int can = -1;
        CHECK(cudaDeviceCanAccessPeer(&can, device, peer));
        if (peer == device) {
            REQUIRE(can == 0);
            continue;
        }
        int *here, *there, value = 6;
        CHECK(cudaMalloc(&here, 512));
        CHECK(cudaMemcpy(here, &value, sizeof value, cudaMemcpyHostToDevice));
        CHECK(cudaSetDevice(peer));
        CHECK(cudaMalloc(&there, 512));
        CHECK(cudaMemcpyPeer(there, peer, here, device, sizeof value));
        value = 0;
        CHECK(cudaMemcpy(&value, there, sizeof value, cudaMemcpyDeviceToHost));
        REQUIRE(value == 6);
        REQUIRE(ordinal_of((CUdeviceptr)there) == peer);
        copies_in_order(device, peer, here, there);
        CHECK(cudaSetDevice(device));
        if (can != 0) {
            CHECK(cudaDeviceEnablePeerAccess(peer, 0));
            REQUIRE(stored(there, 7) == 7);
            CHECK(cudaDeviceDisablePeerAccess(peer));
        }
        CHECK(cudaFree(there));
        CHECK(cudaFree(here));
    }
    int can;
    REQUIRE(cudaDeviceCanAccessPeer(&can, device, count) == cudaErrorInvalidDevice);
    cudaGetLastError();
}

int main(int argc, char **argv) {
    const bool list = argc > 1 && std::strcmp(argv[1], "list") == 0;
    int count = 0;
    CHECK(cudaGetDeviceCount(&count));
    REQUIRE(cudaSetDevice(count) == cudaErrorInvalidDevice);
    cudaGetLastError();
    for (int device = 0; device < count; device++) {
        cudaDeviceProp prop;
        CHECK(cudaSetDevice(device));
        CHECK(cudaGetDeviceProperties(&prop, device));
        plain_memory(device);
        pools(device, count);
        placed_memory(device, count);
        graph_memory(device);
        managed_memory(device, count);
        peers(device, count);
        if (list) {
            std::printf("device %d: %zu MiB\n", device, prop.totalGlobalMem >> 20);
        }
    }
    for (int device = 0; device < count; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaDeviceReset());
    }
    std::printf("every device: right\n");
    return 0;
}
