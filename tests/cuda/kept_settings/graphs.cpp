// SPDX-License-Identifier: Apache-2.0 OR MIT
// Settings of graphs, of their nodes, and of executable graphs.

#include "driver.h"

static CUdevice device;
static CUcontext context;
static CUdeviceptr memory;
static CUfunction function;
static CUevent events[2];
static CUgraph graph;
static CUgraphNode first, second, fill, record;
static CUgraphExec exec;
static void *parameters[2];
static unsigned number = 1;

static CUDA_KERNEL_NODE_PARAMS kernel(unsigned blocks) {
    CUDA_KERNEL_NODE_PARAMS params = {};
    params.func = function;
    params.gridDimX = blocks;
    params.gridDimY = params.gridDimZ = params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = parameters;
    return params;
}

static CUDA_MEMSET_NODE_PARAMS filling(unsigned value) {
    CUDA_MEMSET_NODE_PARAMS params = {};
    params.dst = memory;
    params.value = value;
    params.elementSize = 4;
    params.width = 16;
    params.height = 1;
    return params;
}

static void ask_nodes(Answers &answers) {
    CUDA_KERNEL_NODE_PARAMS kernel = {};
    int result = cuGraphKernelNodeGetParams(first, &kernel);
    answers.add("graph_node_get_params", "blocks", result, kernel.gridDimX);
    answers.add("graph_node_get_params", "number", result, result ? 0 : *(unsigned *)kernel.kernelParams[1]);
    CUDA_MEMSET_NODE_PARAMS filling = {};
    result = cuGraphMemsetNodeGetParams(fill, &filling);
    answers.add("graph_node_get_params", "fill", result, filling.value);
    CUevent event = nullptr;
    result = cuGraphEventRecordNodeGetEvent(record, &event);
    answers.add("graph_node_get_params", "event", result, event == events[1]);
    for (const auto &[name, node] : {std::pair{"first", first}, {"second", second}}) {
        for (CUlaunchAttributeID attribute : {CU_LAUNCH_ATTRIBUTE_PRIORITY, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
                                              CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW}) {
            CUlaunchAttributeValue value;
            std::memset(&value, 0, sizeof value);
            result = cuGraphKernelNodeGetAttribute(node, attribute, &value);
            answers.add("cuGraphKernelNodeGetAttribute", name + std::string(" ") + std::to_string(attribute), result, value);
        }
    }
}

static void ask(Answers &answers) {
    ask_nodes(answers);
    CUgraphNode from[4] = {}, to[4] = {};
    size_t count = 4;
    int result = cuGraphGetEdges(graph, from, to, nullptr, &count);
    answers.add("cuGraphGetEdges", "count", result, count);
    for (const auto &[name, one, other] : {std::tuple{"first second", first, second}, {"fill first", fill, first}, {"second record", second, record}}) {
        bool is_there = false;
        for (size_t i = 0; i < count; i++) is_there |= from[i] == one && to[i] == other;
        answers.add("cuGraphGetEdges", name, result, is_there);
    }
    for (const auto &[name, node] : {std::pair{"first", first}, {"second", second}, {"fill", fill}}) {
        unsigned is_enabled = 0;
        answers.add("cuGraphNodeGetEnabled", name, cuGraphNodeGetEnabled(exec, node, &is_enabled), is_enabled);
    }
    cuuint64_t flags = 0;
    answers.add("cuGraphExecGetFlags", "", cuGraphExecGetFlags(exec, &flags), flags);
    for (const auto &[name, attribute] : {std::pair{"used high", CU_GRAPH_MEM_ATTR_USED_MEM_HIGH}, {"reserved high", CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH}}) {
        cuuint64_t value = 0;
        answers.add("cuDeviceGetGraphMemAttribute", name, cuDeviceGetGraphMemAttribute(device, attribute, &value), value);
    }
}

