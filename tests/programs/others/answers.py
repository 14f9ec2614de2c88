# SPDX-License-Identifier: Apache-2.0 OR MIT
"""gpt4all, which needs the shared runtime and the cuBLAS of CUDA 11: a small Llama with random weights writes on the GPU what it
writes on the CPU. Prints `same NAME: VALUE` for what must be as natively, and the time of a token in milliseconds (`time …`).
Needs the package gguf."""

import os
import tempfile
import time

import gguf
import numpy as np
from gpt4all import GPT4All

random = np.random.default_rng(0)
WIDTH, HEADS, LAYERS, HIDDEN = 256, 4, 2, 512
LETTERS = [chr(ord("a") + i) for i in range(26)]
WORDS = ["\u2581" + letter for letter in LETTERS] + LETTERS + ["\u2581", ".", ","]
TOKENS = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)] + WORDS
KIND = gguf.TokenType
KINDS = [KIND.UNKNOWN, KIND.CONTROL, KIND.CONTROL] + [KIND.BYTE] * 256 + [KIND.NORMAL] * len(WORDS)


def write(path):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(256)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([token.encode() for token in TOKENS])
    writer.add_token_scores([0.0] * len(TOKENS))
    writer.add_token_types(KINDS)

    def matrix(name, *shape, scale=0.08):
        writer.add_tensor(f"{name}.weight", (random.standard_normal(shape) * scale).astype(np.float16))

    def norm(name):
        writer.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))

    matrix("token_embd", len(TOKENS), WIDTH, scale=1)
    matrix("output", len(TOKENS), WIDTH)
    norm("output_norm")
    for layer in range(LAYERS):
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            matrix(f"blk.{layer}.{part}", WIDTH, WIDTH)
        matrix(f"blk.{layer}.ffn_gate", HIDDEN, WIDTH)
        matrix(f"blk.{layer}.ffn_up", HIDDEN, WIDTH)
        matrix(f"blk.{layer}.ffn_down", WIDTH, HIDDEN)
        norm(f"blk.{layer}.attn_norm")
        norm(f"blk.{layer}.ffn_norm")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def answer(folder, device, tokens):
    model = GPT4All("model.gguf", model_path=folder, allow_download=False, device=device, n_ctx=128)
    start = time.perf_counter()
    text = model.generate("a small model", max_tokens=tokens, temp=0.0, top_k=1, repeat_penalty=1.0)
    return text, model.backend, (time.perf_counter() - start) / tokens


assert GPT4All.list_gpus(), "gpt4all finds no GPU"
with tempfile.TemporaryDirectory() as folder:
    write(os.path.join(folder, "model.gguf"))
    ours, backend, seconds = answer(folder, "cuda", 24)
    assert backend == "cuda", backend
    cpu, _, _ = answer(folder, "cpu", 24)
    # Later tokens may differ: a GPU adds halves in another order.
    assert ours[:6] == cpu[:6], f"{ours!r} instead of {cpu!r}"
    print(f"same answer: {ours!r}")
    print(f"time a token: {1000 * seconds:.3f} ms")
