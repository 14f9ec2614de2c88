// SPDX-License-Identifier: Apache-2.0 OR MIT
// Every program prints what each call returned and what cudaGetLastError said after it. Nothing printed depends on an address or on time,
// so the transcript of one run can be compared with that of another: NVIDIA's runtime beside ours on a GPU, or the emulator beside both.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>

#define T(call) \
    do { \
        int result_ = (int)(call); \
        int last_ = (int)cudaGetLastError(); \
        printf("%-86s %3d last %d\n", #call, result_, last_); \
        fflush(stdout); \
    } while (0)

// After a <<<>>> launch.
#define LAUNCHED(what) \
    do { \
        int last_ = (int)cudaGetLastError(); \
        printf("%-86s     last %d\n", what, last_); \
        fflush(stdout); \
    } while (0)

#define SHOW(format, ...) \
    do { \
        printf("  " format "\n", __VA_ARGS__); \
        fflush(stdout); \
    } while (0)

static inline int same(const void *a, const void *b) { return a == b; }
