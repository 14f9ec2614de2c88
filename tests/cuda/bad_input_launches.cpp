// SPDX-License-Identifier: Apache-2.0 OR MIT
// nvcc: -Xcompiler -O0
// The driver API: launches, their attributes, functions, streams and events where one value is bad.
#include "bad_input_driver.h"
#include "bad_input_fields.h"

using namespace bad_input;

static CUstream stream() {
    return Handle<CUstream>::good;
}
static CUfunction nothing() {
    return Handle<CUfunction>::good;
}

// One with a parameter; and in the module that stays.
static CUfunction one;
static CUevent untimed, unrecorded;

static void launches() {
    {
        struct It {
            unsigned grid[3], block[3], shared;
            CUstream stream;
        };
        It it = {{1, 1, 1}, {1, 1, 1}, 0, stream()};
        const Fields fields = {F(grid[0]),
                               FV(grid[1], {"65536", 65536}),
                               FV(grid[2], {"65536", 65536}),
                               FV(block[0], {"1025", 1025}),
                               FV(block[1], {"1025", 1025}),
                               FV(block[2], {"65", 65}),
                               FV(shared, {"49153", 49153}, {"1m", 1 << 20}),
                               FV(stream, {"legacy", 1}, {"per_thread", 2}, {"three", 3})};
        SPOIL_CALL(cuLaunchKernel, " of", nothing(), it.grid[0], it.grid[1], it.grid[2], it.block[0], it.block[1],
                   it.block[2], it.shared, it.stream, nullptr, nullptr);
        SPOIL_CALL(cuLaunchCooperativeKernel, " of", nothing(), it.grid[0], it.grid[1], it.grid[2], it.block[0],
                   it.block[1], it.block[2], it.shared, it.stream, nullptr);
    }
    {
        struct It {
            CUlaunchConfig config;
            CUlaunchAttribute attribute;
            bool none;
        };
        It it = {};
        it.config.gridDimX = it.config.gridDimY = it.config.gridDimZ = 1;
        it.config.blockDimX = it.config.blockDimY = it.config.blockDimZ = 1;
        it.config.numAttrs = 1;
        it.config.hStream = stream();
        Fields fields = {
            F(config.gridDimX),
            F(config.blockDimX),
            FV(config.blockDimZ, {"65", 65}),
            FV(config.sharedMemBytes, {"49153", 49153}),
            FV(config.hStream, {"legacy", 1}, {"per_thread", 2}),
            ONLY(none, {"true", 1}),
            FV(attribute.id, {"twelve", 12}, {"thirteen", 13}, {"fourteen", 14}, {"fifteen", 15}, {"hundred", 100})};
        const auto launch = [&](const std::string &group, Fields more) {
            fields = std::move(more);
            SPOIL(std::string("cuLaunchKernelEx ") + group,
                  (it.config.attrs = it.none ? nullptr : &it.attribute,
                   CALL(cuLaunchKernelEx, &it.config, nothing(), nullptr, nullptr)));
        };
        launch("of", fields);
        it.attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        it.attribute.value.clusterDim = {1, 1, 1};
        it.config.gridDimX = 8;
        launch("cluster", {F(attribute.value.clusterDim.x),
                           FV(attribute.value.clusterDim.x, {"three", 3}, {"eight", 8}, {"sixteen", 16}),
                           F(attribute.value.clusterDim.y), FV(attribute.value.clusterDim.z, {"two", 2})});
        it.attribute.value = {};
        it.attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        launch("cooperative", {F(attribute.value.cooperative), FV(attribute.value.cooperative, {"one", 1}, {"two", 2}),
                               FV(config.gridDimX, {"million", 1000000})});
        it.attribute.value.cooperative = 1;
        launch("cooperating", {FV(config.gridDimX, {"million", 1000000})});
        it.attribute.value = {};
        it.attribute.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
        launch("priority", {F(attribute.value.priority), FV(attribute.value.priority, {"hundred", 100})});
        it.attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE;
        launch("scheduling", {F(attribute.value.clusterSchedulingPolicyPreference),
                              ONLY(attribute.value.clusterSchedulingPolicyPreference, {"two", 2}, {"three", 3})});
        it.attribute.id = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
        launch("domain",
               {F(attribute.value.memSyncDomain), ONLY(attribute.value.memSyncDomain, {"one", 1}, {"two", 2})});
        it.attribute.id = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP;
        launch("domains", {F(attribute.value.memSyncDomainMap.default_),
                           FV(attribute.value.memSyncDomainMap.remote, {"four", 4})});
        it.attribute.id = CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY;
        launch("synchronization", {F(attribute.value.syncPolicy)});
        it.attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        launch("serialization", {F(attribute.value.programmaticStreamSerializationAllowed)});
        it.attribute.id = CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
        launch("carveout", {F(attribute.value.sharedMemCarveout), FV(attribute.value.sharedMemCarveout, {"101", 101})});
        it.attribute.id = CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW;
        it.attribute.value = {};
        it.attribute.value.accessPolicyWindow.base_ptr = (void *)memory;
        it.attribute.value.accessPolicyWindow.num_bytes = 4096;
        it.attribute.value.accessPolicyWindow.hitRatio = 1;
        launch("window",
               {F(attribute.value.accessPolicyWindow.base_ptr), F(attribute.value.accessPolicyWindow.num_bytes),
                ONLY(attribute.value.accessPolicyWindow.hitRatio, {"two", 2}),
                F(attribute.value.accessPolicyWindow.hitProp),
                FV(attribute.value.accessPolicyWindow.missProp, {"persisting", 2})});
    }
    LINE_CALL(cuLaunchKernel, " no-parameters", one, 1, 1, 1, 1, 1, 1, 0, stream(), nullptr, nullptr);
    static size_t size = 4;
    static unsigned value;
    static void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &value, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                            CU_LAUNCH_PARAM_END};
    static void *both[] = {&value}, *unknown[] = {(void *)7, &value, CU_LAUNCH_PARAM_END},
                *half[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &value, CU_LAUNCH_PARAM_END};
    LINE_CALL(cuLaunchKernel, " extra", one, 1, 1, 1, 1, 1, 1, 0, stream(), nullptr, extra);
    LINE_CALL(cuLaunchKernel, " extra-and-parameters", one, 1, 1, 1, 1, 1, 1, 0, stream(), both, extra);
    LINE_CALL(cuLaunchKernel, " extra-unknown", one, 1, 1, 1, 1, 1, 1, 0, stream(), nullptr, unknown);
    LINE_CALL(cuLaunchKernel, " extra-half", one, 1, 1, 1, 1, 1, 1, 0, stream(), nullptr, half);
    LINE_CALL(cuLaunchKernel, " kernel-of-library", (CUfunction)Handle<CUkernel>::good, 1, 1, 1, 1, 1, 1, 0, stream(),
              nullptr, nullptr);
}

