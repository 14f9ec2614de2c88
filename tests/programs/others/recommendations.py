# SPDX-License-Identifier: Apache-2.0 OR MIT
"""implicit: factors of a sparse matrix by alternating least squares, compared with the CPU's from the same start; recommendations,
similar items, Bayesian ranking. Prints `same NAME: passed` for each check."""

import numpy as np
# It loads the library that implicit's extension needs.
import rmm  # noqa: F401
import scipy.sparse
from implicit import gpu
from implicit.als import AlternatingLeastSquares
from implicit.bpr import BayesianPersonalizedRanking

from checks import check

USERS, ITEMS, FACTORS = 200, 120, 32
random = np.random.default_rng(0)
RATINGS = scipy.sparse.random(USERS, ITEMS, density=0.08, random_state=0, format="csr", dtype=np.float32)
START = [(0.1 * random.normal(size=(count, FACTORS))).astype(np.float32) for count in (USERS, ITEMS)]


def fitted(on_gpu):
    model = AlternatingLeastSquares(factors=FACTORS, iterations=5, regularization=0.05, use_gpu=on_gpu)
    model.user_factors, model.item_factors = (gpu.Matrix(start) if on_gpu else start.copy() for start in START)
    model.fit(RATINGS, show_progress=False)
    return model


def factors(model):
    return [each.to_numpy() if isinstance(each, gpu.Matrix) else each for each in (model.user_factors, model.item_factors)]


def least_squares():
    for cpu, ours in zip(factors(fitted(False)), factors(fitted(True))):
        error = abs(cpu - ours).max()
        assert error < 1e-3, f"error {error:.3e}"


def recommended():
    model, users = fitted(True), np.arange(USERS)
    items, scores = model.recommend(users, RATINGS, N=5, filter_already_liked_items=False)
    user_factors, item_factors = factors(model)
    products = user_factors @ item_factors.T
    expected = np.sort(products, axis=1)[:, ::-1][:, :5]
    assert abs(scores - expected).max() < 1e-4 and abs(np.take_along_axis(products, items.astype(int), 1) - expected).max() < 1e-4


def similar():
    model = fitted(True)
    items, scores = model.similar_items(5, N=4)
    rows = factors(model)[1]
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    expected = np.sort(rows @ rows[5])[::-1][:4]
    assert items[0] == 5 and abs(scores - expected).max() < 1e-4, f"{scores} instead of {expected}"


def ranked():
    model = BayesianPersonalizedRanking(factors=31, iterations=60, learning_rate=0.05, random_state=1, use_gpu=True)
    model.fit(RATINGS, show_progress=False)
    products = factors(model)[0] @ factors(model)[1].T
    liked = RATINGS.toarray() > 0
    assert products[liked].mean() > products[~liked].mean() + 0.5, f"{products[liked].mean()}, {products[~liked].mean()}"


check("alternating least squares", least_squares)
check("recommendations", recommended)
check("similar items", similar)
check("Bayesian ranking", ranked)
