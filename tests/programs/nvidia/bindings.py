# SPDX-License-Identifier: Apache-2.0 OR MIT
"""cuda-bindings: the runtime API of its own static runtime, kernels of NVRTC and of PTX through the driver API, and
cuda.core. Prints `same NAME: passed` for each check, and times in milliseconds (`time …`)."""

import ctypes
import time

import numpy as np
from cuda.bindings import driver, nvrtc, runtime

from checks import check

SOURCE = b"""extern "C" __global__ void scale(float *values, float factor, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] *= factor;
}"""
PTX = b""".version 7.0
.target sm_70
.address_size 64
.visible .entry add_one(.param .u64 values) {
    .reg .b32 %r<3>;
    .reg .b64 %d<3>;
    ld.param.u64 %d1, [values];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %d2, %r1, 4;
    add.u64 %d1, %d1, %d2;
    ld.global.u32 %r2, [%d1];
    add.u32 %r2, %r2, 1;
    st.global.u32 [%d1], %r2;
    ret;
}"""
COUNT = 100_000
VALUES = np.random.default_rng(0).normal(size=COUNT).astype(np.float32)
H2D, D2H = runtime.cudaMemcpyKind.cudaMemcpyHostToDevice, runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost


def ok(result):
    error, *values = result
    assert int(error) == 0, error.name
    return values[0] if len(values) == 1 else tuple(values)


def failure(result):
    return result[0].name


def on_device(array):
    pointer = ok(runtime.cudaMalloc(array.nbytes))
    ok(runtime.cudaMemcpy(pointer, array.ctypes.data, array.nbytes, H2D))
    return pointer


def on_host(pointer, like):
    array = np.empty_like(like)
    ok(runtime.cudaMemcpy(array.ctypes.data, pointer, array.nbytes, D2H))
    return array


def devices():
    count = ok(runtime.cudaGetDeviceCount())
    assert count > 0
    ok(runtime.cudaSetDevice(0))
    assert ok(runtime.cudaGetDevice()) == 0
    properties = ok(runtime.cudaGetDeviceProperties(0))
    attribute = runtime.cudaDeviceAttr.cudaDevAttrMultiProcessorCount
    assert ok(runtime.cudaDeviceGetAttribute(attribute, 0)) == properties.multiProcessorCount
    assert properties.warpSize == 32 and properties.totalGlobalMem > 1 << 28
    free, total = ok(runtime.cudaMemGetInfo())
    assert 0 < free <= total == properties.totalGlobalMem
    assert ok(runtime.cudaDriverGetVersion()) >= 12000 and ok(runtime.cudaRuntimeGetVersion()) >= 12000
    bus = ok(runtime.cudaDeviceGetPCIBusId(13, 0))
    assert ok(runtime.cudaDeviceGetByPCIBusId(bus)) == 0
    assert failure(runtime.cudaSetDevice(count)) == "cudaErrorInvalidDevice"
    assert ok(runtime.cudaDeviceGetStreamPriorityRange()) == (0, -5)


def names_of_errors():
    # Newer bindings have errors of a newer runtime.
    for error in list(runtime.cudaError_t):
        name = ok(runtime.cudaGetErrorName(error)).decode()
        assert name in (error.name, "unrecognized error code"), f"{error.name} is called {name}"
        assert ok(runtime.cudaGetErrorString(error))


def last_error():
    assert failure(runtime.cudaMemcpy(0, 0, 16, H2D)) == "cudaErrorInvalidValue"
    assert failure(runtime.cudaPeekAtLastError()) == "cudaErrorInvalidValue"
    assert failure(runtime.cudaGetLastError()) == "cudaErrorInvalidValue"
    assert failure(runtime.cudaGetLastError()) == "cudaSuccess"


def memory():
    pointer = on_device(VALUES)
    assert (on_host(pointer, VALUES) == VALUES).all()
    about = ok(runtime.cudaPointerGetAttributes(pointer))
    assert about.type == runtime.cudaMemoryType.cudaMemoryTypeDevice and about.device == 0
    ok(runtime.cudaMemset(pointer, 0x11, 64))
    assert (on_host(pointer, VALUES).view(np.uint32)[:17] == [0x11111111] * 16 + [VALUES.view(np.uint32)[16]]).all()
    other = ok(runtime.cudaMalloc(VALUES.nbytes))
    ok(runtime.cudaMemcpy(other, pointer, VALUES.nbytes, runtime.cudaMemcpyKind.cudaMemcpyDefault))
    assert (on_host(other, VALUES) == on_host(pointer, VALUES)).all()
    ok(runtime.cudaFree(pointer))
    ok(runtime.cudaFree(other))
    matrix = VALUES[:9000].reshape(90, 100)
    pointer, pitch = ok(runtime.cudaMallocPitch(400, 90))
    assert pitch >= 400
    ok(runtime.cudaMemcpy2D(pointer, pitch, matrix.ctypes.data, 400, 400, 90, H2D))
    back = np.empty_like(matrix)
    ok(runtime.cudaMemcpy2D(back.ctypes.data, 400, pointer, pitch, 400, 90, D2H))
    assert (back == matrix).all()
    ok(runtime.cudaFree(pointer))
    assert failure(runtime.cudaMalloc(1 << 60)) == "cudaErrorMemoryAllocation"
    runtime.cudaGetLastError()


