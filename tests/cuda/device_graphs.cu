// SPDX-License-Identifier: Apache-2.0 OR MIT
// nvcc: -rdc=true
// Graphs that kernels launch, and kernel nodes that kernels change: what runs and in which order, what handles are, what is
// refused on the host and on the device, and a handle of nothing at the end.
#include "check.h"

#include <algorithm>
#include <cstring>
#include <vector>

using Graphs = std::vector<cudaGraphNode_t>;

static __device__ int log_count;
static __device__ int log_entries[64];
static __device__ int statuses[8];
static __device__ unsigned long long handles[4];

static __device__ void note(int what) {
    const int index = atomicAdd(&log_count, 1);
    if (index < 64) {
        log_entries[index] = what;
    }
}

static __global__ void mark(int what) { note(what); }

static __global__ void where(int slot) { handles[slot] = (unsigned long long)cudaGetCurrentGraphExec(); }

static __global__ void launch(cudaGraphExec_t exec, cudaStream_t stream, int slot) {
    note(1);
    statuses[slot] = cudaGraphLaunch(exec, stream);
}

static __global__ void launch_twice(cudaGraphExec_t exec, cudaStream_t stream) {
    statuses[0] = cudaGraphLaunch(exec, stream);
    statuses[1] = cudaGraphLaunch(exec, stream);
}

// The handles come from memory, where nobody but the program knows them.
static __global__ void launch_all(const cudaGraphExec_t *execs, int count, cudaStream_t stream) {
    note(1);
    for (int i = 0; i < count; i++) {
        statuses[i] = cudaGraphLaunch(execs[i], stream);
    }
}

static __global__ void launch_itself(int *left, cudaStream_t stream) {
    note(100 + *left);
    if (--*left > 0) {
        statuses[0] = cudaGraphLaunch(cudaGetCurrentGraphExec(), stream);
    }
}

static __global__ void child() { note(7); }
static __global__ void parent() { child<<<1, 1>>>(); }

static __global__ void show(int a, int b) {
    if (blockIdx.x == 0) {
        note(1000 * gridDim.x + 10 * a + b);
    }
}

static __global__ void set_param(cudaGraphDeviceNode_t node, size_t offset, int value) {
    statuses[0] = cudaGraphKernelNodeSetParam(node, offset, value);
}

static __global__ void set_enabled(cudaGraphDeviceNode_t node, bool enabled) {
    statuses[0] = cudaGraphKernelNodeSetEnabled(node, enabled);
}

static __global__ void set_grid(cudaGraphDeviceNode_t node, int blocks) {
    statuses[0] = cudaGraphKernelNodeSetGridDim(node, dim3(blocks));
}

static __global__ void apply(cudaGraphDeviceNode_t node, int blocks, int value, bool enabled) {
    alignas(16) char room[3 * sizeof(cudaGraphKernelNodeUpdate)];
    memset(room, 0, sizeof room);
    cudaGraphKernelNodeUpdate *updates = (cudaGraphKernelNodeUpdate *)room;
    updates[0].node = node;
    updates[0].field = cudaGraphKernelNodeFieldGridDim;
    updates[0].updateData.gridDim = dim3(blocks);
    updates[1].node = node;
    updates[1].field = cudaGraphKernelNodeFieldParam;
    updates[1].updateData.param.pValue = &value;
    updates[1].updateData.param.offset = 4;
    updates[1].updateData.param.size = 4;
    updates[2].node = node;
    updates[2].field = cudaGraphKernelNodeFieldEnabled;
    updates[2].updateData.isEnabled = enabled;
    statuses[0] = cudaGraphKernelNodeUpdatesApply(updates, 3);
}

// ---- What happened

static void clear() {
    int zero = 0, none[8];
    std::fill(none, none + 8, -1);
    CHECK(cudaMemcpyToSymbol(log_count, &zero, sizeof zero));
    CHECK(cudaMemcpyToSymbol(statuses, none, sizeof none));
}

