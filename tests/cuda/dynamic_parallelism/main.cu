// SPDX-License-Identifier: Apache-2.0 OR MIT
// nvcc: -rdc=true
// Kernels that launch kernels: order in streams, recursion, tails, copies, parameters, what is refused, and a child that
// faults. Two units, linked.
#include "../check.h"
#include "children.h"

#include <algorithm>

struct Log {
    int count;
    int entries[64];
};

static __device__ Log device_log;
static __device__ int levels[40];
static __device__ int words[64];
static __device__ int seen[8];
static __device__ double odd_result;
static __device__ int statuses[16];

static __device__ void note(int value) {
    const int index = atomicAdd(&device_log.count, 1);
    if (index < 64) {
        device_log.entries[index] = value;
    }
}

static __global__ void append(int value) { note(value); }

static __global__ void write_word(int index, int value) { words[index] = value; }

static __global__ void read_word(int index, int slot) { seen[slot] = words[index]; }

// ---- Order

static __global__ void in_order() {
    for (int i = 0; i < 8; i++) {
        append<<<1, 1>>>(i);
    }
    append<<<1, 1>>>(times_seven(6));
}

// What the parent has written before it launches, the child sees.
static __global__ void visible() {
    words[threadIdx.x] = 100 + threadIdx.x;
    __syncthreads();
    if (threadIdx.x == 0) {
        read_word<<<1, 1>>>(31, 0);
        read_word<<<1, 1>>>(5, 1);
    }
}

static __global__ void two_streams() {
    cudaStream_t first, second;
    cudaEvent_t event;
    statuses[0] = cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking);
    statuses[1] = cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
    statuses[2] = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    write_word<<<1, 1, 0, first>>>(7, 4711);
    statuses[3] = cudaEventRecord(event, first);
    statuses[4] = cudaStreamWaitEvent(second, event, 0);
    read_word<<<1, 1, 0, second>>>(7, 2);
    statuses[5] = cudaEventDestroy(event);
    statuses[6] = cudaStreamDestroy(first);
    statuses[7] = cudaStreamDestroy(second);
    statuses[8] = cudaGetLastError();
}

// ---- Trees

static __global__ void tree(int level, int last) {
    if (threadIdx.x == 0) {
        atomicAdd(&levels[level], 1);
    }
    if (level < last) {
        tree<<<1, 2>>>(level + 1, last);
    }
}

static __global__ void chain(int level, int last) {
    levels[level] = 1;
    if (level < last) {
        chain<<<1, 1>>>(level + 1, last);
    }
}

// ---- Tails: after everything else of their grid, one after the other, each with all that it launches itself.

static __global__ void inner_tail(int value) {
    append<<<1, 1, 0, cudaStreamTailLaunch>>>(value + 1);
    note(value);
}

static __global__ void tails() {
    append<<<1, 1, 0, cudaStreamTailLaunch>>>(10);
    inner_tail<<<1, 1, 0, cudaStreamTailLaunch>>>(20);
    append<<<1, 1, 0, cudaStreamTailLaunch>>>(30);
    append<<<1, 1>>>(1);
    append<<<1, 1, 0, cudaStreamFireAndForget>>>(1);
    note(1);
}

// A loop without the host: the kernel launches itself again until it has counted to `last`.
static __global__ void count_up(int last) {
    if (++words[0] < last) {
        count_up<<<1, 1, 0, cudaStreamTailLaunch>>>(last);
    }
}

// ---- Copies and fills