def host_memory():
    pointer = ok(runtime.cudaHostAlloc(4096, runtime.cudaHostAllocMapped))
    ctypes.memset(pointer, 7, 4096)
    there = ok(runtime.cudaHostGetDevicePointer(pointer, 0))
    copy = ok(runtime.cudaMalloc(4096))
    ok(runtime.cudaMemcpy(copy, there, 4096, runtime.cudaMemcpyKind.cudaMemcpyDefault))
    assert (on_host(copy, np.empty(4096, np.uint8)) == 7).all()
    ok(runtime.cudaFree(copy))
    assert ok(runtime.cudaHostGetFlags(pointer)) & runtime.cudaHostAllocMapped
    ok(runtime.cudaFreeHost(pointer))
    managed = ok(runtime.cudaMallocManaged(4096, runtime.cudaMemAttachGlobal))
    ok(runtime.cudaMemset(managed, 9, 4096))
    ok(runtime.cudaDeviceSynchronize())
    assert ctypes.string_at(managed, 4096) == b"\x09" * 4096
    ok(runtime.cudaFree(managed))


def pools():
    stream = ok(runtime.cudaStreamCreate())
    pool = ok(runtime.cudaDeviceGetDefaultMemPool(0))
    threshold = runtime.cudaMemPoolAttr.cudaMemPoolAttrReleaseThreshold
    ok(runtime.cudaMemPoolSetAttribute(pool, threshold, driver.cuuint64_t(1 << 30)))
    assert int(ok(runtime.cudaMemPoolGetAttribute(pool, threshold))) == 1 << 30
    pointer = ok(runtime.cudaMallocAsync(VALUES.nbytes, stream))
    ok(runtime.cudaMemcpyAsync(pointer, VALUES.ctypes.data, VALUES.nbytes, H2D, stream))
    back = np.zeros_like(VALUES)
    ok(runtime.cudaMemcpyAsync(back.ctypes.data, pointer, VALUES.nbytes, D2H, stream))
    ok(runtime.cudaFreeAsync(pointer, stream))
    ok(runtime.cudaStreamSynchronize(stream))
    assert (back == VALUES).all()
    used = runtime.cudaMemPoolAttr.cudaMemPoolAttrUsedMemCurrent
    assert int(ok(runtime.cudaMemPoolGetAttribute(pool, used))) == 0
    ok(runtime.cudaStreamDestroy(stream))


def streams_and_events():
    first = ok(runtime.cudaStreamCreateWithFlags(runtime.cudaStreamNonBlocking))
    second = ok(runtime.cudaStreamCreateWithPriority(runtime.cudaStreamNonBlocking, -1))
    assert ok(runtime.cudaStreamGetPriority(second)) == -1
    start, end = ok(runtime.cudaEventCreate()), ok(runtime.cudaEventCreate())
    pointer = on_device(VALUES)
    ok(runtime.cudaEventRecord(start, first))
    ok(runtime.cudaMemsetAsync(pointer, 0, VALUES.nbytes, first))
    ok(runtime.cudaEventRecord(end, first))
    ok(runtime.cudaStreamWaitEvent(second, end, 0))
    called = []
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(called.append)
    address = ctypes.cast(function, ctypes.c_void_p).value
    ok(runtime.cudaLaunchHostFunc(second, runtime.cudaHostFn_t(address), 5))
    ok(runtime.cudaStreamSynchronize(second))
    assert called == [5] and ok(runtime.cudaEventQuery(end)) == () and ok(runtime.cudaEventElapsedTime(start, end)) >= 0
    assert not on_host(pointer, VALUES).any()
    ok(runtime.cudaFree(pointer))
    for stream in (first, second):
        ok(runtime.cudaStreamDestroy(stream))


