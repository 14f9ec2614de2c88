# SPDX-License-Identifier: Apache-2.0 OR MIT
"""NCCL between all GPUs: all-reduce, all-gather and all-to-all from 1 KiB to 1 GiB, a process on each. Sums of the results (`same …`),
times (`time …`) and bus bandwidths as NCCL's tests count them. With one GPU nothing is run. The daemon needs `--nccl`."""

import torch
import torch.distributed as dist

from ranks import seconds, start

KIB = 1 << 10


def title(size):
    for unit, name in ((KIB**3, "GiB"), (KIB**2, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} bytes"


def measure(name, size, rank, share, step, result):
    """`share`: the part of the bytes that crosses each GPU's link."""
    step()
    total = result().cpu().double().sum()
    times = max(5, min(200, (64 * KIB**2) // size))
    taken = seconds(step, times)
    if rank == 0:
        print(f"same {name} of {title(size)}: {total.item():.0f}", flush=True)
        print(f"time {name} of {title(size)}: {taken * 1e3:.4f} ms", flush=True)
        print(f"{name} of {title(size)}: {size * share / taken / 1e9:.2f} GB/s", flush=True)


def body(rank, ranks, small):
    sizes = [KIB << shift for shift in range(0, 8 if small else 21, 4 if small else 2)]
    for size in sizes:
        # Bytes of float32: a multiple of the ranks, so that each has a part.
        count = size // 4 // ranks * ranks
        source = torch.full((count,), float(rank + 1)).cuda()

        # The sum stays small: each rank gives its own again.
        reduced = torch.empty_like(source)

        def reduce():
            reduced.copy_(source)
            dist.all_reduce(reduced)

        measure("all-reduce", size, rank, 2 * (ranks - 1) / ranks, reduce, lambda: reduced)
        gathered, part = torch.empty_like(source), source[: count // ranks].contiguous()
        measure("all-gather", size, rank, (ranks - 1) / ranks,
                lambda: dist.all_gather_into_tensor(gathered, part), lambda: gathered)
        spread = torch.empty_like(source)
        measure("all-to-all", size, rank, (ranks - 1) / ranks,
                lambda: dist.all_to_all_single(spread, source), lambda: spread)


start(body)
