// SPDX-License-Identifier: Apache-2.0 OR MIT
// Copies of memory that is mapped from a file, as programs map weights: private and shared, with and without the right to
// write. The program registered_files registers them, too.
#include "check.h"

#include <cstring>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

struct Kind {
    const char *name;
    int protection, flags;
};

static const Kind KINDS[] = {
    {"private, read-only", PROT_READ, MAP_PRIVATE},
    {"private, writable", PROT_READ | PROT_WRITE, MAP_PRIVATE},
    {"shared, read-only", PROT_READ, MAP_SHARED},
    {"shared, writable", PROT_READ | PROT_WRITE, MAP_SHARED},
};

static const size_t BYTES = 9u << 20;

static uint64_t hash_of_device(const void *device, size_t bytes) {
    std::vector<char> back(bytes);
    CHECK(cudaMemcpy(back.data(), device, bytes, cudaMemcpyDeviceToHost));
    return hash_bytes(back.data(), bytes);
}

static void copy(const char *mapped) {
    char *device;
    cudaStream_t stream;
    CHECK(cudaMalloc(&device, BYTES));
    CHECK(cudaStreamCreate(&stream));
    for (const size_t bytes : {(size_t)100, (size_t)70000, (size_t)3 << 20, BYTES - 1}) {
        const uint64_t expected = hash_bytes(mapped + 1, bytes);
        // Often enough for buffers that come again to be treated so.
        for (int i = 0; i < 30; i++) {
            CHECK(cudaMemset(device, i, bytes));
            CHECK(cudaMemcpy(device, mapped + 1, bytes, cudaMemcpyHostToDevice));
        }
        REQUIRE(hash_of_device(device, bytes) == expected);
        CHECK(cudaMemset(device, 0, bytes));
        CHECK(cudaMemcpyAsync(device, mapped + 1, bytes, cudaMemcpyHostToDevice, stream));
        CHECK(cudaStreamSynchronize(stream));
        REQUIRE(hash_of_device(device, bytes) == expected);
    }
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(device));
}

int main() {
    char path[] = "/tmp/mapped_files.XXXXXX";
    const int file = mkstemp(path);
    REQUIRE(file >= 0 && unlink(path) == 0);
    std::vector<char> contents(BYTES);
    Random(7).fill(contents.data(), BYTES);
    REQUIRE(write(file, contents.data(), BYTES) == (ssize_t)BYTES);
    for (const Kind &kind : KINDS) {
        void *const mapped = mmap(nullptr, BYTES, kind.protection, kind.flags, file, 0);
        REQUIRE(mapped != MAP_FAILED);
        copy(static_cast<const char *>(mapped));
        std::printf("%s: right\n", kind.name);
        REQUIRE(std::memcmp(mapped, contents.data(), BYTES) == 0);
        REQUIRE(munmap(mapped, BYTES) == 0);
    }
    return 0;
}
