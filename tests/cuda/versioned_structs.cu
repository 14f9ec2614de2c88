// SPDX-License-Identifier: Apache-2.0 OR MIT
// Structs and signatures that differ between CUDA 11, 12 and 13: nothing behind a struct may be written, and every
// field must be in its place. Compiled by each compiler, this prints the same.
#include "check.h"

#include <cstring>

template <class T>
struct Guarded {
    T value;
    unsigned char guard[512];
    Guarded() { std::memset(static_cast<void *>(this), 0xa5, sizeof *this); }
    bool intact() const {
        for (unsigned char byte : guard) {
            if (byte != 0xa5) {
                return false;
            }
        }
        return true;
    }
};

__managed__ int managed_value = 5;

__global__ void add(int *out, int value) { *out += value; }

static int attribute(int which) {
    int value = -1;
    CHECK(cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(which), 0));
    return value;
}

static void properties() {
    Guarded<cudaDeviceProp> p;
    CHECK(cudaGetDeviceProperties(&p.value, 0));
    REQUIRE(p.intact());
    REQUIRE(p.value.maxGridSize[2] == attribute(cudaDevAttrMaxGridDimZ));
    REQUIRE((int)p.value.totalConstMem == attribute(cudaDevAttrTotalConstantMemory));
    REQUIRE(p.value.major == attribute(cudaDevAttrComputeCapabilityMajor));
    REQUIRE((int)p.value.texturePitchAlignment == attribute(cudaDevAttrTexturePitchAlignment));
    REQUIRE(p.value.multiProcessorCount == attribute(cudaDevAttrMultiProcessorCount));
    REQUIRE(p.value.canMapHostMemory == attribute(cudaDevAttrCanMapHostMemory));
    REQUIRE(p.value.maxTexture1D == attribute(cudaDevAttrMaxTexture1DWidth));
    REQUIRE(p.value.maxSurfaceCubemapLayered[1] == attribute(cudaDevAttrMaxSurfaceCubemapLayeredLayers));
    REQUIRE(p.value.concurrentKernels == attribute(cudaDevAttrConcurrentKernels));
    REQUIRE(p.value.asyncEngineCount == attribute(cudaDevAttrAsyncEngineCount));
    REQUIRE(p.value.memoryBusWidth == attribute(cudaDevAttrGlobalMemoryBusWidth));
    REQUIRE(p.value.l2CacheSize == attribute(cudaDevAttrL2CacheSize));
    REQUIRE(p.value.regsPerMultiprocessor == attribute(cudaDevAttrMaxRegistersPerMultiprocessor));
    REQUIRE(p.value.pageableMemoryAccess == attribute(cudaDevAttrPageableMemoryAccess));
    REQUIRE(p.value.cooperativeLaunch == attribute(cudaDevAttrCooperativeLaunch));
    REQUIRE((int)p.value.sharedMemPerBlockOptin == attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
    REQUIRE((int)p.value.reservedSharedMemPerBlock == attribute(cudaDevAttrReservedSharedMemoryPerBlock));
#if CUDART_VERSION >= 12000
    REQUIRE(p.value.hostRegisterSupported == attribute(cudaDevAttrHostRegisterSupported));
    REQUIRE(p.value.memoryPoolsSupported == attribute(cudaDevAttrMemoryPoolsSupported));
    REQUIRE(p.value.clusterLaunch == attribute(cudaDevAttrClusterLaunch));
#endif
#if CUDART_VERSION < 13000
    REQUIRE(p.value.clockRate == attribute(cudaDevAttrClockRate));
    REQUIRE(p.value.deviceOverlap == attribute(cudaDevAttrGpuOverlap));
    REQUIRE(p.value.kernelExecTimeoutEnabled == attribute(cudaDevAttrKernelExecTimeout));
    REQUIRE(p.value.computeMode == attribute(cudaDevAttrComputeMode));
    REQUIRE(p.value.memoryClockRate == attribute(cudaDevAttrMemoryClockRate));
    REQUIRE(p.value.singleToDoublePrecisionPerfRatio == attribute(cudaDevAttrSingleToDoublePrecisionPerfRatio));
#endif
    int chosen = -1;
    CHECK(cudaChooseDevice(&chosen, &p.value));
    REQUIRE(p.intact() && chosen == 0);
    Guarded<cudaFuncAttributes> f;
    CHECK(cudaFuncGetAttributes(&f.value, add));
    REQUIRE(f.intact());
    REQUIRE(f.value.maxThreadsPerBlock >= 32 && f.value.numRegs > 0 && f.value.sharedSizeBytes == 0);
    std::printf("properties\n");
}

static void pointers() {
    int *memory = nullptr;
    CHECK(cudaMalloc(&memory, 4096));
    Guarded<cudaPointerAttributes> a;
    CHECK(cudaPointerGetAttributes(&a.value, memory + 7));
    REQUIRE(a.intact());
    REQUIRE(a.value.type == cudaMemoryTypeDevice && a.value.device == 0);
    REQUIRE(a.value.devicePointer == memory + 7 && a.value.hostPointer == nullptr);
    CHECK(cudaFree(memory));

    int *host = nullptr;
    CHECK(cudaMallocHost(&host, 4096));
    CHECK(cudaPointerGetAttributes(&a.value, host));
    REQUIRE(a.intact());
    REQUIRE(a.value.type == cudaMemoryTypeHost && a.value.hostPointer == host && a.value.devicePointer == host);
    CHECK(cudaFreeHost(host));
    std::printf("pointers\n");
}

#if CUDART_VERSION >= 13000
static cudaMemLocation device_location() { return {cudaMemLocationTypeDevice, 0}; }
static cudaMemLocation host_location() { return {cudaMemLocationTypeHost, 0}; }
static cudaError_t prefetch(void *memory, cudaMemLocation to) {
    return cudaMemPrefetchAsync(memory, 1 << 20, to, 0, nullptr);
}
#else
static int device_location() { return 0; }
static int host_location() { return cudaCpuDeviceId; }
static cudaError_t prefetch(void *memory, int to) { return cudaMemPrefetchAsync(memory, 1 << 20, to, nullptr); }
#endif

static void managed() {
    int *memory = nullptr;
    CHECK(cudaMallocManaged(&memory, 1 << 20));
    memory[9] = 1;
    CHECK(cudaMemAdvise(memory, 1 << 20, cudaMemAdviseSetPreferredLocation, device_location()));
    CHECK(prefetch(memory, device_location()));
    add<<<1, 1>>>(memory + 9, 41);
    add<<<1, 1>>>(&managed_value, 2);
    CHECK(cudaGetLastError());
    CHECK(prefetch(memory, host_location()));
    CHECK(cudaDeviceSynchronize());
    std::printf("managed %d %d\n", memory[9], managed_value);
#if CUDART_VERSION < 13000
    REQUIRE(cudaMemAdvise(memory, 1 << 20, cudaMemAdviseSetPreferredLocation, 99) == cudaErrorInvalidDevice);
    REQUIRE(cudaGetLastError() == cudaErrorInvalidDevice);
#endif
    CHECK(cudaFree(memory));
}

static void old_names() {
#if CUDART_VERSION < 13000
    size_t limit = 0, same = 0;
    CHECK(cudaThreadGetLimit(&limit, cudaLimitStackSize));
    CHECK(cudaDeviceGetLimit(&same, cudaLimitStackSize));
    REQUIRE(limit == same && limit > 0);
    cudaFuncCache config;
    CHECK(cudaThreadGetCacheConfig(&config));
    CHECK(cudaThreadSetCacheConfig(config));
    CHECK(cudaThreadSynchronize());
    double value = 1;
    CHECK(cudaSetDoubleForDevice(&value));
    CHECK(cudaSetDoubleForHost(&value));
    REQUIRE(value == 1);
#endif
    int runtime = 0;
    CHECK(cudaRuntimeGetVersion(&runtime));
    REQUIRE(runtime / 1000 == CUDART_VERSION / 1000);
    std::printf("old names\n");
}

int main() {
    properties();
    pointers();
    managed();
    old_names();
#if CUDART_VERSION < 13000
    CHECK(cudaThreadExit());
#else
    CHECK(cudaDeviceReset());
#endif
    std::printf("done\n");
}
