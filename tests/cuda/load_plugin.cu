// SPDX-License-Identifier: Apache-2.0 OR MIT
// Uses CUDA itself, and then runs `main` of each shared library that it is given, one after another and by two threads at
// once. Each library may have a CUDA runtime of its own.
#include "check.h"

#include <dlfcn.h>
#include <thread>
#include <vector>

__global__ void twice(int *value) { *value *= 2; }

typedef int (*Main)(int, char **);

static Main load(char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        std::fprintf(stderr, "%s\n", dlerror());
        std::exit(1);
    }
    const Main entry = reinterpret_cast<Main>(dlsym(library, "main"));
    REQUIRE(entry);
    return entry;
}

int main(int argc, char **argv) {
    int *device, host = 21;
    CHECK(cudaMalloc(&device, sizeof host));
    CHECK(cudaMemcpy(device, &host, sizeof host, cudaMemcpyHostToDevice));
    twice<<<1, 1>>>(device);
    CHECK(cudaGetLastError());
    std::vector<Main> entries;
    for (int i = 1; i < argc; i++) {
        entries.push_back(load(argv[i]));
        REQUIRE(entries.back()(1, argv + i) == 0);
    }
    std::fflush(stdout);
    for (const Main entry : entries) {
        std::thread other([&] { REQUIRE(entry(1, argv) == 0); });
        REQUIRE(entry(1, argv) == 0);
        other.join();
    }
    CHECK(cudaMemcpy(&host, device, sizeof host, cudaMemcpyDeviceToHost));
    std::printf("own kernel: %d\n", host);
    return 0;
}
