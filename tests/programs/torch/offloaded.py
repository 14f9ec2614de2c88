# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Layers that accelerate keeps in files or in the host's memory, and copies to the GPU when they are needed. Prints `same …` for the
outputs and the time of a forward pass (`time …`)."""

import copy
import tempfile

import torch
import torch.nn as nn
from accelerate import cpu_offload, disk_offload

from rounds import report

LAYERS, WIDTH, BATCH = 8, 4096, 16
DEVICE = torch.device("cuda", 0)

torch.manual_seed(0)
# 64 MiB of weights a layer.
MODEL = nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(LAYERS)]).eval()
X = torch.randn(BATCH, WIDTH)


def measure(name, offload):
    with torch.no_grad():
        layers = offload(copy.deepcopy(MODEL))
        x = X.to(DEVICE)
        error = ((layers(x).cpu() - EXPECTED).abs().max() / EXPECTED.abs().max()).item()
        print(f"same {name}: {'passed' if error < 1e-2 else error}", flush=True)
        report(name, lambda: layers(x), 2)


with torch.no_grad():
    EXPECTED = MODEL(X)
measure("layers on the GPU", lambda layers: layers.to(DEVICE))
measure("layers from the host's memory", lambda layers: cpu_offload(layers, execution_device=DEVICE))
with tempfile.TemporaryDirectory() as folder:
    measure("layers from files", lambda layers: disk_offload(layers, folder, execution_device=DEVICE))
