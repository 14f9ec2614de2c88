// SPDX-License-Identifier: Apache-2.0 OR MIT
// CUPTI's callbacks as XLA's profiler (JAX, TensorFlow) and parcagpu use them: arguments of calls, names of kernels, graphs, streams,
// modules, the numbers of all of them, and records that have these numbers.
#include "check_driver.h"
// Its CHECK takes results of any library.
#undef CHECK
#include "library.h"

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

// cupti_callbacks.h, cupti_driver_cbid.h, cupti_runtime_cbid.h, cupti_activity.h
enum { DRIVER_API = 1, RUNTIME_API = 2, RESOURCE = 3, SYNCHRONIZE = 4 };
enum {
    MEM_ALLOC = 243,
    MEM_FREE = 245,
    HTOD = 276,
    DTOH_ASYNC = 279,
    LAUNCH = 307,
    MEMSET_ASYNC = 220,
    GRAPH_CREATE = 501,
    ADD_KERNEL_NODE = 689,
    GRAPH_CLONE = 523,
    INSTANTIATE = 643,
    GRAPH_LAUNCH = 514,
    RUNTIME_LAUNCH = 211,
    RUNTIME_LAUNCH_OF_13 = 505,
    RUNTIME_MEMSET_ASYNC = 51,
    MEMSET_BYTES_ASYNC = 216,
};
enum { STREAM_CREATED = 3, STREAM_ENDS, MODULE_LOADED = 6, MODULE_ENDS };
enum { GRAPH_CREATED = 9, GRAPH_ENDS, GRAPH_CLONED, NODE_CREATED = 13, EXEC_CREATED = 18, EXEC_ENDS, NODE_CLONED };
enum { CONCURRENT_KERNEL = 10, THREAD_ID_SYSTEM = 1 };
struct CallbackData {
    uint32_t site;
    const char *function;
    const void *parameters;
    const int *result;
    const char *symbol;
    CUcontext context;
    uint32_t context_uid;
    uint64_t *data;
    uint32_t correlation;
};
struct ResourceData {
    CUcontext context;
    CUstream stream;
    const void *descriptor;
};
struct GraphData {
    CUgraph graph, original;
    CUgraphNode node, original_node;
    uint32_t type;
    CUgraphNode dependency;
    CUgraphExec exec;
};

static const char PTX[] = R"(
.version 7.8
.target sm_90
.address_size 64
.visible .entry add_one(.param .u64 out)
{
    .reg .u64 %a;
    .reg .u32 %v;
    ld.param.u64 %a, [out];
    ld.global.u32 %v, [%a];
    add.u32 %v, %v, 1;
    st.global.u32 [%a], %v;
    ret;
}
)";

__global__ void compiled(unsigned *value) { *value *= 2; }

static std::vector<std::string> lines;
// Names of calls by their number, and numbers of copied nodes with those of their originals.
static std::map<uint32_t, std::string> calls;
static std::map<uint64_t, uint64_t> originals;
static uint32_t in_runtime;
// NVIDIA's driver makes a second graph of an executable one for itself.
static bool with_graphs = true;

static void print(const std::string &line) { printf("%s\n", line.c_str()); }

template <class... A> static std::string text(const char *format, A... arguments) {
    char line[300];
    snprintf(line, sizeof line, format, arguments...);
    return line;
}

static uint32_t graph_id(CUgraph graph) {
    uint32_t id = 0;
    CHECK(call("cuptiGetGraphId", graph, &id));
    return id;
}

static uint64_t node_id(CUgraphNode node) {
    uint64_t id = 0;
    CHECK(call("cuptiGetGraphNodeId", node, &id));
    return id;
}

