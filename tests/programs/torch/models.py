# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Models with random weights, for the programs beside it."""

import torch.nn as nn
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM


class Bottleneck(nn.Module):
    """ResNet's block of three convolutions."""

    def __init__(self, width_in, width, stride):
        super().__init__()
        width_out = 4 * width
        self.main = nn.Sequential(
            nn.Conv2d(width_in, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.Conv2d(width, width_out, 1, bias=False), nn.BatchNorm2d(width_out),
        )
        same = stride == 1 and width_in == width_out
        down = [nn.Conv2d(width_in, width_out, 1, stride, bias=False), nn.BatchNorm2d(width_out)]
        self.side = nn.Identity() if same else nn.Sequential(*down)

    def forward(self, x):
        return F.relu(self.main(x) + self.side(x))


def resnet50():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)]
    width_in = 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for index in range(count):
            layers.append(Bottleneck(width_in, width, stride if index == 0 else 1))
            width_in = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def perceptron(layers, width):
    return nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(layers)])


def gpt(layers, width, heads, context):
    return GPT2LMHeadModel(GPT2Config(n_layer=layers, n_embd=width, n_head=heads, vocab_size=50304, n_positions=context,
                                      attn_pdrop=0, embd_pdrop=0, resid_pdrop=0))


def llama():
    """1.1 billion parameters."""
    return LlamaForCausalLM(LlamaConfig(hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32,
                                        num_key_value_heads=4, vocab_size=32000, max_position_embeddings=512))