// Where the order is not promised, sorted.
static void report(const char *what, int calls, bool sorted) {
    CHECK(cudaDeviceSynchronize());
    int count, entries[64], answers[8];
    CHECK(cudaMemcpyFromSymbol(&count, log_count, sizeof count));
    CHECK(cudaMemcpyFromSymbol(entries, log_entries, sizeof entries));
    CHECK(cudaMemcpyFromSymbol(answers, statuses, sizeof answers));
    if (sorted) {
        std::sort(entries, entries + count);
    }
    std::printf("%s:", what);
    for (int i = 0; i < count; i++) {
        std::printf(" %d", entries[i]);
    }
    for (int i = 0; i < calls; i++) {
        std::printf("%s%d", i == 0 ? "; answers " : " ", answers[i]);
    }
    std::printf("\n");
    clear();
}

static void expect(const char *call, cudaError_t error) {
    std::printf("%s: %s\n", call, cudaGetErrorName(error));
    cudaGetLastError();
}
#define SAY(call) expect(#call, call)

// ---- Graphs

static cudaGraph_t graph() {
    cudaGraph_t made;
    CHECK(cudaGraphCreate(&made, 0));
    return made;
}

template <class... Parameters>
static cudaGraphNode_t node(cudaGraph_t graph, Graphs after, void (*kernel)(Parameters...), Parameters... values) {
    void *arguments[] = {&values..., nullptr};
    cudaKernelNodeParams params = {};
    params.func = (void *)kernel;
    params.gridDim = params.blockDim = dim3(1);
    params.kernelParams = arguments;
    cudaGraphNode_t made;
    CHECK(cudaGraphAddKernelNode(&made, graph, after.data(), after.size(), &params));
    return made;
}

static cudaGraphExec_t executable(cudaGraph_t graph, unsigned flags, bool upload = true) {
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, flags));
    if (upload) {
        CHECK(cudaGraphUpload(exec, 0));
        CHECK(cudaDeviceSynchronize());
    }
    return exec;
}

static const unsigned DEVICE = cudaGraphInstantiateFlagDeviceLaunch;

// A graph that notes a number.
static cudaGraphExec_t marker(int what, bool upload = true) {
    cudaGraph_t made = graph();
    node(made, {}, mark, what);
    return executable(made, DEVICE, upload);
}

// A graph that notes 1, launches, and notes 2.
static cudaGraphExec_t launcher(cudaGraphExec_t exec, cudaStream_t stream, unsigned flags = DEVICE) {
    cudaGraph_t made = graph();
    cudaGraphNode_t first = node(made, {}, launch, exec, stream, 0);
    node(made, {first}, mark, 2);
    return executable(made, flags);
}

static void go(const char *what, cudaGraphExec_t exec, int calls = 1, bool sorted = false) {
    CHECK(cudaGraphLaunch(exec, 0));
    report(what, calls, sorted);
}

// ---- Launches by kernels

static void launches() {
    cudaGraphExec_t five = marker(5);
    go("fire and forget", launcher(five, cudaStreamGraphFireAndForget), 1, true);
    go("tail", launcher(five, cudaStreamGraphTailLaunch));
    go("sibling", launcher(five, cudaStreamGraphFireAndForgetAsSibling), 1, true);
    cudaGraphExec_t sibling = launcher(five, cudaStreamGraphFireAndForgetAsSibling);
    go("sibling in fire and forget", launcher(sibling, cudaStreamGraphFireAndForget), 1, true);
    go("fire and forget by a graph of the host", launcher(five, cudaStreamGraphFireAndForget, 0), 1, true);
    go("tail of a graph of the host", launcher(five, cudaStreamGraphTailLaunch, 0));

    cudaGraphExec_t *table;
    CHECK(cudaMallocManaged(&table, 4 * sizeof *table));
    for (int i = 0; i < 4; i++) {
        table[i] = launcher(marker(20 + i), cudaStreamGraphTailLaunch);
    }
    for (cudaStream_t stream : {cudaStreamGraphTailLaunch, cudaStreamGraphFireAndForget}) {
        cudaGraph_t made = graph();
        cudaGraphNode_t first = node(made, {}, launch_all, (const cudaGraphExec_t *)table, 4, stream);
        node(made, {first}, mark, 9);
        const bool tail = stream == cudaStreamGraphTailLaunch;
        // The tails' own launches answer in the same place.
        go(tail ? "four tails with tails" : "four with tails", executable(made, DEVICE), 0, !tail);
    }

    int *left;
    CHECK(cudaMallocManaged(&left, sizeof *left));
    *left = 5;
    cudaGraph_t made = graph();
    cudaGraphNode_t first = node(made, {}, launch_itself, left, cudaStreamGraphTailLaunch);
    node(made, {first}, mark, 2);
    go("itself, five times", executable(made, DEVICE));
    *left = 5;
    go("itself as a graph of the host", executable(made, 0));
    *left = 5;
    made = graph();
    node(made, {}, launch_itself, left, cudaStreamGraphFireAndForget);
    go("itself beside itself", executable(made, DEVICE));
}

