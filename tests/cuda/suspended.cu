// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Memory that is put aside while a program runs. Arguments: MiB of device memory, which is allocated in blocks of at most 8 MiB, and
// * "work": kernels in two streams change all of it until SIGTERM;
// * "idle": waits for SIGTERM after the first kernels, without a call;
// * "link": has begun a link, and waits as "idle";
// * "prints": starts a kernel that prints, and waits as "idle": its text is fetched with the next call;
// * "created": waits as "idle", with memory of cuMemCreate in one reservation;
// * "times": waits as "idle", and compares times between events with what they were before, and with the host's clock;
// * "pool": waits as "idle", with an empty pool of the driver's that has a threshold and is the device's;
// * "greedy": allocates as much again after that, prints the error, and waits as "idle".
// With 0 MiB there is a context and nothing else. Each then changes the memory once more, compares samples with what they must be, and prints "right". A third argument is the device,
// or "all" for blocks on each one in turn.

#include "check_driver.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <memory>
#include <vector>

#include <unistd.h>

constexpr size_t STRIDE = 1009;
constexpr size_t BLOCK = 8 << 20;

__host__ __device__ static unsigned next(unsigned value, size_t place) {
    return value * 1664525u + 1013904223u + (unsigned)place;
}

__global__ void change(unsigned *values, size_t begin, size_t end) {
    const size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = begin + blockIdx.x * blockDim.x + threadIdx.x; i < end; i += step) {
        values[i] = next(values[i], i);
    }
}

__global__ void print() { printf("printed by the device\n"); }

static volatile std::sig_atomic_t is_ended;

static void end(int) { is_ended = 1; }

static void wait() {
    while (!is_ended) usleep(1000);
}

// Events that are recorded, and the times between which each was, in milliseconds of the host's clock.
class Times {
  public:
    Times() {
        for (Event &event : events_) CHECK(cudaEventCreate(&event.event));
        record(0);
        usleep(20000);
        record(1);
        CHECK(cudaEventElapsedTime(&between_, events_[0].event, events_[1].event));
    }

    void compare() {
        float unchanged = 0, none = 0;
        CHECK(cudaEventElapsedTime(&unchanged, events_[0].event, events_[1].event));
        REQUIRE(std::fabs(unchanged - between_) < 0.01);
        REQUIRE(cudaEventElapsedTime(&none, events_[0].event, events_[2].event) == cudaErrorInvalidResourceHandle);
        REQUIRE(cudaEventElapsedTime(&none, events_[2].event, events_[0].event) == cudaErrorInvalidResourceHandle);
        (void)cudaGetLastError();
        record(2);
        compare(0, 2);
        compare(2, 0);
        record(1);
        compare(0, 1);
        compare(2, 1);
    }

  private:
    struct Event {
        cudaEvent_t event;
        double before, after;
    };

    static double now() {
        return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
    }

    void record(int number) {
        Event &event = events_[number];
        event.before = now();
        CHECK(cudaEventRecord(event.event));
        CHECK(cudaEventSynchronize(event.event));
        event.after = now();
    }

    void compare(int start, int end) {
        const Event &from = events_[start], &to = events_[end];
        float found = 0;
        CHECK(cudaEventElapsedTime(&found, from.event, to.event));
        REQUIRE(found > to.before - from.after - SLACK && found < to.after - from.before + SLACK);
    }

    // The clocks of host and GPU are compared at a call, which may take that long.
    static constexpr double SLACK = 20;
    Event events_[3];
    float between_;
};

// A pool that other processes may open, so that the driver manages it.
class Pool {
  public:
    Pool() {
        cudaMemPoolProps props = {};
        props.allocType = cudaMemAllocationTypePinned;
        props.handleTypes = cudaMemHandleTypePosixFileDescriptor;
        props.location = {cudaMemLocationTypeDevice, 0};
        CHECK(cudaMemPoolCreate(&pool_, &props));
        cuuint64_t threshold = THRESHOLD;
        CHECK(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &threshold));
        CHECK(cudaDeviceSetMemPool(0, pool_));
        use();
    }

    void compare() {
        cuuint64_t threshold = 0;
        CHECK(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &threshold));
        REQUIRE(threshold == THRESHOLD);
        cudaMemPool_t current;
        CHECK(cudaDeviceGetMemPool(&current, 0));
        REQUIRE(current == pool_);
        use();
        CHECK(cudaMemPoolDestroy(pool_));
    }

  private:
    void use() {
        unsigned *value, found = 0;
        CHECK(cudaMallocFromPoolAsync((void **)&value, sizeof *value, pool_, nullptr));
        CHECK(cudaMemsetAsync(value, 0x11, sizeof *value));
        CHECK(cudaMemcpy(&found, value, sizeof found, cudaMemcpyDeviceToHost));
        REQUIRE(found == 0x11111111);
        CHECK(cudaFreeAsync(value, nullptr));
        CHECK(cudaDeviceSynchronize());
    }

    static constexpr cuuint64_t THRESHOLD = 1 << 30;
    cudaMemPool_t pool_;
};

