# SPDX-License-Identifier: Apache-2.0 OR MIT
"""cuFINUFFT: Fourier transforms between points and grids, compared with their sums; CuPy has the arrays. Prints `same NAME: passed`
for each check."""

import cufinufft
import cupy
import numpy as np

from checks import check

random = np.random.default_rng(0)
POINTS, GRID = 2000, (32, 24)
X, Y = random.uniform(-np.pi, np.pi, (2, POINTS))
STRENGTHS = random.normal(size=POINTS) + 1j * random.normal(size=POINTS)
MODES = random.normal(size=GRID) + 1j * random.normal(size=GRID)
WAVES = [np.exp(1j * np.outer(np.arange(size) - size // 2, x)) for size, x in zip(GRID, (X, Y))]


def transform(kind, dtype, given, expected):
    real, tolerance = ("f8", 1e-9) if dtype == "complex128" else ("f4", 1e-4)
    plan = cufinufft.Plan(kind, GRID, eps=tolerance / 10, isign=1, dtype=dtype)
    plan.setpts(cupy.asarray(X.astype(real)), cupy.asarray(Y.astype(real)))
    ours = plan.execute(cupy.asarray(given.astype(dtype))).get()
    error = abs(ours - expected).max() / abs(expected).max()
    assert error < tolerance, f"error {error:.3e}"


for precision in ("complex128", "complex64"):
    to_grid = np.einsum("m,am,bm->ab", STRENGTHS, *WAVES)
    check(f"points to grid, {precision}", transform, 1, precision, STRENGTHS, to_grid)
    to_points = np.einsum("ab,am,bm->m", MODES, *WAVES)
    check(f"grid to points, {precision}", transform, 2, precision, MODES, to_points)