static __global__ void copies(int *buffer) {
    write_word<<<1, 1>>>(0, 1234);
    statuses[0] = cudaMemcpyAsync(&words[1], &words[0], 4, cudaMemcpyDeviceToDevice, 0);
    statuses[1] = cudaMemsetAsync(&words[2], 0x11, 7, 0);
    statuses[2] = cudaMemcpy2DAsync(&words[8], 16, buffer, 32, 8, 3, cudaMemcpyDeviceToDevice, 0);
    statuses[3] = cudaMemcpyAsync(&words[20], buffer + 4, 8, cudaMemcpyDefault, 0);
    read_word<<<1, 1>>>(1, 3);
    int local;
    statuses[4] = cudaMemcpyAsync(&words[30], &words[0], 4, cudaMemcpyHostToDevice, 0);
    statuses[5] = cudaMemcpyAsync(&local, &words[0], 4, cudaMemcpyDeviceToDevice, 0);
    statuses[6] = cudaMemcpyAsync(nullptr, &words[0], 4, cudaMemcpyDeviceToDevice, 0);
}

// ---- Parameters

static __global__ void odd() {
    Three three = {{1, 2, 3}};
    Odd odd = {"twelve bytes", 0.5, {4, 5, 6}};
    odd_parameters<<<1, 1>>>(three, 'x', odd, -300, &odd_result);
}

// ---- Questions

static __global__ void __launch_bounds__(128) bounded() {}

static __global__ void questions() {
    int device = -1, count = -1, warp = -1, blocks = -1, version = -1;
    size_t limit = 0;
    cudaFuncAttributes attributes;
    statuses[0] = cudaGetDevice(&device);
    statuses[1] = cudaGetDeviceCount(&count);
    statuses[2] = cudaDeviceGetAttribute(&warp, cudaDevAttrWarpSize, device);
    statuses[3] = cudaDeviceGetLimit(&limit, cudaLimitStackSize);
    statuses[4] = cudaFuncGetAttributes(&attributes, bounded);
    statuses[5] = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, bounded, 64, 0);
    statuses[6] = cudaRuntimeGetVersion(&version);
    int *memory = nullptr;
    statuses[7] = cudaMalloc((void **)&memory, 1000);
    if (memory != nullptr) {
        memory[249] = 5;
        statuses[8] = cudaFree(memory);
    }
    statuses[9] = cudaMalloc((void **)&memory, 0);
    seen[0] = device == 0 && count >= 1;
    seen[1] = warp;
    seen[2] = limit >= 1024;
    seen[3] = attributes.maxThreadsPerBlock;
    seen[4] = blocks >= 1 && blocks <= 64;
    printf("%s: %s\n", cudaGetErrorName(cudaErrorInvalidConfiguration),
           cudaGetErrorString(cudaErrorInvalidConfiguration));
}

// ---- What is refused

static __global__ void refused() {
    append<<<1, 2048>>>(1);
    statuses[0] = cudaPeekAtLastError();
    statuses[1] = cudaGetLastError();
    statuses[2] = cudaGetLastError();
    append<<<1, dim3(1, 1, 65)>>>(1);
    statuses[3] = cudaGetLastError();
    append<<<1, 1, 300 * 1024>>>(1);
    statuses[4] = cudaGetLastError();
    bounded<<<1, 256>>>();
    statuses[5] = cudaGetLastError();
    append<<<1, 1>>>(77);
    statuses[6] = cudaGetLastError();
}

// The errors of one thread are not another's.
static __global__ void own_errors() {
    if (threadIdx.x == 1) {
        append<<<1, 2048>>>(1);
    }
    __syncthreads();
    statuses[threadIdx.x] = cudaGetLastError() != cudaSuccess;
}

static __global__ void null_write(int *nowhere) { *nowhere = 1; }

static __global__ void faults() { null_write<<<1, 1>>>(nullptr); }

// ----

static void done() {
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
}

static void print_log(const char *what) {
    Log log;
    CHECK(cudaMemcpyFromSymbol(&log, device_log, sizeof log));
    std::printf("%s:", what);
    for (int i = 0; i < log.count && i < 64; i++) {
        std::printf(" %d", log.entries[i]);
    }
    std::printf("\n");
    log = Log();
    CHECK(cudaMemcpyToSymbol(device_log, &log, sizeof log));
}

