# SPDX-License-Identifier: Apache-2.0 OR MIT
"""TensorFlow: fused convolutions, linear algebra, functions that XLA compiles (`jit_compile=True`), and a Keras model that is fitted,
compared with the CPU. Prints `same NAME: passed` for each check.

XLA needs libdevice of nvidia-cuda-nvcc-cu12. Without that package its checks are left out. On an emulated GPU a script stands for ptxas."""

import importlib.util
import os
import tempfile
from pathlib import Path

# XLA asks ptxas for machine code, and gets the PTX, which needs an end because XLA adds none.
PTXAS = """#!/bin/sh
case "$*" in *--version*) echo "Cuda compilation tools, release 13.0, V13.0.88"; exit;; esac
while [ $# -gt 0 ]; do case $1 in -o) out=$2; shift;; -*) ;; *) in=${in:-$1};; esac; shift; done
{ cat "$in"; printf '\\0'; } > "$out"
"""


def compiler(folder):
    """Prepares XLA's compiler in `folder`, before TensorFlow is there. Returns whether there is one."""
    package = importlib.util.find_spec("nvidia") and importlib.util.find_spec("nvidia.cuda_nvcc")
    if not package:
        return False
    (folder / "nvvm").symlink_to(Path(package.submodule_search_locations[0]) / "nvvm")
    import ctypes

    uuid, driver = ctypes.create_string_buffer(16), ctypes.CDLL("libcuda.so.1")
    # As guest-lib/nvrtc knows it.
    if driver.cuInit(0) == 0 and driver.cuDeviceGetUuid_v2(uuid, 0) == 0 and uuid.raw.startswith(b"CUDA-Emulator"):
        (folder / "bin").mkdir()
        (folder / "bin" / "ptxas").write_text(PTXAS)
        (folder / "bin" / "ptxas").chmod(0o755)
        os.environ["XLA_FLAGS"] = f"--xla_gpu_cuda_data_dir={folder} {os.environ.get('XLA_FLAGS', '')}"
    return True


TOOLS = tempfile.TemporaryDirectory()
HAS_COMPILER = compiler(Path(TOOLS.name))

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from checks import check  # noqa: E402

CPU, GPU = "/CPU:0", "/GPU:0"


def numbers(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def agree(function, tolerance=1e-4):
    """Calls `function` on both devices, as a graph, whose operations TensorFlow may fuse."""
    results = []
    for device in (CPU, GPU):
        with tf.device(device):
            results.append(np.asarray(tf.function(function)()))
    assert np.allclose(*results, rtol=tolerance, atol=tolerance), np.abs(results[0] - results[1]).max()


def convolved(kind, activation):
    image, weights, bias = numbers(0, 8, 12, 12, 3), numbers(1, 3, 3, 3, 16), numbers(2, 16)
    image, weights, bias = (tf.cast(values, kind) for values in (image, weights, bias))
    return tf.cast(activation(tf.nn.bias_add(tf.nn.conv2d(image, weights, 1, "VALID"), bias)), tf.float32)


def fused(activation):
    agree(lambda: convolved(tf.float32, activation))


def fused_half():
    agree(lambda: convolved(tf.float16, tf.nn.relu), 2e-2)


def algebra():
    matrix = numbers(3, 24, 24)
    agree(lambda: tf.linalg.cholesky(matrix @ matrix.T + 24 * tf.eye(24)), 1e-3)
    agree(lambda: tf.abs(tf.signal.fft(tf.complex(matrix, matrix))), 1e-3)
    agree(lambda: tf.sort(tf.reshape(matrix, [-1])))


def compiled():
    a, b = (tf.constant(numbers(seed, *shape)) for seed, shape in ((8, (64, 48)), (9, (48, 32))))
    for function in (
        lambda: tf.math.rsqrt(tf.abs(a) + 1) + tf.sin(a) * tf.exp(-a),
        lambda: tf.nn.softmax(a),
        lambda: tf.cumsum(tf.reduce_sum(a, 0)),
        lambda: tf.tanh(a @ b),
        lambda: tf.nn.conv2d(numbers(0, 2, 8, 8, 3), numbers(1, 3, 3, 3, 4), 1, "SAME"),
    ):
        with tf.device(CPU):
            expected = np.asarray(function())
        with tf.device(GPU):
            ours = np.asarray(tf.function(function, jit_compile=True)())
        assert np.allclose(ours, expected, rtol=1e-4, atol=1e-4), np.abs(ours - expected).max()


def losses(device, **options):
    """The losses of a small network. Its weights are set, because Keras draws them at random."""
    with tf.device(device):
        layers = tf.keras.layers
        model = tf.keras.Sequential([
            layers.Input((12, 12, 3)),
            layers.Conv2D(8, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(8, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(4),
        ])
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tf.keras.optimizers.SGD(0.05), loss, **options)
        for layer in model.layers:
            layer.set_weights([0.2 * numbers(7 + at, *each.shape) for at, each in enumerate(layer.get_weights())])
        labels = np.random.default_rng(5).integers(0, 4, 32)
        return model.fit(numbers(4, 32, 12, 12, 3), labels, epochs=4, batch_size=8, verbose=0, shuffle=False).history["loss"]


def fit(**options):
    cpu, gpu = losses(CPU, jit_compile=False), losses(GPU, **options)
    assert np.allclose(cpu, gpu, rtol=1e-3) and gpu[-1] < gpu[0], f"{gpu} instead of {cpu}"


check("fused convolution, relu", fused, tf.nn.relu)
check("fused convolution, tanh", fused, tf.tanh)
check("fused convolution, half", fused_half)
check("algebra", algebra)
check("fit", lambda: fit(jit_compile=False))
if HAS_COMPILER:
    check("compiled by XLA", compiled)
    check("fit as Keras does", fit)
else:
    print("XLA is left out: nvidia-cuda-nvcc-cu12 is not installed", flush=True)