// The arguments of a call, as generated_cuda_meta.h lays them out.
static std::string arguments(uint32_t cbid, const void *at) {
    switch (cbid) {
    case MEM_ALLOC: {
        struct { CUdeviceptr *address; size_t bytes; } p;
        memcpy(&p, at, sizeof p);
        return text("%zu bytes, address %s", p.bytes, *p.address ? "there" : "NULL");
    }
    case MEM_FREE: {
        CUdeviceptr address;
        memcpy(&address, at, sizeof address);
        return text("address %s", address ? "there" : "NULL");
    }
    case HTOD: {
        struct { CUdeviceptr to; const void *from; size_t bytes; } p;
        memcpy(&p, at, sizeof p);
        return text("%zu bytes", p.bytes);
    }
    case DTOH_ASYNC: {
        struct { void *to; CUdeviceptr from; size_t bytes; CUstream stream; } p;
        memcpy(&p, at, sizeof p);
        return text("%zu bytes, stream %s", p.bytes, p.stream ? "there" : "NULL");
    }
    case MEMSET_ASYNC: {
        struct { CUdeviceptr to; unsigned value; size_t count; CUstream stream; } p;
        memcpy(&p, at, sizeof p);
        return text("%zu times %u", p.count, p.value);
    }
    case LAUNCH: {
        struct { CUfunction function; unsigned grid[3], block[3], shared; CUstream stream; void **parameters, **extra; } p;
        memcpy(&p, at, sizeof p);
        return text("%u %u %u blocks of %u %u %u threads, %u bytes", p.grid[0], p.grid[1], p.grid[2], p.block[0], p.block[1], p.block[2],
                    p.shared);
    }
    case GRAPH_LAUNCH: {
        struct { CUgraphExec exec; CUstream stream; } p;
        memcpy(&p, at, sizeof p);
        uint32_t id = 0;
        CHECK(call("cuptiGetGraphExecId", p.exec, &id));
        return text("graph %s", id ? "there" : "NULL");
    }
    default:
        return at ? "there" : "none";
    }
}

static std::string name_of(const CallbackData &about) {
    const std::string name = about.function;
    return name.rfind("__", 0) == 0 ? name.substr(2) : name;
}

static void told_of_call(uint32_t domain, uint32_t cbid, const CallbackData &about) {
    uint32_t device = 77;
    if (about.site == 0) {
        *about.data = 1000 + cbid;
        if (domain == RUNTIME_API) in_runtime = about.correlation;
        return;
    }
    CHECK(call("cuptiGetDeviceId", about.context, &device));
    const bool kept = *about.data == 1000 + cbid;
    // The driver's call within one of the runtime has its number.
    const bool inside = domain == DRIVER_API && about.correlation == in_runtime;
    if (domain == RUNTIME_API) in_runtime = 0;
    const std::string symbol = about.symbol ? about.symbol : "";
    if (!inside) calls[about.correlation] = name_of(about);
    uint32_t context = 0;
    CHECK(call("cuptiGetContextId", about.context, &context));
    const std::string given = domain == DRIVER_API ? arguments(cbid, about.parameters) : "arguments of the runtime";
    lines.push_back(text("%s%s: %s%s%s; device %u, context %s, result %d, number %s", inside ? "  inside of it " : "", name_of(about).c_str(),
                         given.c_str(), symbol.empty() ? "" : ", kernel ", symbol.c_str(), device,
                         context == about.context_uid && context ? "there" : "NOT there", *about.result, kept ? "kept" : "NOT kept"));
}

static std::string of_graph(uint64_t node, uint32_t graph) {
    return text("%s graph, position %u", node >> 32 == graph ? "of its" : "of ANOTHER", (unsigned)node);
}

static void told_of_resource(uint32_t cbid, const ResourceData &about) {
    GraphData graph{};
    if (cbid >= GRAPH_CREATED && about.descriptor) memcpy(&graph, about.descriptor, sizeof graph);
    const std::string context = about.context ? "" : " without a context";
    switch (cbid) {
    case STREAM_CREATED: return lines.push_back("stream made" + context + (about.stream ? "" : " NULL"));
    case STREAM_ENDS: return lines.push_back("stream ends" + context + (about.stream ? "" : " NULL"));
    case MODULE_LOADED: return lines.push_back("module loaded" + context + (about.descriptor ? "" : " NULL"));
    case MODULE_ENDS: return lines.push_back("module ends" + context + (about.descriptor ? "" : " NULL"));
    case GRAPH_CREATED:
        if (with_graphs) lines.push_back(text("graph made, number %s", graph_id(graph.graph) ? "there" : "0"));
        return;
    case GRAPH_CLONED:
        return lines.push_back(text("graph copied, numbers %s", graph_id(graph.graph) != graph_id(graph.original) ? "differ" : "are the SAME"));
    case NODE_CREATED:
        return lines.push_back("node made, " + of_graph(node_id(graph.node), graph_id(graph.graph)));
    case NODE_CLONED:
        originals[node_id(graph.node)] = node_id(graph.original_node);
        return lines.push_back("node copied, " + of_graph(node_id(graph.original_node), graph_id(graph.original)));
    case EXEC_CREATED: {
        uint32_t id = 0;
        CHECK(call("cuptiGetGraphExecId", graph.exec, &id));
        return lines.push_back(text("graph instantiated, numbers %s", id && id != graph_id(graph.graph) ? "differ" : "are the SAME"));
    }
    case EXEC_ENDS: return lines.push_back("executable graph ends");
    case GRAPH_ENDS:
        if (with_graphs) lines.push_back("graph ends");
    }
}

