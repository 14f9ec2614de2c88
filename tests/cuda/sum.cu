// SPDX-License-Identifier: Apache-2.0 OR MIT
// Sums 1..1000 on the device. The device's own line must come before the host's.
#include "check.h"

__global__ void sum(int last, int *result) {
    int total = 0;
    for (int i = 1; i <= last; i++) {
        total += i;
    }
    *result = total;
    printf("device: %d\n", total);
}

int main() {
    int *device = nullptr;
    int host = 0;
    CHECK(cudaMalloc(&device, sizeof host));
    sum<<<1, 1>>>(1000, device);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&host, device, sizeof host, cudaMemcpyDeviceToHost));
    std::printf("host: %d\n", host);
    CHECK(cudaFree(device));
    REQUIRE(host == 500500);
    return 0;
}
