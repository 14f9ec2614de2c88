// SPDX-License-Identifier: Apache-2.0 OR MIT
// Allocates so many MiB for each argument, one after the other, and prints the error numbers.
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

int main(int count, char **arguments) {
    for (int i = 1; i < count; i++) {
        void *memory = nullptr;
        cudaError_t error = cudaMalloc(&memory, (size_t)std::atol(arguments[i]) << 20);
        std::printf("%s MiB: %d\n", arguments[i], (int)error);
        if (error == cudaSuccess) cudaFree(memory);
    }
    return 0;
}
