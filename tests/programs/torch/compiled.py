# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Three small models that train under torch.compile: a multilayer perceptron, a convolutional network and a transformer. Their
losses are compared with the CPU's. Prints `same NAME: passed` for each.

PyTorch's wheels have no PTX. On an emulated GPU only copies, libraries and the kernels of torch.compile work, so `prepare` turns
off everything that would run another kernel. On a GPU it does nothing.
"""

import os
import sys
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

STEPS, RATE = 20, 0.1
# Triton asks ptxas for machine code, and gets the PTX.
PTXAS = """#!/bin/sh
case "$*" in *--version*) echo "Cuda compilation tools, release 13.0, V13.0.88"; exit;; esac
while [ $# -gt 0 ]; do case $1 in -o) out=$2; shift;; *.ptx) in=$1;; esac; shift; done
cp "$in" "$out"
"""


def prepare():
    # As guest-lib/nvrtc does: "CUDA-Emulator" in hexadecimal, in the form of a UUID.
    if not str(torch.cuda.get_device_properties(0).uuid).startswith("43554441-2d45-6d75-6c61-746f72"):
        return
    # Beside the program, so that the next run finds the compiled kernels.
    cache = Path(__file__).resolve().parent / f"compiled-{torch.__version__}"
    cache.mkdir(exist_ok=True)
    ptxas = cache / "ptxas"
    if not ptxas.exists():
        ptxas.write_text(PTXAS)
        ptxas.chmod(0o755)
    os.environ.update(
        TRITON_PTXAS_PATH=str(ptxas),
        TRITON_PTXAS_BLACKWELL_PATH=str(ptxas),
        TRITON_CACHE_DIR=str(cache / "triton"),
        TORCHINDUCTOR_CACHE_DIR=str(cache / "inductor"),
        TORCHINDUCTOR_COMPILE_THREADS="1",
    )
    import torch._inductor.config as config
    from torch._inductor.runtime.benchmarking import benchmarker

    # Both run eager operations.
    config.shape_padding = config.joint_graph_constant_folding = False
    # All variants of a kernel are equal.
    benchmarker.benchmark = lambda *arguments, **options: 1.0


class Perceptron(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 10))

    @staticmethod
    def batch():
        return torch.randn(32, 24), torch.randint(10, (32,))


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        # A bias of a convolution would be added by an eager operation.
        self.convolutions = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1, bias=False) for a, b in ((3, 8), (8, 16)))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width, track_running_stats=False) for width in (8, 16))
        self.last = nn.Linear(64, 10, bias=False)

    @staticmethod
    def batch():
        return torch.randn(8, 3, 8, 8), torch.randint(10, (8,))

    def forward(self, x):
        for convolution, norm in zip(self.convolutions, self.norms):
            x = F.max_pool2d(F.relu(norm(convolution(x))), 2)
        return self.last(x.flatten(1))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inputs, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        heads = self.inputs(self.first(x)).unflatten(-1, (3, self.heads, -1)).movedim(-3, 0).transpose(-2, -3)
        x = x + self.output(F.scaled_dot_product_attention(*heads, is_causal=True).transpose(-2, -3).flatten(-2))
        return x + self.narrow(F.gelu(self.wide(self.second(x))))


class Transformer(nn.Module):
    WORDS, LENGTH, WIDTH = 29, 16, 32

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(self.WORDS, self.WIDTH), nn.Embedding(self.LENGTH, self.WIDTH)
        self.blocks = nn.ModuleList(Block(self.WIDTH, 4) for _ in range(2))
        self.norm, self.last = nn.LayerNorm(self.WIDTH), nn.Linear(self.WIDTH, self.WORDS)

    @staticmethod
    def batch():
        words = torch.randint(Transformer.WORDS, (4, Transformer.LENGTH + 1))
        return words[:, :-1].contiguous(), words[:, 1:].contiguous()

    def forward(self, x):
        x = self.words(x) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return self.last(self.norm(x))


@torch.no_grad()
def descend(parameters, gradients, *_):
    for parameter, gradient in zip(parameters, gradients):
        parameter -= RATE * gradient


@torch.no_grad()
def adam(parameters, gradients, first, second, step):
    """AdamW, written out: PyTorch's makes its state by eager operations."""
    for parameter, gradient, m, v in zip(parameters, gradients, first, second):
        m.lerp_(gradient, 0.1)
        v.lerp_(gradient * gradient, 0.05)
        change = m / (1 - 0.9**step) / ((v / (1 - 0.95**step)).sqrt() + 1e-8)
        parameter -= 0.003 * (change + 0.01 * parameter)


def losses(make, update, device):
    """The loss of each step."""
    torch.manual_seed(0)
    model = make()
    x, y = (tensor.to(device) for tensor in make.batch())
    state = [[torch.zeros_like(p).to(device) for p in model.parameters()] for _ in range(2)]
    model = model.to(device)
    parameters = list(model.parameters())
    # Autograd would make it by an eager operation.
    one = torch.tensor(1.0).to(device)

    def loss_of(x, y):
        return F.cross_entropy(model(x).flatten(0, -2), y.flatten())

    if device == "cuda":
        loss_of, update = torch.compile(loss_of), torch.compile(update)
    found = []
    for step in range(1, STEPS + 1):
        loss = loss_of(x, y)
        update(parameters, torch.autograd.grad(loss, parameters, grad_outputs=one), *state, torch.tensor(float(step)).to(device))
        found.append(loss.item())
    return found


def main():
    prepare()
    # Fused attention is machine code; the mathematical form consists of products and a softmax.
    for form in ("flash", "mem_efficient", "cudnn"):
        getattr(torch.backends.cuda, f"enable_{form}_sdp")(False)
    failed = False
    for name, make, update in (("mlp", Perceptron, descend), ("cnn", Convolutions, descend), ("transformer", Transformer, adam)):
        ours, cpu = losses(make, update, "cuda"), losses(make, update, "cpu")
        worst = max(abs(a - b) / b for a, b in zip(ours, cpu))
        print(f"{name}: loss {ours[0]:.5f} first, {ours[-1]:.5f} last; the CPU's {cpu[-1]:.5f}", flush=True)
        is_same = worst < 1e-3 and cpu[-1] < 0.9 * cpu[0]
        print(f"same {name}: {'passed' if is_same else f'differs by {worst:.1e}'}", flush=True)
        failed |= not is_same
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
