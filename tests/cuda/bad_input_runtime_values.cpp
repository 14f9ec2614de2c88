// SPDX-License-Identifier: Apache-2.0 OR MIT
// nvcc: -Xcompiler -O0
// The runtime API: descriptions of copies, arrays, textures, pools and launches of which one member is bad.
#include "bad_input_runtime.h"
#include "bad_input_fields.h"

using namespace bad_input;

static cudaStream_t stream() {
    return Handle<cudaStream_t>::good;
}

static void copies_3d() {
    {
        using It = cudaMemcpy3DParms;
        It it = {};
        it.srcPtr = {memory, 64, 64, 4};
        it.dstPtr = {(char *)memory + 4096, 64, 64, 4};
        it.extent = {16, 4, 2};
        it.kind = cudaMemcpyDeviceToDevice;
        const Fields fields = {F(srcArray),
                               F(srcPos.x),
                               F(srcPos.y),
                               F(srcPos.z),
                               F(srcPtr.ptr),
                               FV(srcPtr.pitch, {"fifteen", 15}),
                               FV(srcPtr.ysize, {"three", 3}),
                               F(dstArray),
                               F(dstPos.x),
                               F(dstPos.z),
                               F(dstPtr.ptr),
                               FV(dstPtr.pitch, {"fifteen", 15}),
                               F(dstPtr.ysize),
                               FV(extent.width, {"wide", 65}),
                               FV(extent.height, {"high", 2000}),
                               FV(extent.depth, {"deep", 2000}),
                               FV(kind, {"hh", 0}, {"hd", 1}, {"dh", 2}, {"default", 4})};
        SPOIL_CALL(cudaMemcpy3D, " of", &it);
        SPOIL_CALL(cudaMemcpy3DAsync, " of", &it, stream());
        it.dstPtr = {};
        it.dstArray = Handle<cudaArray_t>::good;
        it.extent.depth = 1;
        SPOIL_CALL(cudaMemcpy3D, " to-array", &it);
        SPOIL_CALL(cudaMemcpy3DAsync, " to-array", &it, stream());
        it.srcPtr = {};
        it.srcArray = Handle<cudaArray_t>::good;
        it.dstPos.y = 8;
        SPOIL_CALL(cudaMemcpy3D, " between-arrays", &it);
    }
    {
        using It = cudaMemcpy3DPeerParms;
        It it = {};
        it.srcPtr = {memory, 64, 64, 4};
        it.dstPtr = {(char *)memory + 4096, 64, 64, 4};
        it.extent = {16, 4, 2};
        const Fields fields = {F(srcDevice),  F(dstDevice),    F(srcPtr.ptr),    F(srcPtr.pitch),
                               F(dstPtr.ptr), F(extent.width), F(extent.height), F(extent.depth)};
        SPOIL_CALL(cudaMemcpy3DPeer, " of", &it);
        SPOIL_CALL(cudaMemcpy3DPeerAsync, " of", &it, stream());
    }
    {
        struct It {
            cudaPitchedPtr to;
            int value;
            cudaExtent extent;
        };
        It it = {{memory, 64, 64, 4}, 0, {16, 4, 2}};
        const Fields fields = {F(to.ptr),
                               FV(to.pitch, {"fifteen", 15}),
                               F(to.xsize),
                               FV(to.ysize, {"three", 3}),
                               ONLY(value, {"256", 256}),
                               FV(extent.width, {"wide", 65}),
                               FV(extent.height, {"high", 2000}),
                               FV(extent.depth, {"deep", 2000})};
        SPOIL_CALL(cudaMemset3D, " of", it.to, it.value, it.extent);
        SPOIL_CALL(cudaMemset3DAsync, " of", it.to, it.value, it.extent, stream());
        SPOIL_CALL(cudaMalloc3D, " of", (cudaPitchedPtr *)room, it.extent);
    }
}

