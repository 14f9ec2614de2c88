// SPDX-License-Identifier: Apache-2.0 OR MIT
// Which atomic operations a kernel may do on the host's memory, and a device on its own.
#include "check.h"

#include <algorithm>

int main() {
    cudaAtomicOperation operations[16];
    unsigned capabilities[16];
    for (int i = 0; i < 16; i++) {
        operations[i] = static_cast<cudaAtomicOperation>(i);
    }
    for (int i = 0; i < 16; i++) {
        unsigned one = 0xa5a5a5a5;
        const int error = cudaDeviceGetHostAtomicCapabilities(&one, &operations[i], 1, 0);
        std::printf("operation %d: %d, %#x\n", i, error, one);
    }
    for (const unsigned count : {0u, 2u, 13u}) {
        std::fill_n(capabilities, 16, 0xa5a5a5a5u);
        const int error = cudaDeviceGetHostAtomicCapabilities(capabilities, operations, count, 0);
        std::printf("%u operations: %d, %#x, %#x\n", count, error, capabilities[0], capabilities[1]);
    }
    capabilities[0] = 0xa5a5a5a5;
    const int itself = cudaDeviceGetP2PAtomicCapabilities(capabilities, operations, 1, 0, 0);
    std::printf("with itself: %d, %#x\n", itself, capabilities[0]);
    std::printf("of no device: %d\n", cudaDeviceGetHostAtomicCapabilities(capabilities, operations, 1, 77));
    return 0;
}
