// SPDX-License-Identifier: Apache-2.0 OR MIT
// Adds 1 to each of 32 doubles; prints them before and after.
#include "check.h"

__global__ void add_one(double *values) { values[threadIdx.x] += 1.0; }

static void print(const char *label, const double *values) {
    std::printf("%s:", label);
    for (int i = 0; i < 32; i++) {
        std::printf(" %g", values[i]);
    }
    std::printf("\n");
}

int main() {
    double host[32];
    for (int i = 0; i < 32; i++) {
        host[i] = i;
    }
    print("before", host);

    double *device = nullptr;
    CHECK(cudaMalloc(&device, sizeof host));
    CHECK(cudaMemcpy(device, host, sizeof host, cudaMemcpyHostToDevice));
    add_one<<<1, 32>>>(device);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(device));

    print("after", host);
    for (int i = 0; i < 32; i++) {
        REQUIRE(host[i] == i + 1);
    }
    return 0;
}
