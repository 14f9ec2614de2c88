// SPDX-License-Identifier: Apache-2.0 OR MIT
// The declarations that both units share.
#pragma once

// 13 bytes, then a hole, then 8, then 3.
struct Odd {
    char text[13];
    double number;
    unsigned char rest[3];
};

struct Three {
    unsigned char bytes[3];
};

__global__ void odd_parameters(Three three, char letter, Odd odd, short number, double *result);

__device__ int times_seven(int value);
