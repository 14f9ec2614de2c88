// SPDX-License-Identifier: Apache-2.0 OR MIT
// Memory of the host at reserved addresses: used by the CPU, by copies and by kernels, mapped twice, mapped elsewhere, grown,
// and given back. Each check prints a line. Where the manual leaves an answer open, all allowed answers pass; with an argument
// the program prints on standard error which one it got.
#include "check_driver.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

static CUdevice device = 0;
static size_t unit = 0;
static bool verbose = false;
static std::vector<CUmemAccessDesc> everyone;

__global__ void add(unsigned int *words, size_t count, unsigned int value) {
    for (size_t index = blockIdx.x * blockDim.x + threadIdx.x; index < count; index += gridDim.x * blockDim.x) {
        words[index] += value;
    }
}

static void check(const char *what, bool passed) {
    std::printf("%s: %s\n", what, passed ? "PASS" : "FAIL");
}

static void note(const char *what, long long value) {
    if (verbose) {
        std::fprintf(stderr, "%s: %lld\n", what, value);
    }
}

static CUmemAllocationProp properties(CUmemLocationType type) {
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = type;
    if (type == CU_MEM_LOCATION_TYPE_HOST_NUMA) {
        int node = 0;
        CHECK_DRIVER(cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device));
        prop.location.id = node < 0 ? 0 : node;
    }
    return prop;
}

static CUmemGenericAllocationHandle create(size_t bytes) {
    const CUmemAllocationProp prop = properties(CU_MEM_LOCATION_TYPE_HOST_NUMA);
    CUmemGenericAllocationHandle handle = 0;
    CHECK_DRIVER(cuMemCreate(&handle, bytes, &prop, 0));
    return handle;
}

static CUdeviceptr reserve(size_t bytes, CUdeviceptr wanted = 0) {
    CUdeviceptr base = 0;
    CHECK_DRIVER(cuMemAddressReserve(&base, bytes, 0, wanted, 0));
    return base;
}

static void map(CUdeviceptr at, size_t bytes, CUmemGenericAllocationHandle handle) {
    CHECK_DRIVER(cuMemMap(at, bytes, 0, handle, 0));
    CHECK_DRIVER(cuMemSetAccess(at, bytes, everyone.data(), everyone.size()));
}

static unsigned int *words_at(CUdeviceptr at) {
    return reinterpret_cast<unsigned int *>(at);
}

static void fill(CUdeviceptr at, size_t bytes, unsigned int first) {
    for (size_t index = 0; index < bytes / 4; index++) {
        words_at(at)[index] = first + static_cast<unsigned int>(index);
    }
}

static bool holds(const unsigned int *words, size_t bytes, unsigned int first) {
    for (size_t index = 0; index < bytes / 4; index++) {
        if (words[index] != first + static_cast<unsigned int>(index)) {
            return false;
        }
    }
    return true;
}

static void add_on_device(CUdeviceptr at, size_t bytes, unsigned int value) {
    add<<<32, 256>>>(words_at(at), bytes / 4, value);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
}

