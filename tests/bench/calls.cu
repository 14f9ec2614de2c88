// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The named metrics: latency of single calls, rates of many, and bandwidth of copies over their size. Run natively
// and through each transport; measure.h says what it prints.
//
//   calls [--quick] [--max-copy BYTES] [--metric BEGINNING]…    everything but the first call, or what begins so
//   calls --first-call                                           the first call of a process, and nothing else

#include "buffers.h"
#include "libraries.h"
#include "managed.h"
#include "measure.h"
#include "threads.h"

#include <memory>
#include <unistd.h>

__global__ void empty() {}

static void synchronize() { CHECK(cudaDeviceSynchronize()); }

// How much to measure.
struct Effort {
    double budget = 0.2;
    // Seconds for a row of many calls, and for a row of copies whose buffers take long to make.
    double limit = 3;
    double idle = 2;
    long loop = 200000;
    size_t max_copy = size_t(1) << 30;
};

static void first_call() {
    Metric metric("first_call");
    metric.add(1e6 * metric.time(1, [] { CHECK(cudaFree(nullptr)); }));
    metric.report("us");
}

// A "call" of this row is 100 us of sleep, so that the CPU time of each in microseconds is a percentage.
static void idle(const Effort &effort) {
    if (!is_wanted("idle")) return;
    // The stack may look for work for a moment before it goes to sleep, and warms another worker.
    usleep(1200000);
    Metric metric("idle", 0, true);
    double cpu = cpu_seconds();
    double taken = metric.time(long(1e4 * effort.idle), [&] { usleep(useconds_t(1e6 * effort.idle)); });
    metric.add(100 * (cpu_seconds() - cpu) / taken);
    metric.report("%");
}

__global__ void add_one(int *value) { ++*value; }

// A number that the GPU has, for the program: alone, and once a kernel has computed it, as PyTorch's `.item()`.
static void read_back(double budget, cudaStream_t stream) {
    int *device, *pinned;
    if (!is_wanted("read_back_synchronize") && !is_wanted("launch_read_back_synchronize")) return;
    CHECK(cudaMalloc(&device, sizeof(int)));
    CHECK(cudaMemset(device, 0, sizeof(int)));
    CHECK(cudaMallocHost(&pinned, sizeof(int)));
    auto fetch = [&] {
        CHECK(cudaMemcpyAsync(pinned, device, sizeof(int), cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
    };
    latency("read_back_synchronize", 10, budget, fetch);
    int expected = -1;
    latency("launch_read_back_synchronize", 10, budget, [&] {
        add_one<<<1, 1, 0, stream>>>(device);
        fetch();
        if (expected >= 0 && *pinned != expected) {
            fprintf(stderr, "launch_read_back_synchronize: read %d, not %d\n", *pinned, expected);
            exit(1);
        }
        expected = *pinned + 1;
    });
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(device));
}

static void calls(const Effort &effort) {
    double budget = effort.budget;
    cudaStream_t stream;
    cudaEvent_t event;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaEventCreate(&event));
    int device;
    latency("cudaGetDevice", 1000, budget, [&] { CHECK(cudaGetDevice(&device)); });
    latency("cudaMemGetInfo", 10, budget, [] {
        size_t free_bytes, total_bytes;
        CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    });
    latency("cudaDeviceSynchronize_idle", 100, budget, synchronize);
    std::vector<void *> blocks;
    latency("cudaMalloc_4KiB", 100, budget, [&] {
        void *block;
        CHECK(cudaMalloc(&block, 4096));
        blocks.push_back(block);
    }, [&] {
        for (void *block : blocks) CHECK(cudaFree(block));
        blocks.clear();
    });
    latency("cudaMalloc_cudaFree_1MiB", 10, budget, [] {
        void *block;
        CHECK(cudaMalloc(&block, 1 << 20));
        CHECK(cudaFree(block));
    });
    // Without a synchronisation, which has the pool give its memory back.
    latency("cudaMallocAsync_cudaFreeAsync_1MiB", 10, budget, [&] {
        void *block;
        CHECK(cudaMallocAsync(&block, 1 << 20, stream));
        CHECK(cudaFreeAsync(block, stream));
    });
    latency("cudaMallocHost_cudaFreeHost_4MiB", 1, budget, [] {
        void *block;
        CHECK(cudaMallocHost(&block, 4 << 20));
        CHECK(cudaFreeHost(block));
    });
    latency("cudaMalloc_cudaFree_64MiB", 1, budget, [] {
        void *block;
        CHECK(cudaMalloc(&block, 64 << 20));
        CHECK(cudaFree(block));
    });
    latency("launch", 200, budget, [] { empty<<<1, 1>>>(); }, synchronize);
    latency("launch_synchronize", 10, budget, [&] {
        empty<<<1, 1>>>();
        synchronize();
    });
    latency("launch_stream_synchronize", 10, budget, [&] {
        empty<<<1, 1, 0, stream>>>();
        CHECK(cudaStreamSynchronize(stream));
    });
    latency("launch_event_synchronize", 10, budget, [&] {
        empty<<<1, 1, 0, stream>>>();
        CHECK(cudaEventRecord(event, stream));
        CHECK(cudaEventSynchronize(event));
    });
    read_back(budget, stream);
    handed_over(budget);
    sustained("launch_loop", 0, effort.loop / 2, effort.limit, [] { empty<<<1, 1>>>(); }, synchronize);
    latency("cudaEventRecord", 100, budget, [&] { CHECK(cudaEventRecord(event, stream)); }, synchronize);
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
    CHECK(cudaEventDestroy(event));
    CHECK(cudaStreamDestroy(stream));
}

