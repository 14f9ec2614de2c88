# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Small products that come so often that workers record them (docs/performance.md), while two threads wait for the device at random.

Trains nothing: each model repeats one backward pass, whose gradients must keep their bits. Prints `same gradients: …`. Optional:

    RECORDED_SECONDS  how long (default: 30)
"""

import os
import random
import threading
import time

import torch
import torch.nn as nn

from checks import check

SECONDS = float(os.environ.get("RECORDED_SECONDS", "30"))
# More than the 32 calls after which the worker records one.
PASSES = 45


def perceptron(width):
    layers = random.randint(1, 6)
    return nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(layers)]).cuda()


def passes(model, rows, width):
    """Autograd's thread queues the products, and this one may wait while one of them is recorded."""
    inputs, first = torch.randn(rows, width, device="cuda"), None
    for number in range(PASSES):
        model.zero_grad()
        model(inputs).square().mean().backward()
        if random.random() < 0.5:
            torch.cuda.synchronize()
        gradients = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        first = gradients if first is None else first
        assert torch.equal(first, gradients), f"pass {number} of {rows} x {width} differs"


def wait_at_random(ended, errors):
    while not ended.is_set():
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            errors.append(error)
            return
        time.sleep(random.random() * 0.003)


def models():
    ended, errors = threading.Event(), []
    waiting = threading.Thread(target=wait_at_random, args=(ended, errors))
    waiting.start()
    end, count = time.monotonic() + SECONDS, 0
    try:
        while time.monotonic() < end and not errors:
            width, rows = random.choice((16, 32, 48, 64, 96, 128, 256)), random.choice((8, 16, 32, 64))
            passes(perceptron(width), rows, width)
            count += 1
    finally:
        ended.set()
        waiting.join()
    if errors:
        raise errors[0]
    print(f"{count} models", flush=True)


random.seed(0)
torch.manual_seed(0)
check("gradients", models)
