# SPDX-License-Identifier: Apache-2.0 OR MIT
"""ResNet-50 and GPT-2 with random weights. Prints loss curves (`same …`) and times of steps in milliseconds (`time …`)."""

import time

import torch
import torch.nn.functional as F

from models import gpt, perceptron, resnet50

DEVICE = "cuda"


def stepper(model, optimizer, loss_of, half):
    def step():
        with torch.autocast(DEVICE, torch.bfloat16, enabled=half):
            loss = loss_of(model)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def images(count, size):
    x, y = torch.randn(count, 3, size, size, device=DEVICE), torch.randint(0, 1000, (count,), device=DEVICE)
    return lambda model: F.cross_entropy(model(x), y)


def texts(count, length):
    x = torch.randint(0, 50000, (count, length), device=DEVICE)
    return lambda model: model(x, labels=x).loss


def curve(name, make, rate, data, half):
    torch.manual_seed(0)
    torch.backends.cudnn.deterministic = True
    model = make().to(DEVICE)
    step = stepper(model, torch.optim.AdamW(model.parameters(), rate), data(), half)
    print(f"same {name}: {' '.join(f'{step().item():.5f}' for _ in range(8))}", flush=True)


def clock(name, step, count, warm):
    for _ in range(warm):
        step()
    best = float("inf")
    for _ in range(3):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            step()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - start) / count)
    print(f"time {name}: {best * 1e3:.4f} ms", flush=True)


curve("ResNet-50 float32", resnet50, 1e-3, lambda: images(16, 64), False)
curve("ResNet-50 bf16", resnet50, 1e-3, lambda: images(16, 64), True)
curve("GPT-2 float32", lambda: gpt(12, 768, 12, 256), 1e-4, lambda: texts(4, 256), False)
curve("GPT-2 bf16", lambda: gpt(12, 768, 12, 256), 1e-4, lambda: texts(4, 256), True)

torch.backends.cudnn.deterministic = False
model = perceptron(24, 64).to(DEVICE)
vectors = torch.randn(64, 64, device=DEVICE)
clock("MLP of 24 small layers, a step",
      stepper(model, torch.optim.AdamW(model.parameters(), 1e-3), lambda model: model(vectors).square().mean(), False), 30, 10)
model = resnet50().to(DEVICE).to(memory_format=torch.channels_last)
clock("ResNet-50 of 256 images bf16, a step",
      stepper(model, torch.optim.SGD(model.parameters(), 0.01), images(256, 224), True), 5, 5)
model = gpt(24, 1024, 16, 1024).to(DEVICE)
clock("GPT of 350M bf16, a step",
      stepper(model, torch.optim.AdamW(model.parameters(), 1e-4, fused=True), texts(8, 1024), True), 4, 3)
small = torch.randn(64, device=DEVICE)
clock("small kernels and .item()", lambda: (small + 1).sum().item(), 1000, 100)
square, out = torch.randn(64, 64, device=DEVICE), torch.empty(64, 64, device=DEVICE)
clock("product of 64 x 64", lambda: torch.mm(square, square, out=out), 5000, 100)
