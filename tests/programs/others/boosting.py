# SPDX-License-Identifier: Apache-2.0 OR MIT
"""XGBoost: training and prediction on the GPU, compared with the CPU. Prints `same NAME: passed` for each check, `same
NAME: VALUE` for what must be as natively, and the time of a training in milliseconds (`time …`)."""

import time

import numpy as np
import xgboost as xgb

from checks import check

random = np.random.default_rng(0)
X = random.normal(size=(20000, 30)).astype(np.float32)
X[random.random(X.shape) < 0.05] = np.nan
Z = np.nan_to_num(X)
Y = Z[:, 0] * Z[:, 1] + np.sin(Z[:, 2]) + 0.1 * random.normal(size=len(X))
KINDS = {
    "reg:squarederror": Y,
    "binary:logistic": (Y > 0).astype(int),
    "multi:softprob": np.digitize(Y, [-0.7, 0.7]),
    "rank:ndcg": np.digitize(Y, [-0.7, 0, 0.7]),
}


def trained(objective, device, rounds=20, **more):
    labels = KINDS[objective]
    data = xgb.DMatrix(X, labels)
    if objective.startswith("rank"):
        data.set_group([100] * (len(X) // 100))
    options = {"objective": objective, "device": device, "max_depth": 6, "seed": 0, "eta": 0.3, **more}
    if objective.startswith("multi"):
        options["num_class"] = 3
    losses = {}
    booster = xgb.train(options, data, rounds, evals=[(data, "train")], evals_result=losses, verbose_eval=False)
    return booster, data, list(losses["train"].values())[-1]


def losses():
    for objective in KINDS:
        _, _, gpu = trained(objective, "cuda")
        _, _, cpu = trained(objective, "cpu")
        assert abs(gpu[-1] - cpu[-1]) < 0.1 * abs(cpu[-1]) + 1e-3, f"{objective}: {gpu[-1]} instead of {cpu[-1]}"
        print(f"same loss of {objective}: {gpu[-1]:.4f}", flush=True)


def prediction():
    booster, data, _ = trained("reg:squarederror", "cuda")
    ours = booster.predict(data)
    booster.set_param({"device": "cpu"})
    assert np.abs(ours - booster.predict(data)).max() < 1e-4


def contributions():
    booster, data, _ = trained("reg:squarederror", "cuda", rounds=5)
    head = data.slice(range(200))
    ours = booster.predict(head, pred_contribs=True)
    booster.set_param({"device": "cpu"})
    assert np.abs(ours - booster.predict(head, pred_contribs=True)).max() < 1e-3


def quantile():
    gpu = xgb.train({"device": "cuda", "seed": 0}, xgb.QuantileDMatrix(X, Y), 10)
    again = xgb.train({"device": "cuda", "seed": 0}, xgb.QuantileDMatrix(X, Y), 10)
    assert gpu.get_dump() == again.get_dump(), "two trainings give different trees"


def samples():
    gradients = {"sampling_method": "gradient_based", "subsample": 0.3}
    for more in ({"subsample": 0.5}, gradients, {"grow_policy": "lossguide", "max_leaves": 40}):
        _, _, loss = trained("reg:squarederror", "cuda", **more)
        assert loss[-1] < 0.6 * loss[0], f"{more}: {loss}"


def seconds():
    start = time.perf_counter()
    trained("reg:squarederror", "cuda", rounds=50)
    return time.perf_counter() - start


assert xgb.build_info()["USE_CUDA"], "this package of XGBoost is for CPUs only"
for function in (losses, prediction, contributions, quantile, samples):
    check(function.__name__, function)
print(f"time 50 trees of 20000 rows: {1000 * min(seconds() for _ in range(3)):.3f} ms")
