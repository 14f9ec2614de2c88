// SPDX-License-Identifier: Apache-2.0 OR MIT
// A failed device assertion: its message on stderr, cudaErrorAssert (710) from then on.
#include "check.h"

#include <cassert>

__global__ void check_positive(int value) { assert(value > 0); }

int main() {
    check_positive<<<1, 2>>>(5);
    CHECK(cudaGetLastError());
    std::printf("holds: %d\n", (int)cudaDeviceSynchronize());
    check_positive<<<1, 2>>>(-5);
    CHECK(cudaGetLastError());
    std::printf("fails: %d\n", (int)cudaDeviceSynchronize());
    std::printf("again: %d\n", (int)cudaDeviceSynchronize());
    return 0;
}