// A graph of 100 empty kernels, captured; null and the reason if there is none here.
static cudaGraph_t graph_of_kernels(const char **reason) {
    cudaStream_t stream;
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamCreate(&stream));
    cudaError_t error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    if (error == cudaSuccess) {
        for (int i = 0; i < 100; i++) empty<<<1, 1, 0, stream>>>();
        error = cudaStreamEndCapture(stream, &graph);
    }
    *reason = cudaGetErrorName(error);
    cudaGetLastError();
    CHECK(cudaStreamDestroy(stream));
    return error == cudaSuccess ? graph : nullptr;
}

static void graphs(const Effort &effort) {
    const char *reason;
    cudaGraph_t graph = graph_of_kernels(&reason);
    cudaGraphExec_t exec = nullptr;
    if (graph) {
        cudaError_t error = cudaGraphInstantiate(&exec, graph, 0);
        reason = cudaGetErrorName(error);
        cudaGetLastError();
    }
    if (!exec) {
        skip("graph_100", reason);
        return;
    }
    std::vector<cudaGraphExec_t> made;
    latency("graph_100_instantiate", 1, effort.budget, [&] {
        cudaGraphExec_t another;
        CHECK(cudaGraphInstantiate(&another, graph, 0));
        made.push_back(another);
    }, [&] {
        for (cudaGraphExec_t one : made) CHECK(cudaGraphExecDestroy(one));
        made.clear();
    });
    latency("graph_100_launch", 5, effort.budget, [&] { CHECK(cudaGraphLaunch(exec, 0)); }, synchronize);
    latency("graph_100_launch_synchronize", 1, effort.budget, [&] {
        CHECK(cudaGraphLaunch(exec, 0));
        synchronize();
    });
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

// So often a buffer has come before, when it is measured as one that comes again.
const int kOften = 60;

// Copies between `host()` and the device for about the budget: latency up to 64 KiB, bandwidth above, until the
// device is done, after `before` copies that do not count. With `fresh` the buffer is made anew, untimed, for each copy.
static void copies(const Effort &effort, const char *name, size_t bytes, void *device, cudaMemcpyKind kind,
                   const std::function<void *()> &host, bool fresh, int before) {
    if (!is_wanted(name)) return;
    Metric metric(name, bytes);
    if (fresh) metric.mixed();
    bool small = bytes <= 65536;
    int batch = small ? 10 : 1;
    auto copy = [&](void *at) {
        bool to_device = kind == cudaMemcpyHostToDevice;
        CHECK(cudaMemcpy(to_device ? device : at, to_device ? at : device, bytes, kind));
    };
    auto begin = Clock::now();
    for (int i = 0; i < before && (i < 1 || seconds(begin) < effort.limit); i++) {
        copy(host());
        synchronize();
        metric.uncounted(1);
    }
    begin = Clock::now();
    auto go_on = [&] {
        double taken = seconds(begin);
        if (metric.samples() < 9) return metric.samples() < 1 || taken < effort.limit;
        return taken < effort.budget && metric.samples() < 1000;
    };
    while (go_on()) {
        void *at = host();
        double taken = metric.time(batch, [&] {
            for (int i = 0; i < batch; i++) copy(at);
            if (!small) synchronize();
        });
        // Short copies to the device may return before they are made; what a row of them costs has a row of its own.
        if (small) synchronize();
        metric.add(small ? 1e6 * taken / batch : 1e-9 * bytes / taken);
    }
    if (small) {
        begin = Clock::now();
        for (int i = 0; i < 2000 && seconds(begin) < effort.budget / 2; i++) metric.time_single([&] { copy(host()); });
    }
    metric.report(small ? "us" : "GB/s");
}

static void copies_both_ways(const Effort &effort, const char *kind, size_t bytes, void *device,
                             const std::function<void *()> &host, bool fresh = false, int before = 1) {
    std::string to = std::string("copy_h2d_") + kind, from = std::string("copy_d2h_") + kind;
    copies(effort, to.c_str(), bytes, device, cudaMemcpyHostToDevice, host, fresh, fresh ? 0 : before);
    copies(effort, from.c_str(), bytes, device, cudaMemcpyDeviceToHost, host, fresh, fresh ? 0 : before);
}

static void bandwidth(const Effort &effort) {
    const size_t sizes[] = {64, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20, size_t(1) << 30};
    const size_t max_pinned = std::min<size_t>(effort.max_copy, size_t(256) << 20);
    void *device = nullptr, *pinned = nullptr;
    CHECK(cudaMalloc(&device, effort.max_copy));
    if (cudaMallocHost(&pinned, max_pinned) != cudaSuccess) {
        skip("copy_pinned", cudaGetErrorName(cudaGetLastError()));
        pinned = nullptr;
    }
    for (size_t bytes : sizes) {
        if (bytes > effort.max_copy) break;
        std::unique_ptr<Buffer> buffer;
        auto again = [&] {
            if (!buffer) buffer = std::make_unique<Buffer>(Memory::scattered, bytes);
            return buffer->get();
        };
        if (bytes >= 1 << 20) {
            auto fresh = [&] {
                buffer.reset();
                buffer = std::make_unique<Buffer>(Memory::scattered, bytes);
                return buffer->get();
            };
            copies_both_ways(effort, "pageable", bytes, device, fresh, true);
            copies_both_ways(effort, "pageable_again", bytes, device, again, false, kOften);
        } else {
            buffer = std::make_unique<Buffer>(Memory::scattered, bytes);
            copies_both_ways(effort, "pageable", bytes, device, again);
        }
        if (bytes >= 1 << 20 && Buffer::has_huge()) {
            auto fresh = [&] {
                buffer.reset();
                buffer = std::make_unique<Buffer>(Memory::huge, bytes);
                return buffer->get();
            };
            copies_both_ways(effort, "pageable_huge", bytes, device, fresh, true);
            if (bytes != 256 << 20) copies_both_ways(effort, "pageable_huge_again", bytes, device, again, false, kOften);
        }
        if (bytes != 256 << 20) {
            buffer.reset();
            buffer = std::make_unique<Buffer>(Memory::heap, bytes);
            copies_both_ways(effort, "heap", bytes, device, again);
        }
        if (pinned && bytes <= max_pinned) copies_both_ways(effort, "pinned", bytes, device, [&] { return pinned; });
    }
    Buffer source(Memory::scattered, 4096);
    sustained("copy_h2d_pageable_loop", 4096, effort.loop, effort.limit,
              [&] { CHECK(cudaMemcpy(device, source.get(), 4096, cudaMemcpyHostToDevice)); }, synchronize);
    if (pinned) CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(device));
}

