// SPDX-License-Identifier: Apache-2.0 OR MIT
// Addresses and memory apart: reserved, mapped, reached, mapped elsewhere, and given back.
#include "check_driver.h"

#include <vector>

static int differences(CUdeviceptr at, size_t bytes, unsigned int value) {
    std::vector<unsigned int> back(bytes / 4);
    CHECK_DRIVER(cuMemcpyDtoH(back.data(), at, bytes));
    int wrong = 0;
    for (unsigned int word : back) {
        wrong += word != value;
    }
    return wrong;
}

int main() {
    CUdevice device = 0;
    const CUcontext context = use_primary_context();
    int supported = 0;
    CHECK_DRIVER(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device));
    std::printf("supported: %d\n", supported);
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    size_t unit = 0;
    CHECK_DRIVER(cuMemGetAllocationGranularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    REQUIRE(unit > 0 && (unit & (unit - 1)) == 0);

    // Two allocations side by side.
    CUdeviceptr base = 0;
    CHECK_DRIVER(cuMemAddressReserve(&base, 4 * unit, 0, 0, 0));
    REQUIRE(base != 0 && base % unit == 0);
    CUmemGenericAllocationHandle first, second;
    CHECK_DRIVER(cuMemCreate(&first, unit, &prop, 0));
    CHECK_DRIVER(cuMemCreate(&second, 2 * unit, &prop, 0));
    CHECK_DRIVER(cuMemMap(base, unit, 0, first, 0));
    CHECK_DRIVER(cuMemMap(base + unit, 2 * unit, 0, second, 0));
    // Nobody may reach it yet.
    REQUIRE(cuMemsetD8(base, 0, 16) == CUDA_ERROR_INVALID_VALUE);
    CUmemAccessDesc access = {};
    access.location = prop.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK_DRIVER(cuMemSetAccess(base, 3 * unit, &access, 1));
    unsigned long long flags = 0;
    CHECK_DRIVER(cuMemGetAccess(&flags, &prop.location, base + unit));
    std::printf("access: %llu\n", flags);
    CHECK_DRIVER(cuMemsetD32(base, 0x12345678, 3 * unit / 4));
    std::printf("both: %d wrong\n", differences(base, 3 * unit, 0x12345678));

    // A copy over the seam.
    std::vector<unsigned int> words(1000, 0xabcdef01);
    CHECK_DRIVER(cuMemcpyHtoD(base + unit - 2000, words.data(), 4000));
    std::printf("seam: %d wrong, beside it %d\n", differences(base + unit - 2000, 4000, 0xabcdef01),
                differences(base, unit - 2000, 0x12345678) + differences(base + unit + 2000, 2 * unit - 2000, 0x12345678));

    CUmemAllocationProp actual = {};
    CHECK_DRIVER(cuMemGetAllocationPropertiesFromHandle(&actual, first));
    std::printf("properties: type %d, location %d %d\n", (int)actual.type, (int)actual.location.type, actual.location.id);
    unsigned int memory_type = 0;
    CHECK_DRIVER(cuPointerGetAttribute(&memory_type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, base + unit + 4));
    std::printf("memory type: %u\n", memory_type);

    // Memory outlives its handle while it is mapped, and a handle can be had again.
    CHECK_DRIVER(cuMemRelease(second));
    CUmemGenericAllocationHandle again;
    CHECK_DRIVER(cuMemRetainAllocationHandle(&again, (void *)(base + unit)));
    CUdeviceptr other = 0;
    CHECK_DRIVER(cuMemAddressReserve(&other, 2 * unit, 0, 0, 0));
    CHECK_DRIVER(cuMemMap(other, 2 * unit, 0, again, 0));
    CHECK_DRIVER(cuMemSetAccess(other, 2 * unit, &access, 1));
    CHECK_DRIVER(cuMemsetD32(other + 2000, 0x55aa55aa, 100));
    CHECK_DRIVER(cuCtxSynchronize());
    std::printf("elsewhere: %d wrong\n", differences(base + unit + 2000, 400, 0x55aa55aa));

    CHECK_DRIVER(cuMemUnmap(base, 3 * unit));
    CUmemGenericAllocationHandle none;
    std::printf("after unmapping: %s\n", cuMemRetainAllocationHandle(&none, (void *)base) ? "refused" : "mapped");
    std::printf("still there: %d wrong\n", differences(other + 2000, 400, 0x55aa55aa));
    CHECK_DRIVER(cuMemUnmap(other, 2 * unit));
    CHECK_DRIVER(cuMemRelease(again));
    CHECK_DRIVER(cuMemRelease(first));
    CHECK_DRIVER(cuMemAddressFree(base, 4 * unit));
    CHECK_DRIVER(cuMemAddressFree(other, 2 * unit));

    std::printf("no size: %d\n", (int)cuMemCreate(&first, 0, &prop, 0));
    std::printf("odd size: %d\n", (int)cuMemCreate(&first, unit + 1, &prop, 0));
    CHECK_DRIVER(cuDevicePrimaryCtxRelease(device));
    return context ? 0 : 1;
}