static void told(void *, uint32_t domain, uint32_t cbid, const void *about) {
    if (domain == RESOURCE)
        told_of_resource(cbid, *(const ResourceData *)about);
    else if (domain == SYNCHRONIZE)
        lines.push_back(cbid == 1 ? "stream waited for" : "context waited for");
    else
        told_of_call(domain, cbid, *(const CallbackData *)about);
}

static void request(uint8_t **buffer, size_t *bytes, size_t *count) {
    *bytes = 1 << 16;
    *buffer = (uint8_t *)aligned_alloc(8, *bytes);
    *count = 0;
}

template <class T> static T field(const uint8_t *record, size_t offset) {
    T value;
    memcpy(&value, record + offset, sizeof value);
    return value;
}

// Records of kernels (CUpti_ActivityKernel5 and later).
static void complete(void *, uint32_t, uint8_t *buffer, size_t, size_t valid) {
    uint8_t *record = nullptr;
    while (call("cuptiActivityGetNextRecord", buffer, valid, &record) == 0) {
        if (field<uint32_t>(record, 0) != CONCURRENT_KERNEL) continue;
        const uint32_t number = field<uint32_t>(record, 92), graph = field<uint32_t>(record, 156);
        const uint64_t node = field<uint64_t>(record, 144);
        std::string line = "kernel, device " + text("%u", field<uint32_t>(record, 40));
        line += ", by " + (calls.count(number) ? calls[number] : "an UNKNOWN call");
        if (node) line += ", node " + of_graph(node, graph) + (originals.count(node) ? ", of a known node" : ", of an UNKNOWN node");
        lines.push_back(line);
    }
    free(buffer);
}

static void flush(const char *title) {
    print(title);
    for (const std::string &line : lines) print("  " + line);
    lines.clear();
}

