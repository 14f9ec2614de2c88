# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Loads each of the guest's libraries, all symbols bound, and calls some. Prints the names of the libraries."""

import ctypes
import os

FOLDER = "/opt/vhost-cuda/lib"


def load(name):
    return ctypes.CDLL(os.path.join(FOLDER, name), mode=os.RTLD_NOW)


def call(function, *arguments):
    result = function(*arguments)
    assert result == 0, f"{function.__name__}: {result}"


for name in sorted(os.listdir(FOLDER)):
    path = os.path.join(FOLDER, name)
    if os.path.isfile(path) and not os.path.islink(path):
        load(name)
        print(name)

count = ctypes.c_uint()
management = load("libnvidia-ml.so.1")
call(management.nvmlInit_v2)
call(management.nvmlDeviceGetCount_v2, ctypes.byref(count))
assert count.value >= 1
for version in (12, 13):
    call(load(f"libcudart.so.{version}").cudaGetDeviceCount, ctypes.byref(count))
    assert count.value >= 1