static void arrays_and_textures() {
    {
        struct It {
            cudaChannelFormatDesc of;
            cudaExtent extent;
            unsigned flags;
        };
        It it = {{32, 32, 0, 0, cudaChannelFormatKindFloat}, {16, 16, 2}, 0};
        const Fields fields = {FV(of.x, {"sixteen", 16}, {"twelve", 12}),
                               FV(of.y, {"sixteen", 16}),
                               FV(of.z, {"32", 32}),
                               FV(of.w, {"32", 32}),
                               FV(of.f, {"signed", 0}, {"unsigned", 1}, {"none", 3}, {"nv12", 4}, {"bc1", 17}),
                               FV(extent.width, {"large", 131073}),
                               FV(extent.height, {"large", 65537}),
                               FV(extent.depth, {"large", 16385}),
                               FV(flags, {"layered", 1}, {"surface", 2}, {"cube", 4}, {"cubes", 5}, {"gather", 8},
                                  {"sparse", 64}, {"deferred", 128}, {"4096", 4096})};
        SPOIL_CALL(cudaMalloc3DArray, " of", (cudaArray_t *)room, &it.of, it.extent, it.flags);
        SPOIL_CALL(cudaMallocMipmappedArray, " of", (cudaMipmappedArray_t *)room, &it.of, it.extent, 2, it.flags);
        SPOIL_CALL(cudaMallocArray, " of", (cudaArray_t *)room, &it.of, it.extent.width, it.extent.height, it.flags);
    }
    static cudaResourceDesc array;
    array.resType = cudaResourceTypeArray;
    array.res.array.array = Handle<cudaArray_t>::good;
    static cudaTextureDesc clamped;
    for (auto &mode : clamped.addressMode) {
        mode = cudaAddressModeClamp;
    }
    {
        using It = cudaTextureDesc;
        It it = clamped;
        const Fields fields = {FV(addressMode[0], {"wrap", 0}, {"border", 3}),
                               F(addressMode[1]),
                               F(filterMode),
                               FV(filterMode, {"linear", 1}),
                               F(readMode),
                               FV(readMode, {"normalised", 1}),
                               ONLY(sRGB, {"one", 1}),
                               ONLY(normalizedCoords, {"one", 1}, {"two", 2}),
                               FV(maxAnisotropy, {"32", 32}),
                               F(mipmapFilterMode),
                               ONLY(disableTrilinearOptimization, {"one", 1}),
                               ONLY(seamlessCubemap, {"one", 1})};
        SPOIL_CALL(cudaCreateTextureObject, " of", (cudaTextureObject_t *)room, &array, &it, nullptr);
    }
    {
        using It = cudaResourceDesc;
        It it = array;
        {
            const Fields fields = {F(resType), FV(resType, {"levels", 1}, {"linear", 2}, {"pitched", 3}),
                                   F(res.array.array)};
            SPOIL_CALL(cudaCreateTextureObject, " array", (cudaTextureObject_t *)room, &it, &clamped, nullptr);
            SPOIL_CALL(cudaCreateSurfaceObject, " array", (cudaSurfaceObject_t *)room, &it);
        }
        it = {};
        it.resType = cudaResourceTypeLinear;
        it.res.linear = {memory, {32, 0, 0, 0, cudaChannelFormatKindFloat}, 4096};
        {
            const Fields fields = {F(res.linear.devPtr), FV(res.linear.devPtr, {"odd", (uintptr_t)memory + 1}),
                                   F(res.linear.desc.x), F(res.linear.desc.f),
                                   FV(res.linear.sizeInBytes, {"three", 3}, {"large", 1ull << 33})};
            SPOIL_CALL(cudaCreateTextureObject, " linear", (cudaTextureObject_t *)room, &it, &clamped, nullptr);
        }
        it = {};
        it.resType = cudaResourceTypePitch2D;
        it.res.pitch2D = {memory, {32, 0, 0, 0, cudaChannelFormatKindFloat}, 16, 16, 512};
        {
            const Fields fields = {F(res.pitch2D.devPtr), F(res.pitch2D.desc.x),
                                   FV(res.pitch2D.width, {"large", 200000}), FV(res.pitch2D.height, {"large", 200000}),
                                   FV(res.pitch2D.pitchInBytes, {"sixteen", 16}, {"hundred", 100})};
            SPOIL_CALL(cudaCreateTextureObject, " pitched", (cudaTextureObject_t *)room, &it, &clamped, nullptr);
        }
    }
    {
        using It = cudaResourceViewDesc;
        It it = {};
        it.format = cudaResViewFormatUnsignedChar1;
        it.width = it.height = 16;
        const Fields fields = {FV(format, {"none", 0}),
                               F(width),
                               FV(height, {"seventeen", 17}),
                               F(depth),
                               F(firstMipmapLevel),
                               F(lastMipmapLevel),
                               F(firstLayer),
                               F(lastLayer)};
        SPOIL_CALL(cudaCreateTextureObject, " view", (cudaTextureObject_t *)room, &array, &clamped, &it);
    }
    LINE_CALL(cudaGetMipmappedArrayLevel, " two", (cudaArray_t *)room, Handle<cudaMipmappedArray_const_t>::good, 2);
    LINE_CALL(cudaArrayGetPlane, " one", (cudaArray_t *)room, Handle<cudaArray_t>::good, 1);
}

