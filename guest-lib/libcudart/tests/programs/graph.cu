// SPDX-License-Identifier: Apache-2.0 OR MIT
// Graphs built by hand: every kind of node, reading nodes back, updating, cloning.
#include <vector>

#include "check.h"

__device__ int symbol[8];
__global__ void fill(int *p, int v) { p[threadIdx.x] = v + threadIdx.x; }
__global__ void twice(int *p) { p[threadIdx.x] *= 2; }
__global__ void once(cudaGraphConditionalHandle, int *p) { p[0] += 1000; }

static int host_calls;
static void host_node(void *data) { host_calls += *(int *)data; }

static void describe(cudaGraph_t graph) {
    size_t n = 0, roots = 0, edges = 0;
    int e = cudaGraphGetNodes(graph, nullptr, &n);
    e |= cudaGraphGetRootNodes(graph, nullptr, &roots);
    e |= cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges);
    std::vector<cudaGraphNode_t> nodes(n);
    e |= cudaGraphGetNodes(graph, nodes.data(), &n);
    std::vector<int> kinds(32);
    for (auto node : nodes) {
        cudaGraphNodeType kind;
        e |= cudaGraphNodeGetType(node, &kind);
        kinds[kind & 31]++;
    }
    SHOW("graph: %d nodes %zu roots %zu edges %zu, kernel %d memcpy %d memset %d host %d graph %d empty %d wait %d record %d alloc %d free %d conditional %d",
         e, n, roots, edges, kinds[0], kinds[1], kinds[2], kinds[3], kinds[4], kinds[5], kinds[6], kinds[7], kinds[10], kinds[11], kinds[13]);
}

