// SPDX-License-Identifier: Apache-2.0 OR MIT
// nvcc: -Xcompiler -O0
// The driver API: descriptions of copies and of arrays of which one member is bad.
#include "bad_input_driver.h"
#include "bad_input_fields.h"

using namespace bad_input;

static CUstream stream() {
    return Handle<CUstream>::good;
}

static void copies_2d() {
    using It = CUDA_MEMCPY2D;
    It it = {};
    const auto make = [&] {
        return Fields{F(srcXInBytes),
                      F(srcY),
                      F(srcMemoryType),
                      F(srcHost),
                      F(srcDevice),
                      F(srcArray),
                      FV(srcPitch, {"fifteen", 15}),
                      F(dstXInBytes),
                      F(dstY),
                      FV(dstMemoryType, {"zero", 0}, {"unified", CU_MEMORYTYPE_UNIFIED}),
                      F(dstHost),
                      F(dstDevice),
                      F(dstArray),
                      FV(dstPitch, {"fifteen", 15}),
                      FV(WidthInBytes, {"wide", 65}),
                      FV(Height, {"high", 2000})};
    };
    Fields fields = make();
    it.srcMemoryType = it.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    it.srcDevice = memory;
    it.dstDevice = memory + 4096;
    it.srcPitch = it.dstPitch = 64;
    it.WidthInBytes = 16;
    it.Height = 4;
    SPOIL_CALL(cuMemcpy2D, "", &it);
    SPOIL_CALL(cuMemcpy2DUnaligned, "", &it);
    SPOIL_CALL(cuMemcpy2DAsync, "", &it, stream());
    it.srcMemoryType = CU_MEMORYTYPE_HOST;
    it.srcHost = host;
    it.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    it.dstArray = Handle<CUarray>::good;
    SPOIL_CALL(cuMemcpy2D, " to-array", &it);
    SPOIL_CALL(cuMemcpy2DUnaligned, " to-array", &it);
    SPOIL_CALL(cuMemcpy2DAsync, " to-array", &it, stream());
    std::swap(it.srcMemoryType, it.dstMemoryType);
    it.srcArray = Handle<CUarray>::good;
    it.dstHost = host;
    SPOIL_CALL(cuMemcpy2D, " from-array", &it);
    SPOIL_CALL(cuMemcpy2DUnaligned, " from-array", &it);
    SPOIL_CALL(cuMemcpy2DAsync, " from-array", &it, stream());
    it.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    it.dstArray = Handle<CUarray>::good;
    it.dstY = 8;
    SPOIL_CALL(cuMemcpy2D, " between-arrays", &it);
}

static void copies_3d() {
    using It = CUDA_MEMCPY3D;
    It it = {};
    const Fields fields = {F(srcXInBytes),
                           F(srcY),
                           F(srcZ),
                           FV(srcLOD, {"one", 1}),
                           F(srcMemoryType),
                           F(srcHost),
                           F(srcDevice),
                           F(srcArray),
                           FV(srcPitch, {"fifteen", 15}),
                           FV(srcHeight, {"three", 3}),
                           F(dstXInBytes),
                           F(dstY),
                           F(dstZ),
                           FV(dstLOD, {"one", 1}),
                           FV(dstMemoryType, {"zero", 0}, {"unified", CU_MEMORYTYPE_UNIFIED}),
                           F(dstHost),
                           F(dstDevice),
                           F(dstArray),
                           FV(dstPitch, {"fifteen", 15}),
                           FV(dstHeight, {"three", 3}),
                           FV(WidthInBytes, {"wide", 65}),
                           FV(Height, {"high", 2000}),
                           FV(Depth, {"deep", 2000}),
                           ONLY(reserved0, {"one", 1}),
                           ONLY(reserved1, {"one", 1})};
    it.srcMemoryType = it.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    it.srcDevice = memory;
    it.dstDevice = memory + 4096;
    it.srcPitch = it.dstPitch = 64;
    it.srcHeight = it.dstHeight = 4;
    it.WidthInBytes = 16;
    it.Height = 4;
    it.Depth = 2;
    SPOIL_CALL(cuMemcpy3D, "", &it);
    SPOIL_CALL(cuMemcpy3DAsync, "", &it, stream());
    it.srcMemoryType = CU_MEMORYTYPE_HOST;
    it.srcHost = host;
    it.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    it.dstArray = Handle<CUarray>::good;
    it.Depth = 1;
    SPOIL_CALL(cuMemcpy3D, " to-array", &it);
    SPOIL_CALL(cuMemcpy3DAsync, " to-array", &it, stream());
    std::swap(it.srcMemoryType, it.dstMemoryType);
    it.srcArray = Handle<CUarray>::good;
    it.dstHost = host;
    SPOIL_CALL(cuMemcpy3D, " from-array", &it);
    SPOIL_CALL(cuMemcpy3DAsync, " from-array", &it, stream());
}

