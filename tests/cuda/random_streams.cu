// SPDX-License-Identifier: Apache-2.0 OR MIT
// Random work on a few buffers in several streams, by one thread and by several that take turns. A model on the host
// knows what each buffer holds. Where the streams synchronise with each other implicitly, nothing else orders the work.
#include "check.h"

#include <algorithm>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

constexpr int ELEMENTS = 64;
constexpr size_t BYTES = ELEMENTS * sizeof(int);
constexpr int STEPS = 1000;
using Values = std::vector<int>;

__global__ void change(int *values, int add, int delay) {
    unsigned number = 1;
    for (int i = 0; i < delay; i++) number = number * 1664525u + 1013904223u;
    for (int i = threadIdx.x; i < ELEMENTS; i += blockDim.x) values[i] = values[i] * 3 + add + (number == 0);
}

enum Kind { DEVICE, POOLED, MANAGED, PINNED, KINDS };

struct Stream {
    enum { LEGACY, BLOCKING, NON_BLOCKING } kind;
    cudaStream_t handle;
};

struct Buffer {
    Kind kind;
    int *memory;
    Values values;
    cudaEvent_t last;
    const Stream *stream;
    std::string story;
};

static int *allocate(Kind kind, cudaStream_t stream) {
    int *memory = nullptr;
    switch (kind) {
    case DEVICE: CHECK(cudaMalloc(&memory, BYTES)); break;
    case POOLED: CHECK(cudaMallocAsync(&memory, BYTES, stream)); break;
    case MANAGED: CHECK(cudaMallocManaged(&memory, BYTES)); break;
    default: CHECK(cudaMallocHost(&memory, BYTES));
    }
    return memory;
}

static void release(Kind kind, int *memory, cudaStream_t stream) {
    switch (kind) {
    case POOLED: CHECK(cudaFreeAsync(memory, stream)); break;
    case PINNED: CHECK(cudaFreeHost(memory)); break;
    default: CHECK(cudaFree(memory));
    }
}

class Work {
  public:
    Work() {
        streams.push_back({Stream::LEGACY, nullptr});
        for (int i = 0; i < 5; i++) {
            const bool blocks = i < 3;
            cudaStream_t handle;
            CHECK(cudaStreamCreateWithFlags(&handle, blocks ? cudaStreamDefault : cudaStreamNonBlocking));
            streams.push_back({blocks ? Stream::BLOCKING : Stream::NON_BLOCKING, handle});
        }
        for (int i = 0; i < 6; i++) {
            Buffer buffer = {Kind(i % KINDS), nullptr, Values(ELEMENTS), nullptr, &streams[0], ""};
            buffer.memory = allocate(buffer.kind, nullptr);
            CHECK(cudaMemset(buffer.memory, 0, BYTES));
            CHECK(cudaEventCreateWithFlags(&buffer.last, cudaEventDisableTiming));
            CHECK(cudaEventRecord(buffer.last, nullptr));
            buffers.push_back(buffer);
        }
        CHECK(cudaDeviceSynchronize());
    }

    ~Work() {
        CHECK(cudaDeviceSynchronize());
        for (Buffer &buffer : buffers) {
            Values now(ELEMENTS);
            CHECK(cudaMemcpy(now.data(), buffer.memory, BYTES, cudaMemcpyDefault));
            compare(buffer, now);
            release(buffer.kind, buffer.memory, nullptr);
            CHECK(cudaEventDestroy(buffer.last));
        }
        for (const Stream &stream : streams) {
            if (stream.handle) CHECK(cudaStreamDestroy(stream.handle));
        }
        CHECK(cudaDeviceSynchronize());
    }

    void run(unsigned seed) {
        std::mt19937 random(seed);
        for (int step = 0; step < STEPS; step++) {
            std::lock_guard<std::mutex> turn(mutex);
            this->step(random);
        }
    }