int main() {
    load({"libcupti.so.13", "libcupti.so.12"});
    const CUcontext context = use_primary_context();
    void *subscriber = nullptr;
    CHECK(call("cuptiSubscribe", &subscriber, told, (void *)nullptr));
    for (int cbid : std::vector<int>{STREAM_CREATED, STREAM_ENDS, MODULE_LOADED, MODULE_ENDS, GRAPH_CREATED, GRAPH_CLONED, NODE_CREATED, NODE_CLONED,
                     EXEC_CREATED, EXEC_ENDS, GRAPH_ENDS})
        CHECK(call("cuptiEnableCallback", 1, subscriber, (int)RESOURCE, cbid));
    for (int cbid : std::vector<int>{MEM_ALLOC, MEM_FREE, HTOD, DTOH_ASYNC, LAUNCH, MEMSET_ASYNC, GRAPH_CREATE, ADD_KERNEL_NODE, GRAPH_CLONE, INSTANTIATE,
                     GRAPH_LAUNCH})
        CHECK(call("cuptiEnableCallback", 1, subscriber, (int)DRIVER_API, cbid));
    CHECK(call("cuptiSetThreadIdType", (int)THREAD_ID_SYSTEM));
    CHECK(call("cuptiActivityRegisterCallbacks", request, complete));
    CHECK(call("cuptiActivityEnable", (int)CONCURRENT_KERNEL));

    CUmodule image;
    CUfunction function;
    CUstream stream;
    CHECK(cuModuleLoadData(&image, PTX));
    CHECK(cuModuleGetFunction(&function, image, "add_one"));
    CHECK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    flush("made:");

    uint32_t context_id = 0, device = 77, own = 0, legacy = 0;
    CHECK(call("cuptiGetContextId", context, &context_id));
    CHECK(call("cuptiGetDeviceId", (CUcontext) nullptr, &device));
    CHECK(call("cuptiGetStreamIdEx", context, stream, 0, &own));
    CHECK(call("cuptiGetStreamIdEx", context, (CUstream) nullptr, 0, &legacy));
    print(text("context %u, device %u, numbers of streams %s", context_id, device, own != legacy ? "differ" : "are the SAME"));
    print(text("no context: %d", call("cuptiGetContextId", (CUcontext) nullptr, &context_id)));

    CUdeviceptr memory;
    std::vector<unsigned> host(64, 41);
    void *parameters[] = {&memory};
    CHECK(cuMemAlloc(&memory, 256));
    CHECK(cuMemcpyHtoD(memory, host.data(), 256));
    CHECK(cuMemsetD32Async(memory + 4, 7, 3, stream));
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
    CHECK(cuMemcpyDtoHAsync(host.data(), memory, 256, stream));
    CHECK(cuStreamSynchronize(stream));
    print(text("values %u %u", host[0], host[1]));
    flush("calls:");
    CHECK(call("cuptiActivityFlushAll", 0));
    flush("records:");

    CUgraph graph, copy;
    CUgraphNode first, second;
    CUgraphExec exec;
    CUDA_KERNEL_NODE_PARAMS node{};
    node.func = function;
    node.gridDimX = node.gridDimY = node.gridDimZ = node.blockDimX = node.blockDimY = node.blockDimZ = 1;
    node.kernelParams = parameters;
    CHECK(cuGraphCreate(&graph, 0));
    CHECK(cuGraphAddKernelNode(&first, graph, nullptr, 0, &node));
    CHECK(cuGraphAddKernelNode(&second, graph, &first, 1, &node));
    flush("graph:");
    print(text("numbers of nodes %s", node_id(first) != node_id(second) ? "differ" : "are the SAME"));
    CHECK(cuGraphClone(&copy, graph));
    flush("copy of the graph:");
    CHECK(cuGraphDestroy(copy));
    flush("its end:");
    with_graphs = false;
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuStreamSynchronize(stream));
    flush("executable graph:");
    CHECK(call("cuptiActivityFlushAll", 0));
    flush("records:");
    CHECK(cuGraphExecDestroy(exec));
    with_graphs = true;
    CHECK(cuGraphDestroy(graph));
    flush("ends:");

    CHECK(call("cuptiEnableDomain", 1, subscriber, (int)SYNCHRONIZE));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuCtxSynchronize());
    CHECK(call("cuptiEnableDomain", 0, subscriber, (int)SYNCHRONIZE));
    flush("waits:");

    for (int cbid : std::vector<int>{RUNTIME_LAUNCH, RUNTIME_MEMSET_ASYNC})
        CHECK(call("cuptiEnableCallback", 1, subscriber, (int)RUNTIME_API, cbid));
    // What compiled programs of CUDA 13 call; CUPTI of CUDA 12 does not know it.
    call("cuptiEnableCallback", 1, subscriber, (int)RUNTIME_API, (int)RUNTIME_LAUNCH_OF_13);
    CHECK(call("cuptiEnableCallback", 1, subscriber, (int)DRIVER_API, (int)MEMSET_BYTES_ASYNC));
    CHECK(call("cuptiEnableCallback", 0, subscriber, (int)RESOURCE, (int)MODULE_LOADED));
    CHECK(cudaMemsetAsync((void *)memory, 1, 4, stream));
    compiled<<<1, 1, 0, stream>>>((unsigned *)memory);
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(host.data(), (void *)memory, 4, cudaMemcpyDeviceToHost));
    print(text("value %x", host[0]));
    flush("the runtime:");
    CHECK(call("cuptiActivityFlushAll", 0));
    flush("records:");

    CHECK(cuMemFree(memory));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(image));
    flush("ends:");
    CHECK(call("cuptiUnsubscribe", subscriber));
    return 0;
}
