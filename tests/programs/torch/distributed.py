# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Two processes, each with a GPU, by NCCL: loss curves of data-parallel training (`same …`), and the time of an all-reduce
(`time …`). With one GPU nothing is run. The daemon needs `--nccl`."""

import os
import socket
import subprocess
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from models import gpt, resnet50

RANKS = 2
BYTES = 256 << 20


def train(name, make, rank, rate, data):
    """Eight steps, each rank with data of its own. The mean of the losses, which all ranks get."""
    torch.manual_seed(0)
    model = DistributedDataParallel(make().to(rank), device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters(), rate)
    torch.manual_seed(1 + rank)
    loss_of, losses = data(f"cuda:{rank}"), []
    for _ in range(8):
        loss = loss_of(model)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / RANKS)
    if rank == 0:
        print(f"same {name}: {' '.join(f'{loss:.5f}' for loss in losses)}", flush=True)


def images(device):
    x, y = torch.randn(16, 3, 64, 64, device=device), torch.randint(0, 1000, (16,), device=device)
    return lambda model: F.cross_entropy(model(x), y)


def texts(device):
    x = torch.randint(0, 50000, (4, 256), device=device)
    return lambda model: model(x, labels=x).loss


def reduce(rank):
    """Bus bandwidth as NCCL's tests count it: each GPU sends and receives 2 (n - 1) / n of the bytes, here all of them."""
    data, best = torch.ones(BYTES // 4, device=rank), float("inf")
    for _ in range(5):
        dist.all_reduce(data)
    for _ in range(5):
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(20):
            dist.all_reduce(data)
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - start) / 20)
    if rank == 0:
        print(f"time all-reduce of 256 MiB: {best * 1e3:.4f} ms", flush=True)
        print(f"{BYTES / best / 1e9:.0f} GB/s")


def rank_of(rank):
    torch.backends.cudnn.deterministic = True
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=RANKS)
    train("ResNet-50 on two GPUs", resnet50, rank, 1e-3, images)
    train("GPT-2 on two GPUs", lambda: gpt(12, 768, 12, 256), rank, 1e-4, texts)
    reduce(rank)
    dist.destroy_process_group()


def main():
    if len(sys.argv) > 1:
        rank_of(int(sys.argv[1]))
        return
    count = torch.cuda.device_count()
    if count < RANKS:
        print(f"same devices: {count}, so nothing was run")
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = [subprocess.Popen([sys.executable, __file__, str(rank)], env=environment) for rank in range(RANKS)]
    sys.exit(max(abs(process.wait()) for process in ranks))


main()
