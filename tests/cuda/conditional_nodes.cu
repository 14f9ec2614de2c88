// SPDX-License-Identifier: Apache-2.0 OR MIT
// nvcc: -rdc=true
// Conditional nodes of graphs: IF with one graph and with two, WHILE, SWITCH, one inside of another, defaults, and what is
// refused. Kernels set the conditions; each counts what ran.
#include "check.h"

#include <vector>

enum { A, B, C, D, E, COUNT };

static __global__ void set(cudaGraphConditionalHandle handle, const unsigned int *value) {
    cudaGraphSetConditional(handle, *value);
}

static __global__ void count(unsigned int *counts, int which) { atomicAdd(&counts[which], 1); }

// Runs as long as the counter is not 0.
static __global__ void count_down(cudaGraphConditionalHandle handle, unsigned int *left, unsigned int *counts, int which) {
    counts[which]++;
    *left -= 1;
    cudaGraphSetConditional(handle, *left != 0);
}

// A condition that each launch begins anew, from `again` on.
static __global__ void begin(cudaGraphConditionalHandle handle, unsigned int *left, unsigned int again) {
    *left = again;
    cudaGraphSetConditional(handle, again != 0);
}

static unsigned int *value, *counts, *left;

static cudaGraphNode_t kernel(cudaGraph_t graph, std::vector<cudaGraphNode_t> after, const void *function, void **arguments) {
    cudaGraphNodeParams params = {cudaGraphNodeTypeKernel};
    params.kernel.func = const_cast<void *>(function);
    params.kernel.gridDim = dim3(1);
    params.kernel.blockDim = dim3(1);
    params.kernel.kernelParams = arguments;
    cudaGraphNode_t node;
    CHECK(cudaGraphAddNode(&node, graph, after.data(), nullptr, after.size(), &params));
    return node;
}

static cudaGraphNode_t counter(cudaGraph_t graph, std::vector<cudaGraphNode_t> after, int which) {
    void *arguments[] = {&counts, &which};
    return kernel(graph, after, (const void *)count, arguments);
}

static cudaGraphNode_t setter(cudaGraph_t graph, cudaGraphConditionalHandle handle) {
    void *arguments[] = {&handle, &value};
    return kernel(graph, {}, (const void *)set, arguments);
}

// A conditional node; its graphs.
static cudaGraphNode_t conditional(cudaGraph_t graph, std::vector<cudaGraphNode_t> after, cudaGraphConditionalHandle handle,
                                   cudaGraphConditionalNodeType type, unsigned int size, std::vector<cudaGraph_t> &graphs) {
    cudaGraphNodeParams params = {cudaGraphNodeTypeConditional};
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = size;
    cudaGraphNode_t node;
    CHECK(cudaGraphAddNode(&node, graph, after.data(), nullptr, after.size(), &params));
    graphs.assign(params.conditional.phGraph_out, params.conditional.phGraph_out + size);
    cudaGraphNodeType is;
    CHECK(cudaGraphNodeGetType(node, &is));
    REQUIRE(is == cudaGraphNodeTypeConditional);
    return node;
}

static void launch(cudaGraphExec_t exec, unsigned int with, const char *what) {
    CHECK(cudaMemcpy(value, &with, sizeof with, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(counts, 0, COUNT * sizeof(unsigned int)));
    CHECK(cudaGraphLaunch(exec, nullptr));
    unsigned int seen[COUNT];
    CHECK(cudaMemcpy(seen, counts, sizeof seen, cudaMemcpyDeviceToHost));
    std::printf("%s %u: %u %u %u %u %u\n", what, with, seen[A], seen[B], seen[C], seen[D], seen[E]);
}

static void finish(cudaGraph_t graph, cudaGraphExec_t exec) {
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

static void if_and_else(unsigned int size) {
    cudaGraph_t graph;
    cudaGraphConditionalHandle handle;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 0, 0));
    std::vector<cudaGraph_t> graphs;
    cudaGraphNode_t node = conditional(graph, {setter(graph, handle)}, handle, cudaGraphCondTypeIf, size, graphs);
    counter(graphs[0], {}, A);
    if (size > 1) {
        counter(graphs[1], {counter(graphs[1], {}, B)}, B);
    }
    counter(graph, {node}, E);
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (unsigned int with : {1u, 0u, 7u}) {
        launch(exec, with, size > 1 ? "if else" : "if");
    }
    finish(graph, exec);
}

