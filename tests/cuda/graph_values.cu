// SPDX-License-Identifier: Apache-2.0 OR MIT
// Nodes of graphs that wait for values in memory and write them.
#include "check_driver.h"

#include <unistd.h>

static CUstreamBatchMemOpParams write_value(CUdeviceptr at, uint32_t value) {
    CUstreamBatchMemOpParams one = {};
    one.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    one.writeValue.address = at;
    one.writeValue.value = value;
    return one;
}

static CUstreamBatchMemOpParams wait_value(CUdeviceptr at, uint32_t value) {
    CUstreamBatchMemOpParams one = {};
    one.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    one.waitValue.address = at;
    one.waitValue.value = value;
    one.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    return one;
}

__global__ void add_to(uint32_t *to, const uint32_t *from) { *to += *from; }

int main() {
    CUcontext context = use_primary_context();
    uint32_t *host;
    CHECK_DRIVER(cuMemHostAlloc((void **)&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    for (int i = 0; i < 8; i++)
        host[i] = 0;
    CUdeviceptr gate, values;
    CHECK_DRIVER(cuMemHostGetDevicePointer(&gate, host, 0));
    CHECK_DRIVER(cuMemAlloc(&values, 64));
    CHECK_DRIVER(cuMemsetD8(values, 0, 64));

    // A wait for the CPU and a write, then a kernel that adds what was written, then a write for the CPU.
    CUgraph graph;
    CHECK_DRIVER(cuGraphCreate(&graph, 0));
    CUstreamBatchMemOpParams first[2] = {wait_value(gate, 1), write_value(values, 40)};
    CUDA_BATCH_MEM_OP_NODE_PARAMS params = {};
    params.ctx = context;
    params.count = 2;
    params.paramArray = first;
    CUgraphNode batch, kernel, last;
    CHECK_DRIVER(cuGraphAddBatchMemOpNode(&batch, graph, nullptr, 0, &params));
    uint32_t *to = (uint32_t *)(values + 4), *from = (uint32_t *)values;
    void *arguments[] = {&to, &from};
    cudaKernelNodeParams launch = {};
    launch.func = (void *)add_to;
    launch.gridDim = dim3(1);
    launch.blockDim = dim3(1);
    launch.kernelParams = arguments;
    CHECK(cudaGraphAddKernelNode(&kernel, graph, &batch, 1, &launch));
    CUstreamBatchMemOpParams report = write_value(gate + 4, 100);
    CUgraphNodeParams any = {};
    any.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    any.memOp.ctx = context;
    any.memOp.count = 1;
    any.memOp.paramArray = &report;
    CHECK_DRIVER(cuGraphAddNode(&last, graph, &kernel, nullptr, 1, &any));

    CUgraphNodeType type;
    CHECK_DRIVER(cuGraphNodeGetType(batch, &type));
    CUDA_BATCH_MEM_OP_NODE_PARAMS found = {};
    CHECK_DRIVER(cuGraphBatchMemOpNodeGetParams(batch, &found));
    std::printf("type %d, %u operations, flags %u\n", (int)type, found.count, found.flags);
    std::printf("wait: %d, address %d, value %u\n", (int)found.paramArray[0].operation,
                found.paramArray[0].waitValue.address == gate, found.paramArray[0].waitValue.value);
    std::printf("write: %d, address %d, value %u\n", (int)found.paramArray[1].operation,
                found.paramArray[1].writeValue.address == values, found.paramArray[1].writeValue.value);

    CUgraphExec exec;
    CUstream stream;
    CHECK_DRIVER(cuGraphInstantiate(&exec, graph, 0));
    CHECK_DRIVER(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_DRIVER(cuGraphLaunch(exec, stream));
    usleep(20000);
    std::printf("closed: query %d, told %u\n", (int)cuStreamQuery(stream), ((volatile uint32_t *)host)[1]);
    *(volatile uint32_t *)host = 1;
    CHECK_DRIVER(cuStreamSynchronize(stream));
    uint32_t result[2];
    CHECK_DRIVER(cuMemcpyDtoH(result, values, 8));
    std::printf("open: %u %u, told %u\n", result[0], result[1], ((volatile uint32_t *)host)[1]);

    // Other values in the executable graph, then in the graph.
    first[1].writeValue.value = 2;
    CHECK_DRIVER(cuGraphExecBatchMemOpNodeSetParams(exec, batch, &params));
    CHECK_DRIVER(cuGraphLaunch(exec, stream));
    CHECK_DRIVER(cuStreamSynchronize(stream));
    CHECK_DRIVER(cuMemcpyDtoH(result, values, 8));
    std::printf("changed: %u %u\n", result[0], result[1]);
    CHECK_DRIVER(cuGraphBatchMemOpNodeGetParams(batch, &found));
    std::printf("the graph has %u", found.paramArray[1].writeValue.value);
    first[1].writeValue.value = 300;
    CHECK_DRIVER(cuGraphBatchMemOpNodeSetParams(batch, &params));
    CHECK_DRIVER(cuGraphBatchMemOpNodeGetParams(batch, &found));
    std::printf(", then %u\n", found.paramArray[1].writeValue.value);
    CUgraphExecUpdateResultInfo update = {};
    CHECK_DRIVER(cuGraphExecUpdate(exec, graph, &update));
    CHECK_DRIVER(cuGraphLaunch(exec, stream));
    CHECK_DRIVER(cuStreamSynchronize(stream));
    CHECK_DRIVER(cuMemcpyDtoH(result, values, 8));
    std::printf("updated: %u %u\n", result[0], result[1]);

    params.count = 0;
    std::printf("none: %d\n", (int)cuGraphAddBatchMemOpNode(&last, graph, nullptr, 0, &params));
    std::printf("of a kernel: %d\n", (int)cuGraphBatchMemOpNodeGetParams(kernel, &found));
    CHECK_DRIVER(cuGraphExecDestroy(exec));
    CHECK_DRIVER(cuGraphDestroy(graph));
    CHECK_DRIVER(cuStreamDestroy(stream));
    CHECK_DRIVER(cuMemFree(values));
    CHECK_DRIVER(cuMemFreeHost(host));
    std::printf("done\n");
    return 0;
}
