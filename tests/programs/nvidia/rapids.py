# SPDX-License-Identifier: Apache-2.0 OR MIT
"""RAPIDS: memory resources of rmm, tables of pylibcudf and cuDF, models of cuML, neighbours of cuVS, compared with
NumPy. Prints `same NAME: passed` for each check. Packages that are not installed are left out, with a line."""

import functools
import importlib.util
import io
import time

import numpy as np
import rmm

from checks import check

random = np.random.default_rng(0)
BYTES = random.integers(0, 256, 1 << 20, dtype=np.uint8)


def of(resource, sizes=(1, 255, 256, 4097, 1 << 20)):
    """Copies data through buffers of this resource that live at the same time."""
    buffers = [(size, rmm.DeviceBuffer(size=size, mr=resource)) for size in sizes]
    for size, buffer in buffers:
        buffer.copy_from_host(BYTES[:size])
    for size, buffer in buffers:
        assert (buffer.copy_to_host() == BYTES[:size]).all(), size
    return resource


def resources():
    upstream = rmm.mr.CudaMemoryResource()
    of(upstream)
    of(rmm.mr.PoolMemoryResource(upstream, initial_pool_size=4 << 20, maximum_pool_size=16 << 20))
    of(rmm.mr.ArenaMemoryResource(upstream, arena_size=32 << 20))
    of(rmm.mr.FixedSizeMemoryResource(upstream, block_size=1 << 20, blocks_to_preallocate=8))
    bins = rmm.mr.BinningMemoryResource(upstream, 8, 12)
    bins.add_bin(1 << 20)
    of(bins)


def asynchronous():
    of(rmm.mr.CudaAsyncMemoryResource(initial_pool_size=4 << 20, release_threshold=8 << 20))
    stream = rmm.pylibrmm.stream.Stream()
    buffer = rmm.DeviceBuffer.to_device(BYTES.tobytes(), stream=stream)
    buffer.resize(2 << 20, stream=stream)
    assert buffer.size == 2 << 20 and (buffer.copy_to_host(stream=stream)[: len(BYTES)] == BYTES).all()
    copy = buffer.copy()
    assert (copy.copy_to_host()[: len(BYTES)] == BYTES).all() and copy.ptr != buffer.ptr


def managed():
    of(rmm.mr.ManagedMemoryResource())
    of(rmm.mr.PrefetchResourceAdaptor(rmm.mr.ManagedMemoryResource()))


def pinned():
    of(rmm.mr.PinnedHostMemoryResource())


def limits():
    limited = rmm.mr.LimitingResourceAdaptor(rmm.mr.CudaMemoryResource(), allocation_limit=1 << 20)
    buffer = rmm.DeviceBuffer(size=768 << 10, mr=limited)
    assert limited.get_allocated_bytes() >= buffer.size
    try:
        rmm.DeviceBuffer(size=768 << 10, mr=limited)
    except MemoryError:
        pass
    else:
        raise AssertionError("more than the limit was allocated")
    calls = []
    retries = rmm.mr.FailureCallbackResourceAdaptor(rmm.mr.CudaMemoryResource(), lambda size: calls.append(size) or False)
    try:
        rmm.DeviceBuffer(size=1 << 50, mr=retries)
    except MemoryError:
        assert calls == [1 << 50], calls
    of(rmm.mr.CudaMemoryResource())


def statistics():
    counted = rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaMemoryResource())
    tracked = rmm.mr.TrackingResourceAdaptor(counted)
    of(tracked, (1000, 2000))
    counts = counted.allocation_counts
    assert counts.total_count == 2 and counts.current_count == 0 and counts.peak_bytes >= 3000, counts
    assert tracked.get_allocated_bytes() == 0


def current():
    rmm.reinitialize(pool_allocator=True, initial_pool_size=16 << 20)
    assert isinstance(rmm.mr.get_current_device_resource(), rmm.mr.PoolMemoryResource)
    assert (rmm.DeviceBuffer.to_device(BYTES).copy_to_host() == BYTES).all()
    rmm.reinitialize()
    free, total = rmm.mr.available_device_memory()
    assert 0 < free <= total


KEYS = random.integers(0, 100, 20000).astype(np.int32)
NUMBERS = random.integers(0, 1000, 20000)


def column(array):
    import pylibcudf as plc

    return plc.Column.from_array(array)


def host(there):
    return np.asarray(there.to_arrow())


