// SPDX-License-Identifier: Apache-2.0 OR MIT
// Work that passes from one host thread to another, in every way that CUDA allows: the other thread's call begins once
// the first one's has returned, and nothing waits for the GPU unless the case is about that.
#include "check.h"

#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

// With --default-stream per-thread, this is `cudaMemcpy`.
extern "C" cudaError_t CUDARTAPI cudaMemcpy_ptds(void *to, const void *from, size_t bytes, cudaMemcpyKind kind);

static const int kElements = 1 << 10;
static const size_t kBytes = kElements * sizeof(unsigned);
static const int kRounds = 60;

// Each step changes the result of all later ones.
__global__ void step(unsigned *values, unsigned number) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < kElements; i += gridDim.x * blockDim.x) {
        values[i] = values[i] * 1664525u + number;
    }
}

__global__ void copy_add(unsigned *to, const unsigned *from, unsigned number) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < kElements; i += gridDim.x * blockDim.x) {
        to[i] = from[i] + number;
    }
}

static unsigned expected_step(unsigned value, unsigned number) { return value * 1664525u + number; }

// Two threads that take turns, round by round: even rounds are the first one's.
static void take_turns(int rounds, const std::function<void(int)> &body) {
    std::atomic<int> turn{0};
    auto run = [&](int parity) {
        for (int round = parity; round < rounds; round += 2) {
            while (turn.load(std::memory_order_acquire) != round) std::this_thread::yield();
            body(round);
            turn.store(round + 1, std::memory_order_release);
        }
    };
    std::thread other(run, 1);
    run(0);
    other.join();
}

struct Buffer {
    unsigned *device = nullptr;
    Buffer() {
        CHECK(cudaMalloc(&device, kBytes));
        CHECK(cudaMemset(device, 0, kBytes));
        CHECK(cudaDeviceSynchronize());
    }
    ~Buffer() { CHECK(cudaFree(device)); }
    std::vector<unsigned> read() const {
        std::vector<unsigned> host(kElements);
        CHECK(cudaMemcpy(host.data(), device, kBytes, cudaMemcpyDeviceToHost));
        return host;
    }
};

static void report(const char *name, const std::vector<unsigned> &values, unsigned expected) {
    for (unsigned value : values) {
        REQUIRE(value == expected);
    }
    std::printf("%s: %08x\n", name, expected);
}

static cudaStream_t new_stream(unsigned flags) {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, flags));
    return stream;
}

static void launch(unsigned *values, unsigned number, cudaStream_t stream) {
    step<<<2, 128, 0, stream>>>(values, number);
    CHECK(cudaGetLastError());
}

// Two threads launch into one stream.
static void shared_stream(const char *name, cudaStream_t stream) {
    Buffer buffer;
    unsigned expected = 0;
    take_turns(kRounds, [&](int round) {
        launch(buffer.device, round, stream);
        expected = expected_step(expected, round);
    });
    CHECK(cudaStreamSynchronize(stream));
    report(name, buffer.read(), expected);
}

// One thread launches, another one waits for the stream.
static void waits_for_others(const char *name, const std::function<void(cudaStream_t)> &wait) {
    Buffer buffer;
    cudaStream_t stream = new_stream(cudaStreamNonBlocking);
    unsigned *seen;
    CHECK(cudaMallocHost(&seen, kBytes));
    unsigned expected = 0;
    take_turns(kRounds, [&](int round) {
        if (round % 2 == 0) {
            for (int i = 0; i < 10; i++) {
                launch(buffer.device, round + i, stream);
                expected = expected_step(expected, round + i);
            }
            CHECK(cudaMemcpyAsync(seen, buffer.device, kBytes, cudaMemcpyDeviceToHost, stream));
        } else {
            wait(stream);
            REQUIRE(seen[0] == expected && seen[kElements - 1] == expected);
        }
    });
    CHECK(cudaFreeHost(seen));
    CHECK(cudaStreamDestroy(stream));
    report(name, buffer.read(), expected);
}

// Each thread has a stream of its own; an event leads from one to the other.
static void events_across_threads(bool fresh) {
    Buffer buffer;
    cudaStream_t streams[2] = {new_stream(cudaStreamNonBlocking), new_stream(cudaStreamNonBlocking)};
    cudaEvent_t event = nullptr;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    unsigned expected = 0;
    take_turns(kRounds, [&](int round) {
        cudaStream_t stream = streams[round % 2];
        CHECK(cudaStreamWaitEvent(stream, event, 0));
        for (int i = 0; i < 5; i++) {
            launch(buffer.device, round + i, stream);
            expected = expected_step(expected, round + i);
        }
        if (fresh) {
            // The other thread made it.
            CHECK(cudaEventDestroy(event));
            CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        }
        CHECK(cudaEventRecord(event, stream));
    });
    CHECK(cudaEventSynchronize(event));
    CHECK(cudaEventDestroy(event));
    for (cudaStream_t stream : streams) CHECK(cudaStreamDestroy(stream));
    report(fresh ? "event made and destroyed by others" : "event across threads", buffer.read(), expected);
}

