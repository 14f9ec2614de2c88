// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "../check.h"

static __device__ int offset = 3;

static __global__ void step(int *values) { values[threadIdx.x] *= offset; }

void run_other_unit(int *device, int n) {
    step<<<1, n>>>(device);
    CHECK(cudaGetLastError());
}
