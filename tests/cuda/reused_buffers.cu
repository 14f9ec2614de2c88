// SPDX-License-Identifier: Apache-2.0 OR MIT
// Ordinary buffers that are copied again and again, while the program changes what lies at their addresses: by
// munmap, mremap, madvise, mprotect and fork. Every copy must use the pages that are there when it begins.
#include "check.h"

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

const size_t kBytes = (2 << 20) + 8192;
// So often that a buffer is taken for one that comes again.
const int kOften = 16;

unsigned char *device;
std::vector<unsigned char> scratch(kBytes);

// Most of it is never unmapped: a buffer at a new address is a new one to whoever remembers addresses.
unsigned char *map_at(void *where) {
    void *at = mmap(where, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (where ? MAP_FIXED : 0), -1, 0);
    REQUIRE(at != MAP_FAILED);
    return static_cast<unsigned char *>(at);
}

void fill(unsigned char *buffer, uint64_t seed, size_t bytes = kBytes) { Random(seed).fill(buffer, bytes); }

// To the device and, by way of small copies that no cache knows, back.
void check_to_device(const unsigned char *buffer, size_t bytes = kBytes) {
    CHECK(cudaMemset(device, 0xc3, kBytes));
    CHECK(cudaMemcpy(device, buffer, bytes, cudaMemcpyHostToDevice));
    const size_t piece = 64 << 10;
    for (size_t at = 0; at < bytes; at += piece) {
        const size_t length = bytes - at < piece ? bytes - at : piece;
        CHECK(cudaMemcpy(scratch.data() + at, device + at, length, cudaMemcpyDeviceToHost));
    }
    REQUIRE(memcmp(scratch.data(), buffer, bytes) == 0);
}

// From the device, where small copies have put it.
void check_from_device(unsigned char *buffer, uint64_t seed, size_t bytes = kBytes) {
    fill(scratch.data(), seed, bytes);
    const size_t piece = 64 << 10;
    for (size_t at = 0; at < bytes; at += piece) {
        const size_t length = bytes - at < piece ? bytes - at : piece;
        CHECK(cudaMemcpy(device + at, scratch.data() + at, length, cudaMemcpyHostToDevice));
    }
    CHECK(cudaMemcpy(buffer, device, bytes, cudaMemcpyDeviceToHost));
    REQUIRE(memcmp(scratch.data(), buffer, bytes) == 0);
}

void use_often(unsigned char *buffer, uint64_t seed) {
    for (int i = 0; i < kOften; i++) {
        fill(buffer, seed + i);
        check_to_device(buffer);
        check_from_device(buffer, seed + 100 + i);
    }
}

void passed(const char *what) { std::printf("%s: ok\n", what); }

void test_reuse() {
    unsigned char *buffer = map_at(nullptr);
    use_often(buffer, 1);
    // Parts of it, at odd addresses.
    for (size_t skip : {size_t(1), size_t(4095), size_t(8192)}) {
        fill(buffer, skip);
        check_to_device(buffer + skip, kBytes - 8192);
        check_from_device(buffer + skip, skip + 1, kBytes - 8192);
    }
    passed("reuse");
}

