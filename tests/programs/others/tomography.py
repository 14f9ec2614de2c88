# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The ASTRA toolbox: projections through textures, and reconstructions from them, compared with the CPU's or with the body that was
projected. Prints `same NAME: passed` for each check. SART_CUDA is left out: 16 threads of its kernel multiply the same number at once."""

import astra
import numpy as np

from checks import check

SIZE, DETECTORS = 64, 96
BODY = np.zeros((SIZE, SIZE), np.float32)
BODY[20:40, 16:44], BODY[28:34, 22:30] = 1, 3
VOLUME = astra.create_vol_geom(SIZE, SIZE)
ANGLES = np.linspace(0, np.pi, 60, False)
PARALLEL = astra.create_proj_geom("parallel", 1.0, DETECTORS, ANGLES)
FAN = astra.create_proj_geom("fanflat", 1.5, DETECTORS, 2 * ANGLES, 300, 100)
SMALL = astra.create_vol_geom(24, 24, 24)
CUBE = np.zeros((24, 24, 24), np.float32)
CUBE[8:16, 6:18, 9:15] = 1
CONE = astra.create_proj_geom("cone", 1.0, 1.0, 32, 32, np.linspace(0, 2 * np.pi, 24, False), 200, 50)


def projected(geometry, projector):
    """The id of a projection, its values and the projector."""
    projector = astra.create_projector(projector, geometry, VOLUME)
    name, values = astra.create_sino(BODY, projector)
    return name, values, projector


def projection(geometry, projector, tolerance):
    cpu, gpu = projected(geometry, projector)[1], projected(geometry, "cuda")[1]
    error = abs(cpu - gpu).mean() / cpu.mean()
    assert error < tolerance, f"error {error:.3e}"


def reconstruction(method, rounds, tolerance):
    name, _, projector = projected(PARALLEL, "cuda")
    # EM multiplies, so it cannot start with zeros.
    result = astra.data2d.create("-vol", VOLUME, 1.0)
    setting = {**astra.astra_dict(method), "ProjectorId": projector, "ProjectionDataId": name, "ReconstructionDataId": result}
    astra.algorithm.run(astra.algorithm.create(setting), rounds)
    error = abs(astra.data2d.get(result) - BODY).mean()
    assert error < tolerance, f"error {error:.3e}"


def in_space():
    name, values = astra.create_sino3d_gpu(CUBE, CONE, SMALL)
    # A ray through the middle crosses twelve cells or more.
    assert 11 < values.max() < 13, values.max()
    result = astra.data3d.create("-vol", SMALL)
    setting = {**astra.astra_dict("SIRT3D_CUDA"), "ProjectionDataId": name, "ReconstructionDataId": result}
    astra.algorithm.run(astra.algorithm.create(setting), 30)
    error = abs(astra.data3d.get(result) - CUBE).mean()
    assert error < 0.02, f"error {error:.3e}"


# Textures interpolate with 8 bits of fraction.
check("parallel rays", projection, PARALLEL, "linear", 1e-3)
# The CPU measures the length in each cell, the GPU interpolates.
check("rays of a fan", projection, FAN, "line_fanflat", 0.05)
check("SIRT", reconstruction, "SIRT_CUDA", 50, 0.03)
check("CGLS", reconstruction, "CGLS_CUDA", 50, 0.02)
check("EM", reconstruction, "EM_CUDA", 50, 0.03)
check("filtered back-projection", reconstruction, "FBP_CUDA", 1, 0.03)
check("in space", in_space)
