# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A small Llama with random weights, a tokenizer and an adapter, in the files that servers of models read."""

import json
import os

import torch
from safetensors.torch import save_file

LAYERS, WIDTH, INNER, HEADS, GROUPS, VOCABULARY = 8, 1024, 2816, 16, 4, 8192
HEAD = WIDTH // HEADS
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": WIDTH, "intermediate_size": INNER,
    "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": GROUPS, "head_dim": HEAD,
    "vocab_size": VOCABULARY, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16", "bos_token_id": 0, "eos_token_id": 1,
}
# Each word is a token: `t0`, `t1` and so on.
TOKENIZER = {
    "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None, "decoder": None,
    "added_tokens": [], "pre_tokenizer": {"type": "WhitespaceSplit"},
    "model": {"type": "WordLevel", "vocab": {f"t{number}": number for number in range(VOCABULARY)}, "unk_token": "t2"},
}
TOKENIZER_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 2048, "bos_token": "t0", "eos_token": "t1", "unk_token": "t2",
    "chat_template": "{% for message in messages %}{{ message['content'] }} {% endfor %}",
}


def normal(*shape, scale):
    return (torch.randn(*shape) * scale).to(torch.bfloat16)


def weights():
    named = {"model.embed_tokens.weight": normal(VOCABULARY, WIDTH, scale=1.0), "model.norm.weight": torch.ones(WIDTH).bfloat16(),
             "lm_head.weight": normal(VOCABULARY, WIDTH, scale=0.1)}
    shapes = {"self_attn.q_proj": (WIDTH, WIDTH), "self_attn.k_proj": (GROUPS * HEAD, WIDTH), "self_attn.v_proj": (GROUPS * HEAD, WIDTH),
              "self_attn.o_proj": (WIDTH, WIDTH), "mlp.gate_proj": (INNER, WIDTH), "mlp.up_proj": (INNER, WIDTH),
              "mlp.down_proj": (WIDTH, INNER)}
    for layer in range(LAYERS):
        for name, shape in shapes.items():
            named[f"model.layers.{layer}.{name}.weight"] = normal(*shape, scale=shape[1] ** -0.5)
        for name in ("input_layernorm", "post_attention_layernorm"):
            named[f"model.layers.{layer}.{name}.weight"] = torch.ones(WIDTH).bfloat16()
    return named


def adapter(rank=8):
    """Large enough to change the tokens."""
    named = {}
    for layer in range(LAYERS):
        for name, out in (("q_proj", WIDTH), ("v_proj", GROUPS * HEAD)):
            place = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            named[f"{place}.lora_A.weight"] = normal(rank, WIDTH, scale=WIDTH**-0.5)
            named[f"{place}.lora_B.weight"] = normal(out, rank, scale=1.0)
    return named, {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": 2 * rank, "lora_dropout": 0.0,
                   "bias": "none", "target_modules": ["q_proj", "v_proj"], "base_model_name_or_path": "model"}


def write(folder, files):
    for name, content in files.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(content, file)


def make(folder):
    """Writes the model to `folder`, and the adapter to `folder/adapter`."""
    torch.manual_seed(0)
    save_file(weights(), os.path.join(folder, "model.safetensors"), {"format": "pt"})
    write(folder, {"config.json": CONFIG, "tokenizer.json": TOKENIZER, "tokenizer_config.json": TOKENIZER_CONFIG})
    beside = os.path.join(folder, "adapter")
    os.mkdir(beside)
    named, config = adapter()
    save_file(named, os.path.join(beside, "adapter_model.safetensors"), {"format": "pt"})
    write(beside, {"adapter_config.json": config})