// One thread records, another one asks.
static void query_by_others() {
    Buffer buffer;
    cudaStream_t stream = new_stream(cudaStreamNonBlocking);
    cudaEvent_t event;
    CHECK(cudaEventCreate(&event));
    unsigned *seen;
    CHECK(cudaMallocHost(&seen, kBytes));
    unsigned expected = 0;
    take_turns(kRounds, [&](int round) {
        if (round % 2 == 0) {
            launch(buffer.device, round, stream);
            expected = expected_step(expected, round);
            CHECK(cudaMemcpyAsync(seen, buffer.device, kBytes, cudaMemcpyDeviceToHost, stream));
            CHECK(cudaEventRecord(event, stream));
        } else {
            cudaError_t ready;
            while ((ready = cudaEventQuery(event)) == cudaErrorNotReady) std::this_thread::yield();
            CHECK(ready);
            REQUIRE(seen[kElements / 2] == expected);
        }
    });
    CHECK(cudaFreeHost(seen));
    CHECK(cudaEventDestroy(event));
    CHECK(cudaStreamDestroy(stream));
    report("event queried by others", buffer.read(), expected);
}

// Streams are created by one thread, used by another one and destroyed by the first one.
static void stream_of_others() {
    Buffer buffer;
    cudaStream_t stream = nullptr;
    unsigned expected = 0;
    take_turns(2 * kRounds, [&](int round) {
        switch (round % 4) {
        case 0: stream = new_stream(round % 8 == 0 ? cudaStreamNonBlocking : cudaStreamDefault); break;
        case 1:
        case 2:
            for (int i = 0; i < 5; i++) {
                launch(buffer.device, round + i, stream);
                expected = expected_step(expected, round + i);
            }
            break;
        default:
            CHECK(cudaStreamSynchronize(stream));
            CHECK(cudaStreamDestroy(stream));
        }
    });
    report("streams of others", buffer.read(), expected);
}

// Memory is allocated by one thread, filled by the other one and freed by the first one.
static void memory_of_others(bool in_stream_order) {
    cudaStream_t stream = new_stream(cudaStreamNonBlocking);
    unsigned *memory = nullptr;
    unsigned last = 0;
    std::vector<unsigned> host(kElements);
    take_turns(kRounds, [&](int round) {
        if (round % 2 == 0) {
            if (memory) {
                CHECK(in_stream_order ? cudaFreeAsync(memory, stream) : cudaFree(memory));
            }
            CHECK(in_stream_order ? cudaMallocAsync(&memory, kBytes, stream) : cudaMalloc(&memory, kBytes));
            CHECK(cudaMemsetAsync(memory, 0, kBytes, stream));
        } else {
            for (int i = 0; i < 4; i++) launch(memory, round + i, stream);
            last = 0;
            for (int i = 0; i < 4; i++) last = expected_step(last, round + i);
            if (round == kRounds - 1) {
                CHECK(cudaMemcpyAsync(host.data(), memory, kBytes, cudaMemcpyDeviceToHost, stream));
            }
        }
    });
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaFree(memory));
    CHECK(cudaStreamDestroy(stream));
    report(in_stream_order ? "memory of others in stream order" : "memory of others", host, last);
}

// Copies that count as done when they return, seen by kernels of any stream, of another thread or of their own. There are
// many, so that the last one is late wherever it only follows the others.
static void copies_seen(const char *name, decltype(cudaMemcpy) *copy, bool by_others) {
    const int copies = 16;
    Buffer from, to;
    cudaStream_t stream = new_stream(cudaStreamNonBlocking);
    std::vector<unsigned> host(kElements);
    unsigned expected = 0;
    auto send = [&](int round) {
        for (int i = copies; i-- > 0;) {
            host.assign(kElements, round * 7919u + i);
            CHECK(copy(from.device, host.data(), kBytes, cudaMemcpyHostToDevice));
            host.assign(kElements, 0);
        }
    };
    auto look = [&](int round) {
        copy_add<<<2, 128, 0, stream>>>(to.device, from.device, round);
        CHECK(cudaGetLastError());
        CHECK(cudaStreamSynchronize(stream));
        expected = (round - 1) * 7919u + round;
        REQUIRE(to.read()[kElements - 1] == expected);
    };
    if (by_others) {
        take_turns(kRounds, [&](int round) { round % 2 == 0 ? send(round) : look(round); });
    } else {
        for (int round = 0; round < kRounds; round++) round % 2 == 0 ? send(round) : look(round);
    }
    CHECK(cudaStreamDestroy(stream));
    report(name, to.read(), expected);
}

