// SPDX-License-Identifier: Apache-2.0 OR MIT
// A child made after CUDA was used gets cudaErrorInitializationError; its parent goes on unharmed. A child made
// before CUDA was used, and a child that executes another program, work.
#include "check.h"

#include <cstring>

#include <sys/wait.h>
#include <unistd.h>

__global__ void increment(int *value) { ++*value; }

static void wait_for(const char *label, pid_t child) {
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    std::printf("%s: %s %d\n", label, WIFEXITED(status) ? "exit" : "signal",
                WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    std::fflush(stdout);
}

static int count_to(int n) {
    int *device, host = 0;
    CHECK(cudaMalloc(&device, sizeof host));
    CHECK(cudaMemset(device, 0, sizeof host));
    for (int i = 0; i < n; i++) {
        increment<<<1, 1>>>(device);
        CHECK(cudaGetLastError());
    }
    CHECK(cudaMemcpy(&host, device, sizeof host, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(device));
    return host;
}

int main(int argc, char **argv) {
    if (argc > 1 && std::strcmp(argv[1], "fresh") == 0) {
        std::printf("fresh program: %d\n", count_to(7));
        return 0;
    }

    pid_t child = fork();
    if (child == 0) {
        std::printf("child before use: %d\n", count_to(3));
        std::fflush(stdout);
        _exit(0);
    }
    wait_for("child before use", child);

    int *device, host = 41;
    CHECK(cudaMalloc(&device, sizeof host));
    CHECK(cudaMemcpy(device, &host, sizeof host, cudaMemcpyHostToDevice));
    std::fflush(stdout);

    child = fork();
    if (child == 0) {
        int *memory = nullptr, seen = 0;
        std::printf("child malloc: %d\n", (int)cudaMalloc(&memory, 16));
        std::printf("child memcpy: %d\n", (int)cudaMemcpy(&seen, device, sizeof seen, cudaMemcpyDeviceToHost));
        std::printf("child synchronize: %d\n", (int)cudaDeviceSynchronize());
        increment<<<1, 1>>>(device);
        std::printf("child launch: %d\n", (int)cudaGetLastError());
        std::fflush(stdout);
        _exit(5);
    }
    wait_for("child after use", child);

    child = fork();
    if (child == 0) {
        execl("/proc/self/exe", argv[0], "fresh", (char *)nullptr);
        _exit(127);
    }
    wait_for("child that executes", child);

    child = fork();
    if (child == 0) {
        std::exit(6);  // runs destructors and atexit handlers of a library that must leave the parent's session alone
    }
    wait_for("child that only exits", child);

    increment<<<1, 1>>>(device);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&host, device, sizeof host, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(device));
    std::printf("parent: %d\n", host);
    REQUIRE(host == 42);
    return 0;
}
