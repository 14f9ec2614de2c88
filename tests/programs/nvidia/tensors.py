# SPDX-License-Identifier: Apache-2.0 OR MIT
"""cuTENSOR and cuStateVec, compared with NumPy; CuPy has their arrays. Each part is left out, with a line, if its
library is not installed. Prints `same NAME: passed` for each check, and times in milliseconds (`time …`)."""

import ctypes
import glob
import importlib.util
import os
import time

os.environ.setdefault("CUPY_ACCELERATORS", "cutensor")

import cupy
import numpy as np
from cuda.pathfinder import load_nvidia_dynamic_lib

from checks import check

random = np.random.default_rng(0)
# cudaDataType
TYPES = {np.dtype(name): number for name, number in (("f4", 0), ("f8", 1), ("f2", 2), ("c8", 4), ("c16", 5))}
IDENTITY, ADD, MAX = 1, 3, 6


def library(package, name):
    """A library of a package, or nothing."""
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec else []
    files = [file for folder in folders for file in glob.glob(f"{folder}/lib*/{name}")]
    return ctypes.CDLL(files[0], mode=ctypes.RTLD_GLOBAL) if files else None


def values(*shape, dtype="f4"):
    array = random.normal(size=shape)
    return (array + 1j * random.normal(size=shape) if dtype[0] == "c" else array).astype(dtype)


def made(function, *arguments):
    """Calls a function that returns an object through a pointer, its second argument."""
    result = ctypes.c_void_p()
    number = function(*arguments[:1], ctypes.byref(result), *arguments[1:])
    assert number == 0, f"{function.__name__} answers {number}"
    return result


def called(function, *arguments):
    number = function(*arguments)
    assert number == 0, f"{function.__name__} answers {number}"