static void refused_launches() {
    cudaGraphExec_t five = marker(5, false);
    cudaGraphExec_t of_five = launcher(five, cudaStreamGraphTailLaunch);
    go("not uploaded", of_five);
    CHECK(cudaGraphLaunch(five, 0));
    report("launched by the host", 0, false);
    go("which uploads it", of_five);
    go("no graph", launcher(nullptr, cudaStreamGraphTailLaunch));
    for (unsigned long long stream : {0ull, 1ull, 2ull, 0x0400000000000000ull}) {
        go("in a stream", launcher(five, (cudaStream_t)stream));
    }
    cudaGraph_t made = graph();
    node(made, {}, launch_twice, five, cudaStreamGraphTailLaunch);
    go("two tails of one graph", executable(made, DEVICE), 2);
    launch<<<1, 1>>>(five, cudaStreamGraphTailLaunch, 0);
    SAY(cudaPeekAtLastError());
    report("without a graph", 1, false);
}

static void handle_values() {
    cudaGraph_t made = graph();
    node(made, {}, where, 0);
    cudaGraphExec_t host = executable(made, 0), first = executable(made, DEVICE), second = executable(made, DEVICE);
    unsigned long long seen;
    for (cudaGraphExec_t exec : {host, first, second}) {
        CHECK(cudaGraphLaunch(exec, 0));
        CHECK(cudaMemcpyFromSymbol(&seen, handles, sizeof seen));
        std::printf("the device sees %s\n", seen == (unsigned long long)exec ? "the handle" : seen == 0 ? "0" : "another number");
    }
    where<<<1, 1>>>(0);
    CHECK(cudaMemcpyFromSymbol(&seen, handles, sizeof seen));
    std::printf("outside of a graph it sees %llu\n", seen);
    unsigned long long flags;
    CHECK(cudaGraphExecGetFlags(first, &flags));
    std::printf("flags %llu\n", flags);
    CHECK(cudaGraphExecDestroy(first));
    CHECK(cudaGraphLaunch(second, 0));
    CHECK(cudaGraphExecDestroy(second));
    CHECK(cudaGraphExecDestroy(host));
    CHECK(cudaDeviceSynchronize());
}

// A launch by the device does what was uploaded, one by the host what was said last.
static void changes() {
    cudaGraph_t made = graph(), other = graph();
    cudaGraphNode_t changed = node(made, {}, mark, 5);
    node(other, {}, mark, 7);
    cudaGraphExec_t exec = executable(made, DEVICE);
    cudaGraphExec_t by_device = launcher(exec, cudaStreamGraphTailLaunch);
    int value = 6;
    void *arguments[] = {&value};
    cudaKernelNodeParams params = {};
    params.func = (void *)mark;
    params.gridDim = params.blockDim = dim3(1);
    params.kernelParams = arguments;
    CHECK(cudaGraphExecKernelNodeSetParams(exec, changed, &params));
    go("changed", by_device);
    CHECK(cudaGraphUpload(exec, 0));
    go("uploaded", by_device);
    cudaGraphExecUpdateResultInfo info;
    CHECK(cudaGraphExecUpdate(exec, other, &info));
    go("updated", by_device);
    CHECK(cudaGraphUpload(exec, 0));
    go("uploaded", by_device);
    CHECK(cudaGraphNodeSetEnabled(exec, changed, 0));
    CHECK(cudaGraphUpload(exec, 0));
    go("disabled, uploaded", by_device);
}