static void functions_and_limits() {
    {
        struct It {
            CUfunction_attribute attribute;
            int value;
        };
        It it = {};
        const Fields fields = {ONLY(attribute, {"0", 0}, {"1", 1}, {"5", 5}, {"8", 8}, {"9", 9}, {"10", 10}, {"11", 11},
                                    {"12", 12}, {"13", 13}, {"14", 14}, {"15", 15}, {"16", 16})};
        static const int values[] = {-2, -1, 1, 2, 101, 300000};
        for (const int value : values) {
            it.value = value;
            SPOIL(std::string("cuFuncSetAttribute ") + std::to_string(value),
                  CALL(cuFuncSetAttribute, nothing(), it.attribute, it.value));
            SPOIL(std::string("cuKernelSetAttribute ") + std::to_string(value),
                  CALL(cuKernelSetAttribute, it.attribute, it.value, Handle<CUkernel>::good, 0));
        }
    }
    {
        struct It {
            CUlimit limit;
            size_t value;
        };
        It it = {};
        const Fields fields = {
            FV(limit, {"1", 1}, {"2", 2}, {"3", 3}, {"4", 4}, {"5", 5}, {"6", 6}, {"7", 7}, {"8", 8}),
            FV(value, {"million", 1000000}, {"terabyte", 1ull << 40})};
        it.value = 1024;
        SPOIL_CALL(cuCtxSetLimit, " of", it.limit, it.value);
        it.value = 1ull << 40;
        SPOIL_CALL(cuCtxSetLimit, " terabyte", it.limit, it.value);
        SPOIL_CALL(cuCtxGetLimit, " of", &it.value, it.limit);
    }
    {
        struct It {
            unsigned flags;
        };
        It it = {};
        const Fields fields = {FV(flags, {"1", 1}, {"2", 2}, {"3", 3}, {"4", 4}, {"6", 6}, {"8", 8}, {"16", 16},
                                  {"32", 32}, {"64", 64}, {"128", 128}, {"256", 256})};
        SPOIL_CALL(cuCtxCreate, " flags", &Handle<CUcontext>::freed, nullptr, it.flags, 0);
        SPOIL_CALL(cuCtxSetFlags, " flags", it.flags);
        SPOIL_CALL(cuDevicePrimaryCtxSetFlags, " flags", 0, it.flags);
        SPOIL_CALL(cuStreamCreate, " flags", (CUstream *)room, it.flags);
        SPOIL_CALL(cuEventCreate, " flags", (CUevent *)room, it.flags);
        SPOIL_CALL(cuStreamWaitEvent, " flags", stream(), Handle<CUevent>::good, it.flags);
        SPOIL_CALL(cuEventRecordWithFlags, " flags", Handle<CUevent>::good, stream(), it.flags);
        SPOIL_CALL(cuMemHostAlloc, " flags", (void **)room, 64, it.flags);
        SPOIL_CALL(cuMemHostRegister, " flags", room, 64, it.flags);
        SPOIL_CALL(cuMemAllocManaged, " flags", (CUdeviceptr *)room, 64, it.flags);
        SPOIL_CALL(cuStreamAttachMemAsync, " flags", stream(), memory, 0, it.flags);
        SPOIL_CALL(cuGraphInstantiate, " flags", (CUgraphExec *)room, Handle<CUgraph>::good, it.flags);
        SPOIL_CALL(cuGraphDebugDotPrint, " flags", Handle<CUgraph>::good, "/dev/null", it.flags);
        SPOIL_CALL(cuLaunchCooperativeKernelMultiDevice, " none", nullptr, 0, it.flags);
    }
    LINE_CALL(cuCtxCreate, " parameters", &Handle<CUcontext>::freed, (CUctxCreateParams *)room, 0, 0);
    LINE_CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, " 1025", (int *)room, nothing(), 1025, 0);
    LINE_CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, " shared", (int *)room, nothing(), 32, 1 << 20);
    LINE_CALL(cuFuncGetParamInfo, " one", one, 1, (size_t *)room, nullptr);
    LINE_CALL(cuFuncGetParamInfo, " no-size", one, 0, (size_t *)room, nullptr);
    LINE_CALL(cuModuleGetGlobal, " function", (CUdeviceptr *)room, (size_t *)room, Handle<CUmodule>::good, "nothing");
    LINE_CALL(cuModuleGetFunction, " variable", (CUfunction *)room, Handle<CUmodule>::good, "number");
    LINE_CALL(cuModuleLoadData, " text", (CUmodule *)room, "not PTX");
    LINE_CALL(cuModuleLoadData, " later-PTX", (CUmodule *)room, ".version 99.0\n.target sm_52\n.address_size 64\n");
    LINE_CALL(cuModuleLoadData, " other-target", (CUmodule *)room, ".version 7.0\n.target sm_999\n.address_size 64\n");
    LINE_CALL(cuModuleLoadData, " broken-PTX", (CUmodule *)room,
              ".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry f() { add.u32; }\n");
    LINE_CALL(
        cuModuleLoadData, " unresolved", (CUmodule *)room,
        ".version 7.0\n.target sm_52\n.address_size 64\n.extern .func g();\n.visible .entry f() { call g; ret; }\n");
    LINE_CALL(cuModuleLoad, " folder", (CUmodule *)room, "/tmp");
    LINE_CALL(cuLibraryLoadFromFile, " folder", (CUlibrary *)room, "/tmp", nullptr, nullptr, 0, nullptr, nullptr, 0);
    LINE_CALL(cuLinkComplete, " nothing", Handle<CUlinkState>::good, (void **)room, (size_t *)room);
    LINE_CALL(cuGetProcAddress, " nothing", "cuNothing", (void **)room, 13000, 0, nullptr);
    LINE_CALL(cuGetProcAddress, " old", "cuGraphCreate", (void **)room, 5000, 0, nullptr);
    LINE_CALL(cuGetProcAddress, " later", "cuGraphCreate", (void **)room, 99000, 0, nullptr);
    LINE_CALL(cuGetProcAddress, " flags", "cuGraphCreate", (void **)room, 13000, 3, nullptr);
}

