// SPDX-License-Identifier: Apache-2.0 OR MIT
// Kernels of executable graphs that get other arguments before each launch, as XLA's command buffers do.
#include "check.h"

#include <thread>

enum { NODES = 4, STEPS = 200 };

// The order of launches and of changes shows in the result.
__global__ void append(unsigned long long *to, unsigned value, unsigned times) {
    if (blockIdx.x == 0) *to = *to * 31 + value * times;
}

static unsigned long long *memory[2];
static unsigned long long wanted[2];
static cudaGraphNode_t nodes[NODES];

static cudaKernelNodeParams launch(void **arguments, unsigned blocks = 1) {
    cudaKernelNodeParams params = {};
    params.func = (void *)append;
    params.gridDim = dim3(blocks);
    params.blockDim = dim3(32);
    params.kernelParams = arguments;
    return params;
}

// Sets the arguments of all nodes. All of them write to one word.
static void set(cudaGraphExec_t exec, unsigned step, unsigned blocks = 1) {
    for (unsigned node = 0; node < NODES; node++) {
        const unsigned place = step / 7 % 2;
        unsigned value = step * NODES + node, times = node + 1;
        void *arguments[] = {&memory[place], &value, &times};
        const cudaKernelNodeParams params = launch(arguments, blocks);
        CHECK(cudaGraphExecKernelNodeSetParams(exec, nodes[node], &params));
        wanted[place] = wanted[place] * 31 + value * times;
    }
}

static void compare(const char *name) {
    CHECK(cudaDeviceSynchronize());
    bool same = true;
    for (int i = 0; i < 2; i++) {
        unsigned long long found;
        CHECK(cudaMemcpy(&found, memory[i], sizeof found, cudaMemcpyDeviceToHost));
        same = same && found == wanted[i];
    }
    printf("%s: %s\n", name, same ? "right" : "WRONG");
}

int main() {
    cudaStream_t stream, other;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    for (unsigned long long *&place : memory) {
        CHECK(cudaMalloc(&place, sizeof *place));
        CHECK(cudaMemset(place, 0, sizeof *place));
    }
    CHECK(cudaDeviceSynchronize());
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    unsigned value = 0, times = 0;
    void *arguments[] = {&memory[0], &value, &times};
    for (int i = 0; i < NODES; i++) {
        const cudaKernelNodeParams params = launch(arguments);
        CHECK(cudaGraphAddKernelNode(&nodes[i], graph, i ? &nodes[i - 1] : nullptr, i ? 1 : 0, &params));
    }
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));

    for (unsigned step = 0; step < STEPS; step++) {
        set(exec, step);
        CHECK(cudaGraphLaunch(exec, stream));
    }
    compare("other arguments");
    for (unsigned step = 0; step < STEPS; step++) {
        set(exec, step, step % 3 + 1);
        CHECK(cudaGraphLaunch(exec, stream));
    }
    compare("other grids");

    // Each step by another thread: what one has set, the next one launches, in another stream.
    for (unsigned step = 0; step < 20; step++) {
        std::thread([&] { set(exec, step); }).join();
        std::thread([&] {
            CHECK(cudaGraphLaunch(exec, step % 2 ? stream : other));
            CHECK(cudaStreamSynchronize(step % 2 ? stream : other));
        }).join();
    }
    compare("two threads");

    // Between the changes an update gives all nodes the graph's own arguments: 0 of `memory[0]`.
    for (unsigned step = 0; step < 20; step++) {
        set(exec, step);
        CHECK(cudaGraphLaunch(exec, stream));
        cudaGraphExecUpdateResultInfo info;
        CHECK(cudaGraphExecUpdate(exec, graph, &info));
        CHECK(cudaGraphLaunch(exec, stream));
        for (int i = 0; i < NODES; i++) wanted[0] *= 31;
    }
    compare("updates");

    // A wrong grid is told at once, and the node stays as it is.
    set(exec, 0);
    cudaKernelNodeParams wrong = launch(arguments);
    wrong.blockDim = dim3(4096);
    printf("4096 threads in a block: %s\n", cudaGetErrorName(cudaGraphExecKernelNodeSetParams(exec, nodes[0], &wrong)));
    (void)cudaGetLastError();
    CHECK(cudaGraphLaunch(exec, stream));
    compare("after a wrong one");

    // New executable graphs with the old one's nodes.
    for (unsigned step = 0; step < 20; step++) {
        cudaGraphExec_t made;
        CHECK(cudaGraphInstantiate(&made, graph, 0));
        set(made, step);
        CHECK(cudaGraphLaunch(made, stream));
        set(made, step + 1);
        CHECK(cudaGraphLaunch(made, stream));
        CHECK(cudaGraphExecDestroy(made));
    }
    compare("new graphs");
    CHECK(cudaGraphDestroy(graph));
    printf("done\n");
    return 0;
}