// The legacy default stream comes after blocking streams of all threads, and before them.
static void legacy_and_blocking() {
    Buffer buffer;
    cudaStream_t streams[2] = {new_stream(cudaStreamDefault), new_stream(cudaStreamDefault)};
    unsigned expected = 0;
    take_turns(kRounds, [&](int round) {
        // Thread 0: legacy, stream 0, legacy, …; thread 1 in between: stream 1, legacy, …
        cudaStream_t stream = round % 2 == 0 ? (round % 4 == 0 ? cudaStreamLegacy : streams[0])
                                             : (round % 4 == 1 ? streams[1] : cudaStreamLegacy);
        if (round % 4 == 2) {
            // Two blocking streams have no order between them.
            CHECK(cudaStreamSynchronize(streams[1]));
        }
        for (int i = 0; i < 3; i++) {
            launch(buffer.device, round + i, stream);
            expected = expected_step(expected, round + i);
        }
    });
    CHECK(cudaDeviceSynchronize());
    for (cudaStream_t stream : streams) CHECK(cudaStreamDestroy(stream));
    report("legacy default stream", buffer.read(), expected);
}

// Each thread's own default stream, with the legacy one in between.
static void per_thread_and_legacy() {
    Buffer buffer;
    unsigned expected = 0;
    take_turns(kRounds, [&](int round) {
        launch(buffer.device, round, cudaStreamPerThread);
        launch(buffer.device, round + 1, cudaStreamLegacy);
        expected = expected_step(expected_step(expected, round), round + 1);
    });
    CHECK(cudaDeviceSynchronize());
    report("default streams per thread", buffer.read(), expected);
}

// One thread's work, and the other one waits for the device.
static void device_synchronize() {
    waits_for_others("device synchronised by others", [](cudaStream_t) { CHECK(cudaDeviceSynchronize()); });
    waits_for_others("stream synchronised by others", [](cudaStream_t stream) { CHECK(cudaStreamSynchronize(stream)); });
    waits_for_others("stream queried by others", [](cudaStream_t stream) {
        cudaError_t ready;
        while ((ready = cudaStreamQuery(stream)) == cudaErrorNotReady) std::this_thread::yield();
        CHECK(ready);
    });
}

// An executable graph is launched by both threads, in one stream and in two with an event between them.
static void graphs() {
    Buffer buffer;
    cudaStream_t streams[2] = {new_stream(cudaStreamNonBlocking), new_stream(cudaStreamNonBlocking)};
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeThreadLocal));
    launch(buffer.device, 3, streams[0]);
    launch(buffer.device, 4, streams[0]);
    CHECK(cudaStreamEndCapture(streams[0], &graph));
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    cudaEvent_t event;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    unsigned expected = 0;
    take_turns(kRounds, [&](int round) {
        cudaStream_t stream = streams[round < kRounds / 2 ? 0 : round % 2];
        CHECK(cudaStreamWaitEvent(stream, event, 0));
        CHECK(cudaGraphLaunch(exec, stream));
        launch(buffer.device, round, stream);
        CHECK(cudaEventRecord(event, stream));
        expected = expected_step(expected_step(expected_step(expected, 3), 4), round);
    });
    CHECK(cudaDeviceSynchronize());
    report("graph launched by two threads", buffer.read(), expected);

    // A graph that records an event, for which the other thread waits.
    cudaGraph_t recording;
    CHECK(cudaGraphCreate(&recording, 0));
    cudaGraphNode_t child, node;
    CHECK(cudaGraphAddChildGraphNode(&child, recording, nullptr, 0, graph));
    CHECK(cudaGraphAddEventRecordNode(&node, recording, &child, 1, event));
    cudaGraphExec_t recorder;
    CHECK(cudaGraphInstantiate(&recorder, recording, 0));
    unsigned *seen;
    CHECK(cudaMallocHost(&seen, kBytes));
    take_turns(kRounds, [&](int round) {
        if (round % 2 == 0) {
            CHECK(cudaGraphLaunch(recorder, streams[0]));
            expected = expected_step(expected_step(expected, 3), 4);
        } else {
            CHECK(cudaStreamWaitEvent(streams[1], event, 0));
            CHECK(cudaMemcpyAsync(seen, buffer.device, kBytes, cudaMemcpyDeviceToHost, streams[1]));
            CHECK(cudaStreamSynchronize(streams[1]));
            REQUIRE(seen[1] == expected);
        }
    });
    report("event recorded by a graph", buffer.read(), expected);
    CHECK(cudaFreeHost(seen));
    CHECK(cudaGraphExecDestroy(recorder));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(recording));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaEventDestroy(event));
    for (cudaStream_t stream : streams) CHECK(cudaStreamDestroy(stream));
}

