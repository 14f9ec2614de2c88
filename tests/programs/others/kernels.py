# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Packages that compile kernels when they run, compared with NumPy: Taichi, Quadrants, Halide and Dr.Jit by LLVM and by texts of their
own, tinygrad by its PTX, cuda.compute by NVRTC. Each is left out, with a line, if it is not installed. Prints `same NAME: passed` for each check."""

import importlib.util
import os

import numpy as np

from checks import check

os.environ.setdefault("DEV", "CUDA")
random = np.random.default_rng(0)
NUMBERS = random.normal(size=4096).astype(np.float32)
PAIRS = random.normal(size=(64, 2)).astype(np.float32)
LEFT, RIGHT = random.normal(size=(64, 48)).astype(np.float32), random.normal(size=(48, 32)).astype(np.float32)


def near(ours, expected, tolerance=1e-4):
    error = abs(np.asarray(ours) - expected).max()
    assert error < tolerance, f"error {error:.3e}"


def of_taichi():
    import taichi as ti

    ti.init(arch=ti.cuda, device_memory_GB=0.5, log_level=ti.WARN)
    assert ti.cfg.arch == ti.cuda, "Taichi does not use CUDA"
    values, total = ti.field(ti.f32, shape=NUMBERS.size), ti.field(ti.f32, shape=())
    points = ti.Vector.field(2, ti.f32, shape=64, needs_grad=True)
    loss = ti.field(ti.f32, shape=(), needs_grad=True)
    few = ti.field(ti.i32)
    ti.root.pointer(ti.i, 64).dense(ti.i, 8).place(few)

    @ti.kernel
    def sum_of_sines():
        for i in values:
            values[i] = ti.sin(values[i]) * 2
            total[None] += values[i]

    @ti.kernel
    def energy():
        for i in points:
            loss[None] += points[i].norm_sqr() * 0.5

    @ti.kernel
    def activate():
        for i in range(10):
            few[i * 37] = i

    @ti.kernel
    def count() -> ti.i32:
        found = 0
        for _ in few:
            found += 1
        return found

    def fields():
        values.from_numpy(NUMBERS)
        sum_of_sines()
        near(values.to_numpy(), 2 * np.sin(NUMBERS))
        near(total[None], 2 * np.sin(NUMBERS).sum(), 0.01)

    def gradients():
        points.from_numpy(PAIRS)
        with ti.ad.Tape(loss):
            energy()
        near(points.grad.to_numpy(), PAIRS)

    def sparse():
        activate()
        assert count() == 80, f"{count()} cells"

    return fields, gradients, sparse


def of_quadrants():
    import quadrants as qd

    qd.init(arch=qd.cuda, log_level=qd.WARN)
    assert qd.cfg.arch == qd.cuda, "Quadrants does not use CUDA"
    values, total = qd.field(qd.f32, shape=NUMBERS.size), qd.field(qd.f32, shape=())

    @qd.kernel
    def sum_of_sines():
        for i in values:
            values[i] = qd.sin(values[i]) * 2
            total[None] += values[i]

    def fields():
        values.from_numpy(NUMBERS)
        sum_of_sines()
        near(values.to_numpy(), 2 * np.sin(NUMBERS))
        near(total[None], 2 * np.sin(NUMBERS).sum(), 0.01)

    return (fields,)


def of_halide():
    import halide as hl

    x, y, inner_x, inner_y = (hl.Var(name) for name in ("x", "y", "inner_x", "inner_y"))
    target, image = hl.Target("host-cuda-cuda_capability_86"), hl.Buffer(LEFT)
    height, width = LEFT.shape

    def realized(function, sizes):
        result = function.realize(sizes, target)
        result.copy_to_host()
        return np.array(result)

    def stencil():
        edged, blurred = hl.BoundaryConditions.repeat_edge(image), hl.Func("blurred")
        blurred[x, y] = (edged[x - 1, y] + 2 * edged[x, y] + edged[x + 1, y]) / 4
        blurred.gpu_tile(x, y, inner_x, inner_y, 16, 8)
        wide = np.pad(LEFT, ((0, 0), (1, 1)), mode="edge")
        near(realized(blurred, [width, height]), (wide[:, :-2] + 2 * LEFT + wide[:, 2:]) / 4)

    def reduction():
        along, sums = hl.RDom([(0, width)]), hl.Func("sums")
        sums[y] = 0.0
        sums[y] += image[along, y] * image[along, y]
        sums.gpu_tile(y, inner_y, 16)
        sums.update().gpu_tile(y, inner_y, 16)
        near(realized(sums, [height]), (LEFT**2).sum(1))

    return stencil, reduction


def of_drjit():
    import drjit
    from drjit.cuda import PCG32, Float, UInt32
    from drjit.cuda.ad import Float as Differentiable

    def looped(end):
        step = lambda i, total: (i + 1, total + Float(i))  # noqa: E731
        return drjit.while_loop((UInt32(0), drjit.zeros(Float, 16)), lambda i, _: i < end, step)[1]

    def elements():
        x = Float(NUMBERS)
        near(drjit.sin(x) * 2 + drjit.fma(x, x, 1), 2 * np.sin(NUMBERS) + NUMBERS**2 + 1)
        near(drjit.sum(x), NUMBERS.sum(), 0.01)

    def gradients():
        x = Differentiable(NUMBERS)
        drjit.enable_grad(x)
        drjit.backward(drjit.sum(x * x))
        near(drjit.grad(x), 2 * NUMBERS)

    def scattered():
        sums = drjit.zeros(Float, 4)
        drjit.scatter_reduce(drjit.ReduceOp.Add, sums, Float(1, 2, 3, 4, 5), UInt32(0, 1, 0, 1, 3))
        near(sums, np.array([4, 6, 0, 5]))
        near(drjit.cumsum(UInt32(1, 2, 3, 4)), np.array([1, 3, 6, 10]))
        assert list(drjit.compress(UInt32(1, 0, 1) > 0)) == [0, 2]

    def loops():
        near(looped(UInt32(10)), np.full(16, 45))
        assert PCG32(4).next_uint32()[0] != 0

    return elements, gradients, scattered, loops


def of_tinygrad():
    from tinygrad import Device, Tensor

    def product():
        assert Device.DEFAULT == "CUDA", Device.DEFAULT
        near((Tensor(LEFT) @ Tensor(RIGHT)).numpy(), LEFT @ RIGHT)

    def softmax():
        powers = np.exp(LEFT)
        near(Tensor(LEFT).softmax().numpy(), powers / powers.sum(1, keepdims=True))

    def gradient():
        left, right = Tensor(LEFT), Tensor(RIGHT)
        ((left @ right).relu().sum()).backward()
        near(right.grad.numpy(), LEFT.T @ (LEFT @ RIGHT > 0))

    def convolution():
        image = LEFT.reshape(1, 1, 64, 48)
        ours = Tensor(image).conv2d(Tensor(np.ones((1, 1, 3, 3), np.float32))).numpy()
        windows = np.lib.stride_tricks.sliding_window_view(LEFT, (3, 3))
        near(ours[0, 0], windows.sum((2, 3)))

    return product, softmax, gradient, convolution


def of_compute():
    import cupy
    from cuda import compute

    whole = random.integers(0, 1000, 5000).astype(np.int32)
    there, zero = cupy.asarray(whole), np.zeros(1, np.int32)

    def reduction():
        out = cupy.empty(1, np.int32)
        compute.reduce_into(d_in=there, d_out=out, num_items=whole.size, op=compute.OpKind.PLUS, h_init=zero)
        near(out.get(), whole.sum())

    def scan():
        out = cupy.empty_like(there)
        plus = compute.OpKind.PLUS
        compute.inclusive_scan(d_in=there, d_out=out, op=plus, init_value=zero, num_items=whole.size)
        near(out.get(), np.cumsum(whole))

    def sorts():
        out = cupy.empty_like(there)
        order = compute.SortOrder.ASCENDING
        compute.radix_sort(d_in_keys=there, d_out_keys=out, num_items=whole.size, order=order)
        near(out.get(), np.sort(whole))
        compute.merge_sort(d_in_keys=there, d_out_keys=out, op=compute.OpKind.LESS, num_items=whole.size)
        near(out.get(), np.sort(whole))

    return reduction, scan, sorts


def present(module):
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


for module, checks in (
    ("taichi", of_taichi),
    ("quadrants", of_quadrants),
    ("halide", of_halide),
    ("drjit", of_drjit),
    ("cuda.compute", of_compute),
    # It leaves a context of its own current.
    ("tinygrad", of_tinygrad),
):
    if not present(module):
        print(f"{module} is left out: it is not installed", flush=True)
        continue
    for function in checks():
        check(f"{module}: {function.__name__}", function)
