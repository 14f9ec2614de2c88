// SPDX-License-Identifier: Apache-2.0 OR MIT
// Reads integers from stdin, squares them on the device, writes to stdout and stderr, ends with status 7.
#include "check.h"

#include <vector>

__global__ void square(long long *values) { values[threadIdx.x] *= values[threadIdx.x]; }

int main() {
    std::vector<long long> values;
    for (long long value; values.size() < 1024 && std::scanf("%lld", &value) == 1;) {
        values.push_back(value);
    }
    std::fprintf(stderr, "%zu values\n", values.size());
    if (!values.empty()) {
        const size_t bytes = values.size() * sizeof(long long);
        long long *device;
        CHECK(cudaMalloc(&device, bytes));
        CHECK(cudaMemcpy(device, values.data(), bytes, cudaMemcpyHostToDevice));
        square<<<1, (unsigned)values.size()>>>(device);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpy(values.data(), device, bytes, cudaMemcpyDeviceToHost));
        CHECK(cudaFree(device));
    }
    for (long long value : values) {
        std::printf("%lld\n", value);
    }
    return 7;
}
