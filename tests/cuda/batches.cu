// SPDX-License-Identifier: Apache-2.0 OR MIT
// Copies in batches whose sources the program overwrites as soon as it may: after the call, or after the stream's work.
#include "check.h"

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

static const size_t ROOM = 1 << 20;
static const size_t LENGTHS[] = {1, 100, 4096, 60001, 300007};
// NVIDIA's driver 580 reads longer pageable sources when the stream comes to them, whatever their attribute says.
static const size_t LONGEST_PAGEABLE = 1 << 16;

static void delay(void *) { std::this_thread::sleep_for(std::chrono::milliseconds(100)); }

struct Writer {
    unsigned char *memory;
};
static void write_late(void *data) {
    delay(nullptr);
    std::memset(static_cast<Writer *>(data)->memory, 0x77, ROOM);
}

struct Batch {
    std::vector<void *> to;
    std::vector<const void *> from;
    std::vector<size_t> bytes, begins;
    std::vector<cudaMemcpyAttributes> attributes;

    void order(cudaMemcpySrcAccessOrder access) {
        cudaMemcpyAttributes attribute = {};
        attribute.srcAccessOrder = access;
        begins.push_back(to.size());
        attributes.push_back(attribute);
    }
    void put(void *target, const void *source, size_t length) {
        to.push_back(target);
        from.push_back(source);
        bytes.push_back(length);
    }
    cudaError_t run(cudaStream_t stream) {
        return cudaMemcpyBatchAsync(to.data(), from.data(), bytes.data(), to.size(), attributes.data(), begins.data(),
                                    attributes.size(), stream);
    }
};

static cudaStream_t stream;
static unsigned char *target;

static void fill(unsigned char *memory, int seed) {
    for (size_t i = 0; i < ROOM; i++) {
        memory[i] = static_cast<unsigned char>(i * 31 + (i >> 8) + seed);
    }
}

// The number of wrong bytes of the copies of `LENGTHS`, which are side by side.
static size_t wrong(int seed, size_t longest) {
    std::vector<unsigned char> back(ROOM);
    CHECK(cudaMemcpyAsync(back.data(), target, ROOM, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    size_t at = 0, count = 0;
    for (const size_t length : LENGTHS) {
        if (length > longest) {
            break;
        }
        for (size_t i = at; i < at + length; i++) {
            count += back[i] != static_cast<unsigned char>(i * 31 + (i >> 8) + seed);
        }
        at += length;
    }
    return count;
}

// The source may be overwritten when the call returns, although the stream has not come to the copies.
static void during_the_call(const char *name, unsigned char *source, size_t longest) {
    fill(source, 1);
    CHECK(cudaMemset(target, 0, ROOM));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaLaunchHostFunc(stream, delay, nullptr));
    Batch batch;
    // Each attribute begins where it says.
    batch.order(cudaMemcpySrcAccessOrderAny);
    batch.put(target + ROOM / 2, target, 16);
    batch.order(cudaMemcpySrcAccessOrderDuringApiCall);
    size_t at = 0;
    for (const size_t length : LENGTHS) {
        if (length > longest) {
            break;
        }
        batch.put(target + at, source + at, length);
        at += length;
    }
    CHECK(batch.run(stream));
    std::memset(source, 0xee, ROOM);
    std::printf("%s: %zu wrong\n", name, wrong(1, longest));
}

static void boxes(const char *name, unsigned char *source) {
    fill(source, 2);
    CHECK(cudaMemset(target, 0, ROOM));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaLaunchHostFunc(stream, delay, nullptr));
    cudaMemcpy3DBatchOp op = {};
    const auto end = [](void *memory) {
        cudaMemcpy3DOperand operand = {};
        operand.type = cudaMemcpyOperandTypePointer;
        operand.op.ptr.ptr = memory;
        operand.op.ptr.rowLength = 1000;
        operand.op.ptr.layerHeight = 20;
        return operand;
    };
    op.src = end(source);
    op.dst = end(target);
    op.extent = make_cudaExtent(900, 10, 8);
    op.srcAccessOrder = cudaMemcpySrcAccessOrderDuringApiCall;
    CHECK(cudaMemcpy3DBatchAsync(1, &op, 0, stream));
    std::memset(source, 0xee, ROOM);
    std::vector<unsigned char> back(ROOM);
    CHECK(cudaMemcpyAsync(back.data(), target, ROOM, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    size_t count = 0;
    for (size_t z = 0; z < 8; z++) {
        for (size_t y = 0; y < 10; y++) {
            for (size_t x = 0; x < 900; x++) {
                const size_t i = (z * 20 + y) * 1000 + x;
                count += back[i] != static_cast<unsigned char>(i * 31 + (i >> 8) + 2);
            }
        }
    }
    std::printf("%s, boxes: %zu wrong\n", name, count);
}

// Earlier work of the stream writes the source.
static void in_order(const char *name, unsigned char *source) {
    std::memset(source, 1, ROOM);
    CHECK(cudaDeviceSynchronize());
    Writer writer = {source};
    CHECK(cudaLaunchHostFunc(stream, write_late, &writer));
    Batch batch;
    batch.order(cudaMemcpySrcAccessOrderStream);
    batch.put(target, source, 100);
    batch.put(target + 100, source + 100, 200000);
    CHECK(batch.run(stream));
    std::vector<unsigned char> back(200100);
    CHECK(cudaMemcpyAsync(back.data(), target, back.size(), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    size_t count = 0;
    for (const unsigned char byte : back) {
        count += byte != 0x77;
    }
    std::printf("%s, in order: %zu wrong\n", name, count);
}

int main() {
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&target, ROOM));
    std::vector<unsigned char> pageable(ROOM);
    auto *registered = static_cast<unsigned char *>(std::aligned_alloc(4096, ROOM));
    unsigned char *pinned, *managed;
    CHECK(cudaHostRegister(registered, ROOM, cudaHostRegisterMapped));
    CHECK(cudaMallocHost(&pinned, ROOM));
    CHECK(cudaMallocManaged(&managed, ROOM));
    struct {
        const char *name;
        unsigned char *memory;
    } kinds[] = {{"pageable", pageable.data()}, {"registered", registered}, {"pinned", pinned}, {"managed", managed}};
    for (const auto &[name, memory] : kinds) {
        during_the_call(name, memory, memory == pageable.data() ? LONGEST_PAGEABLE : ROOM);
        boxes(name, memory);
        if (memory != managed) {
            in_order(name, memory);
        }
    }
    CHECK(cudaHostUnregister(registered));
    std::free(registered);
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(managed));
    CHECK(cudaFree(target));
    CHECK(cudaStreamDestroy(stream));
    return 0;
}
