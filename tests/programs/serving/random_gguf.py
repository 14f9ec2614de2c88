# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A Llama with random weights in the format of llama.cpp. Needs the package gguf."""

import gguf
import numpy as np

LETTERS = [chr(ord("a") + i) for i in range(26)]
WORDS = ["\u2581" + letter for letter in LETTERS] + LETTERS + ["\u2581", ".", ","]
TOKENS = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)] + WORDS
KIND = gguf.TokenType
KINDS = [KIND.UNKNOWN, KIND.CONTROL, KIND.CONTROL] + [KIND.BYTE] * 256 + [KIND.NORMAL] * len(WORDS)


def write(path, width, heads, layers, hidden, context):
    """Writes the same model to `path` for the same numbers."""
    random = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(context)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(width // heads)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([token.encode() for token in TOKENS])
    writer.add_token_scores([0.0] * len(TOKENS))
    writer.add_token_types(KINDS)

    def matrix(name, *shape, scale=0.08):
        writer.add_tensor(f"{name}.weight", (random.standard_normal(shape) * scale).astype(np.float16))

    def norm(name):
        writer.add_tensor(f"{name}.weight", np.ones(width, np.float32))

    matrix("token_embd", len(TOKENS), width, scale=1)
    matrix("output", len(TOKENS), width)
    norm("output_norm")
    for layer in range(layers):
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            matrix(f"blk.{layer}.{part}", width, width)
        matrix(f"blk.{layer}.ffn_gate", hidden, width)
        matrix(f"blk.{layer}.ffn_up", hidden, width)
        matrix(f"blk.{layer}.ffn_down", width, hidden)
        norm(f"blk.{layer}.attn_norm")
        norm(f"blk.{layer}.ffn_norm")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