// ---- What cannot be launched by kernels

static void instantiate(const char *what, cudaGraph_t graph, unsigned long long flags) {
    cudaGraphInstantiateParams params = {};
    params.flags = flags;
    cudaGraphExec_t exec = nullptr;
    cudaError_t error = cudaGraphInstantiateWithParams(&exec, graph, &params);
    cudaGraphNodeType type = (cudaGraphNodeType)-1;
    if (params.errNode_out != nullptr) {
        CHECK(cudaGraphNodeGetType(params.errNode_out, &type));
    }
    std::printf("%s, flags %llu: %s, result %d, node of type %d\n", what, flags, cudaGetErrorName(error), (int)params.result_out, (int)type);
    cudaGetLastError();
    if (error == cudaSuccess) {
        CHECK(cudaGraphLaunch(exec, 0));
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaGraphExecDestroy(exec));
    }
}

static void CUDART_CB nothing(void *) {}

static void instantiations() {
    int *device, *managed, *pinned, pageable[16] = {};
    CHECK(cudaMalloc(&device, 64));
    CHECK(cudaMallocManaged(&managed, 64));
    CHECK(cudaMallocHost(&pinned, 64));
    instantiate("nothing", graph(), DEVICE);
    cudaGraphNode_t made;
    cudaGraph_t all = graph();
    CHECK(cudaGraphAddEmptyNode(&made, all, nullptr, 0));
    node(all, {made}, mark, 1);
    instantiate("an empty node", all, DEVICE);
    all = graph();
    node(all, {}, mark, 1);
    for (unsigned flags : {DEVICE, DEVICE | 1, DEVICE | 2, DEVICE | 8, DEVICE | 16}) {
        instantiate("a kernel", all, flags);
        cudaGraphExec_t exec;
        SAY(cudaGraphInstantiate(&exec, all, flags));
    }
    cudaGraph_t copy;
    CHECK(cudaGraphClone(&copy, all));
    instantiate("a clone", copy, DEVICE);
    cudaGraph_t outer = graph();
    CHECK(cudaGraphAddChildGraphNode(&made, outer, nullptr, 0, all));
    instantiate("a graph", outer, DEVICE);
    const struct {
        const char *name;
        void *memory;
    } sources[] = {{"a copy of pinned memory", pinned}, {"a copy of managed memory", managed}, {"a copy of other memory", pageable}};
    for (auto &source : sources) {
        all = graph();
        CHECK(cudaGraphAddMemcpyNode1D(&made, all, nullptr, 0, device, source.memory, 64, cudaMemcpyDefault));
        instantiate(source.name, all, DEVICE);
    }
    all = graph();
    cudaMemsetParams fill = {};
    fill.dst = device;
    fill.elementSize = 4;
    fill.width = 4;
    fill.height = 1;
    CHECK(cudaGraphAddMemsetNode(&made, all, nullptr, 0, &fill));
    instantiate("a fill", all, DEVICE);
    all = graph();
    cudaHostNodeParams function = {nothing, nullptr};
    CHECK(cudaGraphAddHostNode(&made, all, nullptr, 0, &function));
    node(all, {made}, mark, 1);
    instantiate("a function", all, DEVICE);
    all = graph();
    cudaEvent_t event;
    CHECK(cudaEventCreate(&event));
    CHECK(cudaGraphAddEventRecordNode(&made, all, nullptr, 0, event));
    instantiate("an event", all, DEVICE);
    all = graph();
    cudaMemAllocNodeParams memory = {};
    memory.poolProps.allocType = cudaMemAllocationTypePinned;
    memory.poolProps.location.type = cudaMemLocationTypeDevice;
    memory.bytesize = 64;
    CHECK(cudaGraphAddMemAllocNode(&made, all, nullptr, 0, &memory));
    instantiate("memory", all, DEVICE);
    all = graph();
    node(all, {}, parent);
    instantiate("a kernel that launches kernels", all, DEVICE);
    instantiate("a kernel that launches kernels", all, 0);
    clear();
}

