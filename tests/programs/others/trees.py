# SPDX-License-Identifier: Apache-2.0 OR MIT
"""CatBoost, whose wheel has a static runtime of CUDA 11: training on the GPU, compared with the CPU. Prints `same NAME: passed`
for each check, `same NAME: VALUE` for what must be as natively, and the time of a training in milliseconds (`time …`)."""

import time

import numpy as np
from catboost import CatBoost, Pool
from catboost.utils import get_gpu_device_count

from checks import check

random = np.random.default_rng(0)
X = random.normal(size=(4000, 12)).astype(np.float32)
Y = X[:, 0] * X[:, 1] + np.sin(X[:, 2]) + 0.1 * random.normal(size=len(X)).astype(np.float32)
KINDS = {
    "RMSE": Y,
    "Logloss": (Y > 0).astype(int),
    "MultiClass": np.digitize(Y, [-0.7, 0.7]),
    "QueryRMSE": Y,
}
GROUPS = np.repeat(np.arange(len(X) // 20), 20)
# Both devices compute the same with these; their defaults differ.
COMMON = {
    "bootstrap_type": "No",
    "random_strength": 0,
    "score_function": "L2",
    "leaf_estimation_iterations": 1,
    "leaf_estimation_backtracking": "No",
    "boosting_type": "Plain",
    "border_count": 64,
    "learning_rate": 0.3,
    "depth": 5,
    "random_seed": 0,
    "allow_writing_files": False,
    "verbose": 0,
}


def trained(loss, device, rounds=10, features=X, categories=None, **more):
    groups = GROUPS if loss.startswith("Query") else None
    data = Pool(features, KINDS[loss], cat_features=categories, group_id=groups)
    options = {**COMMON, "loss_function": loss, "iterations": rounds, "task_type": device, **more}
    if device == "GPU":
        options.update(devices="0", gpu_ram_part=0.2)
    model = CatBoost(options)
    model.fit(data)
    return model, list(model.evals_result_["learn"].values())[0]


def losses():
    for loss in KINDS:
        _, gpu = trained(loss, "GPU")
        _, cpu = trained(loss, "CPU")
        assert abs(gpu[-1] - cpu[-1]) < 0.02 * abs(cpu[-1]), f"{loss}: {gpu[-1]} instead of {cpu[-1]}"
        print(f"same loss of {loss}: {gpu[-1]:.3f}", flush=True)


def prediction():
    """The model of the GPU, evaluated by it and by the CPU."""
    model, _ = trained("RMSE", "GPU")
    ours = model.predict(X, task_type="GPU")
    assert np.abs(ours - model.predict(X)).max() < 1e-4


def policies():
    for policy in ("Depthwise", "Lossguide"):
        _, loss = trained("RMSE", "GPU", grow_policy=policy, score_function="L2")
        assert loss[-1] < 0.6 * loss[0], f"{policy}: {loss}"


def samples():
    for kind in ("Bayesian", "Bernoulli"):
        _, loss = trained("RMSE", "GPU", bootstrap_type=kind)
        assert loss[-1] < 0.6 * loss[0], f"{kind}: {loss}"


def categories():
    names = np.array(["ant", "bee", "cat", "dog"])[np.digitize(X[:, 0], [-0.7, 0, 0.7])]
    features = [[name, *row] for name, row in zip(names, X[:, 1:].tolist())]
    _, loss = trained("RMSE", "GPU", features=features, categories=[0])
    assert loss[-1] < 0.8 * loss[0], loss


def seconds():
    start = time.perf_counter()
    trained("RMSE", "GPU", rounds=50)
    return time.perf_counter() - start


assert get_gpu_device_count() > 0, "CatBoost finds no GPU"
for function in (losses, prediction, policies, samples, categories):
    check(function.__name__, function)
print(f"time 50 trees of {len(X)} rows: {1000 * min(seconds() for _ in range(3)):.3f} ms")
