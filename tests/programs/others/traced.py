# SPDX-License-Identifier: Apache-2.0 OR MIT
"""JAX: arrays, linear algebra, Fourier transforms, convolutions, random numbers, derivatives and the training of three
networks, each compared with JAX on the CPU.

Prints `same NAME: passed` for each check, and the time of a step of the transformer.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np

from checks import check

random = np.random.default_rng(0)
CPU = jax.devices("cpu")[0]


def normal(*shape):
    return random.normal(size=shape).astype(np.float32)


SQUARE, MANY = normal(96, 96), normal(4, 32, 32)
POSITIVE = SQUARE @ SQUARE.T + 96 * np.eye(96, dtype=np.float32)
IMAGES, FILTERS = normal(4, 8, 24, 24), normal(12, 8, 3, 3) / 8
QUERIES = normal(2, 48, 4, 16)


def convolution(images, filters):
    return jax.lax.conv_general_dilated(images, filters, (1, 1), "SAME")


def pooled(images):
    return jax.lax.reduce_window(images, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


def half(matrix):
    return (matrix.astype(jnp.bfloat16) @ matrix.astype(jnp.bfloat16)).astype(jnp.float32)


def magnitudes(function):
    """The signs of vectors are free."""
    return lambda matrix: [jnp.abs(part) for part in function(matrix)]


# Name, function, arguments, tolerance relative to the largest magnitude. XLA multiplies float32 in TF32.
OPERATIONS = [
    ("elementwise", lambda x: jnp.sin(x) * jnp.exp(-x * x) + jnp.log1p(jnp.abs(x)), (SQUARE,), 1e-5),
    ("reductions", lambda x: (x.sum(), x.max(0), jnp.argmax(x, 1), jnp.var(x, 0), jnp.prod(x[:2], 0)), (SQUARE,), 1e-4),
    ("scans", lambda x: (jnp.cumsum(x, 0), jnp.cumsum(x, 1), jax.lax.cummax(x)), (SQUARE,), 1e-4),
    ("order", lambda x: (jnp.sort(x, 1), jnp.argsort(x, 0), jax.lax.top_k(x, 7), jnp.median(x, 0)), (SQUARE,), 1e-5),
    ("indices", lambda x: (x[::2, 3:].T, x.at[5, ::3].add(2.0), jnp.take(x, jnp.arange(9) * 7, 0), jnp.roll(x, 3)), (SQUARE,), 1e-6),
    ("integers", lambda x: (jnp.floor(x * 1e3).astype(jnp.int32) % 7, jnp.floor(x * 1e3).astype(jnp.int32) << 3), (SQUARE,), 0),
    ("random numbers", lambda: [jax.random.normal(jax.random.key(3), (999,)), jax.random.permutation(jax.random.key(4), 99)], (), 1e-5),
    ("products", lambda x, y: (x @ x, jnp.einsum("bij,bjk->bik", y, y), jnp.outer(x[0], x[1])), (SQUARE, MANY), 2e-3),
    ("products in bf16", half, (SQUARE,), 2e-2),
    ("cholesky", lambda x: jax.scipy.linalg.cho_factor(x, lower=True)[0], (POSITIVE,), 2e-3),
    ("solve", lambda x: (jnp.linalg.solve(x, x[:, 0]), jnp.linalg.inv(x), jnp.linalg.slogdet(x)), (POSITIVE,), 2e-3),
    ("qr", magnitudes(jnp.linalg.qr), (SQUARE,), 5e-3),
    ("singular values", lambda x: (jnp.linalg.svd(x, compute_uv=False), jnp.linalg.svd(x[:, :40], compute_uv=False)), (SQUARE,), 1e-4),
    ("eigenvalues", lambda x: jnp.linalg.eigh(x)[0], (POSITIVE,), 1e-4),
    ("eigenvalues of many", lambda x: jnp.linalg.eigh(x + jnp.swapaxes(x, 1, 2))[0], (MANY,), 1e-4),
    ("fourier transforms", lambda x: (jnp.fft.fft2(x), jnp.fft.irfft(jnp.fft.rfft(x) * 2), jnp.fft.fft(x[:, :60])), (SQUARE,), 1e-5),
    ("convolution", lambda x, w: pooled(convolution(x, w)), (IMAGES, FILTERS), 5e-3),
    ("gradient of convolution", jax.grad(lambda w, x: (convolution(x, w) ** 2).mean()), (FILTERS, IMAGES), 5e-3),
    ("attention", lambda q: jax.nn.dot_product_attention(q, q, q, is_causal=True), (QUERIES,), 5e-3),
    ("loops", lambda x: (jax.lax.fori_loop(0, 9, lambda _, y: y @ x / 12, x), jax.lax.while_loop(lambda s: s < 50, lambda s: s * 2, x.max())), (SQUARE,), 1e-2),
    ("scan and branch", lambda x: jax.lax.scan(lambda c, y: (jax.lax.cond(y.sum() > 0, jnp.sin, jnp.cos, c + y), c * y), x[0], x), (SQUARE,), 1e-4),
    ("second derivative", lambda x: jax.hessian(lambda y: jnp.sum(jnp.tanh(y) ** 3))(x), (SQUARE[0],), 1e-4),
    ("vmap", lambda x: jax.vmap(lambda y: jnp.linalg.norm(y @ y.T))(x), (MANY,), 2e-3),
    ("callback", lambda x: jax.pure_callback(lambda y: np.asarray(y) * 2, jax.ShapeDtypeStruct(x.shape, x.dtype), x), (SQUARE,), 0),
]


def near(ours, expected, tolerance):
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        one, other = np.asarray(one), np.asarray(other)
        assert one.shape == other.shape and one.dtype == other.dtype, f"{one.dtype}{one.shape}, {other.dtype}{other.shape}"
        scale = max(np.abs(other).max(), 1e-6)
        error = np.abs(one.astype(np.complex128) - other).max() / scale
        assert error <= tolerance, f"error {error:.3e} of at most {tolerance}"


def compare(function, arguments, tolerance):
    ours = jax.jit(function)(*arguments)
    assert all(leaf.devices() == {jax.devices("gpu")[0]} for leaf in jax.tree.leaves(ours)), "it did not run on the GPU"
    with jax.default_device(CPU):
        near(ours, jax.jit(function)(*arguments), tolerance)


def perceptron(parameters, x):
    for weight in parameters[:-1]:
        x = jax.nn.gelu(x @ weight)
    return x @ parameters[-1]


def pictures(parameters, x):
    filters, more, out = parameters
    x = pooled(jax.nn.relu(convolution(x, filters)))
    return jax.nn.relu(convolution(x, more)).mean((2, 3)) @ out


def transformer(parameters, x):
    inner, out, up, down, end = parameters
    for _ in range(2):
        heads = (x @ inner).reshape(*x.shape[:2], 3, 4, 8)
        x = x + jax.nn.dot_product_attention(*(heads[:, :, part] for part in range(3))).reshape(x.shape) @ out
        x = x + jax.nn.gelu(jax.nn.standardize(x) @ up) @ down
    return x.mean(1) @ end


def layers(*shapes):
    return [normal(*shape) / np.sqrt(np.prod(shape[1:] if len(shape) > 2 else shape[:1])) for shape in shapes]


NETWORKS = [
    ("a perceptron trains", perceptron, layers((64, 128), (128, 128), (128, 10)), normal(64, 64)),
    ("a convolutional network trains", pictures, layers((16, 8, 3, 3), (32, 16, 3, 3), (32, 10)), normal(16, 8, 24, 24)),
    ("a transformer trains", transformer, layers((32, 96), (32, 32), (32, 64), (64, 32), (32, 10)), normal(16, 24, 32)),
]


def curve(network, parameters, x, steps=20):
    """The losses of gradient descent with momentum, and the seconds of a step."""
    labels = jnp.arange(len(x)) % 10

    def loss_of(parameters):
        return -jnp.take_along_axis(jax.nn.log_softmax(network(parameters, x)), labels[:, None], 1).mean()

    @jax.jit
    def step(parameters, momenta):
        loss, gradients = jax.value_and_grad(loss_of)(parameters)
        momenta = jax.tree.map(lambda momentum, gradient: 0.9 * momentum - 0.03 * gradient, momenta, gradients)
        return jax.tree.map(jnp.add, parameters, momenta), momenta, loss

    parameters = jax.tree.map(jnp.asarray, parameters)
    momenta, losses = jax.tree.map(jnp.zeros_like, parameters), []
    for number in range(steps):
        if number == 1:
            losses[0].block_until_ready()
            begun = time.perf_counter()
        parameters, momenta, loss = step(parameters, momenta)
        losses.append(loss)
    losses = [loss.item() for loss in losses]
    return losses, (time.perf_counter() - begun) / (steps - 1)


def train(network, parameters, x):
    losses, _ = curve(network, parameters, x)
    with jax.default_device(CPU):
        expected, _ = curve(network, parameters, x)
    assert losses[-1] < 0.9 * losses[0], f"the loss fell from {losses[0]:.4f} to {losses[-1]:.4f} only"
    near(losses, expected, 1e-2)


print(f"same platform: {jax.devices()[0].platform}", flush=True)
for operation, *rest in OPERATIONS:
    check(operation, compare, *rest)
for title, *rest in NETWORKS:
    check(title, train, *rest)
_, network, weights, inputs = NETWORKS[-1]
print(f"time a step of the transformer: {1e3 * min(curve(network, weights, inputs, 50)[1] for _ in range(3)):.4f} ms")
