// SPDX-License-Identifier: Apache-2.0 OR MIT
// Functions and copies of ordinary memory that an executable graph gets after it was made: each launch has those of
// its time, also when they are replaced, or the graph destroyed, while it runs.
#include "check.h"

#include <atomic>
#include <vector>

#include <unistd.h>

struct Call {
    std::atomic<int> *gate;
    std::vector<int> *order;
    int number;
};

static void note(void *argument) {
    const Call *call = static_cast<const Call *>(argument);
    while (call->gate->load() == 0) {
        usleep(100);
    }
    call->order->push_back(call->number);
}

static void show(const char *what, std::vector<int> &order) {
    std::printf("%s:", what);
    for (const int number : order) {
        std::printf(" %d", number);
    }
    std::printf("\n");
    order.clear();
}

int main() {
    std::atomic<int> gate{1};
    std::vector<int> order;
    std::vector<Call> calls;
    for (int i = 0; i < 100; i++) {
        calls.push_back({&gate, &order, i});
    }
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    cudaGraph_t graph;
    cudaGraphNode_t node, copy;
    cudaHostNodeParams params = {note, &calls[0]};
    int source[3] = {1, 2, 3}, *device, target = 0;
    CHECK(cudaMalloc(&device, sizeof(int)));
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddHostNode(&node, graph, nullptr, 0, &params));
    CHECK(cudaGraphAddMemcpyNode1D(&copy, graph, &node, 1, device, &source[0], sizeof(int), cudaMemcpyHostToDevice));
    const auto set = [&](cudaGraphExec_t exec, int number) {
        params.userData = &calls[number];
        CHECK(cudaGraphExecHostNodeSetParams(exec, node, &params));
    };
    for (int round = 0; round < 2; round++) {
        cudaGraphExec_t exec;
        CHECK(cudaGraphInstantiate(&exec, graph, 0));
        CHECK(cudaGraphLaunch(exec, stream));
        for (int i = 1; i < 10; i++) {
            set(exec, 10 + i);
            set(exec, i);
            CHECK(cudaGraphLaunch(exec, stream));
            if (i % 3 == 0) {
                CHECK(cudaStreamSynchronize(stream));
            }
        }
        show("one after the other", order);

        gate = 0;
        for (int i = 20; i < 24; i++) {
            set(exec, i);
            CHECK(cudaGraphLaunch(exec, stream));
        }
        CHECK(cudaGraphExecMemcpyNodeSetParams1D(exec, copy, device, &source[round + 1], sizeof(int),
                                                 cudaMemcpyHostToDevice));
        if (round == 0) {
            cudaGraphExecUpdateResultInfo result;
            CHECK(cudaGraphExecUpdate(exec, graph, &result));
            CHECK(cudaGraphLaunch(exec, stream));
            set(exec, 30);
        }
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaGraphExecDestroy(exec));
        gate = 1;
        CHECK(cudaStreamSynchronize(stream));
        show("held up", order);
        CHECK(cudaMemcpy(&target, device, sizeof target, cudaMemcpyDeviceToHost));
        std::printf("copied: %d\n", target);
    }
    for (int i = 0; i < 300; i++) {
        params.userData = &calls[i % 100];
        CHECK(cudaGraphHostNodeSetParams(node, &params));
        if (i % 10 == 0) {
            usleep(2000);
        }
    }
    cudaGraphNode_t passing;
    CHECK(cudaGraphAddHostNode(&passing, graph, nullptr, 0, &params));
    CHECK(cudaGraphDestroyNode(passing));
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamSynchronize(stream));
    show("with the last function", order);
    // What is no longer needed is given back behind the program's back.
    usleep(300000);
    return 0;
}