static void set() {
    CUgraphNode from[] = {fill, second}, to[] = {first, record};
    CHECK_DRIVER(cuGraphAddDependencies(graph, from, to, nullptr, 2));
    CHECK_DRIVER(cuGraphRemoveDependencies(graph, &first, &second, nullptr, 1));
    number = 7;
    const CUDA_KERNEL_NODE_PARAMS params = kernel(3);
    CHECK_DRIVER(cuGraphKernelNodeSetParams(first, &params));
    const CUDA_MEMSET_NODE_PARAMS other = filling(9);
    CHECK_DRIVER(cuGraphMemsetNodeSetParams(fill, &other));
    CHECK_DRIVER(cuGraphEventRecordNodeSetEvent(record, events[1]));
    CUlaunchAttributeValue value;
    std::memset(&value, 0, sizeof value);
    value.priority = -2;
    CHECK_DRIVER(cuGraphKernelNodeSetAttribute(first, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
    std::memset(&value, 0, sizeof value);
    value.accessPolicyWindow = {(void *)memory, 4096, 0.5, CU_ACCESS_PROPERTY_PERSISTING, CU_ACCESS_PROPERTY_STREAMING};
    CHECK_DRIVER(cuGraphKernelNodeSetAttribute(first, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value));
    CHECK_DRIVER(cuGraphKernelNodeCopyAttributes(second, first));
    // The graph has changed since it was made executable.
    CUgraphExecUpdateResultInfo info = {};
    CHECK_DRIVER(cuGraphExecDestroy(exec));
    CHECK_DRIVER(cuGraphInstantiate(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY));
    CHECK_DRIVER(cuGraphExecUpdate(exec, graph, &info));
    CHECK_DRIVER(cuGraphNodeSetEnabled(exec, second, 0));
    cuuint64_t none = 0;
    CHECK_DRIVER(cuDeviceSetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &none));
    CHECK_DRIVER(cuDeviceSetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &none));
}

// The device's counters of such memory, which may be set to 0, say something then.
static void allocate() {
    CUgraph allocating;
    CHECK_DRIVER(cuGraphCreate(&allocating, 0));
    CUDA_MEM_ALLOC_NODE_PARAMS params = {};
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
    params.bytesize = 1 << 20;
    CUgraphNode taken, given;
    CHECK_DRIVER(cuGraphAddMemAllocNode(&taken, allocating, nullptr, 0, &params));
    CHECK_DRIVER(cuGraphAddMemFreeNode(&given, allocating, &taken, 1, params.dptr));
    CUgraphExec once;
    CHECK_DRIVER(cuGraphInstantiate(&once, allocating, 0));
    CHECK_DRIVER(cuGraphLaunch(once, nullptr));
    CHECK_DRIVER(cuCtxSynchronize());
    CHECK_DRIVER(cuGraphExecDestroy(once));
    CHECK_DRIVER(cuGraphDestroy(allocating));
    CHECK_DRIVER(cuDeviceGraphMemTrim(device));
}

Part graphs_part() {
    context = use_primary_context();
    CHECK_DRIVER(cuDeviceGet(&device, 0));
    allocate();
    CHECK_DRIVER(cuMemAlloc(&memory, 4096));
    parameters[0] = &memory;
    parameters[1] = &number;
    CUmodule module;
    CHECK_DRIVER(cuModuleLoadData(&module, KEPT_CODE));
    CHECK_DRIVER(cuModuleGetFunction(&function, module, "store"));
    for (CUevent &event : events) CHECK_DRIVER(cuEventCreate(&event, 0));
    CHECK_DRIVER(cuGraphCreate(&graph, 0));
    const CUDA_KERNEL_NODE_PARAMS params = kernel(1);
    CHECK_DRIVER(cuGraphAddKernelNode(&first, graph, nullptr, 0, &params));
    CHECK_DRIVER(cuGraphAddKernelNode(&second, graph, &first, 1, &params));
    const CUDA_MEMSET_NODE_PARAMS filled = filling(1);
    CHECK_DRIVER(cuGraphAddMemsetNode(&fill, graph, nullptr, 0, &filled, context));
    CHECK_DRIVER(cuGraphAddEventRecordNode(&record, graph, nullptr, 0, events[0]));
    CHECK_DRIVER(cuGraphInstantiate(&exec, graph, 0));
    return {ask, set};
}
