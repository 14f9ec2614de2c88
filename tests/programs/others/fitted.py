# SPDX-License-Identifier: Apache-2.0 OR MIT
"""TensorFlow: fused convolutions, linear algebra and a Keras model that is fitted, compared with the CPU. Prints
`same NAME: passed` for each check."""

import numpy as np
import tensorflow as tf

from checks import check

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


def losses(device):
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
        # Without XLA, which needs a compiler of machine code.
        model.compile(tf.keras.optimizers.SGD(0.05), loss, jit_compile=False)
        for layer in model.layers:
            layer.set_weights([0.2 * numbers(7 + at, *each.shape) for at, each in enumerate(layer.get_weights())])
        labels = np.random.default_rng(5).integers(0, 4, 32)
        return model.fit(numbers(4, 32, 12, 12, 3), labels, epochs=4, batch_size=8, verbose=0, shuffle=False).history["loss"]


def fit():
    cpu, gpu = losses(CPU), losses(GPU)
    assert np.allclose(cpu, gpu, rtol=1e-3) and gpu[-1] < gpu[0], f"{gpu} instead of {cpu}"


check("fused convolution, relu", fused, tf.nn.relu)
check("fused convolution, tanh", fused, tf.tanh)
check("fused convolution, half", fused_half)
check("algebra", algebra)
check("fit", fit)
