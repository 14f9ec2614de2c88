// SPDX-License-Identifier: Apache-2.0 OR MIT
// nvcc: -Xcompiler -O0
// The driver API: nodes of graphs of which one member is bad, lists of nodes, captures.
#include "bad_input_driver.h"
#include "bad_input_fields.h"

using namespace bad_input;

// A graph with a node of each kind, and an executable one of it.
static CUgraph graph, other, child;
static CUgraphExec exec;
static CUgraphNode kernel_node, copy_node, set_node, host_node, record_node, wait_node, child_node, empty_node, foreign;
static CUDA_KERNEL_NODE_PARAMS kernel_of;
static CUDA_MEMSET_NODE_PARAMS set_of;
static CUDA_MEMCPY3D copy_of;
static CUDA_HOST_NODE_PARAMS host_of;

static void build() {
    CALL(cuGraphCreate, &graph, 0);
    CALL(cuGraphCreate, &other, 0);
    CALL(cuGraphCreate, &child, 0);
    kernel_of.func = Handle<CUfunction>::good;
    kernel_of.gridDimX = kernel_of.gridDimY = kernel_of.gridDimZ = 1;
    kernel_of.blockDimX = kernel_of.blockDimY = kernel_of.blockDimZ = 1;
    set_of.dst = memory;
    set_of.elementSize = 1;
    set_of.width = 16;
    set_of.height = 1;
    copy_of.srcMemoryType = copy_of.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy_of.srcDevice = memory;
    copy_of.dstDevice = memory + 4096;
    copy_of.WidthInBytes = 16;
    copy_of.Height = copy_of.Depth = 1;
    host_of.fn = usual<CUhostFn>();
    CALL(cuGraphAddEmptyNode, &foreign, other, nullptr, 0);
    CALL(cuGraphAddEmptyNode, &empty_node, graph, nullptr, 0);
    CALL(cuGraphAddKernelNode, &kernel_node, graph, &empty_node, 1, &kernel_of);
    CALL(cuGraphAddMemcpyNode, &copy_node, graph, &kernel_node, 1, &copy_of, Handle<CUcontext>::good);
    CALL(cuGraphAddMemsetNode, &set_node, graph, &copy_node, 1, &set_of, Handle<CUcontext>::good);
    CALL(cuGraphAddHostNode, &host_node, graph, &set_node, 1, &host_of);
    CALL(cuGraphAddEventRecordNode, &record_node, graph, &host_node, 1, Handle<CUevent>::good);
    CALL(cuGraphAddEventWaitNode, &wait_node, graph, &record_node, 1, Handle<CUevent>::good);
    CALL(cuGraphAddEmptyNode, &foreign, child, nullptr, 0);
    CALL(cuGraphAddChildGraphNode, &child_node, graph, nullptr, 0, child);
    CALL(cuGraphInstantiate, &exec, graph, 0);
}

static void kernels() {
    using It = CUDA_KERNEL_NODE_PARAMS;
    It it = kernel_of;
    const Fields fields = {F(func),
                           F(gridDimX),
                           FV(gridDimY, {"65536", 65536}),
                           F(blockDimX),
                           FV(blockDimX, {"1025", 1025}),
                           FV(blockDimZ, {"65", 65}),
                           FV(sharedMemBytes, {"49153", 49153}),
                           FV(kern, {"of-library", (uintptr_t)Handle<CUkernel>::good}),
                           F(ctx)};
    SPOIL_CALL(cuGraphAddKernelNode, " of", (CUgraphNode *)room, graph, nullptr, 0, &it);
    SPOIL_CALL(cuGraphKernelNodeSetParams, " of", kernel_node, &it);
    SPOIL_CALL(cuGraphExecKernelNodeSetParams, " of", exec, kernel_node, &it);
}

