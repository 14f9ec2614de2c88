# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A process on each GPU, by NCCL: loss curves (`same …`) and the time of a step (`time …`) of data-parallel training (DDP), sharded
training (FSDP2) and tensor parallel layers. With one GPU nothing is run. The daemon needs `--nccl`."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from models import gpt, resnet50
from ranks import seconds, start

STEPS = 8


def train(name, model, rank, ranks, rate, loss_of):
    """Prints the means of the ranks' losses."""
    optimizer, losses = torch.optim.AdamW(model.parameters(), rate), []

    def step():
        loss = loss_of(model)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(STEPS):
        mean = step().detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / ranks)
    taken = seconds(step, STEPS, 3)
    if rank == 0:
        print(f"same {name}: {' '.join(f'{loss:.5f}' for loss in losses)}", flush=True)
        print(f"time {name}, a step: {taken * 1e3:.4f} ms", flush=True)


def images(rank, size, count):
    """A loss over images of the rank's own."""
    torch.manual_seed(1 + rank)
    x = torch.randn(count, 3, size, size, device="cuda")
    y = torch.randint(0, 1000, (count,), device="cuda")
    return lambda model: F.cross_entropy(model(x), y)


def texts(rank, length, count):
    """A loss over words of the rank's own."""
    torch.manual_seed(1 + rank)
    x = torch.randint(0, 50000, (count, length), device="cuda")
    return lambda model: model(x, labels=x).loss


def language_model(small):
    torch.manual_seed(0)
    return gpt(2, 64, 2, 16) if small else gpt(12, 768, 12, 256)


class Feed(nn.Module):
    """A transformer's feed-forward block."""

    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        # Without parameters: optimizers do not mix divided ones with others.
        self.norm = nn.LayerNorm(width, elementwise_affine=False)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def tensor_parallel(rank, ranks, small):
    """Each block's layers are divided among the GPUs. All ranks have the same input, so all have the same loss."""
    width, blocks, count = (32, 2, 8) if small else (2048, 8, 4096)
    torch.manual_seed(0)
    model = nn.Sequential(*[Feed(width) for _ in range(blocks)]).cuda()
    mesh = init_device_mesh("cuda", (ranks,))
    for block in model:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    torch.manual_seed(1)
    x, y = torch.randn(count, width, device="cuda"), torch.randn(count, width, device="cuda")
    train(f"layers divided among {ranks} GPUs", model, rank, ranks, 1e-4, lambda model: F.mse_loss(model(x), y))


def body(rank, ranks, small):
    torch.backends.cudnn.deterministic = True
    length, count = (16, 2) if small else (256, 4)
    if not small:
        torch.manual_seed(0)
        model = DistributedDataParallel(resnet50().cuda(), device_ids=[rank])
        train(f"ResNet-50 on {ranks} GPUs", model, rank, ranks, 1e-3, images(rank, 64, 16))
    model = DistributedDataParallel(language_model(small).cuda(), device_ids=[rank])
    train(f"GPT-2 on {ranks} GPUs", model, rank, ranks, 1e-4, texts(rank, length, count))
    model = language_model(small).cuda()
    for layer in model.transformer.h:
        fully_shard(layer)
    train(f"GPT-2 sharded among {ranks} GPUs", fully_shard(model), rank, ranks, 1e-4, texts(rank, length, count))
    tensor_parallel(rank, ranks, small)


start(body)
