// SPDX-License-Identifier: Apache-2.0 OR MIT
// Names, properties and attributes of the device, and that they agree with each other.
#include "check.h"

#include <cstring>

static int attribute(cudaDeviceAttr which) {
    int value = -1;
    CHECK(cudaDeviceGetAttribute(&value, which, 0));
    return value;
}

int main() {
    int count = 0, runtime = 0, driver = 0;
    CHECK(cudaGetDeviceCount(&count));
    REQUIRE(count >= 1);
    CHECK(cudaRuntimeGetVersion(&runtime));
    CHECK(cudaDriverGetVersion(&driver));
    REQUIRE(runtime / 1000 == CUDART_VERSION / 1000 && driver / 1000 >= runtime / 1000);

    cudaDeviceProp p;
    std::memset(&p, 0xff, sizeof p);
    CHECK(cudaGetDeviceProperties(&p, 0));
    REQUIRE(std::memchr(p.name, 0, sizeof p.name) != nullptr && p.name[0] != 0);
    std::printf("%s\n", p.name);
    std::printf("compute capability %d.%d\n", p.major, p.minor);
    std::printf("%d multiprocessors, warps of %d, %d threads a block, %d a multiprocessor\n", p.multiProcessorCount,
                p.warpSize, p.maxThreadsPerBlock, p.maxThreadsPerMultiProcessor);
    std::printf("%zu bytes of shared memory a block, %zu opt-in, %d registers\n", p.sharedMemPerBlock,
                p.sharedMemPerBlockOptin, p.regsPerBlock);
    std::printf("block up to %d x %d x %d, grid up to %d x %d x %d\n", p.maxThreadsDim[0], p.maxThreadsDim[1],
                p.maxThreadsDim[2], p.maxGridSize[0], p.maxGridSize[1], p.maxGridSize[2]);
    std::printf("%zu bytes of constant memory, %d bytes of L2, bus of %d bits\n", p.totalConstMem, p.l2CacheSize,
                p.memoryBusWidth);

    REQUIRE(p.major == attribute(cudaDevAttrComputeCapabilityMajor));
    REQUIRE(p.minor == attribute(cudaDevAttrComputeCapabilityMinor));
    REQUIRE(p.warpSize == 32 && p.warpSize == attribute(cudaDevAttrWarpSize));
    REQUIRE(p.maxThreadsPerBlock == 1024 && p.maxThreadsPerBlock == attribute(cudaDevAttrMaxThreadsPerBlock));
    REQUIRE(p.multiProcessorCount > 0 && p.multiProcessorCount == attribute(cudaDevAttrMultiProcessorCount));
    REQUIRE((int)p.sharedMemPerBlock == attribute(cudaDevAttrMaxSharedMemoryPerBlock));
    REQUIRE((int)p.sharedMemPerBlockOptin == attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
    REQUIRE(p.maxGridSize[0] == attribute(cudaDevAttrMaxGridDimX));
    REQUIRE(p.maxThreadsDim[2] == attribute(cudaDevAttrMaxBlockDimZ));
    REQUIRE(p.l2CacheSize == attribute(cudaDevAttrL2CacheSize));
    REQUIRE(p.unifiedAddressing == 1);
    REQUIRE(p.canMapHostMemory == 1);
    REQUIRE(p.totalGlobalMem > ((size_t)64 << 20));
    size_t free_bytes = 0, total = 0;
    CHECK(cudaMemGetInfo(&free_bytes, &total));
    REQUIRE(free_bytes <= total && total <= p.totalGlobalMem);

    char bus_id[32] = {};
    int found = -1;
    CHECK(cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, 0));
    unsigned domain, bus, slot;
    REQUIRE(std::sscanf(bus_id, "%x:%x:%x.0", &domain, &bus, &slot) == 3);
    REQUIRE((int)domain == p.pciDomainID && (int)bus == p.pciBusID && (int)slot == p.pciDeviceID);
    CHECK(cudaDeviceGetByPCIBusId(&found, bus_id));
    REQUIRE(found == 0);
    int zeros = 0;
    for (char byte : p.uuid.bytes) {
        zeros += byte == 0;
    }
    REQUIRE(zeros < 16);

    size_t limit = 0;
    CHECK(cudaDeviceGetLimit(&limit, cudaLimitPrintfFifoSize));
    REQUIRE(limit > 0);
    std::printf("properties and attributes agree\n");
    return 0;
}