static void fills() {
    using It = CUDA_MEMSET_NODE_PARAMS;
    It it = set_of;
    const Fields fields = {FV(dst, {"odd", memory + 1}, {"behind", memory + 65536}),
                           FV(pitch, {"one", 1}),
                           FV(elementSize, {"two", 2}, {"three", 3}, {"four", 4}, {"eight", 8}),
                           FV(width, {"large", 65537}),
                           FV(height, {"two", 2}),
                           FV(value, {"256", 256})};
    SPOIL_CALL(cuGraphAddMemsetNode, " of", (CUgraphNode *)room, graph, nullptr, 0, &it, Handle<CUcontext>::good);
    SPOIL_CALL(cuGraphMemsetNodeSetParams, " of", set_node, &it);
    SPOIL_CALL(cuGraphExecMemsetNodeSetParams, " of", exec, set_node, &it, Handle<CUcontext>::good);
}

static void copies() {
    using It = CUDA_MEMCPY3D;
    It it = copy_of;
    const Fields fields = {F(srcXInBytes),
                           FV(srcLOD, {"one", 1}),
                           FV(srcMemoryType, {"host", 1}, {"array", 3}, {"unified", 4}),
                           F(srcDevice),
                           FV(srcPitch, {"one", 1}),
                           F(srcHeight),
                           F(dstXInBytes),
                           FV(dstMemoryType, {"host", 1}, {"array", 3}, {"unified", 4}),
                           F(dstDevice),
                           F(dstPitch),
                           FV(dstHeight, {"one", 1}),
                           FV(WidthInBytes, {"large", 65537}),
                           FV(Height, {"two", 2}),
                           FV(Depth, {"two", 2}),
                           ONLY(reserved0, {"one", 1})};
    SPOIL_CALL(cuGraphAddMemcpyNode, " of", (CUgraphNode *)room, graph, nullptr, 0, &it, Handle<CUcontext>::good);
    SPOIL_CALL(cuGraphMemcpyNodeSetParams, " of", copy_node, &it);
    SPOIL_CALL(cuGraphExecMemcpyNodeSetParams, " of", exec, copy_node, &it, Handle<CUcontext>::good);
}

static void allocations() {
    struct It {
        CUDA_MEM_ALLOC_NODE_PARAMS of;
        CUmemAccessDesc access;
    };
    It it = {};
    it.of.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    it.of.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    it.of.bytesize = 64;
    it.access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const Fields fields = {FV(of.poolProps.allocType, {"zero", 0}),
                           FV(of.poolProps.handleTypes, {"file", 1}),
                           FV(of.poolProps.location.type, {"zero", 0}, {"host", 2}),
                           FV(of.poolProps.location.id, {"one", 1}),
                           FV(of.poolProps.maxSize, {"one", 1}),
                           FV(of.bytesize, {"terabyte", 1ull << 40}),
                           ONLY(of.accessDescCount, {"one", 1}, {"large", 1ull << 40})};
    SPOIL_CALL(cuGraphAddMemAllocNode, " of", (CUgraphNode *)room, graph, nullptr, 0, &it.of);
    static CUmemAccessDesc access;
    access = it.access;
    const Fields of_access = {FV(access.location.type, {"zero", 0}, {"host", 2}), FV(access.location.id, {"one", 1}),
                              FV(access.flags, {"none", 0}, {"read", 1})};
    {
        const Fields &fields = of_access;
        SPOIL_CALL(cuGraphAddMemAllocNode, " access", (CUgraphNode *)room, graph, nullptr, 0,
                   (it.of.accessDescs = &it.access, it.of.accessDescCount = 1, &it.of));
    }
    LINE_CALL(cuGraphAddMemFreeNode, " of-malloc", (CUgraphNode *)room, graph, nullptr, 0, memory);
    LINE_CALL(cuGraphAddMemFreeNode, " twice", (CUgraphNode *)room, graph, nullptr, 0, ([] {
                  CUDA_MEM_ALLOC_NODE_PARAMS of = {};
                  of.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
                  of.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
                  of.bytesize = 64;
                  CUgraphNode first = nullptr, second = nullptr;
                  CALL(cuGraphAddMemAllocNode, &first, graph, nullptr, 0, &of);
                  CALL(cuGraphAddMemFreeNode, &second, graph, &first, 1, of.dptr);
                  return of.dptr;
              }()));
}