int main() {
    cudaStream_t stream;
    T(cudaStreamCreate(&stream));
    int *d = nullptr, h[64] = {}, ten = 10;
    T(cudaMalloc(&d, 256));
    cudaGraph_t graph = nullptr;
    T(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t zero, kernel, copy, host, copy1d, to_symbol, from_symbol, empty, record, wait;
    cudaMemsetParams set = {};
    set.dst = d;
    set.elementSize = 4;
    set.width = 64;
    set.height = 1;
    set.value = 7;
    T(cudaGraphAddMemsetNode(&zero, graph, nullptr, 0, &set));
    int v = 5;
    void *args[] = {&d, &v};
    cudaKernelNodeParams launch = {};
    launch.func = (void *)fill;
    launch.gridDim = dim3(1);
    launch.blockDim = dim3(16);
    launch.kernelParams = args;
    T(cudaGraphAddKernelNode(&kernel, graph, &zero, 1, &launch));
    cudaMemcpy3DParms c = {};
    c.srcPtr = make_cudaPitchedPtr(d, 128, 128, 1);
    c.dstPtr = make_cudaPitchedPtr(h, 128, 128, 1);
    c.extent = make_cudaExtent(128, 1, 1);
    c.kind = cudaMemcpyDeviceToHost;
    T(cudaGraphAddMemcpyNode(&copy, graph, &kernel, 1, &c));
    cudaHostNodeParams call = {host_node, &ten};
    T(cudaGraphAddHostNode(&host, graph, &copy, 1, &call));
    T(cudaGraphAddMemcpyNode1D(&copy1d, graph, &kernel, 1, h + 32, d + 8, 64, cudaMemcpyDeviceToHost));
    T(cudaGraphAddMemcpyNodeToSymbol(&to_symbol, graph, &kernel, 1, symbol, d, 16, 8, cudaMemcpyDeviceToDevice));
    T(cudaGraphAddMemcpyNodeFromSymbol(&from_symbol, graph, &to_symbol, 1, h + 56, symbol, 16, 8, cudaMemcpyDeviceToHost));
    T(cudaGraphAddMemcpyNodeToSymbol(&to_symbol, graph, &kernel, 1, symbol, d, 64, 8, cudaMemcpyDeviceToDevice));
    T(cudaGraphAddEmptyNode(&empty, graph, nullptr, 0));
    cudaEvent_t event, second;
    T(cudaEventCreate(&event));
    T(cudaEventCreate(&second));
    T(cudaGraphAddEventRecordNode(&record, graph, &host, 1, event));
    T(cudaGraphAddEventWaitNode(&wait, graph, &empty, 1, second));
    cudaEvent_t back = nullptr;
    T(cudaGraphEventRecordNodeGetEvent(record, &back));
    SHOW("%d", back == event);
    describe(graph);

    // Reading back.
    cudaKernelNodeParams launch2 = {};
    T(cudaGraphKernelNodeGetParams(kernel, &launch2));
    SHOW("%d grid %u block %u shared %u value %d", launch2.func == (void *)fill, launch2.gridDim.x, launch2.blockDim.x, launch2.sharedMemBytes,
         launch2.kernelParams ? *(int *)launch2.kernelParams[1] : -1);
    cudaMemcpy3DParms c2 = {};
    T(cudaGraphMemcpyNodeGetParams(copy, &c2));
    SHOW("%d %d extent %zu %zu %zu kind %d pitch %zu %zu xsize %zu ysize %zu", c2.srcPtr.ptr == d, c2.dstPtr.ptr == h, c2.extent.width, c2.extent.height, c2.extent.depth,
         c2.kind, c2.srcPtr.pitch, c2.dstPtr.pitch, c2.srcPtr.xsize, c2.srcPtr.ysize);
    T(cudaGraphMemcpyNodeGetParams(copy1d, &c2));
    SHOW("extent %zu %zu %zu kind %d pitch %zu %zu", c2.extent.width, c2.extent.height, c2.extent.depth, c2.kind, c2.srcPtr.pitch, c2.dstPtr.pitch);
    cudaMemsetParams set2 = {};
    T(cudaGraphMemsetNodeGetParams(zero, &set2));
    SHOW("%d %u %u %zu %zu", set2.dst == d, set2.value, set2.elementSize, set2.width, set2.height);
    cudaHostNodeParams call2 = {};
    T(cudaGraphHostNodeGetParams(host, &call2));
    SHOW("%d", call2.fn == host_node && call2.userData == &ten);
    cudaGraphNode_t before[4];
    size_t count = 4;
    T(cudaGraphNodeGetDependencies(host, before, nullptr, &count));
    SHOW("%zu %d", count, before[0] == copy);
    count = 4;
    T(cudaGraphNodeGetDependentNodes(host, before, nullptr, &count));
    SHOW("%zu %d", count, before[0] == record);
    cudaLaunchAttributeValue attribute = {};
    T(cudaGraphKernelNodeGetAttribute(kernel, cudaLaunchAttributePriority, &attribute));
    SHOW("%d", attribute.priority);

    cudaGraphExec_t exec = nullptr;
    T(cudaGraphInstantiate(&exec, graph, 0));
    T(cudaGraphUpload(exec, stream));
    T(cudaGraphLaunch(exec, stream));
    T(cudaStreamSynchronize(stream));
    SHOW("%d %d %d %d %d host %d", h[0], h[15], h[16], h[32], h[56], host_calls);
    unsigned long long flags = 99;
    T(cudaGraphExecGetFlags(exec, &flags));
    SHOW("%llu", flags);

    // Updating.
    v = 100;
    T(cudaGraphExecKernelNodeSetParams(exec, kernel, &launch));
    set.value = 9;
    T(cudaGraphExecMemsetNodeSetParams(exec, zero, &set));
    T(cudaGraphExecMemcpyNodeSetParams1D(exec, copy1d, h + 40, d, 16, cudaMemcpyDeviceToHost));
    call.userData = &v;
    T(cudaGraphExecHostNodeSetParams(exec, host, &call));
    T(cudaGraphExecEventRecordNodeSetEvent(exec, record, second));
    T(cudaGraphNodeSetEnabled(exec, from_symbol, 0));
    unsigned enabled = 9;
    T(cudaGraphNodeGetEnabled(exec, from_symbol, &enabled));
    SHOW("%u", enabled);
    T(cudaGraphLaunch(exec, stream));
    T(cudaStreamSynchronize(stream));
    SHOW("%d %d %d %d host %d", h[0], h[16], h[40], h[56], host_calls);
    launch.func = (void *)twice;
    launch.kernelParams = args;
    T(cudaGraphKernelNodeSetParams(kernel, &launch));
    cudaGraphExecUpdateResultInfo info = {};
    T(cudaGraphExecUpdate(exec, graph, &info));
    SHOW("%d", info.result);
    T(cudaGraphLaunch(exec, stream));
    T(cudaStreamSynchronize(stream));
    SHOW("%d %d %d", h[0], h[15], h[16]);
    cudaGraph_t clone = nullptr;
    T(cudaGraphClone(&clone, graph));
    cudaGraphNode_t found = nullptr;
    T(cudaGraphNodeFindInClone(&found, kernel, clone));
    T(cudaGraphDestroyNode(found));
    describe(clone);
    cudaGraphNode_t from = copy, to = empty;
    T(cudaGraphAddDependencies(clone, &from, &to, nullptr, 1));
    T(cudaGraphAddDependencies(graph, &from, &to, nullptr, 1));
    describe(graph);
    T(cudaGraphRemoveDependencies(graph, &from, &to, nullptr, 1));
    describe(graph);
    T(cudaGraphExecUpdate(exec, clone, &info));
    SHOW("%d", info.result);
    T(cudaGraphExecDestroy(exec));

    // Child graph, memory nodes, and the general cudaGraphAddNode.
    cudaGraph_t outer = nullptr, child = nullptr;
    T(cudaGraphCreate(&outer, 0));
    cudaGraphNode_t inner, allocate, use, release, node;
    T(cudaGraphAddChildGraphNode(&inner, outer, nullptr, 0, clone));
    T(cudaGraphChildGraphNodeGetGraph(inner, &child));
    describe(child);
    T(cudaGraphDestroy(clone));
    T(cudaGraphDestroy(outer));
    T(cudaGraphCreate(&outer, 0));
    cudaMemAllocNodeParams alloc = {};
    alloc.poolProps.allocType = cudaMemAllocationTypePinned;
    alloc.poolProps.location.type = cudaMemLocationTypeDevice;
    alloc.bytesize = 1024;
    T(cudaGraphAddMemAllocNode(&allocate, outer, nullptr, 0, &alloc));
    SHOW("%d", alloc.dptr != nullptr);
    cudaMemAllocNodeParams alloc2 = {};
    T(cudaGraphMemAllocNodeGetParams(allocate, &alloc2));
    SHOW("%d %zu", alloc2.dptr == alloc.dptr, alloc2.bytesize);
    cudaGraphNodeParams p = {};
    p.type = cudaGraphNodeTypeKernel;
    p.kernel.func = (void *)fill;
    p.kernel.gridDim = dim3(1);
    p.kernel.blockDim = dim3(16);
    v = 300;
    void *args2[] = {&alloc.dptr, &v};
    p.kernel.kernelParams = args2;
    T(cudaGraphAddNode(&use, outer, &allocate, nullptr, 1, &p));
    p = {};
    p.type = cudaGraphNodeTypeMemcpy;
    p.memcpy.copyParams.srcPtr = make_cudaPitchedPtr(alloc.dptr, 64, 64, 1);
    p.memcpy.copyParams.dstPtr = make_cudaPitchedPtr(h, 64, 64, 1);
    p.memcpy.copyParams.extent = make_cudaExtent(64, 1, 1);
    p.memcpy.copyParams.kind = cudaMemcpyDefault;
    T(cudaGraphAddNode(&node, outer, &use, nullptr, 1, &p));
    T(cudaGraphAddMemFreeNode(&release, outer, &node, 1, alloc.dptr));
    void *freed = nullptr;
    T(cudaGraphMemFreeNodeGetParams(release, &freed));
    SHOW("%d", freed == alloc.dptr);
    p = {};
    p.type = cudaGraphNodeTypeMemset;
    p.memset.dst = d;
    p.memset.value = 1;
    p.memset.elementSize = 1;
    p.memset.width = 8;
    p.memset.height = 1;
    T(cudaGraphAddNode(&zero, outer, &use, nullptr, 1, &p));
    p = {};
    p.type = cudaGraphNodeTypeHost;
    p.host.fn = host_node;
    p.host.userData = &ten;
    T(cudaGraphAddNode(&host, outer, &zero, nullptr, 1, &p));
    p = {};
    p.type = cudaGraphNodeTypeEmpty;
    T(cudaGraphAddNode(&empty, outer, &zero, nullptr, 1, &p));
    cudaGraphConditionalHandle condition;
    T(cudaGraphConditionalHandleCreate(&condition, outer, 1, cudaGraphCondAssignDefault));
    p = {};
    p.type = cudaGraphNodeTypeConditional;
    p.conditional.handle = condition;
    p.conditional.type = cudaGraphCondTypeIf;
    p.conditional.size = 1;
    T(cudaGraphAddNode(&node, outer, &host, nullptr, 1, &p));
    SHOW("%d", p.conditional.phGraph_out != nullptr && p.conditional.phGraph_out[0] != nullptr);
    cudaGraph_t body = p.conditional.phGraph_out ? p.conditional.phGraph_out[0] : nullptr;
    p = {};
    p.type = cudaGraphNodeTypeKernel;
    p.kernel.func = (void *)once;
    p.kernel.gridDim = dim3(1);
    p.kernel.blockDim = dim3(1);
    void *args3[] = {&condition, &d};
    p.kernel.kernelParams = args3;
    T(cudaGraphAddNode(&node, body, nullptr, nullptr, 0, &p));
    p = {};
    p.type = (cudaGraphNodeType)77;
    T(cudaGraphAddNode(&node, outer, &host, nullptr, 1, &p));
    describe(outer);
    host_calls = 0;
    cudaGraphInstantiateParams how = {};
    how.flags = cudaGraphInstantiateFlagUpload;
    how.uploadStream = stream;
    T(cudaGraphInstantiateWithParams(&exec, outer, &how));
    SHOW("%d", how.result_out);
    T(cudaGraphLaunch(exec, stream));
    T(cudaStreamSynchronize(stream));
    T(cudaMemcpy(h + 32, d, 4, cudaMemcpyDeviceToHost));
    SHOW("%d %d %d host %d", h[0], h[15], h[32], host_calls);
    p = {};
    p.type = cudaGraphNodeTypeKernel;
    p.kernel.func = (void *)fill;
    p.kernel.gridDim = dim3(1);
    p.kernel.blockDim = dim3(16);
    v = 400;
    p.kernel.kernelParams = args2;
    T(cudaGraphExecNodeSetParams(exec, use, &p));
    T(cudaGraphLaunch(exec, stream));
    T(cudaStreamSynchronize(stream));
    SHOW("%d", h[0]);
    T(cudaGraphDebugDotPrint(graph, "/dev/null", cudaGraphDebugDotFlagsVerbose));
    int object = 0;
    cudaUserObject_t user = nullptr;
    T(cudaUserObjectCreate(&user, &object, [](void *p) { *(int *)p = 1; }, 1, cudaUserObjectNoDestructorSync));
    T(cudaGraphRetainUserObject(graph, user, 1, cudaGraphUserObjectMove));
    T(cudaGraphExecDestroy(exec));
    T(cudaGraphDestroy(outer));
    T(cudaGraphDestroy(graph));
    T(cudaStreamDestroy(stream));
    T(cudaFree(d));
    return 0;
}