// ---- Nodes that kernels change

static cudaGraphDeviceNode_t device_node(cudaGraphNode_t node) {
    cudaLaunchAttributeValue value;
    memset(&value, 0, sizeof value);
    CHECK(cudaGraphKernelNodeGetAttribute(node, cudaLaunchAttributeDeviceUpdatableKernelNode, &value));
    std::printf("updatable %d, with a handle: %d\n", value.deviceUpdatableKernelNode.deviceUpdatable,
                value.deviceUpdatableKernelNode.devNode != nullptr);
    return value.deviceUpdatableKernelNode.devNode;
}

static cudaGraphDeviceNode_t make_updatable(cudaGraphNode_t node) {
    cudaLaunchAttributeValue value;
    memset(&value, 0, sizeof value);
    value.deviceUpdatableKernelNode.deviceUpdatable = 1;
    CHECK(cudaGraphKernelNodeSetAttribute(node, cudaLaunchAttributeDeviceUpdatableKernelNode, &value));
    cudaGraphDeviceNode_t found = device_node(node);
    // The answer is in what the call takes as constant.
    REQUIRE(found == value.deviceUpdatableKernelNode.devNode);
    return found;
}

static cudaLaunchAttribute updatable(int value) {
    cudaLaunchAttribute attribute;
    memset(&attribute, 0, sizeof attribute);
    attribute.id = cudaLaunchAttributeDeviceUpdatableKernelNode;
    attribute.val.deviceUpdatableKernelNode.deviceUpdatable = value;
    return attribute;
}

static void captured() {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cudaLaunchAttribute attributes[2] = {{}, updatable(1)};
    attributes[0].id = cudaLaunchAttributePriority;
    cudaLaunchConfig_t config = {};
    config.gridDim = config.blockDim = dim3(1);
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = 2;
    SAY(cudaLaunchKernelEx(&config, show, 1, 2));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaLaunchKernelEx(&config, show, 1, 2));
    cudaGraphDeviceNode_t handle = attributes[1].val.deviceUpdatableKernelNode.devNode;
    // The handle of before is no good argument.
    SAY(cudaLaunchKernelEx(&config, show, 1, 2));
    cudaGraph_t all;
    CHECK(cudaStreamEndCapture(stream, &all));
    size_t count = 1;
    cudaGraphNode_t made;
    CHECK(cudaGraphGetNodes(all, &made, &count));
    std::printf("%zu node\n", count);
    REQUIRE(handle == device_node(made));

    set_param<<<1, 1>>>(handle, 0, 7);
    report("before it is executable", 1, false);
    cudaGraphExec_t exec = executable(all, 0, false);
    set_param<<<1, 1>>>(handle, 0, 7);
    report("before it is uploaded", 1, false);
    CHECK(cudaGraphUpload(exec, 0));
    CHECK(cudaDeviceSynchronize());
    go("as captured", exec, 0);
    set_param<<<1, 1>>>(handle, 0, 7);
    go("a parameter", exec);
    set_param<<<1, 1>>>(handle, 4, 8);
    go("another", exec);
    set_grid<<<1, 1>>>(handle, 3);
    go("three blocks", exec);
    set_enabled<<<1, 1>>>(handle, false);
    go("off", exec);
    set_enabled<<<1, 1>>>(handle, true);
    go("on", exec);
    apply<<<1, 1>>>(handle, 2, 5, true);
    go("all at once", exec);
    set_enabled<<<1, 1>>>((cudaGraphDeviceNode_t) nullptr, false);
    go("no node", exec);
    int a = 4, b = 4;
    void *arguments[] = {&a, &b};
    cudaKernelNodeParams params = {};
    params.func = (void *)show;
    params.gridDim = params.blockDim = dim3(1);
    params.kernelParams = arguments;
    CHECK(cudaGraphExecKernelNodeSetParams(exec, made, &params));
    go("by the host", exec, 0);
    set_param<<<1, 1>>>(handle, 4, 6);
    go("and by the device", exec);
}