static void general_nodes() {
    struct It {
        CUgraphNodeParams of;
    };
    It it = {};
    const auto add = [&](const char *group, const Fields &fields) {
        SPOIL(std::string("cuGraphAddNode_v2 ") + group,
              CALL(cuGraphAddNode, (CUgraphNode *)room, graph, nullptr, nullptr, 0, &it.of));
        SPOIL(std::string("cuGraphNodeSetParams ") + group, CALL(cuGraphNodeSetParams, kernel_node, &it.of));
        SPOIL(std::string("cuGraphExecNodeSetParams ") + group,
              CALL(cuGraphExecNodeSetParams, exec, kernel_node, &it.of));
    };
    it.of.type = CU_GRAPH_NODE_TYPE_KERNEL;
    it.of.kernel.func = Handle<CUfunction>::good;
    it.of.kernel.gridDimX = it.of.kernel.gridDimY = it.of.kernel.gridDimZ = 1;
    it.of.kernel.blockDimX = it.of.kernel.blockDimY = it.of.kernel.blockDimZ = 1;
    add("kernel",
        {FV(of.type, {"copy", 1}, {"set", 2}, {"host", 3}, {"graph", 4}, {"empty", 5}, {"wait", 6}, {"record", 7},
            {"signal", 8}, {"semaphore", 9}, {"alloc", 10}, {"free", 11}, {"memop", 12}, {"conditional", 13},
            {"14", 14}),
         ONLY(of.reserved0[0], {"one", 1}), ONLY(of.reserved2, {"one", 1}), ONLY(of.reserved1[28], {"one", 1}),
         F(of.kernel.func), F(of.kernel.gridDimX), FV(of.kernel.blockDimX, {"1025", 1025})});
    it.of = {};
    it.of.type = CU_GRAPH_NODE_TYPE_MEMSET;
    it.of.memset = {memory, 0, 0, 1, 16, 1, Handle<CUcontext>::good};
    add("set", {FV(of.memset.elementSize, {"three", 3}), F(of.memset.width), F(of.memset.height), F(of.memset.ctx),
                F(of.memset.dst)});
    it.of = {};
    it.of.type = CU_GRAPH_NODE_TYPE_MEMCPY;
    it.of.memcpy.copyParams = copy_of;
    it.of.memcpy.copyCtx = Handle<CUcontext>::good;
    add("copy", {ONLY(of.memcpy.flags, {"one", 1}), ONLY(of.memcpy.reserved, {"one", 1}), F(of.memcpy.copyCtx),
                 F(of.memcpy.copyParams.srcMemoryType), F(of.memcpy.copyParams.Depth)});
    it.of = {};
    it.of.type = CU_GRAPH_NODE_TYPE_HOST;
    it.of.host.fn = usual<CUhostFn>();
    add("host", {F(of.host.fn)});
    it.of = {};
    it.of.type = CU_GRAPH_NODE_TYPE_GRAPH;
    it.of.graph.graph = child;
    add("child", {F(of.graph.graph), FV(of.graph.graph, {"itself", (uintptr_t)graph}),
                  FV(of.graph.ownership, {"move", 1}, {"invalid", 0xff})});
    it.of = {};
    it.of.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
    it.of.eventRecord.event = Handle<CUevent>::good;
    add("record", {ONLY(of.eventRecord.event, {"null", 0})});
    it.of = {};
    it.of.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT;
    it.of.eventWait.event = Handle<CUevent>::good;
    add("wait", {ONLY(of.eventWait.event, {"null", 0})});
    it.of = {};
    it.of.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
    it.of.free.dptr = memory;
    add("free", {F(of.free.dptr)});
    it.of = {};
    it.of.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    CUgraphConditionalHandle handle = 0;
    CALL(cuGraphConditionalHandleCreate, &handle, graph, Handle<CUcontext>::good, 0, 0);
    it.of.conditional = {handle, CU_GRAPH_COND_TYPE_IF, 1, nullptr, Handle<CUcontext>::good};
    add("conditional",
        {ONLY(of.conditional.handle, {"zero", 0}), FV(of.conditional.type, {"while", 1}, {"switch", 2}, {"three", 3}),
         FV(of.conditional.size, {"two", 2}, {"three", 3}), F(of.conditional.ctx)});
    it.of = {};
    it.of.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    static CUstreamBatchMemOpParams op;
    op.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    op.writeValue.address = memory;
    it.of.memOp = {Handle<CUcontext>::good, 1, &op, 0};
    add("memop", {F(of.memOp.ctx), ONLY(of.memOp.count, {"zero", 0}, {"257", 257}), F(of.memOp.paramArray),
                  FV(of.memOp.flags, {"one", 1})});
    LINE_CALL(cuGraphConditionalHandleCreate, " flags", (CUgraphConditionalHandle *)room, graph,
              Handle<CUcontext>::good, 0, 2);
}