class Memory {
  public:
    // Memory of cudaMalloc, or at these reserved addresses.
    Memory(size_t bytes, int device, CUdeviceptr reserved = 0)
        : device_(device), count_(bytes / sizeof(unsigned)), expected_((count_ + STRIDE - 1) / STRIDE, 0) {
        CHECK(cudaSetDevice(device_));
        if (reserved) {
            create(bytes, reserved);
        } else {
            CHECK(cudaMalloc(&values_, bytes));
        }
        CHECK(cudaMemset(values_, 0, bytes));
        for (cudaStream_t &stream : streams_) CHECK(cudaStreamCreate(&stream));
    }

    // Each stream changes a half.
    void change_once() {
        const size_t half = count_ / 2;
        CHECK(cudaSetDevice(device_));
        change<<<8, 128, 0, streams_[0]>>>(values_, 0, half);
        change<<<8, 128, 0, streams_[1]>>>(values_, half, count_);
        CHECK(cudaGetLastError());
        for (size_t i = 0; i < expected_.size(); i++) expected_[i] = next(expected_[i], i * STRIDE);
    }

    void compare() {
        CHECK(cudaSetDevice(device_));
        CHECK(cudaDeviceSynchronize());
        std::vector<unsigned> found(count_);
        CHECK(cudaMemcpy(found.data(), values_, count_ * sizeof(unsigned), cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < expected_.size(); i++) REQUIRE(found[i * STRIDE] == expected_[i]);
    }

  private:
    void create(size_t bytes, CUdeviceptr reserved) {
        CUmemAllocationProp prop = {};
        prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
        CUmemGenericAllocationHandle handle;
        CHECK_DRIVER(cuMemCreate(&handle, bytes, &prop, 0));
        CHECK_DRIVER(cuMemMap(reserved, bytes, 0, handle, 0));
        CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        CHECK_DRIVER(cuMemSetAccess(reserved, bytes, &access, 1));
        values_ = (unsigned *)reserved;
    }

    int device_;
    size_t count_;
    std::vector<unsigned> expected_;
    unsigned *values_;
    cudaStream_t streams_[2];
};

int main(int argc, char **argv) {
    REQUIRE(argc == 3 || argc == 4);
    const bool on_all = argc == 4 && !std::strcmp(argv[3], "all");
    int device = argc == 4 && !on_all ? std::atoi(argv[3]) : 0, count = 0;
    CHECK(cudaGetDeviceCount(&count));
    const size_t bytes = std::strtoull(argv[1], nullptr, 10) << 20;
    std::signal(SIGTERM, end);
    std::vector<Memory> memory;
    CUdeviceptr reserved = 0;
    CHECK(cudaSetDevice(device));
    CHECK(cudaFree(nullptr));
    if (!std::strcmp(argv[2], "created")) {
        CHECK_DRIVER(cuMemAddressReserve(&reserved, bytes, 0, 0, 0));
    }
    for (size_t left = bytes; left; left -= std::min(left, BLOCK)) {
        memory.emplace_back(std::min(left, BLOCK), device, reserved ? reserved + (bytes - left) : 0);
        if (on_all) device = (device + 1) % count;
    }
    const auto change_once = [&] { for (Memory &block : memory) block.change_once(); };
    const auto compare = [&] { for (Memory &block : memory) block.compare(); };
    change_once();
    compare();
    std::unique_ptr<Times> times;
    if (!std::strcmp(argv[2], "times")) times = std::make_unique<Times>();
    std::unique_ptr<Pool> pool;
    if (!std::strcmp(argv[2], "pool")) pool = std::make_unique<Pool>();
    CUlinkState link;
    if (!std::strcmp(argv[2], "link")) CHECK_DRIVER(cuLinkCreate(0, nullptr, nullptr, &link));
    std::printf("begun\n");
    std::fflush(stdout);
    if (!std::strcmp(argv[2], "work")) {
        for (unsigned round = 0; !is_ended; round++) {
            change_once();
            if (round % 8 == 0) compare();
        }
    } else {
        if (!std::strcmp(argv[2], "greedy")) {
            void *more;
            std::printf("more: %d\n", (int)cudaMalloc(&more, bytes));
            std::fflush(stdout);
            (void)cudaGetLastError();
        }
        if (!std::strcmp(argv[2], "prints")) print<<<1, 1>>>();
        wait();
    }
    if (times) times->compare();
    if (pool) pool->compare();
    change_once();
    compare();
    std::printf("right\n");
    return 0;
}