void test_munmap() {
    for (int round = 0; round < 3; round++) {
        unsigned char *buffer = map_at(nullptr);
        use_often(buffer, 10 + round);
        munmap(buffer, kBytes);
        map_at(buffer);
        fill(buffer, 1000 + round);
        check_to_device(buffer);
        check_from_device(buffer, 2000 + round);
    }
    // A part is replaced, without being unmapped first.
    unsigned char *buffer = map_at(nullptr);
    use_often(buffer, 20);
    void *part = mmap(buffer + (1 << 20), 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    REQUIRE(part == buffer + (1 << 20));
    check_to_device(buffer);
    check_from_device(buffer, 21);
    passed("munmap");
}

void test_mremap() {
    unsigned char *buffer = map_at(nullptr), *other = map_at(nullptr);
    use_often(buffer, 30);
    fill(other, 31);
    // The pages of `other` come to the address of `buffer`.
    REQUIRE(mremap(other, kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED, buffer) == buffer);
    check_to_device(buffer);
    check_from_device(buffer, 32);
    // They go away: what is at the old address is new.
    buffer = map_at(nullptr);
    use_often(buffer, 33);
    unsigned char *moved = map_at(nullptr);
    REQUIRE(mremap(buffer, kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED, moved) == moved);
    map_at(buffer);
    check_to_device(buffer);
    fill(buffer, 34);
    check_to_device(buffer);
    check_to_device(moved);
    check_from_device(buffer, 35);
    check_from_device(moved, 36);
    passed("mremap");
}

void test_madvise() {
    unsigned char *buffer = map_at(nullptr);
    use_often(buffer, 40);
    // The contents are gone, and with them the pages.
    REQUIRE(madvise(buffer, kBytes, MADV_DONTNEED) == 0);
    REQUIRE(buffer[0] == 0 && buffer[kBytes - 1] == 0);
    check_to_device(buffer);
    check_from_device(buffer, 41);
    buffer = map_at(nullptr);
    use_often(buffer, 42);
    REQUIRE(madvise(buffer + 4096, 4096, MADV_DONTNEED) == 0);
    buffer[5000] = 77;
    check_to_device(buffer);
    check_from_device(buffer, 43);
    passed("madvise");
}

void test_mprotect() {
    unsigned char *buffer = map_at(nullptr);
    use_often(buffer, 50);
    REQUIRE(mprotect(buffer, kBytes, PROT_READ) == 0);
    check_to_device(buffer);
    REQUIRE(mprotect(buffer, kBytes, PROT_READ | PROT_WRITE) == 0);
    fill(buffer, 51);
    check_to_device(buffer);
    check_from_device(buffer, 52);
    passed("mprotect");
}

void test_fork() {
    unsigned char *buffer = map_at(nullptr);
    use_often(buffer, 60);
    fill(buffer, 61);
    const uint64_t before = hash_bytes(buffer, kBytes);
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    fflush(stdout);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        // What the parent does to its pages from now on is not seen here, and the other way round.
        char byte;
        const bool told = read(ready[0], &byte, 1) == 1;
        const bool same = hash_bytes(buffer, kBytes) == before;
        memset(buffer, 0x11, kBytes);
        _exit(told && same ? 0 : 1);
    }
    fill(buffer, 62);
    check_to_device(buffer);
    check_from_device(buffer, 63);
    const uint64_t after = hash_bytes(buffer, kBytes);
    REQUIRE(write(ready[1], "x", 1) == 1);
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    REQUIRE(hash_bytes(buffer, kBytes) == after);
    check_to_device(buffer);
    use_often(buffer, 64);
    passed("fork");
}

// Read-only pages cannot be kept, and are copied all the same.
void test_read_only() {
    unsigned char *buffer = map_at(nullptr);
    fill(buffer, 70);
    REQUIRE(mprotect(buffer, kBytes, PROT_READ) == 0);
    for (int i = 0; i < kOften; i++) check_to_device(buffer);
    munmap(buffer, kBytes);
    passed("read only");
}

// Several threads use one buffer, others map and unmap theirs meanwhile.
void test_threads() {
    unsigned char *shared = map_at(nullptr);
    fill(shared, 80);
    std::vector<std::thread> threads;
    std::vector<int> good(4, 0);
    for (int number = 0; number < 4; number++) {
        threads.emplace_back([&, number] {
            unsigned char *mine;
            CHECK(cudaMalloc(&mine, kBytes));
            for (int round = 0; round < 8; round++) {
                CHECK(cudaMemcpy(mine, shared, kBytes, cudaMemcpyHostToDevice));
                unsigned char *target = map_at(nullptr);
                for (int i = 0; i < 4; i++) {
                    memset(target, i, kBytes);
                    CHECK(cudaMemcpy(target, mine, kBytes, cudaMemcpyDeviceToHost));
                    good[number] += memcmp(target, shared, kBytes) == 0;
                }
                munmap(target, kBytes);
            }
            CHECK(cudaFree(mine));
        });
    }
    for (auto &thread : threads) thread.join();
    for (int count : good) REQUIRE(count == 32);
    munmap(shared, kBytes);
    passed("threads");
}

// More buffers than are kept at once.
void test_many() {
    std::vector<unsigned char *> buffers;
    for (int i = 0; i < 12; i++) buffers.push_back(map_at(nullptr));
    for (int round = 0; round < kOften; round++) {
        for (size_t i = 0; i < buffers.size(); i++) {
            fill(buffers[i], 100 * round + i);
            check_to_device(buffers[i]);
            check_from_device(buffers[i], 100 * round + i + 50);
        }
    }
    for (unsigned char *buffer : buffers) munmap(buffer, kBytes);
    passed("many");
}