static CUgraphNode none;

static void lists() {
    {
        struct It {
            CUgraphNode first, second;
            size_t count;
        };
        It it = {kernel_node, copy_node, 2};
        const Fields fields = {F(first), FV(first, {"same", (uintptr_t)copy_node}, {"foreign", (uintptr_t)foreign}),
                               ONLY(count, {"zero", 0})};
        SPOIL_CALL(cuGraphAddEmptyNode, " after", (CUgraphNode *)room, graph, &it.first, it.count);
    }
    LINE_CALL(cuGraphAddEmptyNode, " none", (CUgraphNode *)room, graph, nullptr, 1);
    {
        struct It {
            CUgraphNode from, to;
            CUgraphEdgeData data;
        };
        It it = {};
        it.from = empty_node;
        it.to = child_node;
        const Fields fields = {F(from),
                               F(to),
                               FV(from, {"same", (uintptr_t)child_node}, {"foreign", (uintptr_t)foreign}),
                               FV(to, {"before", (uintptr_t)empty_node}, {"there", (uintptr_t)kernel_node}),
                               ONLY(data.from_port, {"one", 1}, {"two", 2}),
                               ONLY(data.to_port, {"one", 1}),
                               ONLY(data.type, {"one", 1}, {"two", 2}),
                               ONLY(data.reserved[0], {"one", 1})};
        SPOIL_CALL(cuGraphAddDependencies, " of", graph, &it.from, &it.to, &it.data, 1);
        SPOIL_CALL(cuGraphRemoveDependencies, " of", graph, &it.from, &it.to, &it.data, 1);
        it.from = wait_node;
        it.to = empty_node;
        SPOIL_CALL(cuGraphAddDependencies, " circle", graph, &it.from, &it.to, &it.data, 1);
        it.from = empty_node;
        it.to = kernel_node;
        SPOIL_CALL(cuGraphRemoveDependencies, " there", graph, &it.from, &it.to, &it.data, 1);
    }
    LINE_CALL(cuGraphInstantiate, " circle", (CUgraphExec *)room, ([] {
                  CALL(cuGraphAddDependencies, graph, &wait_node, &empty_node, nullptr, 1);
                  return graph;
              }()),
              0);
    LINE_CALL(cuGraphDestroyNode, " of-child", foreign);
    LINE_CALL(cuGraphAddChildGraphNode, " itself", (CUgraphNode *)room, graph, nullptr, 0, graph);
    LINE_CALL(cuGraphDestroy, " twice", (CALL(cuGraphDestroy, other), other));
    LINE_CALL(cuGraphExecUpdate, " other", exec, other, (CUgraphExecUpdateResultInfo *)room);
    LINE_CALL(cuGraphExecKernelNodeSetParams, " foreign", exec, foreign, &kernel_of);
    LINE_CALL(cuGraphNodeSetEnabled, " host", exec, host_node, 0);
    LINE_CALL(cuGraphNodeSetEnabled, " foreign", exec, foreign, 0);
    LINE_CALL(cuGraphNodeSetEnabled, " two", exec, kernel_node, 2);
    LINE_CALL(cuGraphNodeGetEnabled, " host", exec, host_node, (unsigned *)room);
    LINE_CALL(cuGraphNodeFindInClone, " not-a-clone", &none, kernel_node, graph);
    // The wrong kind of node.
    LINE_CALL(cuGraphKernelNodeGetParams, " copy", copy_node, (CUDA_KERNEL_NODE_PARAMS *)room);
    LINE_CALL(cuGraphKernelNodeSetParams, " copy", copy_node, &kernel_of);
    LINE_CALL(cuGraphKernelNodeGetAttribute, " copy", copy_node, CU_LAUNCH_ATTRIBUTE_PRIORITY,
              (CUkernelNodeAttrValue *)room);
    LINE_CALL(cuGraphKernelNodeSetAttribute, " copy", copy_node, CU_LAUNCH_ATTRIBUTE_PRIORITY,
              (CUkernelNodeAttrValue *)room);
    LINE_CALL(cuGraphKernelNodeCopyAttributes, " copy", copy_node, kernel_node);
    LINE_CALL(cuGraphMemcpyNodeGetParams, " kernel", kernel_node, (CUDA_MEMCPY3D *)room);
    LINE_CALL(cuGraphMemcpyNodeSetParams, " kernel", kernel_node, &copy_of);
    LINE_CALL(cuGraphMemsetNodeGetParams, " kernel", kernel_node, (CUDA_MEMSET_NODE_PARAMS *)room);
    LINE_CALL(cuGraphMemsetNodeSetParams, " kernel", kernel_node, &set_of);
    LINE_CALL(cuGraphHostNodeGetParams, " kernel", kernel_node, (CUDA_HOST_NODE_PARAMS *)room);
    LINE_CALL(cuGraphHostNodeSetParams, " kernel", kernel_node, &host_of);
    LINE_CALL(cuGraphChildGraphNodeGetGraph, " kernel", kernel_node, (CUgraph *)room);
    LINE_CALL(cuGraphEventRecordNodeGetEvent, " kernel", kernel_node, (CUevent *)room);
    LINE_CALL(cuGraphEventRecordNodeSetEvent, " kernel", kernel_node, Handle<CUevent>::good);
    LINE_CALL(cuGraphEventWaitNodeGetEvent, " kernel", kernel_node, (CUevent *)room);
    LINE_CALL(cuGraphEventWaitNodeSetEvent, " kernel", kernel_node, Handle<CUevent>::good);
    LINE_CALL(cuGraphMemAllocNodeGetParams, " kernel", kernel_node, (CUDA_MEM_ALLOC_NODE_PARAMS *)room);
    LINE_CALL(cuGraphMemFreeNodeGetParams, " kernel", kernel_node, (CUdeviceptr *)room);
    LINE_CALL(cuGraphBatchMemOpNodeGetParams, " kernel", kernel_node, (CUDA_BATCH_MEM_OP_NODE_PARAMS *)room);
    LINE_CALL(cuGraphExecMemcpyNodeSetParams, " kernel", exec, kernel_node, &copy_of, Handle<CUcontext>::good);
    LINE_CALL(cuGraphExecMemsetNodeSetParams, " kernel", exec, kernel_node, &set_of, Handle<CUcontext>::good);
    LINE_CALL(cuGraphExecHostNodeSetParams, " kernel", exec, kernel_node, &host_of);
    LINE_CALL(cuGraphExecChildGraphNodeSetParams, " kernel", exec, kernel_node, child);
    LINE_CALL(cuGraphExecChildGraphNodeSetParams, " other-shape", exec, child_node, graph);
    LINE_CALL(cuGraphExecEventRecordNodeSetEvent, " kernel", exec, kernel_node, Handle<CUevent>::good);
    LINE_CALL(cuUserObjectCreate, " count-zero", (CUuserObject *)room, host, usual<CUhostFn>(), 0,
              CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    LINE_CALL(cuUserObjectCreate, " flags-zero", (CUuserObject *)room, host, usual<CUhostFn>(), 1, 0);
    LINE_CALL(cuUserObjectCreate, " count-large", (CUuserObject *)room, host, usual<CUhostFn>(), 1u << 31,
              CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    LINE_CALL(cuUserObjectRelease, " two", Handle<CUuserObject>::good, 2);
    LINE_CALL(cuUserObjectRetain, " zero", Handle<CUuserObject>::good, 0);
    LINE_CALL(cuGraphRetainUserObject, " zero", graph, Handle<CUuserObject>::good, 0, 0);
    LINE_CALL(cuGraphRetainUserObject, " flags-two", graph, Handle<CUuserObject>::good, 1, 2);
    LINE_CALL(cuGraphReleaseUserObject, " not-its", graph, Handle<CUuserObject>::good, 1);
}

static CUstream captured;
static CUgraph result;

// The answer, once the capture has ended. Where the stream is gone, the next call gets another: NVIDIA's library crashes
// then, and all begins anew.
static int after_capture(int code) {
    if (CALL(cuStreamEndCapture, captured, &result) == CUDA_ERROR_INVALID_HANDLE) {
        CALL(cuStreamCreate, &captured, CU_STREAM_NON_BLOCKING);
    }
    CALL(cuStreamEndCapture, Handle<CUstream>::good, &result);
    return code;
}

// What is called while a stream is captured, and how the capture ends.
#define CAPTURED(how, mode, ...)                                                                       \
    LINE(how, after_capture((CALL(cuStreamBeginCapture, captured, mode), __VA_ARGS__)));               \
    LINE(how ", then the end", after_capture((CALL(cuStreamBeginCapture, captured, mode), __VA_ARGS__, \
                                              CALL(cuStreamEndCapture, captured, &result))))

static void captures() {
    CALL(cuStreamCreate, &captured, CU_STREAM_NON_BLOCKING);
    CAPTURED("cuStreamBeginCapture_v2 twice", CU_STREAM_CAPTURE_MODE_GLOBAL,
             CALL(cuStreamBeginCapture, captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CAPTURED("cuStreamSynchronize captured", CU_STREAM_CAPTURE_MODE_GLOBAL, CALL(cuStreamSynchronize, captured));
    CAPTURED("cuStreamQuery captured", CU_STREAM_CAPTURE_MODE_GLOBAL, CALL(cuStreamQuery, captured));
    CAPTURED("cuCtxSynchronize captured", CU_STREAM_CAPTURE_MODE_GLOBAL, CALL(cuCtxSynchronize));
    CAPTURED("cuCtxSynchronize captured-relaxed", CU_STREAM_CAPTURE_MODE_RELAXED, CALL(cuCtxSynchronize));
    CAPTURED("cuMemAlloc_v2 captured", CU_STREAM_CAPTURE_MODE_GLOBAL, CALL(cuMemAlloc, (CUdeviceptr *)room, 64));
    CAPTURED("cuMemAlloc_v2 captured-relaxed", CU_STREAM_CAPTURE_MODE_RELAXED,
             CALL(cuMemAlloc, (CUdeviceptr *)room, 64));
    CAPTURED("cuMemHostAlloc captured", CU_STREAM_CAPTURE_MODE_GLOBAL, CALL(cuMemHostAlloc, (void **)room, 64, 0));
    CAPTURED("cuMemHostRegister_v2 captured", CU_STREAM_CAPTURE_MODE_GLOBAL, CALL(cuMemHostRegister, room, 64, 0));
    CAPTURED("cuMemFree_v2 captured", CU_STREAM_CAPTURE_MODE_GLOBAL, CALL(cuMemFree, memory));
    CAPTURED("cuMemcpyHtoD_v2 captured", CU_STREAM_CAPTURE_MODE_GLOBAL, CALL(cuMemcpyHtoD, memory, room, 64));
    CAPTURED("cuMemcpyDtoD_v2 captured", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
             CALL(cuMemcpyDtoD, memory, memory + 64, 64));
    CAPTURED("cuMemsetD8_v2 captured", CU_STREAM_CAPTURE_MODE_GLOBAL, CALL(cuMemsetD8, memory, 0, 64));
    CAPTURED("cuMemsetD8Async captured", CU_STREAM_CAPTURE_MODE_GLOBAL, CALL(cuMemsetD8Async, memory, 0, 64, captured));
    CAPTURED("cuMemsetD8Async legacy", CU_STREAM_CAPTURE_MODE_GLOBAL, CALL(cuMemsetD8Async, memory, 0, 64, nullptr));
    CAPTURED("cuStreamDestroy_v2 captured", CU_STREAM_CAPTURE_MODE_GLOBAL, CALL(cuStreamDestroy, captured));
    CAPTURED("cuStreamAddCallback captured", CU_STREAM_CAPTURE_MODE_GLOBAL,
             CALL(cuStreamAddCallback, captured, usual<CUstreamCallback>(), nullptr, 0));
    CAPTURED("cuLaunchHostFunc captured", CU_STREAM_CAPTURE_MODE_GLOBAL,
             CALL(cuLaunchHostFunc, captured, usual<CUhostFn>(), nullptr));
    CAPTURED("cuEventRecord captured-query", CU_STREAM_CAPTURE_MODE_GLOBAL,
             CALL(cuEventRecord, Handle<CUevent>::good, captured), CALL(cuEventQuery, Handle<CUevent>::good));
    CAPTURED("cuEventRecord captured-wait", CU_STREAM_CAPTURE_MODE_GLOBAL,
             CALL(cuEventRecord, Handle<CUevent>::good, captured), CALL(cuEventSynchronize, Handle<CUevent>::good));
    CAPTURED("cuEventQuery captured", CU_STREAM_CAPTURE_MODE_GLOBAL, CALL(cuEventQuery, Handle<CUevent>::good));
    CAPTURED("cuEventQuery captured-relaxed", CU_STREAM_CAPTURE_MODE_RELAXED,
             CALL(cuEventQuery, Handle<CUevent>::good));
    CAPTURED("cuEventCreate captured", CU_STREAM_CAPTURE_MODE_GLOBAL, CALL(cuEventCreate, (CUevent *)room, 0));
    CAPTURED("cuStreamCreate captured", CU_STREAM_CAPTURE_MODE_GLOBAL, CALL(cuStreamCreate, (CUstream *)room, 0));
    CAPTURED("cuModuleLoadData captured", CU_STREAM_CAPTURE_MODE_GLOBAL,
             CALL(cuModuleLoadData, (CUmodule *)room, kPtx));
    CAPTURED("cuStreamWaitEvent captured-outside", CU_STREAM_CAPTURE_MODE_GLOBAL,
             CALL(cuStreamWaitEvent, captured, Handle<CUevent>::good, 0));
    CAPTURED("cuStreamWaitEvent unjoined", CU_STREAM_CAPTURE_MODE_GLOBAL,
             (CALL(cuEventRecord, Handle<CUevent>::good, captured),
              CALL(cuStreamWaitEvent, Handle<CUstream>::good, Handle<CUevent>::good, 0),
              CALL(cuMemsetD8Async, memory, 0, 16, Handle<CUstream>::good)));
    CAPTURED("cuStreamEndCapture of-the-other", CU_STREAM_CAPTURE_MODE_GLOBAL,
             (CALL(cuEventRecord, Handle<CUevent>::good, captured),
              CALL(cuStreamWaitEvent, Handle<CUstream>::good, Handle<CUevent>::good, 0),
              CALL(cuStreamEndCapture, Handle<CUstream>::good, &result)));
    CAPTURED("cuStreamWaitValue32_v2 captured", CU_STREAM_CAPTURE_MODE_GLOBAL,
             CALL(cuStreamWaitValue32, captured, memory, 0, 0));
    CAPTURED("cuStreamSetAttribute captured", CU_STREAM_CAPTURE_MODE_GLOBAL,
             CALL(cuStreamSetAttribute, captured, CU_LAUNCH_ATTRIBUTE_PRIORITY, (CUstreamAttrValue *)room));
    CAPTURED("cuGraphLaunch captured", CU_STREAM_CAPTURE_MODE_GLOBAL, CALL(cuGraphLaunch, exec, captured));
    CAPTURED("cuGraphUpload captured", CU_STREAM_CAPTURE_MODE_GLOBAL, CALL(cuGraphUpload, exec, captured));
    CAPTURED("cuGraphInstantiateWithFlags captured", CU_STREAM_CAPTURE_MODE_GLOBAL,
             CALL(cuGraphInstantiate, (CUgraphExec *)room, graph, 0));
    CAPTURED("cuMemAllocAsync captured", CU_STREAM_CAPTURE_MODE_GLOBAL,
             CALL(cuMemAllocAsync, (CUdeviceptr *)room, 64, captured));
    CAPTURED("cuMemFreeAsync captured", CU_STREAM_CAPTURE_MODE_GLOBAL, CALL(cuMemFreeAsync, memory, captured));
    CAPTURED("cuMemPoolTrimTo captured", CU_STREAM_CAPTURE_MODE_GLOBAL,
             CALL(cuMemPoolTrimTo, Handle<CUmemoryPool>::good, 0));
    CAPTURED("cuStreamUpdateCaptureDependencies_v2 foreign", CU_STREAM_CAPTURE_MODE_GLOBAL,
             CALL(cuStreamUpdateCaptureDependencies, captured, &kernel_node, nullptr, 1, 1));
    CAPTURED("cuStreamUpdateCaptureDependencies_v2 flags", CU_STREAM_CAPTURE_MODE_GLOBAL,
             CALL(cuStreamUpdateCaptureDependencies, captured, nullptr, nullptr, 0, 2));
    CAPTURED("cuLaunchKernel captured-bad", CU_STREAM_CAPTURE_MODE_GLOBAL,
             CALL(cuLaunchKernel, Handle<CUfunction>::good, 1, 1, 1, 1025, 1, 1, 0, captured, nullptr, nullptr));
    CAPTURED("cuLaunchKernel captured-legacy", CU_STREAM_CAPTURE_MODE_GLOBAL,
             CALL(cuLaunchKernel, Handle<CUfunction>::good, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    LINE_CALL(cuStreamEndCapture, " not-captured", captured, &result);
    LINE_CALL(cuStreamBeginCapture, " legacy", nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL);
    LINE_CALL(cuStreamBeginCaptureToGraph, " itself-captured", captured, graph, nullptr, nullptr, 0,
              CU_STREAM_CAPTURE_MODE_GLOBAL);
    LINE_CALL(cuStreamBeginCaptureToGraph, " foreign", captured, graph, &foreign, nullptr, 1,
              CU_STREAM_CAPTURE_MODE_GLOBAL);
    LINE_CALL(cuStreamUpdateCaptureDependencies, " not-captured", captured, nullptr, nullptr, 0, 0);
}

static void table() {
    build();
    kernels();
    fills();
    copies();
    allocations();
    general_nodes();
    lists();
    captures();
}

int main(int count, char **arguments) {
    return main_of(count, arguments, [] { set_up_driver(table); }, driver_is_healthy);
}
