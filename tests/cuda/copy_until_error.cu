// SPDX-License-Identifier: Apache-2.0 OR MIT
// Copies back and forth until it is killed (SIGKILL in the middle of a copy) or a call fails (the device or its
// daemon went away): then prints the error, that a later call fails too, and exits with status 3.
// Argument: bytes of a copy (default 8 MiB).
#include "check.h"

#include <vector>

int main(int argc, char **argv) {
    const size_t bytes = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 8 << 20;
    std::vector<unsigned char> host(bytes);
    Random(1).fill(host.data(), bytes);
    unsigned char *device;
    CHECK(cudaMalloc(&device, bytes));
    for (unsigned round = 0;; round++) {
        cudaError_t error = cudaMemcpy(device, host.data(), bytes, cudaMemcpyHostToDevice);
        if (error == cudaSuccess) {
            error = cudaMemcpy(host.data(), device, bytes, cudaMemcpyDeviceToHost);
        }
        if (error != cudaSuccess) {
            std::printf("error %d, then %d\n", (int)error, (int)cudaMemset(device, 0, bytes));
            return 3;
        }
        if (round == 0) {
            std::printf("copying\n");
            std::fflush(stdout);
        }
    }
}