// Functions of the program in a stream to which both threads add work.
static void callbacks() {
    Buffer buffer;
    cudaStream_t stream = new_stream(cudaStreamNonBlocking);
    struct Seen {
        unsigned *mapped;
        std::atomic<int> count{0};
        std::atomic<int> wrong{0};
        std::vector<unsigned> expected;
    } seen;
    CHECK(cudaMallocHost(&seen.mapped, kBytes));
    seen.expected.resize(kRounds);
    unsigned expected = 0;
    take_turns(kRounds, [&](int round) {
        expected = expected_step(expected, round);
        seen.expected[round] = expected;
        launch(buffer.device, round, stream);
        CHECK(cudaMemcpyAsync(seen.mapped, buffer.device, kBytes, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaLaunchHostFunc(
            stream,
            [](void *data) {
                Seen &seen = *static_cast<Seen *>(data);
                const int at = seen.count.load();
                if (seen.mapped[0] != seen.expected[at]) seen.wrong++;
                seen.count++;
            },
            &seen));
    });
    CHECK(cudaStreamSynchronize(stream));
    REQUIRE(seen.count == kRounds && seen.wrong == 0);
    CHECK(cudaFreeHost(seen.mapped));
    CHECK(cudaStreamDestroy(stream));
    report("functions in a shared stream", buffer.read(), expected);
}

// Threads that end: the next one has the work of the last one before it.
static void threads_that_end() {
    Buffer buffer;
    cudaStream_t stream = new_stream(cudaStreamNonBlocking);
    unsigned expected = 0;
    for (int round = 0; round < kRounds; round++) {
        std::thread([&] {
            for (int i = 0; i < 3; i++) launch(buffer.device, round + i, stream);
        }).join();
        for (int i = 0; i < 3; i++) expected = expected_step(expected, round + i);
        launch(buffer.device, round, stream);
        expected = expected_step(expected, round);
    }
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaStreamDestroy(stream));
    report("threads that end", buffer.read(), expected);
}

// A ring of threads and streams, each after the one before it: chains over many lanes.
static void ring_of_threads() {
    const int threads = 6;
    Buffer buffer;
    std::vector<cudaEvent_t> events(threads);
    for (cudaEvent_t &event : events) CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    std::atomic<int> turn{0};
    auto run = [&](int index) {
        cudaStream_t stream = new_stream(cudaStreamNonBlocking);
        for (int round = index; round < threads * 20; round += threads) {
            while (turn.load(std::memory_order_acquire) != round) std::this_thread::yield();
            CHECK(cudaStreamWaitEvent(stream, events[(index + threads - 1) % threads], 0));
            launch(buffer.device, round, stream);
            CHECK(cudaEventRecord(events[index], stream));
            turn.store(round + 1, std::memory_order_release);
        }
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaStreamDestroy(stream));
    };
    std::vector<std::thread> all;
    for (int index = 0; index < threads; index++) all.emplace_back(run, index);
    for (std::thread &thread : all) thread.join();
    for (cudaEvent_t event : events) CHECK(cudaEventDestroy(event));
    unsigned expected = 0;
    for (int round = 0; round < threads * 20; round++) expected = expected_step(expected, round);
    report("ring of threads", buffer.read(), expected);
}

int main() {
    CHECK(cudaFree(nullptr));
    for (unsigned flags : {unsigned(cudaStreamDefault), unsigned(cudaStreamNonBlocking)}) {
        cudaStream_t stream = new_stream(flags);
        shared_stream(flags ? "shared stream" : "shared blocking stream", stream);
        CHECK(cudaStreamDestroy(stream));
    }
    shared_stream("shared legacy stream", cudaStreamLegacy);
    device_synchronize();
    events_across_threads(false);
    events_across_threads(true);
    query_by_others();
    stream_of_others();
    memory_of_others(false);
    memory_of_others(true);
    copies_seen("copies seen by others", cudaMemcpy, true);
    copies_seen("copies seen by other streams", cudaMemcpy, false);
    copies_seen("copies of default streams per thread", cudaMemcpy_ptds, true);
    legacy_and_blocking();
    per_thread_and_legacy();
    graphs();
    callbacks();
    threads_that_end();
    ring_of_threads();
    CHECK(cudaGetLastError());
    return 0;
}
