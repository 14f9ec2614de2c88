# SPDX-License-Identifier: Apache-2.0 OR MIT
"""FAISS: indices of nearest neighbours on the GPU, compared with the CPU. Prints `same NAME: passed` for each check."""

import faiss
import numpy as np

from checks import check

WIDTH, COUNT, QUERIES, NEAREST = 64, 20000, 200, 10
random = np.random.default_rng(0)
VECTORS = random.normal(size=(COUNT, WIDTH)).astype(np.float32)
TEXTS = random.normal(size=(QUERIES, WIDTH)).astype(np.float32)
resources = faiss.StandardGpuResources()
EXACT = faiss.IndexFlatL2(WIDTH)
EXACT.add(VECTORS)
DISTANCES, NUMBERS = EXACT.search(TEXTS, NEAREST)


def agree(ours, cpu, share=0.999):
    found = np.mean([len(set(a) & set(b)) / NEAREST for a, b in zip(ours, cpu)])
    assert found >= share, f"{found:.4f} of the neighbours"


def flat():
    index = faiss.GpuIndexFlatL2(resources, WIDTH)
    index.add(VECTORS)
    distances, numbers = index.search(TEXTS, NEAREST)
    agree(numbers, NUMBERS)
    assert np.allclose(distances, DISTANCES, rtol=1e-3, atol=1e-2)


def products():
    cpu = faiss.IndexFlatIP(WIDTH)
    cpu.add(VECTORS)
    gpu = faiss.index_cpu_to_gpu(resources, 0, cpu)
    agree(gpu.search(TEXTS, NEAREST)[1], cpu.search(TEXTS, NEAREST)[1])


def half():
    options = faiss.GpuClonerOptions()
    options.useFloat16 = True
    gpu = faiss.index_cpu_to_gpu(resources, 0, EXACT, options)
    agree(gpu.search(TEXTS, NEAREST)[1], NUMBERS, 0.95)


def of_lists(cpu, share):
    cpu.train(VECTORS)
    cpu.add(VECTORS)
    cpu.nprobe = 16
    gpu = faiss.index_cpu_to_gpu(resources, 0, cpu)
    agree(gpu.search(TEXTS, NEAREST)[1], cpu.search(TEXTS, NEAREST)[1], share)


def lists():
    of_lists(faiss.IndexIVFFlat(faiss.IndexFlatL2(WIDTH), WIDTH, 64), 0.99)


def quantised():
    of_lists(faiss.IndexIVFPQ(faiss.IndexFlatL2(WIDTH), WIDTH, 64, 16, 8), 0.97)


def scalars():
    of_lists(faiss.IndexIVFScalarQuantizer(faiss.IndexFlatL2(WIDTH), WIDTH, 64, faiss.ScalarQuantizer.QT_8bit), 0.97)


def trained_there():
    gpu = faiss.GpuIndexIVFFlat(resources, WIDTH, 64, faiss.METRIC_L2)
    gpu.train(VECTORS)
    gpu.add(VECTORS)
    gpu.nprobe = 64
    # All lists are searched, so that the search is exact.
    agree(gpu.search(TEXTS, NEAREST)[1], NUMBERS, 0.99)
    back = faiss.index_gpu_to_cpu(gpu)
    back.nprobe = 64
    agree(back.search(TEXTS, NEAREST)[1], NUMBERS, 0.99)


def clusters():
    gpu = faiss.Kmeans(WIDTH, 32, niter=10, seed=1, gpu=True)
    cpu = faiss.Kmeans(WIDTH, 32, niter=10, seed=1, gpu=False)
    ours, theirs = gpu.train(VECTORS), cpu.train(VECTORS)
    assert abs(ours - theirs) < 0.01 * theirs, f"{ours} instead of {theirs}"


for function in (flat, products, half, lists, quantised, scalars, trained_there, clusters):
    check(function.__name__, function)
