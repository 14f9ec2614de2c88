# SPDX-License-Identifier: Apache-2.0 OR MIT
"""jax.profiler on a small network: the kernels and copies of the GPU and the calls of the driver that its trace has.

Prints `same kernels, NAME: count`, `same copies, NAME: count`, `same calls, NAME: count`, and `time kernels: NUMBER ms`.
"""

import collections
import glob
import gzip
import json
import os
import tempfile

import jax
import jax.numpy as jnp
import numpy as np

STEPS = 5
# Calls whose number depends on time and on caches.
CALLS = ("cuLaunchKernel", "cuLaunchKernelEx", "cuGraphLaunch", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2")


@jax.jit
def step(weights, batch):
    hidden = jnp.tanh(batch @ weights[0] + 1)
    return (hidden * weights[1]).sum(axis=1).max()


def events_of(folder):
    """All complete events of the newest trace, with the names of their processes."""
    files = glob.glob(os.path.join(folder, "plugins/profile/*/*.trace.json.gz"))
    with gzip.open(max(files, key=os.path.getmtime), "rt", encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    processes = {event["pid"]: event["args"]["name"] for event in events if event.get("name") == "process_name"}
    threads = {
        (event["pid"], event["tid"]): event["args"]["name"] for event in events if event.get("name") == "thread_name"
    }
    for event in events:
        if event.get("ph") == "X":
            thread = threads.get((event["pid"], event.get("tid")), "")
            yield processes.get(event["pid"], ""), thread, event


def main():
    numbers = np.linspace(-1, 1, 64 * 128, dtype=np.float32)
    weights = (jnp.asarray(numbers.reshape(128, 64)), jnp.asarray(numbers[:64]))
    batch = numbers.reshape(64, 128)
    float(step(weights, jnp.asarray(batch)))
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _ in range(STEPS):
                float(step(weights, jnp.asarray(batch)))
        found = list(events_of(folder))
    kinds = collections.defaultdict(collections.Counter)
    total = 0
    for process, thread, event in found:
        name = event["name"]
        if "GPU" in process and thread.startswith("Stream"):
            kind = "copies" if name.startswith("Memcpy") else "kernels"
            kinds[kind][name] += 1
            total += event.get("dur", 0) if kind == "kernels" else 0
        elif name in CALLS:
            kinds["calls"][name] += 1
    for kind in ("kernels", "copies", "calls"):
        for name, count in sorted(kinds[kind].items()):
            print(f"same {kind}, {name[:80]}: {count}".replace("::", "."))
    print(f"same kinds of work: {len(kinds['kernels']) > 0} {len(kinds['copies']) > 0}")
    print(f"time kernels: {total / 1000:.4f} ms")


if __name__ == "__main__":
    main()
