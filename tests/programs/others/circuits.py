# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Qiskit Aer: a circuit of six qubits on the GPU, compared with the CPU. Prints `same NAME: passed` for each check."""

import numpy as np
from qiskit import QuantumCircuit
from qiskit_aer import AerSimulator

from checks import check

CIRCUIT = QuantumCircuit(6)
CIRCUIT.h(0)
for qubit in range(5):
    CIRCUIT.cx(qubit, qubit + 1)
CIRCUIT.rx(0.3, 2)
CIRCUIT.rz(0.7, 4)
CIRCUIT.t(1)
CIRCUIT.cp(0.4, 0, 5)
CIRCUIT.swap(2, 3)


def run(circuit, method, device, **options):
    result = AerSimulator(method=method, device=device, seed_simulator=3, **options).run(circuit, shots=500).result()
    assert result.success, result.status
    return result


def compare(method, save, tolerance, **options):
    circuit = CIRCUIT.copy()
    getattr(circuit, f"save_{save}")()
    cpu, gpu = (np.asarray(run(circuit, method, device, **options).data()[save]) for device in ("CPU", "GPU"))
    error = abs(cpu - gpu).max()
    assert error < tolerance, f"error {error:.3e}"


def counts():
    circuit = CIRCUIT.copy()
    circuit.measure_all()
    cpu, gpu = (run(circuit, "statevector", device).get_counts() for device in ("CPU", "GPU"))
    assert cpu == gpu, f"{gpu} instead of {cpu}"


check("state", compare, "statevector", "statevector", 1e-12)
check("state in single precision", lambda: compare("statevector", "statevector", 1e-6, precision="single"))
check("density matrix", compare, "density_matrix", "density_matrix", 1e-12)
check("unitary matrix", compare, "unitary", "unitary", 1e-12)
check("counts", counts)
