# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Shared by the programs that run a process on each GPU."""

import argparse
import os
import socket
import subprocess
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

# Multicast over NVLink needs rights that a worker does not have.
SETTINGS = {"NCCL_NVLS_ENABLE": "0", "MASTER_ADDR": "127.0.0.1"}
LIMIT = timedelta(seconds=120)


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true", help="little work, for emulated GPUs")
    parser.add_argument("--gpus", type=int, default=0, help="this many GPUs, or all")
    parser.add_argument("--rank", type=int, default=-1, help="the number of a process that was started for a GPU")
    return parser.parse_args()


def start(body):
    """Calls `body(rank, ranks, small)` in a process for each GPU, with NCCL between them. With one GPU nothing is run. Ends the
    others if one fails."""
    given = arguments()
    ranks = given.gpus or torch.cuda.device_count()
    if given.rank >= 0:
        torch.cuda.set_device(given.rank)
        dist.init_process_group("nccl", rank=given.rank, world_size=ranks, timeout=LIMIT,
                                device_id=torch.device("cuda", given.rank))
        body(given.rank, ranks, given.small)
        dist.destroy_process_group()
        return
    if ranks < 2:
        print(f"same devices: {ranks}, so nothing was run")
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        environment = {**os.environ, **SETTINGS, "MASTER_PORT": str(free.getsockname()[1])}
    command = [sys.executable, *sys.argv]
    if not given.gpus:
        command += ["--gpus", str(ranks)]
    running = [subprocess.Popen([*command, "--rank", str(rank)], env=environment) for rank in range(ranks)]
    while any(process.poll() is None for process in running) and not any(process.poll() for process in running):
        time.sleep(0.05)
    failed = any(process.poll() for process in running)
    for process in running:
        if failed:
            process.kill()
        process.wait()
    sys.exit(int(failed))


def seconds(step, times, rounds=5):
    """The time of a step that all ranks make together: the least of some rounds of this many."""
    # In place of `dist.barrier`, which launches a kernel of PyTorch's: emulated GPUs cannot execute its wheel's machine code.
    word, best = torch.zeros(1).cuda(), float("inf")
    for _ in range(rounds):
        torch.cuda.synchronize()
        dist.all_reduce(word)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(times):
            step()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - begin) / times)
    return best
