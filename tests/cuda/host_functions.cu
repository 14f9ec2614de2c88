// SPDX-License-Identifier: Apache-2.0 OR MIT
// Functions of the program in stream order: they run while the program goes on, hold up what comes after them in
// their stream, see what came before, and may not call CUDA.
#include "check.h"

#include <atomic>
#include <thread>

#include <unistd.h>

__global__ void set(int *to, int value) { *to = value; }

struct State {
    int *pinned;
    std::atomic<int> gate{0};
    std::atomic<int> step{0};
    int seen = -1;
    int order[4] = {};
    cudaError_t nested = cudaSuccess;
    bool other_thread = false;
    std::thread::id main_thread;
};

static void wait_at_gate(void *argument) {
    State *state = static_cast<State *>(argument);
    while (state->gate.load() == 0) {
        usleep(1000);
    }
    state->seen = *state->pinned;
    state->other_thread = std::this_thread::get_id() != state->main_thread;
    state->order[state->step++] = 1;
}
static void second(void *argument) {
    State *state = static_cast<State *>(argument);
    int *memory;
    state->nested = cudaMalloc(&memory, 4);
    state->order[state->step++] = 2;
}
static void CUDART_CB third(cudaStream_t, cudaError_t status, void *argument) {
    State *state = static_cast<State *>(argument);
    state->order[state->step++] = status == cudaSuccess ? 3 : -1;
}

static std::atomic<int> many{0};
static void count(void *) { many++; }

static void never_returns(void *) {
    std::printf("stuck\n");
    std::fflush(stdout);
    for (;;) {
        pause();
    }
}

int main(int argc, char **) {
    if (argc > 1) {
        CHECK(cudaLaunchHostFunc(nullptr, never_returns, nullptr));
        CHECK(cudaDeviceSynchronize());
        return 1;
    }
    State state;
    state.main_thread = std::this_thread::get_id();
    CHECK(cudaMallocHost(&state.pinned, sizeof(int)));
    *state.pinned = 0;
    cudaStream_t stream, other;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));

    set<<<1, 1, 0, stream>>>(state.pinned, 41);
    CHECK(cudaLaunchHostFunc(stream, wait_at_gate, &state));
    set<<<1, 1, 0, stream>>>(state.pinned, 42);
    CHECK(cudaLaunchHostFunc(stream, second, &state));
    CHECK(cudaStreamAddCallback(stream, third, &state, 0));
    // The program is here while the first function waits for it.
    std::printf("steps before the gate opens: %d\n", state.step.load());
    std::printf("stream: %s\n", cudaGetErrorName(cudaStreamQuery(stream)));
    CHECK(cudaStreamSynchronize(other));
    state.gate = 1;
    CHECK(cudaStreamSynchronize(stream));
    std::printf("order %d %d %d, seen %d, then %d\n", state.order[0], state.order[1], state.order[2], state.seen,
                *state.pinned);
    std::printf("on another thread: %d, a call inside: %s\n", state.other_thread, cudaGetErrorName(state.nested));

    for (int i = 0; i < 200; i++) {
        CHECK(cudaLaunchHostFunc(i % 2 ? stream : other, count, nullptr));
    }
    CHECK(cudaDeviceSynchronize());
    std::printf("calls %d\n", many.load());
    std::printf("no function: %s\n", cudaGetErrorName(cudaLaunchHostFunc(stream, nullptr, nullptr)));
    std::printf("bad flags: %s\n", cudaGetErrorName(cudaStreamAddCallback(stream, third, &state, 1)));
    // The process ends with functions queued; nobody waits for them.
    state.gate = 0;
    CHECK(cudaLaunchHostFunc(stream, wait_at_gate, &state));
    std::printf("done\n");
    std::fflush(stdout);
    _exit(0);
}
