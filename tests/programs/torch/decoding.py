# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A Llama of 1.1 billion random weights with a static cache. Prints tokens (`same …`) and times of one (`time …`)."""

import time

import torch
from transformers import StaticCache

from models import llama

DEVICE = "cuda"
PROMPT, LENGTH, COUNT = 16, 160, 60

torch.manual_seed(0)
model = llama().to(DEVICE, torch.bfloat16).eval()
cache = StaticCache(config=model.config, max_cache_len=LENGTH)


def forward(ids, position):
    logits = model(ids, past_key_values=cache, cache_position=position, use_cache=True).logits
    return logits[:, -1:].argmax(-1)


def seconds(step, count):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / count


with torch.no_grad():
    token = forward(torch.arange(1, PROMPT + 1, device=DEVICE)[None], torch.arange(PROMPT, device=DEVICE))
    position, tokens = torch.tensor([PROMPT], device=DEVICE), []

    def step():
        global token
        tokens.append(token)
        token = forward(token, position)
        position.add_(1)

    for _ in range(8):
        step()
    eager = seconds(step, COUNT)
    print(f"same tokens: {torch.cat(tokens).flatten().tolist()}", flush=True)
    print(f"time a token, eager: {eager * 1e3:.4f} ms", flush=True)

    static = token.clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        forward(static, position)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static.copy_(forward(static, position))
        position.add_(1)
    made = []
    for _ in range(8):
        graph.replay()
        made.append(static.clone())
    print(f"same tokens of a graph: {torch.cat(made).flatten().tolist()}", flush=True)
    print(f"time a token, CUDA graph: {seconds(graph.replay, COUNT) * 1e3:.4f} ms", flush=True)
