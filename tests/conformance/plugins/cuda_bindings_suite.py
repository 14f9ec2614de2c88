# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Gives the driver's tests of cuda-bindings the shared runtime, for the few of its functions that they call.

cuda.bindings.runtime contains NVIDIA's static runtime, which needs NVIDIA's own driver. The tests of the driver
API ask it for two attributes, without which they skip themselves, and for a little memory.
"""
import ctypes

from cuda.bindings import runtime

library = ctypes.CDLL("libcudart.so.13")
address, bytes_, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int


def answer(name, *arguments):
    code = getattr(library, name)(*arguments)
    try:
        return runtime.cudaError_t(code)
    except ValueError:
        return code


def with_result(name, made, *arguments):
    code = answer(name, ctypes.byref(made), *arguments)
    return code, made.value or 0


def pointer(value):
    return address(int(value))


runtime.cudaDeviceGetAttribute = lambda attribute, device: with_result(
    "cudaDeviceGetAttribute", number(), number(int(attribute)), number(device)
)
runtime.cudaMalloc = lambda size: with_result("cudaMalloc", address(), bytes_(size))
runtime.cudaHostAlloc = lambda size, flags: with_result("cudaHostAlloc", address(), bytes_(size), number(flags))
runtime.cudaHostGetDevicePointer = lambda host, flags: with_result(
    "cudaHostGetDevicePointer", address(), pointer(host), number(flags)
)
runtime.cudaFree = lambda memory: (answer("cudaFree", pointer(memory)),)
runtime.cudaFreeHost = lambda memory: (answer("cudaFreeHost", pointer(memory)),)


runtime.cudaMemcpyAsync = lambda destination, source, size, kind, stream: (
    answer(
        "cudaMemcpyAsync", pointer(destination), pointer(source), bytes_(size), number(int(kind)), pointer(stream)
    ),
)
