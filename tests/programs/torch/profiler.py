# SPDX-License-Identifier: Apache-2.0 OR MIT
"""torch.profiler on a training step: which kernels, copies and calls it shows, and how long they take.

Prints `same works: …`, `same calls: …`, `same operators: …`, and `time NAME: NUMBER ms` of the kernels, which are as long natively.
"""

import collections
import json
import os
import tempfile

import torch
import torch.nn as nn
from torch.profiler import ProfilerActivity, profile, schedule

STEPS = 8
# Calls that the runtime or a library makes depending on time: queries and the like.
INCIDENTAL = ("cudaEventQuery", "cudaStreamIsCapturing", "cuGetProcAddress", "cudaGetDevice", "cudaPeekAtLastError")


def work():
    torch.manual_seed(0)
    layers = [nn.Linear(2048, 2048), nn.ReLU(), nn.Conv1d(1, 4, 5), nn.Flatten(0), nn.Linear(4 * 2044, 16)]
    model = nn.Sequential(*layers).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(1, 2048).pin_memory()

    def step():
        optimizer.zero_grad()
        model(batch.to("cuda", non_blocking=True)).square().sum().backward()
        optimizer.step()
        torch.cuda.synchronize()

    return step


def main():
    step = work()
    for _ in range(3):
        step()
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities, schedule=schedule(wait=1, warmup=2, active=STEPS)) as profiler:
        for _ in range(3 + STEPS):
            step()
            profiler.step()
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "trace.json")
        profiler.export_chrome_trace(file)
        with open(file, encoding="utf-8") as trace:
            events = [event for event in json.load(trace)["traceEvents"] if event.get("ph") == "X"]
    kinds = collections.defaultdict(collections.Counter)
    durations = collections.defaultdict(list)
    correlated = {event["args"].get("correlation") for event in events if event.get("cat") in ("cuda_runtime", "cuda_driver")}
    orphans = 0
    for event in events:
        kind, name = event.get("cat"), event["name"]
        if kind in ("kernel", "gpu_memcpy", "gpu_memset"):
            kinds["works"][name] += 1
            orphans += event["args"].get("correlation") not in correlated
        elif kind in ("cuda_runtime", "cuda_driver") and not name.startswith(INCIDENTAL):
            kinds["calls"][name] += 1
        elif kind == "cpu_op":
            kinds["operators"][name] += 1
        if kind == "kernel":
            durations[name].append(event["dur"])
    for kind in ("works", "calls", "operators"):
        for name, count in sorted(kinds[kind].items()):
            print(f"same {kind}, {name[:80]}: {count}".replace("::", "."))
    print(f"same works without a call: {orphans}")
    # The median is not disturbed by a clock that the GPU changes.
    total = sum(sorted(times)[len(times) // 2] for times in durations.values())
    print(f"time kernels of a step: {total / 1000:.4f} ms")


if __name__ == "__main__":
    main()