// A copy in stream order may use the buffer before what comes after it in the stream, and is done with it when the
// call returns.
void test_stream() {
    const size_t bytes = 9 << 20;
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    unsigned char *mine;
    CHECK(cudaMalloc(&mine, bytes));
    std::vector<unsigned char> buffer(bytes), back(bytes);
    for (int i = 0; i < kOften; i++) {
        fill(buffer.data(), 90 + i, bytes);
        CHECK(cudaMemcpyAsync(mine, buffer.data(), bytes, cudaMemcpyHostToDevice, stream));
        memset(buffer.data(), 0xdd, bytes);
        CHECK(cudaMemcpyAsync(back.data(), mine, bytes, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        fill(buffer.data(), 90 + i, bytes);
        REQUIRE(buffer == back);
    }
    CHECK(cudaFree(mine));
    CHECK(cudaStreamDestroy(stream));
    passed("stream");
}

std::atomic<bool> may_go_on;

void wait_for_the_turn(void *) {
    while (!may_go_on.load()) usleep(1000);
}

// The mapping changes, and what is there does not, while a copy waits for its turn in a stream: nobody may take the
// pages away from it.
void test_under_way() {
    const size_t bytes = 9 << 20;
    void *at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(at != MAP_FAILED);
    unsigned char *buffer = static_cast<unsigned char *>(at), *mine;
    fill(buffer, 95, bytes);
    CHECK(cudaMalloc(&mine, bytes));
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; i < kOften; i++) {
        CHECK(cudaMemcpyAsync(mine, buffer, bytes, cudaMemcpyHostToDevice, stream));
        CHECK(cudaStreamSynchronize(stream));
    }
    CHECK(cudaMemset(mine, 0, bytes));
    CHECK(cudaDeviceSynchronize());
    may_go_on = false;
    CHECK(cudaLaunchHostFunc(stream, wait_for_the_turn, nullptr));
    std::thread copies(
        [&] { CHECK(cudaMemcpyAsync(mine, buffer, bytes, cudaMemcpyHostToDevice, stream)); });
    usleep(100000);
    REQUIRE(mprotect(buffer, bytes, PROT_READ) == 0);
    usleep(100000);
    may_go_on = true;
    copies.join();
    CHECK(cudaStreamSynchronize(stream));
    std::vector<unsigned char> back(bytes);
    CHECK(cudaMemcpy(back.data(), mine, bytes, cudaMemcpyDeviceToHost));
    REQUIRE(memcmp(back.data(), buffer, bytes) == 0);
    CHECK(cudaFree(mine));
    CHECK(cudaStreamDestroy(stream));
    munmap(buffer, bytes);
    passed("under way");
}

// The same at any moment of a copy.
void test_any_moment() {
    const int kCopies = 16;
    for (int round = 0; round < 24; round++) {
        unsigned char *buffer = map_at(nullptr);
        fill(buffer, 200 + round);
        std::atomic<int> copied{0};
        std::vector<std::thread> threads;
        for (int number = 0; number < 3; number++) {
            threads.emplace_back([&] {
                unsigned char *mine;
                CHECK(cudaMalloc(&mine, kBytes));
                for (int i = 0; i < kCopies; i++) {
                    CHECK(cudaMemcpy(mine, buffer, kBytes, cudaMemcpyHostToDevice));
                    copied++;
                }
                CHECK(cudaFree(mine));
            });
        }
        while (copied < 6 + round % 12) usleep(50);
        REQUIRE(mprotect(buffer, kBytes, PROT_READ) == 0);
        for (auto &thread : threads) thread.join();
        check_to_device(buffer);
        // Stays mapped: the next one is to be elsewhere.
    }
    passed("any moment");
}

}  // namespace

int main() {
    // For the guest library: buffers come again from the third copy on.
    setenv("VIRTIO_CUDA_CACHE", "2", 1);
    CHECK(cudaMalloc(&device, kBytes));
    test_reuse();
    test_munmap();
    test_mremap();
    test_madvise();
    test_mprotect();
    test_fork();
    test_read_only();
    test_threads();
    test_many();
    test_stream();
    test_under_way();
    test_any_moment();
    CHECK(cudaFree(device));
    std::printf("all ok\n");
    return 0;
}