def tables():
    import pylibcudf as plc

    table = plc.Table([column(KEYS), column(NUMBERS)])
    order = plc.sorting.sort(table, [plc.types.Order.ASCENDING] * 2, [plc.types.NullOrder.AFTER] * 2)
    first, second = (host(one) for one in order.columns())
    rows = np.lexsort((NUMBERS, KEYS))
    assert (first == KEYS[rows]).all() and (second == NUMBERS[rows]).all()
    groups = plc.groupby.GroupBy(plc.Table([column(KEYS)]))
    request = plc.groupby.GroupByRequest(column(NUMBERS), [plc.aggregation.sum(), plc.aggregation.max()])
    keys, results = groups.aggregate([request])
    keys, sums, most = host(keys.columns()[0]), *(host(one) for one in results[0].columns())
    for key, total, maximum in zip(keys, sums, most):
        assert total == NUMBERS[KEYS == key].sum() and maximum == NUMBERS[KEYS == key].max()
    assert len(keys) == len(np.unique(KEYS))


def frames():
    import cudf
    import pandas as pd

    cpu = pd.DataFrame({"key": KEYS, "number": NUMBERS, "text": [f"t{key % 7}" for key in KEYS]})
    gpu = cudf.from_pandas(cpu)
    ours = gpu.groupby("key").number.agg(["sum", "mean", "max"]).sort_index().to_pandas()
    expected = cpu.groupby("key").number.agg(["sum", "mean", "max"]).sort_index()
    pd.testing.assert_frame_equal(ours, expected, check_dtype=False)
    other = pd.DataFrame({"key": np.arange(0, 100, 3), "more": np.arange(34) ** 2})
    joined = gpu.merge(cudf.from_pandas(other), on="key").sort_values(["key", "number", "text"])
    theirs = cpu.merge(other, on="key").sort_values(["key", "number", "text"])
    assert (joined.to_pandas().to_numpy() == theirs.to_numpy()).all()
    assert gpu.text.str.upper().value_counts().to_pandas().to_dict() == cpu.text.str.upper().value_counts().to_dict()


def parquet(compression):
    import cudf

    frame = cudf.DataFrame({"key": KEYS, "number": NUMBERS, "text": [f"t{key}" for key in KEYS]})
    file = io.BytesIO()
    frame.to_parquet(file, compression=compression)
    file.seek(0)
    assert cudf.read_parquet(file).equals(frame)


POINTS = np.concatenate([random.normal(center, 0.3, (500, 8)) for center in range(0, 20, 4)]).astype(np.float32)
LABELS = np.repeat(np.arange(5), 500).astype(np.int32)


def clusters():
    from cuml.cluster import KMeans

    model = KMeans(n_clusters=5, random_state=0, n_init=3).fit(POINTS)
    labels = np.asarray(model.labels_)
    assert all(len(set(labels[LABELS == label])) == 1 for label in range(5))
    print(f"same inertia: {model.inertia_:.1f}")


def forest():
    from cuml.ensemble import RandomForestClassifier

    model = RandomForestClassifier(n_estimators=20, max_depth=6, random_state=0, n_streams=1).fit(POINTS, LABELS)
    accuracy = (np.asarray(model.predict(POINTS)) == LABELS).mean()
    assert accuracy > 0.99, accuracy


def there(array):
    from pylibraft.common import device_ndarray

    return device_ndarray(np.ascontiguousarray(array))


def nearest(index, search, share):
    queries = POINTS[::50]
    distances = ((queries[:, None] - POINTS[None]) ** 2).sum(2)
    expected = np.argsort(distances, 1)[:, :10]
    _, found = search(index, there(queries), 10)
    found = found.copy_to_host()
    agree = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found, expected)])
    assert agree >= share, agree


def brute_force():
    from cuvs.neighbors import brute_force as module

    # The index refers to this array.
    points = there(POINTS)
    nearest(module.build(points), module.search, 0.99)


def lists():
    from cuvs.neighbors import ivf_flat as module

    points = there(POINTS)
    index = module.build(module.IndexParams(n_lists=16), points)
    nearest(index, lambda *rest: module.search(module.SearchParams(n_probes=16), *rest), 0.98)


CHECKS = {
    "rmm": [(function.__name__, function) for function in (resources, asynchronous, managed, pinned, limits, statistics)],
    "pylibcudf": [("tables", tables)],
    "cudf": [("frames", frames)]
    + [(f"parquet, {kind}", functools.partial(parquet, kind)) for kind in (None, "snappy", "zstd")],
    "cuml": [("clusters", clusters), ("forest", forest)],
    "cuvs": [("brute_force", brute_force), ("lists", lists)],
}
check("current", current)
for module, checks in CHECKS.items():
    if importlib.util.find_spec(module) is None:
        print(f"{module} is left out: it is not installed")
        continue
    for name, function in checks:
        check(name, function)

rmm.reinitialize(pool_allocator=True, initial_pool_size=64 << 20)
start = time.perf_counter()
for _ in range(1000):
    rmm.DeviceBuffer(size=1 << 16)
print(f"time 1000 buffers of a pool: {1000 * (time.perf_counter() - start):.3f} ms")
