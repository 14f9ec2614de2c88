// SPDX-License-Identifier: Apache-2.0 OR MIT
// A kernel that prints and a program that ends without waiting for it: does the driver still print?
#include "check.h"

__global__ void say(int x) { printf("  kernel says %d\n", x); }

int main() {
    say<<<1, 1>>>(1);
    LAUNCHED("in main");
    return 0;
}
