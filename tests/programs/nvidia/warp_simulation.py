# SPDX-License-Identifier: Apache-2.0 OR MIT
"""NVIDIA Warp: arrays, kernels that it compiles, particles, derivatives, tiles, meshes, graphs, compared with NumPy.
Prints `same NAME: passed` for each check, and the time of a simulation in milliseconds (`time …`)."""

import time

import numpy as np
import warp as wp

from checks import check

wp.config.quiet = True
wp.init()
if "mulat" in wp.get_device("cuda:0").name:
    # The emulator executes PTX alone.
    wp.config.cuda_output = "ptx"
wp.set_device("cuda:0")
random = np.random.default_rng(0)
COUNT, STEPS, TIME = 4096, 20, 1.0 / 60.0


@wp.kernel
def scaled(values: wp.array(dtype=float), factor: float, result: wp.array(dtype=float)):
    i = wp.tid()
    result[i] = values[i] * factor + wp.sin(values[i])


@wp.kernel
def step(places: wp.array(dtype=wp.vec3), speeds: wp.array(dtype=wp.vec3), dt: float, bounces: wp.array(dtype=int)):
    i = wp.tid()
    speed = speeds[i] + wp.vec3(0.0, -9.81, 0.0) * dt
    place = places[i] + speed * dt
    if place[1] < 0.0:
        place = wp.vec3(place[0], -place[1], place[2])
        speed = wp.vec3(speed[0], -0.5 * speed[1], speed[2])
        wp.atomic_add(bounces, 0, 1)
    places[i] = place
    speeds[i] = speed


@wp.kernel
def squares(values: wp.array(dtype=float), loss: wp.array(dtype=float)):
    i = wp.tid()
    wp.atomic_add(loss, 0, values[i] * values[i] * wp.exp(-values[i]))


@wp.kernel
def tile_sums(values: wp.array2d(dtype=float), sums: wp.array(dtype=float)):
    i = wp.tid()
    tile = wp.tile_load(values, shape=(1, 256), offset=(i, 0))
    wp.tile_store(sums, wp.tile_sum(tile), offset=i)


@wp.kernel
def distances(mesh: wp.uint64, points: wp.array(dtype=wp.vec3), result: wp.array(dtype=float)):
    i = wp.tid()
    query = wp.mesh_query_point(mesh, points[i], 100.0)
    nearest = wp.mesh_eval_position(mesh, query.face, query.u, query.v)
    result[i] = wp.length(nearest - points[i])


def arrays():
    values = random.normal(size=COUNT).astype(np.float32)
    ours = wp.array(values, dtype=float)
    assert (ours.numpy() == values).all() and not wp.zeros(COUNT, dtype=float).numpy().any()
    copy = wp.empty_like(ours)
    wp.copy(copy, ours)
    copy.fill_(2.5)
    assert (copy.numpy() == 2.5).all() and (ours.numpy() == values).all()
    assert (wp.array(values.reshape(64, 64), dtype=float)[3:9, ::2].numpy() == values.reshape(64, 64)[3:9, ::2]).all()


def kernels():
    values = random.normal(size=COUNT).astype(np.float32)
    result = wp.empty(COUNT, dtype=float)
    wp.launch(scaled, COUNT, inputs=[wp.array(values, dtype=float), 3.0, result])
    assert np.allclose(result.numpy(), values * 3 + np.sin(values), atol=1e-5)


def simulated(places, speeds):
    bounces = 0
    for _ in range(STEPS):
        speeds = speeds + np.array([0, -9.81, 0], np.float32) * np.float32(TIME)
        places = places + speeds * np.float32(TIME)
        below = places[:, 1] < 0
        places[below, 1] *= -1
        speeds[below, 1] *= -0.5
        bounces += below.sum()
    return places, bounces


def particles():
    places, speeds = (random.normal(size=(COUNT, 3)).astype(np.float32) for _ in range(2))
    places[:, 1] = abs(places[:, 1])
    expected, bounces = simulated(places, speeds)
    ours, theirs, count = wp.array(places, dtype=wp.vec3), wp.array(speeds, dtype=wp.vec3), wp.zeros(1, dtype=int)
    for _ in range(STEPS):
        wp.launch(step, COUNT, inputs=[ours, theirs, TIME, count])
    # A particle that is within rounding of the floor may bounce in one of the two.
    assert abs(int(count.numpy()[0]) - bounces) < 5 and np.median(abs(ours.numpy() - expected)) < 1e-5