static void copies_between_contexts() {
    using It = CUDA_MEMCPY3D_PEER;
    It it = {};
    const Fields fields = {F(srcXInBytes),
                           F(srcZ),
                           FV(srcLOD, {"one", 1}),
                           F(srcMemoryType),
                           F(srcDevice),
                           F(srcContext),
                           F(srcPitch),
                           F(srcHeight),
                           F(dstMemoryType),
                           F(dstDevice),
                           F(dstContext),
                           F(dstArray),
                           F(dstPitch),
                           FV(dstHeight, {"three", 3}),
                           F(WidthInBytes),
                           F(Height),
                           F(Depth)};
    it.srcMemoryType = it.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    it.srcDevice = memory;
    it.dstDevice = memory + 4096;
    it.srcContext = it.dstContext = Handle<CUcontext>::good;
    it.srcPitch = it.dstPitch = 64;
    it.srcHeight = it.dstHeight = 4;
    it.WidthInBytes = 16;
    it.Height = 4;
    it.Depth = 2;
    SPOIL_CALL(cuMemcpy3DPeer, "", &it);
    SPOIL_CALL(cuMemcpy3DPeerAsync, "", &it, stream());
}

static void batches() {
    {
        struct It {
            CUdeviceptr to, from;
            size_t size, count;
            CUmemcpyAttributes how;
            size_t index, attributes;
            CUstream stream;
        };
        It it = {};
        it.to = memory;
        it.from = memory + 4096;
        it.size = 16;
        it.count = 1;
        it.how.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
        it.attributes = 1;
        it.stream = stream();
        const Fields fields = {F(to),
                               F(from),
                               F(size),
                               ONLY(count, {"zero", 0}),
                               FV(how.srcAccessOrder, {"zero", 0}, {"during", 2}, {"any", 3}),
                               FV(how.srcLocHint.type, {"device", 1}, {"host", 2}),
                               F(how.dstLocHint.type),
                               F(how.flags),
                               ONLY(index, {"one", 1}),
                               ONLY(attributes, {"zero", 0}, {"two", 2}),
                               FV(stream, {"legacy", 1}, {"per_thread", 2})};
        SPOIL_CALL(cuMemcpyBatchAsync, " batch", &it.to, &it.from, &it.size, it.count, &it.how, &it.index,
                   it.attributes, it.stream);
        it.from = (CUdeviceptr)(uintptr_t)host;
        SPOIL_CALL(cuMemcpyBatchAsync, " batch-host", &it.to, &it.from, &it.size, it.count, &it.how, &it.index,
                   it.attributes, it.stream);
    }
    {
        struct It {
            CUDA_MEMCPY3D_BATCH_OP op;
            size_t count;
            unsigned long long flags;
            CUstream stream;
        };
        It it = {};
        it.op.src.type = it.op.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
        it.op.src.op.ptr.ptr = memory;
        it.op.dst.op.ptr.ptr = memory + 4096;
        it.op.src.op.ptr.rowLength = it.op.dst.op.ptr.rowLength = 64;
        it.op.src.op.ptr.layerHeight = it.op.dst.op.ptr.layerHeight = 4;
        it.op.extent = {16, 4, 1};
        it.op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
        it.count = 1;
        it.stream = stream();
        const Fields fields = {FV(op.src.type, {"zero", 0}),
                               F(op.src.op.ptr.ptr),
                               FV(op.src.op.ptr.rowLength, {"short", 8}),
                               FV(op.src.op.ptr.layerHeight, {"low", 2}),
                               F(op.src.op.ptr.locHint.type),
                               F(op.dst.type),
                               F(op.dst.op.ptr.ptr),
                               FV(op.dst.op.ptr.rowLength, {"short", 8}),
                               F(op.extent.width),
                               F(op.extent.height),
                               F(op.extent.depth),
                               FV(op.srcAccessOrder, {"zero", 0}),
                               F(op.flags),
                               ONLY(count, {"zero", 0}),
                               F(flags),
                               FV(stream, {"legacy", 1}, {"per_thread", 2})};
        SPOIL_CALL(cuMemcpy3DBatchAsync, " batch", it.count, &it.op, it.flags, it.stream);
        it.op.dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
        it.op.dst.op.array.array = Handle<CUarray>::good;
        it.op.dst.op.array.offset = {0, 0, 0};
        const auto make = [&]() -> Fields {
            return {F(op.dst.op.array.array),
                    F(op.dst.op.array.offset.x),
                    F(op.dst.op.array.offset.y),
                    F(op.dst.op.array.offset.z),
                    FV(op.extent.width, {"seventeen", 17}),
                    F(op.extent.height),
                    F(op.extent.depth)};
        };
        const Fields of_array = make();
        {
            const Fields &fields = of_array;
            SPOIL_CALL(cuMemcpy3DBatchAsync, " batch-array", it.count, &it.op, it.flags, it.stream);
        }
    }
}