def graphs():
    stream = ok(runtime.cudaStreamCreate())
    pointer, back = on_device(VALUES), np.ones_like(VALUES)
    ok(runtime.cudaStreamBeginCapture(stream, runtime.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal))
    ok(runtime.cudaMemsetAsync(pointer, 0, VALUES.nbytes // 2, stream))
    ok(runtime.cudaMemcpyAsync(back.ctypes.data, pointer, VALUES.nbytes, D2H, stream))
    graph = ok(runtime.cudaStreamEndCapture(stream))
    _, count = ok(runtime.cudaGraphGetNodes(graph))
    assert count == 2
    nodes, _ = ok(runtime.cudaGraphGetNodes(graph, count))
    kinds = sorted(ok(runtime.cudaGraphNodeGetType(node)).name for node in nodes)
    assert kinds == ["cudaGraphNodeTypeMemcpy", "cudaGraphNodeTypeMemset"], kinds
    runnable = ok(runtime.cudaGraphInstantiate(graph, 0))
    ok(runtime.cudaGraphLaunch(runnable, stream))
    ok(runtime.cudaStreamSynchronize(stream))
    assert not back[: COUNT // 2].any() and (back[COUNT // 2 :] == VALUES[COUNT // 2 :]).all()
    built = ok(runtime.cudaGraphCreate(0))
    copy = ok(runtime.cudaGraphAddMemcpyNode1D(built, None, 0, pointer, VALUES.ctypes.data, VALUES.nbytes, H2D))
    ok(runtime.cudaGraphAddEmptyNode(built, [copy], 1))
    other = ok(runtime.cudaGraphInstantiate(built, 0))
    ok(runtime.cudaGraphLaunch(other, stream))
    ok(runtime.cudaStreamSynchronize(stream))
    assert (on_host(pointer, VALUES) == VALUES).all()
    for one in (runnable, other):
        ok(runtime.cudaGraphExecDestroy(one))
    for one in (graph, built):
        ok(runtime.cudaGraphDestroy(one))
    ok(runtime.cudaFree(pointer))


def kernel_of_ptx():
    module = ok(driver.cuModuleLoadData(PTX))
    kernel = ok(driver.cuModuleGetFunction(module, b"add_one"))
    numbers = np.arange(64, dtype=np.uint32)
    pointer = on_device(numbers)
    ok(driver.cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, 0, ((pointer,), (ctypes.c_void_p,)), 0))
    assert (on_host(pointer, numbers) == numbers + 1).all()
    library = ok(runtime.cudaLibraryLoadData(PTX, [], [], 0, [], [], 0))
    assert ok(runtime.cudaLibraryGetKernelCount(library)) == 1
    kernel = driver.CUfunction(int(ok(runtime.cudaLibraryGetKernel(library, b"add_one"))))
    ok(driver.cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, 0, ((pointer,), (ctypes.c_void_p,)), 0))
    assert (on_host(pointer, numbers) == numbers + 2).all()
    ok(runtime.cudaLibraryUnload(library))
    ok(driver.cuModuleUnload(module))
    ok(runtime.cudaFree(pointer))


def compiled():
    major, minor = (
        ok(runtime.cudaDeviceGetAttribute(getattr(runtime.cudaDeviceAttr, f"cudaDevAttrComputeCapability{part}"), 0))
        for part in ("Major", "Minor")
    )
    program = ok(nvrtc.nvrtcCreateProgram(SOURCE, b"scale.cu", 0, [], []))
    ok(nvrtc.nvrtcCompileProgram(program, 1, [f"--gpu-architecture=compute_{major}{minor}".encode()]))
    ptx = b" " * ok(nvrtc.nvrtcGetPTXSize(program))
    ok(nvrtc.nvrtcGetPTX(program, ptx))
    module = ok(driver.cuModuleLoadData(ptx))
    return ok(driver.cuModuleGetFunction(module, b"scale"))


def launch(kernel, pointer, factor):
    values = ((pointer, factor, COUNT), (ctypes.c_void_p, ctypes.c_float, ctypes.c_int))
    ok(driver.cuLaunchKernel(kernel, -(-COUNT // 256), 1, 1, 256, 1, 1, 0, 0, values, 0))


def kernel_of_nvrtc():
    kernel, pointer = compiled(), on_device(VALUES)
    launch(kernel, pointer, 3.0)
    assert (on_host(pointer, VALUES) == VALUES * np.float32(3)).all()
    start = time.perf_counter()
    for _ in range(1000):
        launch(kernel, pointer, 1.0)
    ok(runtime.cudaDeviceSynchronize())
    print(f"time 1000 kernels: {1000 * (time.perf_counter() - start):.3f} ms")


def core():
    from cuda.core import Device, LaunchConfig, Program, ProgramOptions
    from cuda.core import launch as start

    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    options = ProgramOptions(arch=f"sm_{device.arch}")
    kernel = Program(SOURCE.decode(), "c++", options=options).compile("ptx").get_kernel("scale")
    buffer = device.allocate(VALUES.nbytes, stream=stream)
    pointer = int(buffer.handle)
    ok(runtime.cudaMemcpyAsync(pointer, VALUES.ctypes.data, VALUES.nbytes, H2D, int(stream.handle)))
    start(stream, LaunchConfig(grid=-(-COUNT // 256), block=256), kernel, buffer, np.float32(2), np.int32(COUNT))
    stream.sync()
    assert (on_host(pointer, VALUES) == VALUES * 2).all()
    event = stream.record()
    event.sync()
    buffer.close(stream)


def milliseconds(function, count):
    start = time.perf_counter()
    for _ in range(count):
        function()
    ok(runtime.cudaDeviceSynchronize())
    return 1000 * (time.perf_counter() - start)


for function in (
    devices, names_of_errors, last_error, memory, host_memory, pools, streams_and_events, graphs, kernel_of_ptx,
    kernel_of_nvrtc, core,
):  # fmt: skip
    check(function.__name__, function)
there = on_device(VALUES)
print(f"time 1000 memsets: {milliseconds(lambda: runtime.cudaMemsetAsync(there, 0, 4096, 0), 1000):.3f} ms")
print(f"time 100 copies to the host: {milliseconds(lambda: on_host(there, VALUES), 100):.3f} ms")
