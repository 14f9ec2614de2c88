# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A transformer with random weights in CTranslate2: what the GPU translates and scores, compared with the CPU.

Prints `same NAME: passed` for each check.
"""

import tempfile

import ctranslate2
import numpy as np
from ctranslate2.specs import TransformerSpec

from checks import check

LAYERS, HEADS, WIDTH, INNER, WORDS, LENGTH = 4, 8, 256, 1024, 500, 64
random = np.random.default_rng(0)


def weights(*shape):
    return random.normal(0, 0.08, shape).astype(np.float32)


def fill(linear, out, width):
    linear.weight, linear.bias = weights(out, width), weights(out)


def normalise(layer):
    layer.gamma, layer.beta = np.ones(WIDTH, np.float32), weights(WIDTH)


def feed_forward(ffn):
    normalise(ffn.layer_norm)
    fill(ffn.linear_0, INNER, WIDTH)
    fill(ffn.linear_1, WIDTH, INNER)


def attention(layer, *outs):
    normalise(layer.layer_norm)
    for linear, out in zip(layer.linear, outs):
        fill(linear, out, WIDTH)


def model(folder):
    spec = TransformerSpec.from_config(LAYERS, HEADS)
    for part in (spec.encoder, spec.decoder):
        embeddings = part.embeddings[0] if isinstance(part.embeddings, list) else part.embeddings
        embeddings.weight = weights(WORDS, WIDTH)
        part.position_encodings.encodings = weights(LENGTH, WIDTH)
        normalise(part.layer_norm)
        for layer in part.layer:
            attention(layer.self_attention, 3 * WIDTH, WIDTH)
            feed_forward(layer.ffn)
    for layer in spec.decoder.layer:
        attention(layer.attention, WIDTH, 2 * WIDTH, WIDTH)
    fill(spec.decoder.projection, WORDS, WIDTH)
    words = ["<unk>", "<s>", "</s>"] + [f"w{number}" for number in range(WORDS - 3)]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.validate()
    spec.save(folder)


folder = tempfile.TemporaryDirectory()
model(folder.name)
TEXTS = [[f"w{number}" for number in random.integers(0, WORDS - 3, length)] for length in (3, 9, 17, 30)]
TARGETS = [[f"w{number}" for number in random.integers(0, WORDS - 3, length)] for length in (5, 8, 20, 25)]


def scores(device, kind):
    translator = ctranslate2.Translator(folder.name, device=device, compute_type=kind)
    return np.array(sum((result.log_probs for result in translator.score_batch(TEXTS, TARGETS)), []))


def words(device, **options):
    translator = ctranslate2.Translator(folder.name, device=device, compute_type="float32")
    results = translator.translate_batch(TEXTS, max_decoding_length=40, return_scores=True, **options)
    return [result.hypotheses[0] for result in results], np.array([result.scores[0] for result in results])


def scoring():
    for kind, tolerance in (("float32", 1e-3), ("float16", 3e-2), ("bfloat16", 3e-1), ("int8", 3e-1)):
        ours, cpu = scores("cuda", kind), scores("cpu", "float32")
        assert np.abs(ours - cpu).max() < tolerance * np.abs(cpu).max(), f"{kind}: {np.abs(ours - cpu).max()}"


def greedy():
    (ours, scores_ours), (cpu, scores_cpu) = words("cuda", beam_size=1), words("cpu", beam_size=1)
    assert ours == cpu, f"{ours} instead of {cpu}"
    assert np.allclose(scores_ours, scores_cpu, rtol=1e-3)


def beams():
    (ours, scores_ours), (cpu, scores_cpu) = words("cuda", beam_size=4), words("cpu", beam_size=4)
    assert np.allclose(scores_ours, scores_cpu, rtol=1e-2), f"{scores_ours} instead of {scores_cpu}"
    assert sum(a == b for a, b in zip(ours, cpu)) >= 3, f"{ours} instead of {cpu}"


def storage():
    there = ctranslate2.StorageView.from_array(np.arange(12, dtype=np.float32).reshape(3, 4)).to_device(ctranslate2.Device.cuda)
    back = np.array(there.to_device(ctranslate2.Device.cpu))
    assert (back == np.arange(12).reshape(3, 4)).all()


for function in (storage, scoring, greedy, beams):
    check(function.__name__, function)
