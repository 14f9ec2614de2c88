// SPDX-License-Identifier: Apache-2.0 OR MIT
// A timer interrupts the program every millisecond, in the middle of calls, with a handler that restarts system calls
// and with one that does not: CUDA must not notice.
#include "check.h"

#include <vector>

#include <csignal>
#include <sys/time.h>

static volatile sig_atomic_t ticks;

__global__ void increment(unsigned *values, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        values[i]++;
    }
}

static void run(const char *label, int flags) {
    struct sigaction action = {};
    action.sa_handler = [](int) { ticks = ticks + 1; };
    action.sa_flags = flags;
    REQUIRE(sigaction(SIGALRM, &action, nullptr) == 0);
    const itimerval every = {{0, 1000}, {0, 1000}}, never = {};
    ticks = 0;
    REQUIRE(setitimer(ITIMER_REAL, &every, nullptr) == 0);

    const int n = 1 << 18;
    std::vector<unsigned> host(n);
    unsigned *device;
    CHECK(cudaMalloc(&device, n * sizeof(unsigned)));
    // Until it has been interrupted often enough, and at least ten times round.
    for (unsigned round = 0; round < 10 || ticks < 50; round++) {
        for (int i = 0; i < n; i++) {
            host[i] = round + i;
        }
        CHECK(cudaMemcpy(device, host.data(), n * sizeof(unsigned), cudaMemcpyHostToDevice));
        increment<<<1, 128>>>(device, n);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpy(host.data(), device, n * sizeof(unsigned), cudaMemcpyDeviceToHost));
        for (int i = 0; i < n; i++) {
            REQUIRE(host[i] == round + i + 1);
        }
    }
    CHECK(cudaFree(device));
    REQUIRE(setitimer(ITIMER_REAL, &never, nullptr) == 0);
    std::printf("%s: right\n", label);
}

int main() {
    run("restarting", SA_RESTART);
    run("not restarting", 0);
    return 0;
}