static void a_switch() {
    cudaGraph_t graph;
    cudaGraphConditionalHandle handle;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 0, 0));
    std::vector<cudaGraph_t> graphs;
    cudaGraphNode_t node = conditional(graph, {setter(graph, handle)}, handle, cudaGraphCondTypeSwitch, 3, graphs);
    for (int which : {A, B, C}) {
        counter(graphs[which], {}, which);
    }
    counter(graph, {node}, E);
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (unsigned int with = 0; with < 5; with++) {
        launch(exec, with, "switch");
    }
    finish(graph, exec);
}

// The body is captured; the condition is true at the beginning of each launch.
static void a_loop() {
    cudaGraph_t graph;
    cudaGraphConditionalHandle handle;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
    std::vector<cudaGraph_t> graphs;
    cudaGraphNode_t node = conditional(graph, {}, handle, cudaGraphCondTypeWhile, 1, graphs);
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCaptureToGraph(stream, graphs[0], nullptr, nullptr, 0, cudaStreamCaptureModeGlobal));
    count<<<1, 1, 0, stream>>>(counts, A);
    count_down<<<1, 1, 0, stream>>>(handle, value, counts, B);
    CHECK(cudaStreamEndCapture(stream, nullptr));
    CHECK(cudaStreamDestroy(stream));
    counter(graph, {node}, E);
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (unsigned int with : {3u, 1u, 10u}) {
        launch(exec, with, "while");
    }
    finish(graph, exec);
}

// A loop in a loop.
static void nested() {
    cudaGraph_t graph;
    cudaGraphConditionalHandle outer, inner;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphConditionalHandleCreate(&outer, graph, 1, cudaGraphCondAssignDefault));
    std::vector<cudaGraph_t> graphs, inside;
    cudaGraphNode_t node = conditional(graph, {}, outer, cudaGraphCondTypeWhile, 1, graphs);
    CHECK(cudaGraphConditionalHandleCreate(&inner, graphs[0], 0, 0));
    unsigned int again = 4;
    void *beginning[] = {&inner, &left, &again};
    cudaGraphNode_t first = kernel(graphs[0], {}, (const void *)begin, beginning);
    cudaGraphNode_t loop = conditional(graphs[0], {first}, inner, cudaGraphCondTypeWhile, 1, inside);
    int which = A;
    void *inner_step[] = {&inner, &left, &counts, &which};
    kernel(inside[0], {}, (const void *)count_down, inner_step);
    int outer_which = B;
    void *outer_step[] = {&outer, &value, &counts, &outer_which};
    kernel(graphs[0], {loop}, (const void *)count_down, outer_step);
    counter(graph, {node}, E);
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (unsigned int with : {1u, 3u}) {
        launch(exec, with, "nested");
    }
    finish(graph, exec);
}

static void refusals() {
    cudaGraph_t graph, clone;
    cudaGraphConditionalHandle handle;
    cudaGraphExec_t exec;
    cudaGraphNode_t node;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 0, 0));
    std::printf("a handle without a node: %d\n", cudaGraphInstantiate(&exec, graph, 0) != cudaSuccess);
    cudaGraphNodeParams params = {cudaGraphNodeTypeConditional};
    params.conditional.handle = handle;
    params.conditional.type = cudaGraphCondTypeWhile;
    params.conditional.size = 2;
    std::printf("a loop of two graphs: %d\n", cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &params) != cudaSuccess);
    params.conditional.size = 0;
    std::printf("a loop of none: %d\n", cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &params) != cudaSuccess);
    std::vector<cudaGraph_t> graphs;
    conditional(graph, {}, handle, cudaGraphCondTypeWhile, 1, graphs);
    counter(graphs[0], {}, A);
    std::printf("a clone: %d\n", cudaGraphClone(&clone, graph) != cudaSuccess);
    CHECK(cudaGraphDestroy(graph));
    cudaGetLastError();
}

int main() {
    CHECK(cudaMalloc(&value, sizeof *value));
    CHECK(cudaMalloc(&left, sizeof *left));
    CHECK(cudaMalloc(&counts, COUNT * sizeof *counts));
    if_and_else(1);
    if_and_else(2);
    a_switch();
    a_loop();
    nested();
    refusals();
    return 0;
}
