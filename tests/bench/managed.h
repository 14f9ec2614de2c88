// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Metrics of managed memory: kernels over two long arrays, and the program's turns between them. And of copies beside such
// an array, which must not take longer.

#pragma once

#include "measure.h"

__global__ void axpy(float *y, const float *x, float a, size_t count) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i < count) y[i] += a * x[i];
}

// Arrays of `bytes` bytes each; the program's turns go over `turns_bytes` of one.
inline void managed(size_t bytes, size_t turn_bytes, int kernels, int turns) {
    const char *names[] = {"managed_first_kernel", "managed_kernel", "managed_turn", "managed_beside"};
    bool wanted = false;
    for (const char *name : names) wanted |= is_wanted(name);
    if (!wanted) return;
    size_t count = bytes / sizeof(float), blocks = (count + 255) / 256;
    float *x, *y;
    if (cudaMallocManaged(&x, bytes) != cudaSuccess || cudaMallocManaged(&y, bytes) != cudaSuccess) {
        const char *why = cudaGetErrorName(cudaGetLastError());
        for (const char *name : names)
            if (is_wanted(name)) skip(name, why);
        return;
    }
    for (size_t i = 0; i < count; i++) x[i] = 1, y[i] = 2;
    auto kernel = [&](size_t some) { axpy<<<(some + 255) / 256, 256>>>(y, x, 1, some); };
    auto run = [&] {
        axpy<<<blocks, 256>>>(y, x, 1, count);
        CHECK(cudaDeviceSynchronize());
    };
    // The program has written all of both.
    {
        Metric metric(names[0], bytes);
        metric.add(1e3 * metric.time(1, run));
        if (is_wanted(names[0])) metric.report("ms");
    }
    if (is_wanted(names[1])) {
        Metric metric(names[1], bytes);
        for (int i = 0; i < 5; i++) {
            double taken = metric.time(kernels, [&] {
                for (int j = 0; j < kernels; j++) kernel(count);
                CHECK(cudaDeviceSynchronize());
            });
            metric.add(3e-9 * bytes * kernels / taken);
        }
        metric.report("GB/s");
    }
    if (is_wanted(names[2])) {
        size_t some = turn_bytes / sizeof(float);
        Metric metric(names[2], turn_bytes);
        for (int i = 0; i < turns; i++) {
            metric.add(1e3 * metric.time(1, [&] {
                for (size_t j = 0; j < some; j++) y[j] += 1;
                kernel(some);
                CHECK(cudaDeviceSynchronize());
            }));
        }
        metric.report("ms");
    }
    // A launch and a short copy of other memory, while these arrays are the GPU's.
    if (is_wanted(names[3])) {
        float *device, value = 0;
        CHECK(cudaMalloc(&device, sizeof value));
        const int times = 200;
        Metric metric(names[3]);
        for (int i = 0; i < 9; i++) {
            metric.add(1e6 / times * metric.time(times, [&] {
                for (int j = 0; j < times; j++) {
                    CHECK(cudaMemcpy(device, &value, sizeof value, cudaMemcpyHostToDevice));
                    axpy<<<1, 1>>>(device, device, 1, 1);
                }
            }));
            CHECK(cudaDeviceSynchronize());
        }
        metric.report("us");
        CHECK(cudaFree(device));
    }
    CHECK(cudaFree(x));
    CHECK(cudaFree(y));
}
