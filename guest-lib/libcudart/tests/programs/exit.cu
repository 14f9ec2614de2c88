// SPDX-License-Identifier: Apache-2.0 OR MIT
// What still works while a program ends. Argument: "sync" waits for the kernel before main returns, anything else does not.
#include "check.h"

__global__ void say(int x) { printf("  kernel says %d\n", x); }

struct Late {
    ~Late() {
        void *p = nullptr;
        T(cudaMalloc(&p, 16));
        T(cudaFree(p));
        say<<<1, 1>>>(3);
        LAUNCHED("in a static destructor");
        T(cudaDeviceSynchronize());
    }
} late;

static void at_exit() {
    void *p = nullptr;
    T(cudaMalloc(&p, 16));
    T(cudaFree(p));
}

int main(int argc, char **argv) {
    atexit(at_exit);
    say<<<1, 1>>>(1);
    LAUNCHED("in main");
    if (argc > 1 && !strcmp(argv[1], "sync")) T(cudaDeviceSynchronize());
    if (argc > 1 && !strcmp(argv[1], "quick")) _Exit(0);
    return 0;
}