class Tensors:
    """cuTENSOR's calls."""

    def __init__(self, cutensor):
        self.all = cutensor
        self.handle = ctypes.c_void_p()
        called(cutensor.cutensorCreate, ctypes.byref(self.handle))

    def tensor(self, array):
        extents = (ctypes.c_int64 * array.ndim)(*array.shape)
        strides = (ctypes.c_int64 * array.ndim)(*(stride // array.itemsize for stride in array.strides))
        create = self.all.cutensorCreateTensorDescriptor
        return made(create, self.handle, array.ndim, extents, strides, TYPES[array.dtype], 128)

    def compute(self, name):
        return ctypes.c_void_p.in_dll(self.all, f"CUTENSOR_COMPUTE_DESC_{name}")

    def plan(self, operation):
        preference = made(self.all.cutensorCreatePlanPreference, self.handle, -1, 0)
        size = ctypes.c_uint64()
        called(self.all.cutensorEstimateWorkspaceSize, self.handle, operation, preference, 2, ctypes.byref(size))
        plan = made(self.all.cutensorCreatePlan, self.handle, operation, preference, size)
        return plan, cupy.empty(max(size.value, 1), cupy.uint8), size


def modes(text):
    return (ctypes.c_int32 * max(len(text), 1))(*map(ord, text))


def number(value, dtype):
    return np.array(value, dtype).ctypes.data_as(ctypes.c_void_p)


def address(array):
    return ctypes.c_void_p(array.data.ptr)


def near(ours, expected, tolerance):
    error = abs(ours.get() - expected).max() / abs(expected).max()
    assert error < tolerance, f"error {error:.3e}"


def contraction(tensors, dtype="f4", compute="32F", tolerance=1e-5):
    for a, b, c in (("ik", "kj", "ij"), ("mhkn", "ukh", "mun"), ("abc", "cbd", "ad"), ("ija", "kaj", "ki")):
        sizes = dict(zip("abcdhijkmnu", (32, 12, 20, 48, 16, 40, 24, 36, 28, 8, 44)))
        left, right = (values(*(sizes[mode] for mode in text), dtype=dtype) for text in (a, b))
        expected = np.einsum(f"{a},{b}->{c}", left.astype("c16" if dtype[0] == "c" else "f8"), right)
        there = [cupy.asarray(left), cupy.asarray(right), cupy.zeros(expected.shape, dtype)]
        descriptors = [tensors.tensor(array) for array in there]
        parts = [part for one, text in zip(descriptors, (a, b, c)) for part in (one, modes(text), IDENTITY)]
        create = tensors.all.cutensorCreateContraction
        operation = made(create, tensors.handle, *parts, descriptors[2], modes(c), tensors.compute(compute))
        plan, space, size = tensors.plan(operation)
        scalar = {"f2": "f4"}.get(dtype, dtype)
        first, second, result = map(address, there)
        called(
            tensors.all.cutensorContract, tensors.handle, plan, number(1, scalar), first, second, number(0, scalar),
            result, result, address(space), size, None,
        )  # fmt: skip
        near(there[2], expected, tolerance)


def reduction(tensors):
    array = values(40, 30, 20)
    there, result = cupy.asarray(array), cupy.zeros(30, "f4")
    source, target = tensors.tensor(there), tensors.tensor(result)
    for kind, expected in ((ADD, array.sum((0, 2), dtype="f8")), (MAX, array.max((0, 2)))):
        operation = made(
            tensors.all.cutensorCreateReduction, tensors.handle, source, modes("ijk"), IDENTITY, target, modes("j"),
            IDENTITY, target, modes("j"), kind, tensors.compute("32F"),
        )  # fmt: skip
        plan, space, size = tensors.plan(operation)
        called(
            tensors.all.cutensorReduce, tensors.handle, plan, number(1, "f4"), address(there), number(0, "f4"),
            address(result), address(result), address(space), size, None,
        )  # fmt: skip
        near(result, expected, 1e-5)


def permutation(tensors):
    array = values(24, 36, 16)
    there, result = cupy.asarray(array), cupy.zeros((16, 24, 36), "f4")
    operation = made(
        tensors.all.cutensorCreatePermutation, tensors.handle, tensors.tensor(there), modes("ijk"), IDENTITY,
        tensors.tensor(result), modes("kij"), tensors.compute("32F"),
    )  # fmt: skip
    plan, _, _ = tensors.plan(operation)
    called(tensors.all.cutensorPermute, tensors.handle, plan, number(2, "f4"), address(there), address(result), None)
    assert (result.get() == 2 * array.transpose(2, 0, 1)).all()


def by_cupy():
    # CuPy does not search for this one.
    library("cutensor", "libcutensorMg.so.2")
    from cupyx import cutensor

    left, right = values(30, 40, dtype="f8"), values(40, 20, dtype="f8")
    there = cupy.zeros((30, 20))
    cutensor.contraction(1.0, cupy.asarray(left), "ik", cupy.asarray(right), "kj", 0.0, there, "ij")
    near(there, left @ right, 1e-12)
    a, b = values(12, 16, 20, dtype="f8"), values(20, 16, 8, dtype="f8")
    near(cupy.einsum("abc,cbd->ad", cupy.asarray(a), cupy.asarray(b)), np.einsum("abc,cbd->ad", a, b), 1e-12)


class States:
    """cuStateVec's calls on a state of some qubits in double precision."""

    def __init__(self, custatevec, qubits):
        self.all, self.qubits = custatevec, qubits
        self.handle = ctypes.c_void_p()
        called(custatevec.custatevecCreate, ctypes.byref(self.handle))
        state = np.zeros(1 << qubits, "c16")
        state[0] = 1
        self.state = cupy.asarray(state)
        self.about = (self.handle, address(self.state), 5, qubits)

    def apply(self, matrix, targets, controls=()):
        matrix = np.ascontiguousarray(matrix, "c16").ctypes.data_as(ctypes.c_void_p)
        size, there = ctypes.c_size_t(), (matrix, 5, 1, 0)
        counts = (len(targets), len(controls), 16)
        sized = self.all.custatevecApplyMatrixGetWorkspaceSize
        called(sized, self.handle, 5, self.qubits, *there, *counts, ctypes.byref(size))
        space = cupy.empty(max(size.value, 1), cupy.uint8)
        places = [(ctypes.c_int32 * max(len(some), 1))(*some) for some in (targets, controls)]
        called(
            self.all.custatevecApplyMatrix, *self.about, *there, places[0], len(targets), places[1], None,
            len(controls), 16, address(space), size,
        )  # fmt: skip

    def sample(self, numbers):
        sampler, size, count = ctypes.c_void_p(), ctypes.c_size_t(), len(numbers)
        called(self.all.custatevecSamplerCreate, *self.about, ctypes.byref(sampler), count, ctypes.byref(size))
        space = cupy.empty(max(size.value, 1), cupy.uint8)
        called(self.all.custatevecSamplerPreprocess, self.handle, sampler, address(space), size)
        found, order = (ctypes.c_int64 * count)(), (ctypes.c_int32 * self.qubits)(*range(self.qubits))
        numbers = (ctypes.c_double * count)(*numbers)
        called(self.all.custatevecSamplerSample, self.handle, sampler, found, order, self.qubits, numbers, count, 0)
        called(self.all.custatevecSamplerDestroy, sampler)
        return np.array(found)


HADAMARD, NOT = np.array([[1, 1], [1, -1]]) / np.sqrt(2), np.array([[0, 1], [1, 0]])


def entangled(custatevec):
    states = States(custatevec, 10)
    states.apply(HADAMARD, [0])
    for qubit in range(1, 10):
        states.apply(NOT, [qubit], [qubit - 1])
    expected = np.zeros(1024, "c16")
    expected[[0, 1023]] = np.sqrt(0.5)
    near(states.state, expected, 1e-12)
    numbers = random.random(1000)
    found = states.sample(numbers)
    assert (found == np.where(numbers < 0.5, 0, 1023)).all()
    sums = [ctypes.c_double(), ctypes.c_double()]
    some = (ctypes.c_int32 * 1)(3)
    called(custatevec.custatevecAbs2SumOnZBasis, *states.about, *map(ctypes.byref, sums), some, 1)
    assert all(abs(one.value - 0.5) < 1e-12 for one in sums)


def gates(custatevec):
    states, expected = States(custatevec, 8), np.zeros((2,) * 8, "c16")
    expected[(0,) * 8] = 1
    for _ in range(30):
        targets = random.permutation(8)[: random.integers(1, 4)]
        matrix, _ = np.linalg.qr(values(1 << len(targets), 1 << len(targets), dtype="c16"))
        states.apply(matrix, targets)
        # Bit 0 is the last axis, and the first target the lowest bit of the matrix.
        axes = [7 - target for target in targets][::-1]
        moved = np.moveaxis(expected, axes, range(len(axes)))
        moved = (matrix @ moved.reshape(len(matrix), -1)).reshape(moved.shape)
        expected = np.moveaxis(moved, range(len(axes)), axes)
    near(states.state, expected.ravel(), 1e-12)


for name in ("cublasLt", "cublas"):
    # The two libraries search only the folder that they were installed in.
    load_nvidia_dynamic_lib(name)
cutensor, custatevec = library("cutensor", "libcutensor.so.2"), library("cuquantum", "libcustatevec.so.1")
if cutensor is None:
    print("cuTENSOR is left out: it is not installed")
else:
    check("cutensorCreate", lambda: Tensors(cutensor))
    for case in (("f4", "32F", 1e-5), ("f8", "64F", 1e-12), ("c8", "32F", 1e-5), ("f2", "32F", 5e-3)):
        check(f"contraction of {case[0]}", lambda: contraction(Tensors(cutensor), *case))
    check("reduction", lambda: reduction(Tensors(cutensor)))
    check("permutation", lambda: permutation(Tensors(cutensor)))
    check("by CuPy", by_cupy)
if custatevec is None:
    print("cuStateVec is left out: it is not installed")
else:
    check("entangled qubits", entangled, custatevec)
    check("gates of one to three qubits", gates, custatevec)
    try:
        states, start = States(custatevec, 16), time.perf_counter()
        for qubit in range(160):
            states.apply(HADAMARD, [qubit % 16])
        cupy.cuda.runtime.deviceSynchronize()
        print(f"time 160 gates on 16 qubits: {1000 * (time.perf_counter() - start):.3f} ms")
    except AssertionError as error:
        print(error)
