// SPDX-License-Identifier: Apache-2.0 OR MIT
// What device printf can format, and its return value.
#include "check.h"

__global__ void formats(double real, long long wide, const char *unused) {
    const int arguments = printf("%d %u %x %X %o %c %%\n", -7, 7u, 255, 255, 8, 'A');
    printf("%5d|%-5d|%05d|%+d|% d\n", 42, 42, 42, 42, 42);
    printf("%f %.3f %10.2f %e %g %G\n", real, real, real, real, real, real * 1e10);
    printf("%lld %llu %llx %ld %hd\n", wide, (unsigned long long)wide, (unsigned long long)wide, (long)wide,
           (short)wide);
    printf("%s|%10s|%-10s|%.3s\n", "string", "right", "left", "truncated");
    printf("%*d|%-*d|\n", 6, 1, 6, 2);
    printf("arguments %d, none\n", arguments);
    printf("no newline");
    printf(", then one\n");
}

int main() {
    formats<<<1, 1>>>(3.14159265358979, -1234567890123ll, nullptr);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    std::printf("host line\n");
    for (int i = 0; i < 3; i++) {
        formats<<<1, 1>>>(i, i, nullptr);
    }
    CHECK(cudaDeviceSynchronize());
    return 0;
}