static void inside() {
    for (unsigned flags : {0u, DEVICE}) {
        cudaGraph_t all = graph();
        cudaGraphNode_t shown = node(all, {}, show, 1, 2);
        cudaGraphDeviceNode_t handle = make_updatable(shown);
        cudaGraphNode_t setter = node(all, {}, set_param, handle, (size_t)0, 9);
        CHECK(cudaGraphAddDependencies(all, &setter, &shown, nullptr, 1));
        cudaGraphExec_t exec = executable(all, flags);
        go("changed by the graph itself", exec);
        if (flags == DEVICE) {
            go("launched by the device", launcher(exec, cudaStreamGraphTailLaunch), 0);
        }
    }
}

static void refused_nodes() {
    cudaGraph_t all = graph(), other = graph(), copy;
    cudaGraphNode_t changed = node(all, {}, show, 1, 2), plain = node(other, {}, show, 3, 4);
    cudaLaunchAttributeValue value = updatable(0).val;
    const cudaLaunchAttributeID id = cudaLaunchAttributeDeviceUpdatableKernelNode;
    SAY(cudaGraphKernelNodeSetAttribute(changed, id, &value));
    device_node(changed);
    value = updatable(2).val;
    SAY(cudaGraphKernelNodeSetAttribute(changed, id, &value));
    cudaGraphDeviceNode_t handle = make_updatable(changed);
    REQUIRE(handle == make_updatable(changed));
    value = updatable(0).val;
    SAY(cudaGraphKernelNodeSetAttribute(changed, id, &value));
    value = updatable(1).val;
    value.deviceUpdatableKernelNode.devNode = handle;
    SAY(cudaGraphKernelNodeSetAttribute(changed, id, &value));
    SAY(cudaGraphKernelNodeCopyAttributes(plain, changed));
    SAY(cudaGraphKernelNodeCopyAttributes(changed, plain));
    SAY(cudaGraphDestroyNode(changed));
    SAY(cudaGraphClone(&copy, all));
    cudaGraphExec_t exec = executable(all, 0), second, of_other = executable(other, 0);
    SAY(cudaGraphInstantiate(&second, all, 0));
    cudaGraphExecUpdateResultInfo info;
    SAY(cudaGraphExecUpdate(exec, other, &info));
    SAY(cudaGraphExecUpdate(of_other, all, &info));
    for (int bytes : {6, 8, 4096}) {
        set_param<<<1, 1>>>(handle, (size_t)bytes, 1);
        report("a parameter outside", 1, false);
    }
    set_grid<<<1, 1>>>(handle, 0);
    report("no blocks", 1, false);
    set_param<<<1, 1>>>(handle, 0, 5);
    set_enabled<<<1, 1>>>(handle, false);
    unsigned enabled;
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaGraphNodeGetEnabled(exec, changed, &enabled));
    std::printf("to the host it is on: %u\n", enabled);
    CHECK(cudaGraphUpload(exec, 0));
    go("still off", exec);
    CHECK(cudaGraphNodeSetEnabled(exec, changed, 1));
    go("as the host has it", exec, 0);
    CHECK(cudaGraphExecDestroy(exec));
    exec = executable(all, 0);
    go("once more", exec, 0);
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    value = updatable(1).val;
    SAY(cudaStreamSetAttribute(stream, id, &value));
}

int main() {
    clear();
    launches();
    refused_launches();
    handle_values();
    changes();
    instantiations();
    captured();
    inside();
    refused_nodes();

    // A graph that is not for the device.
    cudaGraph_t all = graph();
    node(all, {}, mark, 5);
    CHECK(cudaGraphLaunch(launcher(executable(all, 0), cudaStreamGraphTailLaunch), 0));
    SAY(cudaDeviceSynchronize());
    return 0;
}