static void arrays() {
    {
        using It = CUDA_ARRAY_DESCRIPTOR;
        It it = {16, 16, CU_AD_FORMAT_UNSIGNED_INT8, 1};
        const Fields fields = {FV(Width, {"large", 131073}), FV(Height, {"large", 65537}),
                               FV(Format, {"zero", 0}, {"four", 4}, {"half", CU_AD_FORMAT_HALF},
                                  {"bc1", CU_AD_FORMAT_BC1_UNORM}, {"nv12", CU_AD_FORMAT_NV12}),
                               FV(NumChannels, {"three", 3}, {"eight", 8})};
        SPOIL_CALL(cuArrayCreate, " of", &Handle<CUarray>::freed, &it);
    }
    {
        using It = CUDA_ARRAY3D_DESCRIPTOR;
        It it = {16, 16, 2, CU_AD_FORMAT_FLOAT, 2, 0};
        const Fields fields = {
            FV(Width, {"large", 131073}),
            FV(Height, {"large", 65537}),
            FV(Depth, {"large", 16385}),
            FV(Format, {"zero", 0}, {"nv12", CU_AD_FORMAT_NV12}),
            FV(NumChannels, {"three", 3}, {"eight", 8}),
            FV(Flags, {"layered", CUDA_ARRAY3D_LAYERED}, {"surface", CUDA_ARRAY3D_SURFACE_LDST},
               {"cube", CUDA_ARRAY3D_CUBEMAP}, {"cubes", CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED},
               {"gather", CUDA_ARRAY3D_TEXTURE_GATHER}, {"depth", CUDA_ARRAY3D_DEPTH_TEXTURE},
               {"colour", CUDA_ARRAY3D_COLOR_ATTACHMENT}, {"sparse", CUDA_ARRAY3D_SPARSE},
               {"deferred", CUDA_ARRAY3D_DEFERRED_MAPPING}, {"encoded", CUDA_ARRAY3D_VIDEO_ENCODE_DECODE},
               {"two-dimensional", 4096})};
        SPOIL_CALL(cuArray3DCreate, " of", &Handle<CUarray>::freed, &it);
        SPOIL_CALL(cuMipmappedArrayCreate, " of", &Handle<CUmipmappedArray>::freed, &it, 2);
        it.Depth = 6;
        it.Flags = CUDA_ARRAY3D_CUBEMAP;
        SPOIL_CALL(cuArray3DCreate, " cube", &Handle<CUarray>::freed, &it);
    }
    LINE_CALL(cuMipmappedArrayCreate, " levels zero", &Handle<CUmipmappedArray>::freed, (CUDA_ARRAY3D_DESCRIPTOR *)room,
              0);
    LINE_CALL(cuMipmappedArrayGetLevel, " two", &Handle<CUarray>::freed, Handle<CUmipmappedArray>::good, 2);
    LINE_CALL(cuArrayGetPlane, " one", &Handle<CUarray>::freed, Handle<CUarray>::good, 1);
    LINE_CALL(cuArrayDestroy, " of-mipmap", ([] {
                  CUarray level = nullptr;
                  CALL(cuMipmappedArrayGetLevel, &level, Handle<CUmipmappedArray>::good, 0);
                  return level;
              }()));
    LINE_CALL(cuMemcpyDtoA, " behind", Handle<CUarray>::good, 250, memory, 16);
    LINE_CALL(cuMemcpyAtoD, " behind", memory, Handle<CUarray>::good, 250, 16);
    LINE_CALL(cuMemcpyHtoA, " behind", Handle<CUarray>::good, 250, host, 16);
    LINE_CALL(cuMemcpyAtoH, " behind", host, Handle<CUarray>::good, 250, 16);
    LINE_CALL(cuMemcpyAtoA, " behind", Handle<CUarray>::good, 0, Handle<CUarray>::good, 250, 16);
    LINE_CALL(cuMemcpyAtoA, " onto-itself", Handle<CUarray>::good, 0, Handle<CUarray>::good, 8, 16);
    LINE_CALL(cuMemcpyHtoAAsync, " behind", Handle<CUarray>::good, 250, host, 16, stream());
    LINE_CALL(cuMemcpyAtoHAsync, " behind", host, Handle<CUarray>::good, 250, 16, stream());
}

static void table() {
    copies_2d();
    copies_3d();
    copies_between_contexts();
    batches();
    arrays();
}

int main(int count, char **arguments) {
    return main_of(count, arguments, [] { set_up_driver(table); }, driver_is_healthy);
}
