# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Managed memory as array libraries use it: CuPy's pool of it, and arrays of NumPy over the same bytes.

Prints `same NAME: passed` for each check, and the time of a turn of the CPU and the GPU over 256 MiB (`time …`).
"""

import ctypes
import time

import cupy
import numpy as np

COUNT = 1 << 24
TURN_COUNT = 1 << 26


def of_the_host(array):
    """An array of NumPy over the bytes of a contiguous array of CuPy."""
    bytes_of_it = (ctypes.c_char * array.nbytes).from_address(array.data.ptr)
    return np.frombuffer(bytes_of_it, array.dtype).reshape(array.shape)


def done():
    cupy.cuda.Device().synchronize()


def check(name, passed):
    print(f"same {name}: {'passed' if passed else 'failed'}", flush=True)


def shared():
    array = cupy.empty(COUNT, np.float32)
    host = of_the_host(array)
    host[:] = np.arange(COUNT) % 1000
    expected = host.astype(np.float64)
    for turn in range(3):
        array += 1
        done()
        expected += 1
        host[turn::1000] += 5
        expected[turn::1000] += 5
    check("turns of both", np.array_equal(host, expected))
    check("sum of what the CPU wrote", float(array.sum(dtype=np.float64)) == expected.sum())


def tables():
    """What a library of tables does: sorting, groups, joins and prefix sums."""
    keys = cupy.empty(COUNT // 4, np.int32)
    of_the_host(keys)[:] = np.random.default_rng(1).integers(0, 1000, keys.size)
    expected = of_the_host(keys).copy()
    values = cupy.arange(keys.size, dtype=np.int64)
    groups, counts = cupy.unique(keys, return_counts=True)
    running = cupy.cumsum(counts)
    done()
    names, numbers = np.unique(expected, return_counts=True)
    check("groups", np.array_equal(of_the_host(groups), names) and np.array_equal(of_the_host(counts), numbers))
    check("prefix sums", np.array_equal(of_the_host(running), np.cumsum(numbers)))
    chosen = values[keys > 500]
    done()
    check("selection", np.array_equal(of_the_host(chosen), np.flatnonzero(expected > 500)))


def libraries():
    left, right = (cupy.empty((512, 512), np.float32) for _ in range(2))
    random = np.random.default_rng(2)
    for matrix in (left, right):
        of_the_host(matrix)[:] = random.normal(size=matrix.shape)
    product = left @ right
    done()
    expected = of_the_host(left).astype(np.float64) @ of_the_host(right)
    check("matrix product", np.allclose(of_the_host(product), expected, rtol=1e-2, atol=1e-1))
    signal = cupy.empty(1 << 20, np.complex64)
    of_the_host(signal)[:] = random.normal(size=signal.size)
    spectrum = cupy.fft.fft(signal)
    done()
    error = np.abs(of_the_host(spectrum) - np.fft.fft(of_the_host(signal))).max()
    check("transform", error < 1)


def advice():
    array = cupy.zeros(COUNT, np.int32)
    host, device = of_the_host(array), cupy.cuda.Device().id
    cupy.cuda.runtime.memAdvise(array.data.ptr, array.nbytes, cupy.cuda.runtime.cudaMemAdviseSetPreferredLocation, device)
    cupy.cuda.runtime.memPrefetchAsync(array.data.ptr, array.nbytes, device, 0)
    array += 3
    done()
    check("prefetched", host.min() == host.max() == 3)


def turn_time():
    array = cupy.zeros(TURN_COUNT, np.float32)
    host = of_the_host(array)
    times = []
    for _ in range(5):
        begun = time.perf_counter()
        array += 1
        done()
        host += 1
        times.append(time.perf_counter() - begun)
    check("turns over 256 MiB", host.min() == host.max() == 10)
    print(f"time turn over 256 MiB: {1000 * sorted(times)[2]:.1f} ms")


def main():
    cupy.cuda.set_allocator(cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc)
    shared()
    tables()
    libraries()
    advice()
    turn_time()


if __name__ == "__main__":
    main()
