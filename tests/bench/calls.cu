// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The named metrics: latency of single calls, and bandwidth of copies over their size. Run natively and
// through each transport; prints one JSON object a line. Every repeated call is timed in batches, and the
// median, 10th and 90th percentile of the batches are given, with the process's CPU time per call.
//
//   calls [--quick] [--max-copy BYTES]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <sys/resource.h>
#include <vector>

using Clock = std::chrono::steady_clock;

static double seconds(Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); }

static double cpu_seconds() {
    rusage r;
    getrusage(RUSAGE_SELF, &r);
    return r.ru_utime.tv_sec + r.ru_stime.tv_sec + 1e-6 * (r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

#define CHECK(call)                                                                              \
    do {                                                                                         \
        cudaError_t error_ = (call);                                                             \
        if (error_ != cudaSuccess) {                                                             \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error_)); \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

__global__ void empty() {}

// Prints value's distribution over `samples`, in `unit`.
static void report(const char *name, size_t bytes, const char *unit, std::vector<double> samples, double cpu_us) {
    std::sort(samples.begin(), samples.end());
    auto at = [&](double q) { return samples[static_cast<size_t>(q * (samples.size() - 1) + 0.5)]; };
    printf("{\"metric\":\"%s\",\"bytes\":%zu,\"unit\":\"%s\",\"median\":%.4g,\"p10\":%.4g,\"p90\":%.4g,"
           "\"samples\":%zu,\"cpu_us\":%.4g}\n",
           name, bytes, unit, at(0.5), at(0.1), at(0.9), samples.size(), cpu_us);
    fflush(stdout);
}

// Times `call` in batches for about `budget` seconds and reports microseconds a call.
static void latency(const char *name, int batch, double budget, const std::function<void()> &call,
                    const std::function<void()> &settle = [] {}) {
    std::vector<double> samples;
    call();
    settle();
    double cpu = 0;
    long calls = 0;
    auto begin = Clock::now();
    while (samples.size() < 5 || (seconds(begin) < budget && samples.size() < 2000)) {
        double cpu0 = cpu_seconds();
        auto start = Clock::now();
        for (int i = 0; i < batch; i++) call();
        samples.push_back(1e6 * seconds(start) / batch);
        cpu += cpu_seconds() - cpu0;
        calls += batch;
        settle();
    }
    report(name, 0, "us", samples, 1e6 * cpu / calls);
}

// Times copies of `bytes` for about `budget` seconds: latency up to 64 KiB, bandwidth above.
static void copy(const char *name, size_t bytes, double budget, void *dst, const void *src, cudaMemcpyKind kind) {
    std::vector<double> samples;
    CHECK(cudaMemcpy(dst, src, bytes, kind));
    CHECK(cudaDeviceSynchronize());
    bool small = bytes <= 65536;
    int batch = small ? 10 : 1;
    double cpu0 = cpu_seconds();
    long calls = 0;
    auto begin = Clock::now();
    while (samples.size() < 3 || (seconds(begin) < budget && samples.size() < 1000)) {
        auto start = Clock::now();
        for (int i = 0; i < batch; i++) CHECK(cudaMemcpy(dst, src, bytes, kind));
        if (!small) CHECK(cudaDeviceSynchronize());
        double each = seconds(start) / batch;
        samples.push_back(small ? 1e6 * each : 1e-9 * bytes / each);
        calls += batch;
    }
    report(name, bytes, small ? "us" : "GB/s", samples, 1e6 * (cpu_seconds() - cpu0) / calls);
}

int main(int argc, char **argv) {
    auto start = Clock::now();
    double budget = 0.3;
    size_t max_copy = size_t(1) << 30;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--quick")) {
            budget = 0.02;
            max_copy = 1 << 20;
        } else if (!strcmp(argv[i], "--max-copy") && i + 1 < argc) {
            max_copy = strtoull(argv[++i], nullptr, 0);
        } else {
            fprintf(stderr, "usage: %s [--quick] [--max-copy BYTES]\n", argv[0]);
            return 2;
        }
    }

    CHECK(cudaFree(nullptr));
    report("first_call", 0, "us", {1e6 * seconds(start)}, 1e6 * cpu_seconds());

    cudaStream_t stream;
    cudaEvent_t event;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaEventCreate(&event));
    auto sync = [] { CHECK(cudaDeviceSynchronize()); };
    empty<<<1, 1>>>();
    sync();

    int device;
    latency("cudaGetDevice", 1000, budget, [&] { CHECK(cudaGetDevice(&device)); });
    latency("cudaMemGetInfo", 10, budget, [] {
        size_t free_bytes, total_bytes;
        CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    });
    latency("cudaDeviceSynchronize_idle", 100, budget, sync);
    std::vector<void *> blocks;
    latency("cudaMalloc_4KiB", 100, budget, [&] {
        void *block;
        CHECK(cudaMalloc(&block, 4096));
        blocks.push_back(block);
    }, [&] {
        for (void *block : blocks) CHECK(cudaFree(block));
        blocks.clear();
    });
    latency("cudaMalloc_cudaFree_64MiB", 1, budget, [] {
        void *block;
        CHECK(cudaMalloc(&block, 64 << 20));
        CHECK(cudaFree(block));
    });
    latency("launch", 200, budget, [] { empty<<<1, 1>>>(); }, sync);
    latency("launch_synchronize", 10, budget, [&] {
        empty<<<1, 1>>>();
        sync();
    });
    latency("cudaEventRecord", 100, budget, [&] { CHECK(cudaEventRecord(event, stream)); }, sync);
    latency("cudaEventQuery", 100, budget, [&] { CHECK(cudaEventQuery(event)); });
    std::vector<cudaStream_t> streams;
    latency("cudaStreamCreate", 10, budget, [&] {
        cudaStream_t created;
        CHECK(cudaStreamCreate(&created));
        streams.push_back(created);
    }, [&] {
        for (cudaStream_t created : streams) CHECK(cudaStreamDestroy(created));
        streams.clear();
    });

    void *dev = nullptr, *pinned = nullptr, *ordinary = malloc(max_copy);
    CHECK(cudaMalloc(&dev, max_copy));
    memset(ordinary, 1, max_copy);
    size_t max_pinned = std::min<size_t>(max_copy, size_t(256) << 20);
    if (cudaMallocHost(&pinned, max_pinned) != cudaSuccess) {
        cudaGetLastError();
        pinned = nullptr;
    }
    const size_t sizes[] = {64, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20, size_t(1) << 30};
    for (size_t bytes : sizes) {
        if (bytes > max_copy) break;
        copy("copy_h2d_ordinary", bytes, budget, dev, ordinary, cudaMemcpyHostToDevice);
        copy("copy_d2h_ordinary", bytes, budget, ordinary, dev, cudaMemcpyDeviceToHost);
        if (pinned && bytes <= max_pinned) {
            copy("copy_h2d_pinned", bytes, budget, dev, pinned, cudaMemcpyHostToDevice);
            copy("copy_d2h_pinned", bytes, budget, pinned, dev, cudaMemcpyDeviceToHost);
        }
    }
    return 0;
}
