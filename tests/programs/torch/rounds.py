# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Shared by the programs that measure steps."""

import time

import torch


def report(name, step, times=20, rounds=7):
    """Prints the time of one `step()` as `time NAME`: the least of some rounds of this many."""
    best = float("inf")
    for _ in range(rounds + 1):
        # The first round is longer than the others, so it does not count.
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(times):
            step()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - begin) / times)
    print(f"time {name}: {best * 1e3:.4f} ms", flush=True)
