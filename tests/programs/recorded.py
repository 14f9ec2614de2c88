# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Small products that come so often that workers record them (docs/performance.md), while two threads wait for the device at random.

Trains nothing: each model repeats one backward pass, whose gradients must keep their bits. Prints `same gradients: …`. Optional:

    RECORDED_SECONDS  how long (default: 30)
"""

import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch

from checks import check
from models import perceptron

SECONDS = float(os.environ.get("RECORDED_SECONDS", "30"))
# More than the 32 calls after which the worker records one.
PASSES = 45


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


def wait_at_random(ended):
    while not ended.wait(random.random() * 0.003):
        torch.cuda.synchronize()


def repeated():
    ended, end, count = threading.Event(), time.monotonic() + SECONDS, 0
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(wait_at_random, ended)
        try:
            while time.monotonic() < end and not waiting.done():
                width, rows = random.choice((16, 32, 48, 64, 96, 128, 256)), random.choice((8, 16, 32, 64))
                passes(perceptron(random.randint(1, 6), width).cuda(), rows, width)
                count += 1
        finally:
            ended.set()
        waiting.result()
    print(f"{count} models", flush=True)


random.seed(0)
torch.manual_seed(0)
check("gradients", repeated)
