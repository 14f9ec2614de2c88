# SPDX-License-Identifier: Apache-2.0 OR MIT
"""MLX with its CUDA backend: array operations, convolutions, attention, quantised products and the training of a network, compared with
MLX on the CPU. MLX puts its kernels into graphs, and compiles some of them when they run. Prints `same NAME: passed` for each check."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optimizers
import numpy as np
from mlx.utils import tree_map

from checks import check

random = np.random.default_rng(0)


def numbers(*shape):
    return mx.array(random.normal(size=shape).astype(np.float32))


A, B, IMAGES, WEIGHTS, HEADS = numbers(64, 48), numbers(48, 32), numbers(4, 12, 12, 3), numbers(8, 3, 3, 3), numbers(1, 4, 16, 64)
ROWS, MATRIX = numbers(3, 128), numbers(64, 128)


def agree(function, tolerance=1e-4):
    """Calls `function` on both devices. Errors are relative to the largest value."""
    results = []
    for device in (mx.cpu, mx.gpu):
        with mx.stream(device):
            results.append(np.asarray(function()).astype(np.float64))
    error = abs(results[0] - results[1]).max() / max(abs(results[0]).max(), 1)
    assert error < tolerance, f"error {error:.3e}"


def quantised(bits):
    packed, scales, biases = mx.quantize(MATRIX, group_size=64, bits=bits)
    return mx.quantized_matmul(ROWS, packed, scales, biases, transpose=True, group_size=64, bits=bits)


def product(kind):
    return (A.astype(kind) @ A.T.astype(kind)).astype(mx.float32)


def attention(kind):
    """MLX gives it to cuDNN, which puts it into a graph."""
    heads = HEADS.astype(kind)
    return mx.fast.scaled_dot_product_attention(heads, heads, heads, scale=0.125, mask="causal").astype(mx.float32)


def losses():
    """The losses of a small network whose weights are set, because MLX draws them at random."""
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), lambda x: x.reshape(x.shape[0], -1), nn.Linear(800, 4))
    draws = np.random.default_rng(1)
    network.update(tree_map(lambda old: mx.array(0.1 * draws.normal(size=old.shape).astype(np.float32)), network.parameters()))
    labels, optimizer = mx.array([0, 1, 2, 3]), optimizers.Adam(0.01)
    step = nn.value_and_grad(network, lambda: nn.losses.cross_entropy(network(IMAGES), labels).mean())
    values = []
    for _ in range(5):
        loss, gradients = step()
        optimizer.update(network, gradients)
        mx.eval(network.parameters(), optimizer.state)
        values.append(loss.item())
    assert values[-1] < values[0], values
    return values


for name, function in {
    "elements": lambda: mx.where(A > 0, mx.sin(A) * 2, mx.exp(A)),
    "compiled": lambda: mx.compile(lambda x: mx.tanh(x) * 3 + mx.exp(-x))(A),
    "reductions": lambda: mx.concatenate([mx.sum(A, 0), mx.var(A, axis=1), mx.logsumexp(A, axis=0), mx.argmax(A, axis=1)]),
    "scan": lambda: mx.cumsum(A, axis=1),
    "sort": lambda: mx.sort(A, axis=1),
    "indices": lambda: mx.zeros((8, 48)).at[mx.array([1, 1, 3])].add(A[mx.array([3, 1, 2])]),
    "product": lambda: A @ B,
    "gradient": lambda: mx.grad(lambda x: mx.sum(mx.tanh(x @ B) ** 2))(A),
    "softmax": lambda: mx.softmax(A, axis=-1),
    "norms": lambda: mx.fast.layer_norm(A, None, None, 1e-5) + mx.fast.rms_norm(A, mx.ones(48), 1e-5),
    "positions": lambda: mx.fast.rope(HEADS, 64, traditional=False, base=10000.0, scale=1.0, offset=3),
    "convolution": lambda: mx.conv2d(IMAGES, WEIGHTS, padding=1),
    "gradient of a convolution": lambda: mx.grad(lambda w: mx.sum(mx.conv2d(IMAGES, w) ** 2))(WEIGHTS),
    "Fourier transforms": lambda: mx.abs(mx.fft.fft(A)).sum() + mx.abs(mx.fft.rfft2(A)),
    "attention": lambda: mx.fast.scaled_dot_product_attention(HEADS, HEADS, HEADS, scale=0.125, mask="causal"),
    "attention of one position": lambda: mx.fast.scaled_dot_product_attention(HEADS[:, :, :1], HEADS, HEADS, scale=0.125),
    "random numbers": lambda: mx.random.normal((5, 6), key=mx.random.key(3)),
    "quantised to 4 bits": lambda: quantised(4),
    "quantised to 8 bits": lambda: quantised(8),
}.items():
    check(name, agree, function)
check("product of halves", agree, lambda: product(mx.float16), 1e-2)
check("product of bfloat16", agree, lambda: product(mx.bfloat16), 2e-2)
check("attention of halves", agree, lambda: attention(mx.float16), 1e-2)
check("attention of bfloat16", agree, lambda: attention(mx.bfloat16), 2e-2)
check("training", agree, losses, 1e-3)