static void pools_and_launches() {
    {
        using It = cudaMemPoolProps;
        It it = {};
        it.allocType = cudaMemAllocationTypePinned;
        it.location.type = cudaMemLocationTypeDevice;
        const Fields fields = {F(allocType),
                               FV(allocType, {"zero", 0}),
                               F(handleTypes),
                               FV(handleTypes, {"file", 1}, {"win32", 2}, {"16", 16}),
                               F(location.type),
                               FV(location.type, {"zero", 0}, {"host", 2}),
                               FV(location.id, {"one", 1}),
                               F(maxSize),
                               FV(usage, {"one", 1}),
                               ONLY(reserved[0], {"one", 1})};
        SPOIL_CALL(cudaMemPoolCreate, " of", (cudaMemPool_t *)room, &it);
    }
    {
        struct It {
            cudaMemPoolAttr attribute;
            unsigned long long value;
        };
        It it = {};
        const Fields fields = {ONLY(attribute, {"zero", 0}, {"one", 1}, {"two", 2}, {"three", 3}, {"four", 4},
                                    {"five", 5}, {"six", 6}, {"seven", 7}, {"eight", 8}, {"nine", 9})};
        SPOIL_CALL(cudaMemPoolGetAttribute, " of", Handle<cudaMemPool_t>::good, it.attribute, room);
        it.value = 3;
        SPOIL_CALL(cudaMemPoolSetAttribute, " three", Handle<cudaMemPool_t>::good, it.attribute, &it.value);
    }
    {
        struct It {
            cudaLaunchConfig_t config;
            cudaLaunchAttribute attribute;
        };
        It it = {};
        it.config.gridDim = it.config.blockDim = one;
        it.config.stream = stream();
        const Fields fields = {F(config.gridDim.x),
                               FV(config.gridDim.y, {"65536", 65536}),
                               F(config.blockDim.x),
                               FV(config.blockDim.x, {"1025", 1025}),
                               FV(config.blockDim.z, {"65", 65}),
                               FV(config.dynamicSmemBytes, {"49153", 49153}),
                               FV(config.stream, {"legacy", 1}, {"per_thread", 2}),
                               ONLY(config.numAttrs, {"one", 1})};
        SPOIL_CALL(cudaLaunchKernelExC, " of", &it.config, kernel(), nullptr);
        SPOIL_CALL(cudaLaunchKernel, " of", kernel(), it.config.gridDim, it.config.blockDim, nullptr,
                   it.config.dynamicSmemBytes, it.config.stream);
        it.config.numAttrs = 1;
        it.attribute.id = cudaLaunchAttributeClusterDimension;
        it.attribute.val.clusterDim = {1, 1, 1};
        const auto make = [&]() -> Fields {
            return {F(attribute.id), FV(attribute.id, {"seven", 7}, {"twelve", 12}, {"fifteen", 15}),
                    F(attribute.val.clusterDim.x), FV(attribute.val.clusterDim.x, {"two", 2}, {"sixteen", 16})};
        };
        const Fields of_attribute = make();
        {
            const Fields &fields = of_attribute;
            SPOIL_CALL(cudaLaunchKernelExC, " cluster", (it.config.attrs = &it.attribute, &it.config), kernel(),
                       nullptr);
        }
    }
    {
        struct It {
            cudaFuncAttribute attribute;
            int value;
        };
        It it = {};
        const Fields fields = {F(attribute), ONLY(attribute, {"8", 8}, {"9", 9}, {"10", 10}, {"11", 11}, {"12", 12},
                                                  {"13", 13}, {"14", 14})};
        for (const int value : {-2, 1, 101, 300000}) {
            it.value = value;
            SPOIL(std::string("cudaFuncSetAttribute ") + std::to_string(value),
                  cudaFuncSetAttribute(kernel(), it.attribute, it.value));
        }
    }
    {
        struct It {
            unsigned flags;
        };
        It it = {};
        const Fields fields = {FV(flags, {"1", 1}, {"2", 2}, {"3", 3}, {"4", 4}, {"6", 6}, {"8", 8}, {"16", 16},
                                  {"32", 32}, {"64", 64}, {"128", 128})};
        SPOIL_CALL(cudaSetDeviceFlags, " flags", it.flags);
        SPOIL_CALL(cudaInitDevice, " flags", 0, it.flags, 1);
        SPOIL_CALL(cudaInitDevice, " unused-flags", 0, it.flags, 0);
        SPOIL_CALL(cudaStreamCreateWithFlags, " flags", (cudaStream_t *)room, it.flags);
        SPOIL_CALL(cudaEventCreateWithFlags, " flags", (cudaEvent_t *)room, it.flags);
        SPOIL_CALL(cudaStreamWaitEvent, " flags", stream(), Handle<cudaEvent_t>::good, it.flags);
        SPOIL_CALL(cudaEventRecordWithFlags, " flags", Handle<cudaEvent_t>::good, stream(), it.flags);
        SPOIL_CALL(cudaHostAlloc, " flags", (void **)room, 64, it.flags);
        SPOIL_CALL(cudaHostRegister, " flags", room, 64, it.flags);
        SPOIL_CALL(cudaMallocManaged, " flags", (void **)room, 64, it.flags);
        SPOIL_CALL(cudaStreamAttachMemAsync, " flags", stream(), memory, 0, it.flags);
    }
    {
        struct It {
            cudaStream_t stream;
        };
        It it = {stream()};
        const Fields fields = {ONLY(stream, {"legacy", 1}, {"per_thread", 2})};
        SPOIL_CALL(cudaStreamGetPriority, " handle", it.stream, (int *)room);
        SPOIL_CALL(cudaStreamGetFlags, " handle", it.stream, (unsigned *)room);
        SPOIL_CALL(cudaStreamGetId, " handle", it.stream, (unsigned long long *)room);
        SPOIL_CALL(cudaStreamBeginCapture, " handle", it.stream, cudaStreamCaptureModeRelaxed);
        SPOIL_CALL(cudaStreamEndCapture, " handle", it.stream, (cudaGraph_t *)room);
        SPOIL_CALL(cudaStreamIsCapturing, " handle", it.stream, (cudaStreamCaptureStatus *)room);
        SPOIL_CALL(cudaStreamDestroy, " handle", it.stream);
        SPOIL_CALL(cudaStreamQuery, " handle", it.stream);
        SPOIL_CALL(cudaStreamAddCallback, " handle", it.stream, usual<cudaStreamCallback_t>(), nullptr, 0);
        SPOIL_CALL(cudaMallocAsync, " handle", (void **)room, 64, it.stream);
        SPOIL_CALL(cudaGraphLaunch, " handle", Handle<cudaGraphExec_t>::good, it.stream);
    }
    LINE("cudaGetErrorString unknown", cudaGetErrorString((cudaError_t)123456) == nullptr);
    LINE("cudaGetErrorName unknown", cudaGetErrorName((cudaError_t)123456) == nullptr);
    LINE("cudaCtxResetPersistingL2Cache", cudaCtxResetPersistingL2Cache());
    LINE("cudaPeekAtLastError after", (cudaMalloc(nullptr, 16), cudaPeekAtLastError()));
    LINE("cudaGetLastError after", (cudaMalloc(nullptr, 16), cudaGetLastError()));
    LINE("cudaGetLastError after-success", (cudaMalloc(nullptr, 16), cudaDeviceSynchronize(), cudaGetLastError()));
    LINE("cudaGetLastError after-query", (cudaStreamQuery((cudaStream_t)2), cudaGetLastError()));
    LINE("cudaMemcpy to-nothing-of-nothing", cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyDefault));
    LINE("cudaMemcpy behind", cudaMemcpy(memory, (char *)memory + 1, 1 << 20, cudaMemcpyDeviceToDevice));
    LINE("cudaMemset behind", cudaMemset(memory, 0, 1 << 20));
    LINE("cudaMemcpyToSymbol no-symbol", cudaMemcpyToSymbol(room, room, 16));
    LINE("cudaEventElapsedTime unrecorded", ([] {
             cudaEvent_t first, second;
             cudaEventCreate(&first);
             cudaEventCreate(&second);
             return cudaEventElapsedTime((float *)room, first, second);
         }()));
    LINE("cudaEventElapsedTime untimed", ([] {
             cudaEvent_t first, second;
             cudaEventCreateWithFlags(&first, cudaEventDisableTiming);
             cudaEventCreate(&second);
             cudaEventRecord(first);
             cudaEventRecord(second);
             cudaDeviceSynchronize();
             return cudaEventElapsedTime((float *)room, first, second);
         }()));
}

static void table() {
    copies_3d();
    arrays_and_textures();
    pools_and_launches();
}

int main(int count, char **arguments) {
    return main_of(count, arguments, [] { set_up_runtime(table); }, runtime_is_healthy);
}
