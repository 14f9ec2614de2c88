// SPDX-License-Identifier: Apache-2.0 OR MIT
// Copies random bytes from every kind of host memory to the device, on the device and back; prints a hash of each.
// Arguments: the sizes in bytes (default: the ones up to 1 MiB + 1).
#include "check.h"

#include <cstring>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {

const size_t kStackBytes = 4097;
const size_t kStaticBytes = (1 << 20) + 1;
unsigned char static_source[kStaticBytes];
unsigned char static_target[kStaticBytes];

struct Device {
    explicit Device(size_t bytes) {
        if (bytes > 0) {
            CHECK(cudaMalloc(&first, bytes));
            CHECK(cudaMalloc(&second, bytes));
            // Stale bytes of an earlier copy must not pass for this one's.
            CHECK(cudaMemset(first, 0xa5, bytes));
            CHECK(cudaMemset(second, 0x5a, bytes));
        }
    }
    ~Device() {
        CHECK(cudaFree(first));
        CHECK(cudaFree(second));
    }
    unsigned char *first = nullptr;
    unsigned char *second = nullptr;
};

// source -> device -> device -> target, and the verdict.
void round_trip(const char *kind, const void *source, void *target, size_t bytes) {
    Device device(bytes);
    const uint64_t before = hash_bytes(source, bytes);
    CHECK(cudaMemcpy(device.first, source, bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(device.second, device.first, bytes, cudaMemcpyDeviceToDevice));
    CHECK(cudaMemcpy(target, device.second, bytes, cudaMemcpyDeviceToHost));
    const uint64_t after = hash_bytes(target, bytes);
    std::printf("%s %zu: %016llx\n", kind, bytes, (unsigned long long)after);
    REQUIRE(before == after);
    REQUIRE(hash_bytes(source, bytes) == before);
}

void heap(size_t bytes) {
    std::vector<unsigned char> source(bytes), target(bytes, 0xee);
    Random(bytes + 1).fill(source.data(), bytes);
    round_trip("heap", source.data(), target.data(), bytes);
}

// Odd addresses in host and device memory, guarded by bytes that must not change.
void unaligned(size_t bytes) {
    const size_t shift = 3, guard = 64;
    std::vector<unsigned char> source(bytes + 2 * guard), target(bytes + 2 * guard, 0xee);
    Random(bytes + 2).fill(source.data(), source.size());
    Device device(bytes + 2 * guard);
    CHECK(cudaMemcpy(device.first + 1, source.data() + shift, bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(device.second + 7, device.first + 1, bytes, cudaMemcpyDeviceToDevice));
    CHECK(cudaMemcpy(target.data() + guard + 5, device.second + 7, bytes, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < guard + 5; i++) {
        REQUIRE(target[i] == 0xee);
    }
    for (size_t i = guard + 5 + bytes; i < target.size(); i++) {
        REQUIRE(target[i] == 0xee);
    }
    unsigned char edges[2];
    CHECK(cudaMemcpy(&edges[0], device.second + 6, 1, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(&edges[1], device.second + 7 + bytes, 1, cudaMemcpyDeviceToHost));
    REQUIRE(edges[0] == 0x5a && edges[1] == 0x5a);
    const uint64_t after = hash_bytes(target.data() + guard + 5, bytes);
    std::printf("unaligned %zu: %016llx\n", bytes, (unsigned long long)after);
    REQUIRE(after == hash_bytes(source.data() + shift, bytes));
}

void stack(size_t bytes) {
    unsigned char source[kStackBytes], target[kStackBytes];
    Random(bytes + 3).fill(source, bytes);
    std::memset(target, 0xee, sizeof target);
    round_trip("stack", source, target, bytes);
}

void static_data(size_t bytes) {
    Random(bytes + 4).fill(static_source, bytes);
    std::memset(static_target, 0xee, sizeof static_target);
    round_trip("static", static_source, static_target, bytes);
}

// Pages of a file: the source mapped read-only and private, the target mapped shared, so that the file itself
// must hold the bytes afterwards.
void file_pages(size_t bytes) {
    char path[] = "/tmp/vhost-cuda-copies-XXXXXX";
    const int file = mkstemp(path);
    REQUIRE(file >= 0);
    unlink(path);
    std::vector<unsigned char> content(bytes);
    Random(bytes + 5).fill(content.data(), bytes);
    for (size_t written = 0; written < bytes;) {
        const ssize_t n = write(file, content.data() + written, bytes - written);
        REQUIRE(n > 0);
        written += n;
    }
    char target_path[] = "/tmp/vhost-cuda-copies-XXXXXX";
    const int target_file = mkstemp(target_path);
    REQUIRE(target_file >= 0);
    unlink(target_path);
    REQUIRE(ftruncate(target_file, bytes) == 0);
    void *source = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    void *target = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, target_file, 0);
    REQUIRE(source != MAP_FAILED && target != MAP_FAILED);
    round_trip("file pages", source, target, bytes);
    REQUIRE(munmap(source, bytes) == 0 && munmap(target, bytes) == 0);
    std::vector<unsigned char> in_file(bytes);
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = pread(target_file, in_file.data() + done, bytes - done, done);
        REQUIRE(n > 0);
        done += n;
    }
    REQUIRE(in_file == content);
    close(file);
    close(target_file);
}

// Anonymous pages made read-only after writing, as the source.
void read_only(size_t bytes) {
    void *source = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(source != MAP_FAILED);
    Random(bytes + 6).fill(source, bytes);
    REQUIRE(mprotect(source, bytes, PROT_READ) == 0);
    std::vector<unsigned char> target(bytes, 0xee);
    round_trip("read-only pages", source, target.data(), bytes);
    REQUIRE(munmap(source, bytes) == 0);
}

// Pages never touched: the source reads as zeros, the target's appear under the copy.
void untouched(size_t bytes) {
    void *source = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *target = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(source != MAP_FAILED && target != MAP_FAILED);
    Device device(bytes);
    CHECK(cudaMemcpy(device.first, source, bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(target, device.first, bytes, cudaMemcpyDeviceToHost));
    const unsigned char *seen = static_cast<unsigned char *>(target);
    for (size_t i = 0; i < bytes; i++) {
        REQUIRE(seen[i] == 0);
    }
    std::printf("untouched pages %zu: zeros\n", bytes);
    REQUIRE(munmap(source, bytes) == 0 && munmap(target, bytes) == 0);
}

}  // namespace

int main(int argc, char **argv) {
    std::vector<size_t> sizes;
    for (int i = 1; i < argc; i++) {
        sizes.push_back(std::stoull(argv[i]));
    }
    if (sizes.empty()) {
        sizes = {0, 1, 4095, 4096, 4097, (1 << 20) + 1};
    }
    for (size_t bytes : sizes) {
        heap(bytes);
        if (bytes > 0) {
            unaligned(bytes);
            file_pages(bytes);
            read_only(bytes);
            untouched(bytes);
        }
        if (bytes <= kStackBytes) {
            stack(bytes);
        }
        if (bytes <= kStaticBytes) {
            static_data(bytes);
        }
    }
    return 0;
}
