# SPDX-License-Identifier: Apache-2.0 OR MIT
"""OpenMM: charged particles in a periodic box, with springs between them. Compares energies and forces with the reference platform on the
CPU (`same NAME: passed`), and prints the time of 1,000 steps in single precision (`time …`)."""

import ctypes
import glob
import math
import time

import numpy as np
import nvidia

# OpenMM's plugin for CUDA needs these on the search path of libraries, where pip does not put them.
for folder in nvidia.__path__:
    for name in ("libnvrtc.so.13", "libcufft.so.12"):
        for library in glob.glob(f"{folder}/*/lib/{name}"):
            ctypes.CDLL(library, ctypes.RTLD_GLOBAL)

import openmm
from openmm import unit

from checks import check

SIDE = 12
SPACING = 0.35
STEPS = 1000


def system(method):
    """SIDE³ particles on a lattice, in pairs; lengths in nm, energies in kJ/mol."""
    made = openmm.System()
    edge = SIDE * SPACING
    made.setDefaultPeriodicBoxVectors((edge, 0, 0), (0, edge, 0), (0, 0, edge))
    nonbonded, springs = openmm.NonbondedForce(), openmm.HarmonicBondForce()
    nonbonded.setNonbondedMethod(method)
    nonbonded.setCutoffDistance(1.0)
    count = SIDE**3
    for number in range(count):
        made.addParticle(16.0)
        nonbonded.addParticle(0.2 if number % 2 == 0 else -0.2, 0.3, 0.6)
    for number in range(0, count, 2):
        springs.addBond(number, number + 1, SPACING, 10000.0)
        nonbonded.addException(number, number + 1, 0.0, 1.0, 0.0)
    made.addForce(nonbonded)
    made.addForce(springs)
    return made


def places():
    """The lattice, each particle a little beside its place."""
    lattice = np.stack(np.meshgrid(*[np.arange(SIDE)] * 3, indexing="ij"), -1).reshape(-1, 3) * SPACING
    return lattice + np.random.default_rng(0).normal(scale=0.01, size=lattice.shape)


def context(method, platform, **properties):
    integrator = openmm.VerletIntegrator(0.001)
    properties = {name: str(value) for name, value in properties.items()}
    made = openmm.Context(system(method), integrator, openmm.Platform.getPlatformByName(platform), properties)
    made.setPositions(places())
    return made


def state(method, platform, **properties):
    found = context(method, platform, **properties).getState(getEnergy=True, getForces=True)
    return (found.getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole),
            np.array(found.getForces(asNumpy=True).value_in_unit(unit.kilojoule_per_mole / unit.nanometer)))


def compare(method, precision):
    energy, forces = state(method, "CUDA", Precision=precision)
    expected_energy, expected = state(method, "Reference")
    assert math.isclose(energy, expected_energy, rel_tol=1e-3), f"energy {energy} instead of {expected_energy}"
    error = np.abs(forces - expected).max() / np.abs(expected).max()
    assert error < 2e-3, f"forces differ by {error}"


def kept():
    """Without a thermostat the total energy stays the same."""
    made = context(openmm.NonbondedForce.PME, "CUDA", Precision="mixed")

    def energy():
        found = made.getState(getEnergy=True)
        return (found.getPotentialEnergy() + found.getKineticEnergy()).value_in_unit(unit.kilojoule_per_mole)

    begun = energy()
    made.getIntegrator().step(200)
    kinetic = made.getState(getEnergy=True).getKineticEnergy().value_in_unit(unit.kilojoule_per_mole)
    assert kinetic > 10, f"nothing moved: kinetic energy {kinetic}"
    assert abs(energy() - begun) < 0.05 * kinetic, f"total energy {energy()} instead of {begun}"


def seconds(made):
    begun = time.perf_counter()
    made.getIntegrator().step(STEPS)
    made.getState(getEnergy=True)
    return time.perf_counter() - begun


METHODS = {"cutoff": openmm.NonbondedForce.CutoffPeriodic, "PME": openmm.NonbondedForce.PME}
for name, method in METHODS.items():
    for precision in ("single", "mixed", "double"):
        check(f"{name}, {precision} precision", compare, method, precision)
check("total energy", kept)
for name, method in METHODS.items():
    running = context(method, "CUDA", Precision="single")
    seconds(running)
    print(f"time {STEPS} steps, {name}, single precision: {1e3 * min(seconds(running) for _ in range(3)):.3f} ms", flush=True)
