// SPDX-License-Identifier: Apache-2.0 OR MIT
// Asking for more than there is gives cudaErrorMemoryAllocation (2) and harms nothing.
#include "check.h"

int main() {
    size_t free_bytes = 0, total = 0;
    CHECK(cudaMemGetInfo(&free_bytes, &total));
    REQUIRE(free_bytes > 0 && free_bytes <= total);

    void *memory = reinterpret_cast<void *>(1);
    std::printf("more than the device has: %d\n", (int)cudaMalloc(&memory, total + (1 << 20)));
    std::printf("1 PiB: %d\n", (int)cudaMalloc(&memory, (size_t)1 << 50));
    std::printf("last error: %d\n", (int)cudaGetLastError());
    std::printf("and then: %d\n", (int)cudaGetLastError());

    int host = 0x01020304, back = 0;
    CHECK(cudaMalloc(&memory, sizeof host));
    CHECK(cudaMemcpy(memory, &host, sizeof host, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(&back, memory, sizeof back, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(memory));
    std::printf("afterwards: %x\n", back);
    return 0;
}
