// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "children.h"

__device__ int times_seven(int value) { return value * 7; }

__global__ void odd_parameters(Three three, char letter, Odd odd, short number, double *result) {
    double sum = three.bytes[0] + 10 * three.bytes[1] + 100 * three.bytes[2] + letter + odd.number + number;
    for (int i = 0; i < 13; i++) {
        sum += odd.text[i] * i;
    }
    for (int i = 0; i < 3; i++) {
        sum += odd.rest[i] * 0.25;
    }
    *result = sum;
}