  private:
    void step(std::mt19937 &random) {
        auto below = [&](unsigned limit) { return int(random() % limit); };
        const Stream &stream = streams[below(streams.size())], &legacy = streams[0];
        Buffer &buffer = buffers[below(buffers.size())], &other = buffers[below(buffers.size())];
        Values page(ELEMENTS);
        for (int &value : page) value = int(random());
        switch (below(9)) {
        case 0: // Memory of the program to the buffer, in the order of a stream.
            before(buffer, stream);
            CHECK(cudaMemcpyAsync(buffer.memory, page.data(), BYTES, cudaMemcpyDefault, stream.handle));
            if (buffer.kind >= MANAGED) CHECK(cudaStreamSynchronize(stream.handle));
            return after(buffer, stream, page, "from the program");
        case 1: {
            const int byte = below(256);
            before(buffer, stream);
            CHECK(cudaMemsetAsync(buffer.memory, byte, BYTES, stream.handle));
            return after(buffer, stream, Values(ELEMENTS, byte * 0x01010101), "fill");
        }
        case 2:
            if (&buffer != &other) copy(buffer, other, stream, false);
            return;
        case 3:
            if (&buffer != &other) copy(buffer, other, legacy, true);
            return;
        case 4:
            before(buffer, legacy);
            CHECK(cudaMemcpy(buffer.memory, page.data(), BYTES, cudaMemcpyDefault));
            return after(buffer, legacy, page, "from the program at once");
        case 5:
            before(buffer, legacy);
            CHECK(cudaMemcpy(page.data(), buffer.memory, BYTES, cudaMemcpyDefault));
            compare(buffer, page);
            return after(buffer, legacy, page, "read at once");
        case 6:
            before(buffer, stream);
            CHECK(cudaMemcpyAsync(page.data(), buffer.memory, BYTES, cudaMemcpyDefault, stream.handle));
            CHECK(cudaStreamSynchronize(stream.handle));
            compare(buffer, page);
            if (below(3) == 0 && buffer.kind != PINNED) {
                release(buffer.kind, buffer.memory, stream.handle);
                buffer.memory = allocate(buffer.kind, stream.handle);
                CHECK(cudaMemsetAsync(buffer.memory, 1, BYTES, stream.handle));
                page.assign(ELEMENTS, 0x01010101);
            }
            return after(buffer, stream, page, "read");
        default: {
            const int add = below(100), delay = below(4) == 0 ? 20000 : 0;
            before(buffer, stream);
            change<<<1, 32, 0, stream.handle>>>(buffer.memory, add, delay);
            CHECK(cudaGetLastError());
            Values changed = buffer.values;
            for (int &value : changed) value = int(unsigned(value) * 3 + unsigned(add));
            return after(buffer, stream, changed, "kernel");
        }
        }
    }

    void copy(Buffer &dst, Buffer &src, const Stream &stream, bool at_once) {
        before(dst, stream);
        before(src, stream, !at_once && src.kind == PINNED);
        if (at_once) {
            CHECK(cudaMemcpy(dst.memory, src.memory, BYTES, cudaMemcpyDefault));
        } else {
            CHECK(cudaMemcpyAsync(dst.memory, src.memory, BYTES, cudaMemcpyDefault, stream.handle));
        }
        after(dst, stream, src.values, at_once ? "copy at once" : "copy");
        after(src, stream, src.values, "read by a copy");
    }

    // Makes the stream wait for the last use of the buffer, unless it does so by itself. A short asynchronous copy from pinned
    // memory does not if it is `read_early`: NVIDIA's driver reads it at once if nothing is queued in the copy's own stream.
    void before(const Buffer &buffer, const Stream &stream, bool read_early = false) {
        const int kinds[] = {std::min(buffer.stream->kind, stream.kind), std::max(buffer.stream->kind, stream.kind)};
        const bool implicit = !read_early && kinds[0] == Stream::LEGACY && kinds[1] == Stream::BLOCKING;
        if (buffer.stream != &stream && !implicit) CHECK(cudaStreamWaitEvent(stream.handle, buffer.last, 0));
    }

    void after(Buffer &buffer, const Stream &stream, const Values &values, const char *what) {
        buffer.values = values;
        CHECK(cudaEventRecord(buffer.last, stream.handle));
        buffer.stream = &stream;
        const auto place = &stream - &streams[0];
        buffer.story += std::string(what) + ", stream " + std::to_string(place) + ": " + std::to_string(values[0]) + "\n";
    }

    static void compare(const Buffer &buffer, const Values &now) {
        if (now == buffer.values) return;
        const size_t length = std::min<size_t>(buffer.story.size(), 1000);
        std::fprintf(stderr, "memory of kind %d has %d after:\n%s", buffer.kind, now[0],
                     buffer.story.substr(buffer.story.size() - length).c_str());
        std::exit(1);
    }

    std::vector<Stream> streams;
    std::vector<Buffer> buffers;
    std::mutex mutex;
};

int main() {
    for (int threads : {1, 4}) {
        for (unsigned seed = 1; seed <= 4; seed++) {
            Work work;
            std::vector<std::thread> others;
            for (int i = 0; i < threads; i++) others.emplace_back([&work, seed, i] { work.run(10 * seed + i); });
            for (std::thread &other : others) other.join();
        }
        std::printf("%d threads: right\n", threads);
    }
    return 0;
}