def derivatives():
    values = random.normal(size=COUNT).astype(np.float32)
    ours, loss = wp.array(values, dtype=float, requires_grad=True), wp.zeros(1, dtype=float, requires_grad=True)
    with wp.Tape() as tape:
        wp.launch(squares, COUNT, inputs=[ours, loss])
    tape.backward(loss)
    expected = (2 * values - values**2) * np.exp(-values)
    assert np.allclose(tape.gradients[ours].numpy(), expected, rtol=1e-4, atol=1e-4)
    assert np.isclose(loss.numpy()[0], (values.astype(float) ** 2 * np.exp(-values.astype(float))).sum(), rtol=1e-4)


def tiles():
    values = random.normal(size=(32, 256)).astype(np.float32)
    sums = wp.zeros(32, dtype=float)
    wp.launch_tiled(tile_sums, dim=[32], inputs=[wp.array(values, dtype=float), sums], block_dim=64)
    assert np.allclose(sums.numpy(), values.sum(1), atol=1e-4)


def meshes():
    corners = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], np.float32)
    sides = [0, 1, 3, 0, 3, 2, 4, 6, 7, 4, 7, 5, 0, 4, 5, 0, 5, 1, 2, 3, 7, 2, 7, 6, 0, 2, 6, 0, 6, 4, 1, 5, 7, 1, 7, 3]
    mesh = wp.Mesh(wp.array(corners, dtype=wp.vec3), wp.array(np.array(sides, np.int32), dtype=int))
    points = random.uniform(-3, 3, (1000, 3)).astype(np.float32)
    result = wp.empty(1000, dtype=float)
    wp.launch(distances, 1000, inputs=[mesh.id, wp.array(points, dtype=wp.vec3), result])
    outside = np.linalg.norm(np.maximum(abs(points) - 1, 0), axis=1)
    expected = np.where(outside > 0, outside, 1 - abs(points).max(1))
    assert np.allclose(result.numpy(), expected, atol=1e-4)


def sorting():
    keys = random.integers(0, 1000, COUNT).astype(np.int32)
    ours, values = wp.zeros(2 * COUNT, dtype=int), wp.zeros(2 * COUNT, dtype=int)
    wp.copy(ours, wp.array(keys, dtype=int), count=COUNT)
    wp.copy(values, wp.array(np.arange(COUNT, dtype=np.int32), dtype=int), count=COUNT)
    wp.utils.radix_sort_pairs(ours, values, COUNT)
    assert (values.numpy()[:COUNT] == np.argsort(keys, kind="stable")).all()
    sums = wp.zeros(COUNT, dtype=int)
    wp.utils.array_scan(wp.array(keys, dtype=int), sums, inclusive=True)
    assert (sums.numpy() == np.cumsum(keys)).all()


def graphs():
    values = random.normal(size=COUNT).astype(np.float32)
    source, result = wp.array(values, dtype=float), wp.zeros(COUNT, dtype=float)
    wp.load_module(device="cuda:0")
    with wp.ScopedCapture() as capture:
        for _ in range(3):
            wp.launch(scaled, COUNT, inputs=[source, 3.0, result])
            wp.copy(source, result)
    wp.capture_launch(capture.graph)
    for _ in range(3):
        values = values * 3 + np.sin(values)
    assert np.allclose(source.numpy(), values, rtol=1e-4, atol=1e-4)


for function in (arrays, kernels, particles, derivatives, tiles, meshes, sorting, graphs):
    check(function.__name__, function, end=wp.synchronize)
state = [wp.zeros(COUNT, dtype=wp.vec3), wp.zeros(COUNT, dtype=wp.vec3), TIME, wp.zeros(1, dtype=int)]
wp.synchronize()
start = time.perf_counter()
for _ in range(500):
    wp.launch(step, COUNT, inputs=state)
wp.synchronize()
print(f"time 500 steps of {COUNT} particles: {1000 * (time.perf_counter() - start):.3f} ms")
