# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`torch.compile` of ResNet-50, which a DataLoader with pinned workers feeds, of GPT-2, and of a Llama's decoding in
`reduce-overhead` mode. Prints loss curves and tokens (`same …`) and times of steps (`time …`)."""

import statistics
import time

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from transformers import StaticCache

from models import gpt, llama, resnet50

DEVICE = "cuda"
STEPS, BATCH = 8, 16
PROMPT, LENGTH, TOKENS = 16, 160, 100


class Pictures(Dataset):
    """Pictures of noise, the same in each run."""

    def __len__(self):
        return STEPS * BATCH

    def __getitem__(self, index):
        noise = torch.Generator().manual_seed(index)
        return torch.randn(3, 64, 64, generator=noise), torch.randint(0, 1000, (), generator=noise)


def step(model, optimizer, loss_of, half):
    with torch.autocast(DEVICE, torch.bfloat16, enabled=half):
        loss = loss_of(model)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def pictures(half):
    torch.manual_seed(0)
    model = torch.compile(resnet50().to(DEVICE))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    loader = DataLoader(Pictures(), BATCH, num_workers=2, pin_memory=True)
    losses = []
    for x, y in loader:
        assert x.is_pinned() and y.is_pinned()
        x, y = x.to(DEVICE, non_blocking=True), y.to(DEVICE, non_blocking=True)
        losses.append(step(model, optimizer, lambda model: F.cross_entropy(model(x), y), half))
    return losses


def texts(half):
    torch.manual_seed(0)
    model = torch.compile(gpt(4, 768, 12, 256).to(DEVICE))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    x = torch.randint(0, 50000, (4, 256), device=DEVICE)
    return [step(model, optimizer, lambda model: model(x, labels=x).loss, half) for _ in range(STEPS)]


def decode():
    """Tokens, and seconds for one: the median of the second half."""
    torch.manual_seed(0)
    model = llama().to(DEVICE, torch.bfloat16).eval()
    cache = StaticCache(config=model.config, max_cache_len=LENGTH)

    def forward(ids, position):
        return model(ids, past_key_values=cache, cache_position=position, use_cache=True).logits[:, -1:].argmax(-1)

    with torch.no_grad():
        token = forward(torch.arange(1, PROMPT + 1, device=DEVICE)[None], torch.arange(PROMPT, device=DEVICE))
        compiled = torch.compile(forward, mode="reduce-overhead", fullgraph=True)
        position, tokens, starts = torch.tensor([PROMPT], device=DEVICE), [], []
        for _ in range(TOKENS):
            torch.compiler.cudagraph_mark_step_begin()
            torch.cuda.synchronize()
            starts.append(time.perf_counter())
            token = compiled(token, position).clone()
            position.add_(1)
            tokens.append(token)
    later = starts[TOKENS // 2 :]
    return torch.cat(tokens).flatten().tolist(), statistics.median(end - start for start, end in zip(later, later[1:]))


torch.backends.cudnn.deterministic = True
for name, curve in (("ResNet-50", pictures), ("GPT-2", texts)):
    for kind, half in (("float32", False), ("bf16", True)):
        start = time.perf_counter()
        print(f"same {name} {kind}: {' '.join(f'{loss:.4f}' for loss in curve(half))}", flush=True)
        print(f"time {name} {kind} with its compilation: {1e3 * (time.perf_counter() - start):.0f} ms", flush=True)
made, seconds = decode()
print(f"same tokens: {made}", flush=True)
print(f"time a token: {1e3 * seconds:.4f} ms", flush=True)
