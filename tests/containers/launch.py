# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs a kernel through libcuda, and asks libcudart something: needs Python only, so a C library of any age."""

import ctypes

PTX = b"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry numbers(.param .u64 to) {
    .reg .b64 %to, %offset;
    .reg .b32 %index;
    ld.param.u64 %to, [to];
    mov.u32 %index, %tid.x;
    mul.wide.u32 %offset, %index, 4;
    add.s64 %to, %to, %offset;
    st.global.u32 [%to], %index;
    ret;
}
"""
COUNT = 32

cuda = ctypes.CDLL("libcuda.so.1")
runtime = ctypes.CDLL("libcudart.so.13")


def call(function, *arguments):
    result = function(*arguments)
    assert result == 0, f"{function.__name__}: {result}"


device, devices, context = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
call(cuda.cuInit, 0)
call(cuda.cuDeviceGet, ctypes.byref(device), 0)
call(cuda.cuDevicePrimaryCtxRetain, ctypes.byref(context), device)
call(cuda.cuCtxSetCurrent, context)
module, kernel, buffer = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
call(cuda.cuModuleLoadData, ctypes.byref(module), PTX)
call(cuda.cuModuleGetFunction, ctypes.byref(kernel), module, b"numbers")
call(cuda.cuMemAlloc_v2, ctypes.byref(buffer), 4 * COUNT)
parameters = (ctypes.c_void_p * 1)(ctypes.addressof(buffer))
call(cuda.cuLaunchKernel, kernel, 1, 1, 1, COUNT, 1, 1, 0, None, parameters, None)
numbers = (ctypes.c_uint32 * COUNT)()
call(cuda.cuMemcpyDtoH_v2, numbers, buffer, 4 * COUNT)
assert list(numbers) == list(range(COUNT)), list(numbers)
call(runtime.cudaGetDeviceCount, ctypes.byref(devices))
version = ctypes.CDLL("libc.so.6").gnu_get_libc_version
version.restype = ctypes.c_char_p
print(f"glibc {version().decode()}: {devices.value} device(s)")