static void streams_and_events() {
    {
        struct It {
            CUstream stream;
        };
        It it = {stream()};
        const Fields fields = {ONLY(stream, {"legacy", 1}, {"per_thread", 2}, {"three", 3})};
        SPOIL_CALL(cuStreamGetPriority, " handle", it.stream, (int *)room);
        SPOIL_CALL(cuStreamGetFlags, " handle", it.stream, (unsigned *)room);
        SPOIL_CALL(cuStreamGetId, " handle", it.stream, (unsigned long long *)room);
        SPOIL_CALL(cuStreamGetCtx, " handle", it.stream, (CUcontext *)room);
        SPOIL_CALL(cuStreamGetDevice, " handle", it.stream, (CUdevice *)room);
        SPOIL_CALL(cuStreamWaitEvent, " handle", it.stream, Handle<CUevent>::good, 0);
        SPOIL_CALL(cuStreamAddCallback, " handle", it.stream, usual<CUstreamCallback>(), nullptr, 0);
        SPOIL_CALL(cuStreamBeginCapture, " handle", it.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
        SPOIL_CALL(cuStreamEndCapture, " handle", it.stream, (CUgraph *)room);
        SPOIL_CALL(cuStreamIsCapturing, " handle", it.stream, (CUstreamCaptureStatus *)room);
        SPOIL_CALL(cuStreamGetCaptureInfo, " handle", it.stream, (CUstreamCaptureStatus *)room, nullptr, nullptr,
                   nullptr, nullptr, nullptr);
        SPOIL_CALL(cuStreamUpdateCaptureDependencies, " handle", it.stream, nullptr, nullptr, 0, 0);
        SPOIL_CALL(cuStreamAttachMemAsync, " handle", it.stream, memory, 0, CU_MEM_ATTACH_GLOBAL);
        SPOIL_CALL(cuStreamQuery, " handle", it.stream);
        SPOIL_CALL(cuStreamSynchronize, " handle", it.stream);
        SPOIL_CALL(cuStreamDestroy, " handle", it.stream);
        SPOIL_CALL(cuStreamCopyAttributes, " handle", it.stream, stream());
        SPOIL_CALL(cuStreamCopyAttributes, " from", stream(), it.stream);
        SPOIL_CALL(cuStreamGetAttribute, " handle", it.stream, CU_LAUNCH_ATTRIBUTE_PRIORITY, (CUstreamAttrValue *)room);
        SPOIL_CALL(cuStreamSetAttribute, " handle", it.stream, CU_LAUNCH_ATTRIBUTE_PRIORITY, (CUstreamAttrValue *)room);
        SPOIL_CALL(cuEventRecord, " handle", Handle<CUevent>::good, it.stream);
        SPOIL_CALL(cuLaunchHostFunc, " handle", it.stream, usual<CUhostFn>(), nullptr);
        SPOIL_CALL(cuMemAllocAsync, " handle", (CUdeviceptr *)room, 64, it.stream);
        SPOIL_CALL(cuMemsetD8Async, " handle", memory, 0, 16, it.stream);
        SPOIL_CALL(cuMemcpyAsync, " handle", memory, memory + 64, 16, it.stream);
        SPOIL_CALL(cuGraphLaunch, " handle", Handle<CUgraphExec>::good, it.stream);
        SPOIL_CALL(cuGraphUpload, " handle", Handle<CUgraphExec>::good, it.stream);
        SPOIL_CALL(cuStreamWriteValue32, " handle", it.stream, memory, 1, 0);
        SPOIL_CALL(cuStreamWaitValue32, " handle", it.stream, memory, 0, 0);
    }
    {
        struct It {
            CUstreamAttrID attribute;
            CUstreamAttrValue value;
        };
        It it = {};
        const Fields fields = {ONLY(attribute, {"0", 0}, {"1", 1}, {"2", 2}, {"3", 3}, {"4", 4}, {"5", 5}, {"6", 6},
                                    {"7", 7}, {"8", 8}, {"9", 9}, {"10", 10}, {"11", 11}, {"14", 14}, {"16", 16})};
        SPOIL_CALL(cuStreamGetAttribute, " of", stream(), it.attribute, &it.value);
        SPOIL_CALL(cuStreamSetAttribute, " zeros", stream(), it.attribute, &it.value);
        std::memset(&it.value, 0xff, sizeof it.value);
        SPOIL_CALL(cuStreamSetAttribute, " ones", stream(), it.attribute, &it.value);
    }
    {
        struct It {
            CUdeviceptr at;
            unsigned flags;
        };
        It it = {memory, 0};
        const Fields fields = {
            FV(at, {"odd", memory + 1}, {"behind", memory + 65536}, {"pinned", (unsigned long long)(uintptr_t)host}),
            FV(flags, {"1", 1}, {"2", 2}, {"3", 3}, {"4", 4}, {"flush", 1u << 30}, {"barrier", 1u << 31})};
        SPOIL_CALL(cuStreamWriteValue32, " of", stream(), it.at, 0, it.flags);
        SPOIL_CALL(cuStreamWriteValue64, " of", stream(), it.at, 0, it.flags);
        // With 1: greater or equal, equal, and, nor: the last two would wait for ever.
        LINE_CALL(cuStreamWaitValue32, " odd", stream(), memory + 1, 0, 0);
        LINE_CALL(cuStreamWaitValue32, " behind", stream(), memory + 65536, 0, 0);
        LINE_CALL(cuStreamWaitValue32, " equal", stream(), memory, 0, CU_STREAM_WAIT_VALUE_EQ);
        LINE_CALL(cuStreamWaitValue32, " flush", stream(), memory, 0, CU_STREAM_WAIT_VALUE_FLUSH);
        LINE_CALL(cuStreamWaitValue32, " 4", stream(), memory, 0, 4);
        LINE_CALL(cuStreamWaitValue64, " four", stream(), memory + 4, 0, 0);
        LINE_CALL(cuStreamWaitValue64, " flush", stream(), memory, 0, CU_STREAM_WAIT_VALUE_FLUSH);
    }
    {
        struct It {
            CUstreamBatchMemOpParams op;
            unsigned count, flags;
        };
        It it = {};
        it.op.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
        it.op.writeValue.address = memory;
        it.count = 1;
        const Fields fields = {
            FV(op.operation, {"zero", 0}, {"flush", 3}, {"write64", 5}, {"barrier", 6}, {"eight", 8}),
            FV(op.writeValue.address, {"odd", memory + 1}), F(op.writeValue.flags),
            ONLY(count, {"zero", 0}, {"257", 257}), F(flags)};
        SPOIL_CALL(cuStreamBatchMemOp, " of", stream(), it.count, &it.op, it.flags);
    }
    LINE_CALL(cuStreamCreateWithPriority, " low", (CUstream *)room, 0, 100);
    LINE_CALL(cuStreamCreateWithPriority, " high", (CUstream *)room, 0, -100);
    CALL(cuEventCreate, &untimed, CU_EVENT_DISABLE_TIMING);
    CALL(cuEventCreate, &unrecorded, 0);
    CALL(cuEventRecord, untimed, stream());
    CALL(cuEventRecord, Handle<CUevent>::good, stream());
    CALL(cuStreamSynchronize, stream());
    LINE_CALL(cuEventElapsedTime, " untimed", (float *)room, untimed, Handle<CUevent>::good);
    LINE_CALL(cuEventElapsedTime, " to-untimed", (float *)room, Handle<CUevent>::good, untimed);
    LINE_CALL(cuEventElapsedTime, " unrecorded", (float *)room, unrecorded, Handle<CUevent>::good);
    LINE_CALL(cuEventElapsedTime, " to-unrecorded", (float *)room, Handle<CUevent>::good, unrecorded);
    LINE_CALL(cuEventQuery, " unrecorded", unrecorded);
    LINE_CALL(cuEventSynchronize, " unrecorded", unrecorded);
    LINE_CALL(cuStreamWaitEvent, " unrecorded", stream(), unrecorded, 0);
    LINE_CALL(cuIpcGetEventHandle, " usual", (CUipcEventHandle *)room, untimed);
    LINE_CALL(cuCtxDestroy, " primary", Handle<CUcontext>::good);
    LINE_CALL(cuCtxEnablePeerAccess, " itself", Handle<CUcontext>::good, 0);
    LINE_CALL(cuCtxDisablePeerAccess, " itself", Handle<CUcontext>::good);
    LINE_CALL(cuDeviceGetP2PAttribute, " itself", (int *)room, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0);
    LINE_CALL(cuDeviceCanAccessPeer, " itself", (int *)room, 0, 0);
    LINE_CALL(cuDevicePrimaryCtxRelease, " twice",
              (CALL(cuDevicePrimaryCtxRelease, 0), CALL(cuDevicePrimaryCtxRelease, 0), 0));
}

static void table() {
    CALL(cuModuleGetFunction, &one, Handle<CUmodule>::good, "one");
    launches();
    functions_and_limits();
    streams_and_events();
}

int main(int count, char **arguments) {
    return main_of(count, arguments, [] { set_up_driver(table); }, driver_is_healthy);
}
