// SPDX-License-Identifier: Apache-2.0 OR MIT
// Shared by the programs that use a library of NVIDIA's. It is loaded by name, so that the programs need none of its files to
// be built.
#pragma once

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cmath>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <vector>

#define CHECK(call)                                                                                  \
    do {                                                                                             \
        const int result_ = (int)(call);                                                             \
        if (result_ != 0) {                                                                          \
            printf("%s:%d: %s -> %d\n", __FILE__, __LINE__, #call, result_);                         \
            exit(1);                                                                                 \
        }                                                                                            \
    } while (0)

typedef void *Handle;
static void *library;

static void load(std::initializer_list<const char *> names) {
    for (const char *name : names)
        if (!library) library = dlopen(name, RTLD_NOW);
    if (!library) {
        printf("no %s\n", *names.begin());
        exit(1);
    }
}

// A function by its type, which the first use of it tells.
template <class... A> static int call(const char *name, A... arguments) {
    auto *function = (int (*)(A...))dlsym(library, name);
    if (!function) {
        printf("no %s\n", name);
        exit(1);
    }
    return function(arguments...);
}

// Small whole numbers: every way of computing gives the same sums.
template <class T = float> static std::vector<T> numbers(int count, int seed) {
    std::vector<T> values(count);
    for (int i = 0; i < count; i++) values[i] = (T)((i * 7 + (long)i * i % 5 + seed * 13) % 11 - 5);
    return values;
}

template <class T> static T *on_device(const std::vector<T> &values) {
    T *memory;
    CHECK(cudaMalloc(&memory, values.size() * sizeof(T)));
    CHECK(cudaMemcpy(memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    // Streams that do not wait for the default one must find it, too.
    CHECK(cudaStreamSynchronize(cudaStreamLegacy));
    return memory;
}

template <class T> static std::vector<T> back(const T *memory, size_t count) {
    std::vector<T> values(count);
    CHECK(cudaMemcpy(values.data(), memory, count * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
}

// Tells whether results are those of a simple loop, up to an error relative to the largest.
template <class T> static void compare(const char *name, const std::vector<T> &got, const std::vector<T> &wanted, double tolerance) {
    double worst = 0, largest = 1;
    for (size_t i = 0; i < wanted.size(); i++) {
        const double error = std::abs(got[i] - wanted[i]);
        worst = error > worst || std::isnan(error) ? error : worst;
        largest = std::max(largest, (double)std::abs(wanted[i]));
    }
    if (got.size() == wanted.size() && worst <= tolerance * largest)
        printf("%s: right\n", name);
    else
        printf("%s: WRONG by %g of %g\n", name, worst, largest);
}