static void describe() {
    for (const CUmemLocationType type : {CU_MEM_LOCATION_TYPE_HOST, CU_MEM_LOCATION_TYPE_HOST_NUMA}) {
        const CUmemAllocationProp prop = properties(type);
        size_t least = 0, best = 0;
        CHECK_DRIVER(cuMemGetAllocationGranularity(&least, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
        CHECK_DRIVER(cuMemGetAllocationGranularity(&best, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
        note("granularity", static_cast<long long>(least));
        check("granularity", least > 0 && (least & (least - 1)) == 0 && best % least == 0);
        unit = std::max(unit, best);
        CUmemGenericAllocationHandle handle = 0;
        CHECK_DRIVER(cuMemCreate(&handle, best, &prop, 0));
        CUmemAllocationProp actual = {};
        CHECK_DRIVER(cuMemGetAllocationPropertiesFromHandle(&actual, handle));
        note("location type", actual.location.type);
        check("properties", actual.type == prop.type && (actual.location.type == CU_MEM_LOCATION_TYPE_HOST ||
                                                         actual.location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA));
        CHECK_DRIVER(cuMemRelease(handle));
        check("released once", cuMemRelease(handle) != CUDA_SUCCESS);
        check("no size", cuMemCreate(&handle, 0, &prop, 0) == CUDA_ERROR_INVALID_VALUE);
        check("odd size", cuMemCreate(&handle, best + 1, &prop, 0) == CUDA_ERROR_INVALID_VALUE);
    }
    CUmemAccessDesc access = {};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    everyone.push_back(access);
    access.location = properties(CU_MEM_LOCATION_TYPE_HOST_NUMA).location;
    everyone.push_back(access);
}

static void use() {
    const size_t bytes = 3 * unit;
    const CUmemGenericAllocationHandle one = create(unit), two = create(2 * unit);
    const CUdeviceptr base = reserve(4 * unit), seam = base + unit;
    map(base, unit, one);
    map(seam, 2 * unit, two);
    unsigned long long flags = 0;
    for (const CUmemAccessDesc &access : everyone) {
        CHECK_DRIVER(cuMemGetAccess(&flags, &access.location, seam + 100));
        check("access", flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    }

    CUdeviceptr memory = 0;
    CUstream stream = nullptr;
    CHECK_DRIVER(cuMemAlloc(&memory, bytes));
    CHECK_DRIVER(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    fill(base, bytes, 1);
    check("CPU", holds(words_at(base), bytes, 1));
    add_on_device(base, bytes, 10);
    check("kernel", holds(words_at(base), bytes, 11));
    // Both copies cross the seam.
    CHECK_DRIVER(cuMemcpyAsync(memory, base, bytes, stream));
    CHECK_DRIVER(cuStreamSynchronize(stream));
    add_on_device(memory, bytes, 10);
    std::vector<unsigned int> back(bytes / 4);
    CHECK_DRIVER(cuMemcpyDtoH(back.data(), memory, bytes));
    check("copy to the device", holds(back.data(), bytes, 21));
    CHECK_DRIVER(cuMemcpyAsync(base, memory, bytes, stream));
    CHECK_DRIVER(cuStreamSynchronize(stream));
    check("copy from the device", holds(words_at(base), bytes, 21));
    std::fill(back.begin(), back.end(), 7);
    CHECK_DRIVER(cuMemcpyHtoD(memory, words_at(base), 4096));
    CHECK_DRIVER(cuMemcpyDtoH(words_at(seam) - 512, memory, 4096));
    check("short copies", holds(words_at(seam) - 512, 4096, 21));
    CHECK(cudaMemcpy(words_at(base), back.data(), bytes, cudaMemcpyDefault));
    check("copy from pageable memory", words_at(base)[0] == 7 && words_at(base)[bytes / 4 - 1] == 7);
    CHECK(cudaMemcpy(words_at(base) + 1024, words_at(seam), unit - 4096, cudaMemcpyDefault));
    fill(seam - 4096, 8192, 5);
    CHECK(cudaMemcpyAsync(back.data(), words_at(base), bytes, cudaMemcpyDefault, stream));
    CHECK(cudaStreamSynchronize(stream));
    check("copy to pageable memory", holds(&back[(unit - 4096) / 4], 8192, 5) && back[0] == 7);
    // NVIDIA's driver refuses a fill that crosses the seam.
    for (CUdeviceptr at : {seam - 4096, seam}) CHECK_DRIVER(cuMemsetD32(at, 0x12345678, 1024));
    for (CUdeviceptr at : {seam - 8, seam}) CHECK_DRIVER(cuMemsetD8Async(at, 0x55, 8, stream));
    CHECK_DRIVER(cuStreamSynchronize(stream));
    const unsigned int *near_seam = words_at(seam);
    check("fill", near_seam[-3] == 0x12345678 && near_seam[-2] == 0x55555555 && near_seam[1] == 0x55555555 &&
                      near_seam[2] == 0x12345678 && near_seam[1023] == 0x12345678);

    unsigned int memory_type = 0;
    CUdeviceptr pointer = 0;
    CHECK_DRIVER(cuPointerGetAttribute(&memory_type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, seam + 4));
    CHECK_DRIVER(cuPointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, seam + 4));
    note("memory type", memory_type);
    check("pointer", pointer == seam + 4 && (memory_type == CU_MEMORYTYPE_HOST || memory_type == CU_MEMORYTYPE_DEVICE));
    cudaPointerAttributes attributes = {};
    CHECK(cudaPointerGetAttributes(&attributes, words_at(seam)));
    note("runtime's memory type", attributes.type);
    note("device", attributes.device);
    check("runtime's pointer", attributes.type != cudaMemoryTypeUnregistered && attributes.devicePointer == words_at(seam));

    // Wrong calls change nothing.
    check("mapped twice", cuMemMap(seam, unit, 0, one, 0) != CUDA_SUCCESS);
    check("over the end", cuMemMap(base + 3 * unit, 2 * unit, 0, two, 0) != CUDA_SUCCESS);
    check("longer than the memory", cuMemMap(base + 3 * unit, unit, unit, one, 0) != CUDA_SUCCESS);
    check("a part unmapped", cuMemUnmap(seam, unit) != CUDA_SUCCESS);
    check("freed while mapped", cuMemAddressFree(base, 4 * unit) != CUDA_SUCCESS);
    check("access to a part", cuMemSetAccess(seam, unit, everyone.data(), everyone.size()) != CUDA_SUCCESS);
    fill(base, bytes, 31);
    add_on_device(base, bytes, 1);
    check("unchanged", holds(words_at(base), bytes, 32));

    CHECK_DRIVER(cuMemUnmap(base, bytes));
    // No copy and no fill from here on: for NVIDIA's driver these are addresses of pageable memory now, and it touches them.
    const CUresult gone = cuMemGetAccess(&flags, &everyone[0].location, base);
    note("access to nothing", gone);
    check("unmapped", gone != CUDA_SUCCESS || flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CUmemGenericAllocationHandle none;
    check("no handle there", cuMemRetainAllocationHandle(&none, words_at(base)) != CUDA_SUCCESS);
    // The same addresses serve again, also for memory of the device.
    map(seam, unit, one);
    check("mapped again", holds(words_at(seam), unit, 32));
    CHECK_DRIVER(cuMemUnmap(seam, unit));
    CUmemAllocationProp of_device = properties(CU_MEM_LOCATION_TYPE_DEVICE);
    of_device.location.id = device;
    CUmemGenericAllocationHandle other = 0;
    CHECK_DRIVER(cuMemCreate(&other, unit, &of_device, 0));
    CHECK_DRIVER(cuMemMap(base, unit, 0, other, 0));
    CHECK_DRIVER(cuMemSetAccess(base, unit, everyone.data(), 1));
    CHECK_DRIVER(cuMemsetD32(base, 77, unit / 4));
    unsigned int word = 0;
    CHECK_DRIVER(cuMemcpyDtoH(&word, base + unit - 4, 4));
    check("memory of the device there", word == 77);
    const CUresult beside = cuMemMap(seam, unit, 0, one, 0);
    note("memory of the host beside it", beside);
    if (beside == CUDA_SUCCESS) {
        CHECK_DRIVER(cuMemUnmap(seam, unit));
    }
    check("beside it", beside == CUDA_SUCCESS || beside == CUDA_ERROR_NOT_SUPPORTED);
    CHECK_DRIVER(cuMemUnmap(base, unit));
    CHECK_DRIVER(cuMemRelease(other));
    const CUresult back_again = cuMemMap(base, unit, 0, one, 0);
    note("and the host's again", back_again);
    bool right = back_again == CUDA_ERROR_NOT_SUPPORTED;
    if (back_again == CUDA_SUCCESS) {
        CHECK_DRIVER(cuMemSetAccess(base, unit, everyone.data(), everyone.size()));
        right = holds(words_at(base), unit, 32);
        CHECK_DRIVER(cuMemUnmap(base, unit));
    }
    check("and the host's again", right);
    CHECK_DRIVER(cuMemAddressFree(base, 4 * unit));
    check("freed twice", cuMemAddressFree(base, 4 * unit) != CUDA_SUCCESS);
    CHECK_DRIVER(cuMemRelease(one));
    CHECK_DRIVER(cuMemRelease(two));
    CHECK_DRIVER(cuStreamDestroy(stream));
    CHECK_DRIVER(cuMemFree(memory));
}

static void share_and_move() {
    const CUmemGenericAllocationHandle handle = create(2 * unit);
    const CUdeviceptr first = reserve(2 * unit), second = reserve(2 * unit), third = reserve(2 * unit);
    map(first, 2 * unit, handle);
    map(second, 2 * unit, handle);
    fill(first, 2 * unit, 3);
    check("two mappings", holds(words_at(second), 2 * unit, 3));
    add_on_device(second, 2 * unit, 4);
    check("two mappings, kernel", holds(words_at(first), 2 * unit, 7));
    // A part of it from its beginning on.
    const CUresult part = cuMemMap(third, unit, 0, handle, 0);
    note("a part", part);
    bool right = part == CUDA_ERROR_NOT_SUPPORTED || part == CUDA_ERROR_INVALID_VALUE;
    if (part == CUDA_SUCCESS) {
        CHECK_DRIVER(cuMemSetAccess(third, unit, everyone.data(), everyone.size()));
        right = holds(words_at(third), unit, 7);
        CHECK_DRIVER(cuMemUnmap(third, unit));
    }
    check("a part", right);

    // Memory outlives its handle while it is mapped, and a handle can be had again.
    CHECK_DRIVER(cuMemRelease(handle));
    CHECK_DRIVER(cuMemUnmap(first, 2 * unit));
    add_on_device(second, 2 * unit, 1);
    CUmemGenericAllocationHandle again = 0;
    CHECK_DRIVER(cuMemRetainAllocationHandle(&again, words_at(second + unit)));
    CHECK_DRIVER(cuMemUnmap(second, 2 * unit));
    map(third, 2 * unit, again);
    check("moved", holds(words_at(third), 2 * unit, 8));
    CHECK_DRIVER(cuMemRelease(again));
    check("mapped still", holds(words_at(third), 2 * unit, 8));
    CHECK_DRIVER(cuMemUnmap(third, 2 * unit));
    for (const CUdeviceptr base : {first, second, third}) {
        CHECK_DRIVER(cuMemAddressFree(base, 2 * unit));
    }
}

// A vector that grows: at the end of its addresses if they can be had there, else all of it moves.
static void grow() {
    struct Block {
        CUmemGenericAllocationHandle handle;
        size_t bytes;
    };
    std::vector<Block> blocks;
    std::vector<std::pair<CUdeviceptr, size_t>> ranges;
    size_t bytes = 0;
    bool kept = true, used = true;
    int moves = 0;
    while (bytes < 32 * unit) {
        const size_t more = bytes == 0 ? unit : bytes;
        const CUdeviceptr old = ranges.empty() ? 0 : ranges[0].first;
        CUdeviceptr next = reserve(more, old == 0 ? 0 : old + bytes);
        if (old != 0 && next != old + bytes) {
            CHECK_DRIVER(cuMemAddressFree(next, more));
            next = reserve(bytes + more);
            CHECK_DRIVER(cuMemUnmap(old, bytes));
            CUdeviceptr at = next;
            for (const Block &block : blocks) {
                map(at, block.bytes, block.handle);
                at += block.bytes;
            }
            for (const auto &range : ranges) {
                CHECK_DRIVER(cuMemAddressFree(range.first, range.second));
            }
            ranges.clear();
            ranges.emplace_back(next, bytes + more);
            moves++;
        } else {
            ranges.emplace_back(next, more);
        }
        blocks.push_back({create(more), more});
        const CUdeviceptr base = ranges[0].first;
        map(base + bytes, more, blocks.back().handle);
        kept = kept && holds(words_at(base), bytes, 1);
        bytes += more;
        fill(base, bytes, 0);
        add_on_device(base, bytes, 1);
        used = used && holds(words_at(base), bytes, 1);
    }
    note("moves", moves);
    check("grown, contents kept", kept);
    check("grown, used", used);
    CHECK_DRIVER(cuMemUnmap(ranges[0].first, bytes));
    for (const auto &range : ranges) {
        CHECK_DRIVER(cuMemAddressFree(range.first, range.second));
    }
    for (const Block &block : blocks) {
        CHECK_DRIVER(cuMemRelease(block.handle));
    }
}

static void use_from_threads() {
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int number = 0; number < 4; number++) {
        threads.emplace_back([&wrong, number] {
            CHECK(cudaSetDevice(0));
            const CUmemGenericAllocationHandle handle = create(unit);
            for (int round = 0; round < 10; round++) {
                const CUdeviceptr base = reserve(2 * unit);
                const CUdeviceptr at = base + (round % 2) * unit;
                map(at, unit, handle);
                fill(at, 65536, 100 * number + round);
                add<<<4, 256, 0, cudaStreamPerThread>>>(words_at(at), 65536 / 4, 1);
                CHECK(cudaStreamSynchronize(cudaStreamPerThread));
                wrong += !holds(words_at(at), 65536, 100 * number + round + 1);
                CHECK_DRIVER(cuMemUnmap(at, unit));
                CHECK_DRIVER(cuMemAddressFree(base, 2 * unit));
            }
            CHECK_DRIVER(cuMemRelease(handle));
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    check("threads", wrong == 0);
}

static void fork_and_use() {
    const CUmemGenericAllocationHandle handle = create(unit);
    const CUdeviceptr base = reserve(unit);
    map(base, unit, handle);
    fill(base, unit, 1);
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    int status = 0;
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
    add_on_device(base, unit, 1);
    check("after a fork", holds(words_at(base), unit, 2));
    fill(base, unit, 5);
    add_on_device(base, unit, 1);
    check("both ways after a fork", holds(words_at(base), unit, 6));

    // Whether memory without a context outlives the primary one's end is not documented. If it does, it can be used.
    CHECK(cudaDeviceReset());
    CHECK(cudaFree(nullptr));
    CUmemGenericAllocationHandle again = 0;
    const CUresult lives = cuMemRetainAllocationHandle(&again, words_at(base));
    note("after a reset", lives);
    bool right = true;
    // Nor is it whether access outlives it: without, neither the device nor the CPU may touch the memory.
    if (lives == CUDA_SUCCESS && cuMemSetAccess(base, unit, everyone.data(), everyone.size()) == CUDA_SUCCESS) {
        add_on_device(base, unit, 1);
        right = holds(words_at(base), unit, 7);
        CHECK_DRIVER(cuMemUnmap(base, unit));
        CHECK_DRIVER(cuMemRelease(again));
        CHECK_DRIVER(cuMemRelease(handle));
        CHECK_DRIVER(cuMemAddressFree(base, unit));
    }
    check("after a reset", right);
}

int main(int argc, char **) {
    verbose = argc > 1;
    // If it crashes, all lines before are there.
    std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
    CHECK(cudaFree(nullptr));
    CHECK_DRIVER(cuDeviceGet(&device, 0));
    int supported = 0;
    CHECK_DRIVER(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device));
    std::printf("supported: %d\n", supported);
    describe();
    use();
    share_and_move();
    grow();
    use_from_threads();
    fork_and_use();
    // The process ends with memory that is mapped.
    const CUdeviceptr base = reserve(unit);
    map(base, unit, create(unit));
    add_on_device(base, unit, 1);
    check("left mapped", cudaDeviceSynchronize() == cudaSuccess);
    return 0;
}