static void print_levels(const char *what, int count) {
    int host[40];
    CHECK(cudaMemcpyFromSymbol(host, levels, sizeof host));
    std::printf("%s:", what);
    for (int i = 0; i < count; i++) {
        std::printf(" %d", host[i]);
    }
    std::printf("\n");
    std::fill(host, host + 40, 0);
    CHECK(cudaMemcpyToSymbol(levels, host, sizeof host));
}

static void print_statuses(const char *what, int count) {
    int host[16];
    CHECK(cudaMemcpyFromSymbol(host, statuses, sizeof host));
    std::printf("%s:", what);
    for (int i = 0; i < count; i++) {
        std::printf(" %d", host[i]);
    }
    std::printf("\n");
    std::fill(host, host + 16, -1);
    CHECK(cudaMemcpyToSymbol(statuses, host, sizeof host));
}

int main() {
    int host_words[64], host_seen[8];

    in_order<<<1, 1>>>();
    done();
    print_log("in order");

    visible<<<1, 32>>>();
    two_streams<<<1, 1>>>();
    done();
    CHECK(cudaMemcpyFromSymbol(host_seen, seen, sizeof host_seen));
    std::printf("seen: %d %d %d\n", host_seen[0], host_seen[1], host_seen[2]);
    print_statuses("streams", 9);

    // A launch of the host waits for the children of the one before it.
    tree<<<3, 2>>>(0, 5);
    append<<<1, 1>>>(0);
    done();
    print_levels("tree", 7);
    chain<<<1, 1>>>(0, 20);
    done();
    print_levels("chain", 22);
    print_log("after the tree");

    tails<<<1, 1>>>();
    append<<<1, 1>>>(99);
    done();
    print_log("tails");

    int *buffer;
    CHECK(cudaMalloc(&buffer, 256));
    for (int i = 0; i < 64; i++) {
        host_words[i] = 1000 + i;
    }
    CHECK(cudaMemcpy(buffer, host_words, 256, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(buffer + 63, 0, 4));
    std::fill(host_words, host_words + 64, 0);
    CHECK(cudaMemcpyToSymbol(words, host_words, sizeof words));
    copies<<<1, 1>>>(buffer);
    done();
    CHECK(cudaMemcpyFromSymbol(host_words, words, sizeof words));
    CHECK(cudaMemcpyFromSymbol(host_seen, seen, sizeof host_seen));
    // What the fill did is not looked at: an H200 (driver 580) leaves its seven bytes as they were.
    std::printf("copies: %d, %d %d 0 %d %d 0 %d %d, %d %d, %d\n", host_words[1], host_words[8], host_words[9],
                host_words[12], host_words[13], host_words[16], host_words[17], host_words[20], host_words[21], host_seen[3]);
    print_statuses("copies", 7);

    std::fill(host_words, host_words + 64, 0);
    CHECK(cudaMemcpyToSymbol(words, host_words, sizeof words));
    count_up<<<1, 1>>>(12);
    done();
    CHECK(cudaMemcpyFromSymbol(host_words, words, sizeof words));
    std::printf("counted to %d\n", host_words[0]);

    odd<<<1, 1>>>();
    double sum;
    CHECK(cudaMemcpyFromSymbol(&sum, odd_result, sizeof sum));
    std::printf("odd parameters: %.2f\n", sum);

    questions<<<1, 1>>>();
    done();
    CHECK(cudaMemcpyFromSymbol(host_seen, seen, sizeof host_seen));
    std::printf("answers: %d %d %d %d %d\n", host_seen[0], host_seen[1], host_seen[2], host_seen[3], host_seen[4]);
    print_statuses("questions", 10);

    refused<<<1, 1>>>();
    done();
    print_statuses("refused", 7);
    print_log("not refused");
    own_errors<<<1, 4>>>();
    done();
    print_statuses("own errors", 4);

    CHECK(cudaFree(buffer));
    faults<<<1, 1>>>();
    std::printf("fault of a child: %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
    std::printf("afterwards: %s\n", cudaGetErrorName(cudaMalloc(&buffer, 4)));
    return 0;
}
