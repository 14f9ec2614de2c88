// SPDX-License-Identifier: Apache-2.0 OR MIT
// A graph into which a stream captures: neither it nor its nodes can be destroyed until the capture ends.
#include "check_driver.h"

static void try_to_destroy(bool node, bool to_graph) {
    CUstream stream;
    CUdeviceptr memory;
    CHECK_DRIVER(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_DRIVER(cuMemAlloc(&memory, 4096));
    CUgraph graph = nullptr;
    if (to_graph) {
        CHECK_DRIVER(cuGraphCreate(&graph, 0));
        CHECK_DRIVER(cuStreamBeginCaptureToGraph(stream, graph, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
    } else {
        CHECK_DRIVER(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    }
    CHECK_DRIVER(cuMemsetD8Async(memory, 1, 64, stream));
    CUstreamCaptureStatus status;
    const CUgraphNode *last = nullptr;
    size_t count = 0;
#if CUDA_VERSION >= 13000
    CHECK_DRIVER(cuStreamGetCaptureInfo(stream, &status, nullptr, &graph, &last, nullptr, &count));
#else
    CHECK_DRIVER(cuStreamGetCaptureInfo(stream, &status, nullptr, &graph, &last, &count));
#endif
    REQUIRE(count == 1);
    const CUgraphNode captured = last[0];
    const CUresult refused = node ? cuGraphDestroyNode(captured) : cuGraphDestroy(graph);
    std::printf("%s of a capture%s: %d\n", node ? "node" : "graph", to_graph ? " to a graph" : "", (int)refused);
    // The capture goes on behind that node.
    CHECK_DRIVER(cuMemsetD8Async(memory, 2, 64, stream));
    CUgraph ended;
    CHECK_DRIVER(cuStreamEndCapture(stream, &ended));
    REQUIRE(ended == graph);
    CUgraphExec exec;
    CHECK_DRIVER(cuGraphInstantiate(&exec, graph, 0));
    CHECK_DRIVER(cuGraphLaunch(exec, stream));
    unsigned char byte = 0;
    CHECK_DRIVER(cuMemcpyDtoHAsync(&byte, memory, 1, stream));
    CHECK_DRIVER(cuStreamSynchronize(stream));
    REQUIRE(byte == 2);
    CHECK_DRIVER(cuGraphExecDestroy(exec));
    // Now they can be.
    CHECK_DRIVER(cuGraphDestroyNode(captured));
    CHECK_DRIVER(cuGraphDestroy(graph));
    CHECK_DRIVER(cuMemFree(memory));
    CHECK_DRIVER(cuStreamDestroy(stream));
}

int main() {
    use_primary_context();
    for (const bool to_graph : {false, true}) {
        for (const bool node : {false, true}) try_to_destroy(node, to_graph);
    }
    return 0;
}
