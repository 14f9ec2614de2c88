// SPDX-License-Identifier: Apache-2.0 OR MIT
// Adds two vectors of 50,000 floats and checks every element.
#include "check.h"

#include <vector>

__global__ void vector_add(const float *a, const float *b, float *c, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        c[i] = a[i] + b[i];
    }
}

int main() {
    const int n = 50000;
    const size_t bytes = n * sizeof(float);
    std::vector<float> a(n), b(n), c(n, -1.0f);
    Random random(1);
    for (int i = 0; i < n; i++) {
        a[i] = (float)(random.next() >> 40) / (1 << 24);
        b[i] = (float)(random.next() >> 40) / (1 << 24);
    }

    float *device_a, *device_b, *device_c;
    CHECK(cudaMalloc(&device_a, bytes));
    CHECK(cudaMalloc(&device_b, bytes));
    CHECK(cudaMalloc(&device_c, bytes));
    CHECK(cudaMemcpy(device_a, a.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(device_b, b.data(), bytes, cudaMemcpyHostToDevice));
    vector_add<<<(n + 255) / 256, 256>>>(device_a, device_b, device_c, n);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(c.data(), device_c, bytes, cudaMemcpyDeviceToHost));

    for (int i = 0; i < n; i++) {
        REQUIRE(c[i] == a[i] + b[i]);
    }
    CHECK(cudaFree(device_a));
    CHECK(cudaFree(device_b));
    CHECK(cudaFree(device_c));
    std::printf("%d elements right, hash %016llx\n", n, (unsigned long long)hash_bytes(c.data(), bytes));
    return 0;
}
