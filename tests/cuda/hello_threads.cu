// SPDX-License-Identifier: Apache-2.0 OR MIT
// Ten threads say hello; nothing but cudaDeviceReset flushes what they print.
#include "check.h"

__global__ void hello() { printf("hello from thread %u of %u\n", threadIdx.x, blockDim.x); }

int main() {
    hello<<<1, 10>>>();
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceReset());
    return 0;
}
