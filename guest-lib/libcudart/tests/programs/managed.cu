// SPDX-License-Identifier: Apache-2.0 OR MIT
// Managed variables touched before, between and after runtime calls.
#include "check.h"

__managed__ int first = 5;
__managed__ float table[4] = {1, 2, 3, 4};
__global__ void change() {
    first += 10;
    table[2] *= 2;
}

int main() {
    first = first + 1;
    SHOW("%d %g", first, table[3]);
    int n = 0;
    T(cudaGetDeviceCount(&n));
    SHOW("%d", n > 0);
    change<<<1, 1>>>();
    LAUNCHED("change");
    T(cudaDeviceSynchronize());
    SHOW("%d %g", first, table[2]);
    cudaPointerAttributes a;
    T(cudaPointerGetAttributes(&a, &first));
    SHOW("type %d", a.type);
    T(cudaDeviceReset());
    change<<<1, 1>>>();
    LAUNCHED("change after reset");
    T(cudaDeviceSynchronize());
    T(cudaPointerGetAttributes(&a, &first));
    SHOW("type %d", a.type);
    return 0;
}