int main(int argc, char **argv) {
    Effort effort;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--first-call")) {
            first_call();
            return 0;
        } else if (!strcmp(argv[i], "--quick")) {
            effort = {0.02, 0.2, 0.3, 2000, 1 << 20};
        } else if (!strcmp(argv[i], "--metric") && i + 1 < argc) {
            selection().push_back(argv[++i]);
        } else if (!strcmp(argv[i], "--max-copy") && i + 1 < argc) {
            effort.max_copy = strtoull(argv[++i], nullptr, 0);
        } else {
            fprintf(stderr, "usage: %s [--quick] [--max-copy BYTES] [--metric BEGINNING]… | --first-call\n", argv[0]);
            return 2;
        }
    }
    cudaDeviceProp properties;
    int driver;
    CHECK(cudaGetDeviceProperties(&properties, 0));
    CHECK(cudaDriverGetVersion(&driver));
    printf("{\"device\":\"%s\",\"driver\":%d}\n", properties.name, driver);
    empty<<<1, 1>>>();
    synchronize();
    idle(effort);
    calls(effort);
    graphs(effort);
    threads(effort.loop, effort.limit);
    libraries(effort.budget, effort.loop / 2, effort.limit);
    if (effort.max_copy >= 256 << 20) {
        managed(1 << 30, 1 << 30, 20, 5);
    } else {
        managed(16 << 20, 16 << 20, 2, 3);
    }
    bandwidth(effort);
    return 0;
}
