# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Copies between all pairs of GPUs, by one process and by one for each GPU, in one direction and in both at once. With one GPU nothing is
run."""

import time

import torch
import torch.distributed as dist

from ranks import arguments, seconds, start

MIB = 1 << 20


class Copies:
    """Copies that begin together, each in a stream of its own."""

    def __init__(self, pairs, size):
        self.copies = []
        for source, target in pairs:
            with torch.cuda.device(source):
                stream = torch.cuda.Stream()
                data = torch.randint(0, 256, (size,), dtype=torch.uint8).cuda()
            self.copies.append((stream, data, torch.empty(size, dtype=torch.uint8, device=f"cuda:{target}")))
        for device in range(torch.cuda.device_count()):
            torch.cuda.synchronize(device)

    def begin(self):
        for stream, source, target in self.copies:
            with torch.cuda.stream(stream):
                target.copy_(source, non_blocking=True)

    def wait(self):
        for stream, _, _ in self.copies:
            stream.synchronize()

    def agree(self):
        return all(torch.equal(source.cpu(), target.cpu()) for _, source, target in self.copies)


def report(name, size, count, taken, agree):
    print(f"same {name}: {'equal' if agree else 'DIFFERENT'}", flush=True)
    print(f"time {name}: {taken * 1e3:.4f} ms", flush=True)
    print(f"{name}: {size * count / taken / 1e9:.1f} GB/s", flush=True)


def by_one_process(ranks, size, times):
    pairs = [(source, target) for source in range(ranks) for target in range(ranks) if source != target]
    cases = [(f"copy from {source} to {target}", [(source, target)]) for source, target in pairs]
    cases += [(f"copies between {source} and {target}", [(source, target), (target, source)])
              for source, target in pairs if source < target]
    cases.append(("copies from each to the next", [(rank, (rank + 1) % ranks) for rank in range(ranks)]))
    for name, chosen in cases:
        copies, best = Copies(chosen, size), float("inf")
        for _ in range(6):
            begin = time.perf_counter()
            for _ in range(times):
                copies.begin()
            copies.wait()
            best = min(best, (time.perf_counter() - begin) / times)
        report(name, size, len(chosen), best, copies.agree())


def by_several(rank, ranks, small):
    size, times = (MIB, 2) if small else (256 * MIB, 20)
    cases = [("each process to the next GPU", [(rank, (rank + 1) % ranks)]),
             ("each process to the next GPU and back", [(rank, (rank + 1) % ranks), ((rank + 1) % ranks, rank)])]
    for name, chosen in cases:
        copies = Copies(chosen, size)

        def step():
            copies.begin()
            copies.wait()

        taken = seconds(lambda: [step() for _ in range(times)], 1, 6) / times
        agree = torch.tensor([int(copies.agree())], device="cuda")
        dist.all_reduce(agree, dist.ReduceOp.MIN)
        if rank == 0:
            report(name, size, ranks * len(chosen), taken, bool(agree.item()))


given = arguments()
if given.rank < 0 and torch.cuda.device_count() > 1:
    by_one_process(given.gpus or torch.cuda.device_count(), MIB if given.small else 256 * MIB, 2 if given.small else 20)
start(by_several)
