# SPDX-License-Identifier: Apache-2.0 OR MIT
"""gpt4all, which needs the shared runtime and the cuBLAS of CUDA 11: a small Llama with random weights writes on the GPU what it
writes on the CPU. Prints `same NAME: VALUE` for what must be as natively, and the time of a token in milliseconds (`time …`).
Needs the package gguf."""

import os
import tempfile
import time

from gpt4all import GPT4All
from random_gguf import write


def answer(folder, device, tokens):
    model = GPT4All("model.gguf", model_path=folder, allow_download=False, device=device, n_ctx=128)
    start = time.perf_counter()
    text = model.generate("a small model", max_tokens=tokens, temp=0.0, top_k=1, repeat_penalty=1.0)
    return text, model.backend, (time.perf_counter() - start) / tokens


assert GPT4All.list_gpus(), "gpt4all finds no GPU"
with tempfile.TemporaryDirectory() as folder:
    write(os.path.join(folder, "model.gguf"), width=256, heads=4, layers=2, hidden=512, context=256)
    ours, backend, seconds = answer(folder, "cuda", 24)
    assert backend == "cuda", backend
    cpu, _, _ = answer(folder, "cpu", 24)
    # Later tokens may differ: a GPU adds halves in another order.
    assert ours[:6] == cpu[:6], f"{ours!r} instead of {cpu!r}"
    print(f"same answer: {ours!r}")
    print(f"time a token: {1000 * seconds:.3f} ms")
