// SPDX-License-Identifier: Apache-2.0 OR MIT
// Shared by the test programs: every failure names the call, its place and the error, and ends with status 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <cuda_runtime.h>

#define CHECK(call)                                                                                        \
    do {                                                                                                   \
        const cudaError_t check_error = (call);                                                            \
        if (check_error != cudaSuccess) {                                                                  \
            std::fprintf(stderr, "%s:%d: %s: error %d (%s)\n", __FILE__, __LINE__, #call, (int)check_error, \
                         cudaGetErrorName(check_error));                                                   \
            std::exit(1);                                                                                  \
        }                                                                                                  \
    } while (0)

#define REQUIRE(condition)                                                                   \
    do {                                                                                     \
        if (!(condition)) {                                                                  \
            std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);     \
            std::exit(1);                                                                    \
        }                                                                                    \
    } while (0)

// xorshift64*: the same bytes on every machine.
class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ull + 1) {}
    uint64_t next() {
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return state_ * 0x2545f4914f6cdd1dull;
    }
    void fill(void *memory, size_t bytes) {
        unsigned char *out = static_cast<unsigned char *>(memory);
        size_t i = 0;
        for (; i + 8 <= bytes; i += 8) {
            const uint64_t word = next();
            __builtin_memcpy(out + i, &word, 8);
        }
        const uint64_t last = next();
        __builtin_memcpy(out + i, &last, bytes - i);
    }

  private:
    uint64_t state_;
};

// A 64-bit hash that reads eight bytes a step; good enough to see any lost, moved or stale byte.
inline uint64_t hash_bytes(const void *memory, size_t bytes) {
    const unsigned char *in = static_cast<const unsigned char *>(memory);
    uint64_t hash = 0xcbf29ce484222325ull ^ bytes;
    size_t i = 0;
    for (; i + 8 <= bytes; i += 8) {
        uint64_t word;
        __builtin_memcpy(&word, in + i, 8);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
        hash ^= hash >> 29;
    }
    for (; i < bytes; i++) {
        hash = (hash ^ in[i]) * 0x100000001b3ull;
    }
    return hash ^ (hash >> 32);
}
