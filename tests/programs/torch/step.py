# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Training steps of a convolutional network and a transformer encoder, and a call of each of NVIDIA's libraries, with any PyTorch:
the newest wheel, for example. Needs no other package. Prints `same …` for what must be as natively.

cuDNN of the host must be at least as new as the one for which PyTorch was built, or PyTorch refuses it.
"""

import torch
import torch.nn as nn

STEPS = 10


def losses(dtype):
    torch.manual_seed(0)
    images = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    ).cuda()  # fmt: skip
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, dropout=0.0)
    texts = nn.TransformerEncoder(layer, 2).cuda()
    optimizer = torch.optim.AdamW([*images.parameters(), *texts.parameters()], lr=1e-3)
    pictures = torch.randn(64, 3, 32, 32, device="cuda")
    labels = torch.randint(0, 10, (64,), device="cuda")
    words = torch.randn(16, 32, 128, device="cuda")
    for _ in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=dtype, enabled=dtype is not torch.float32):
            loss = nn.functional.cross_entropy(images(pictures), labels) + texts(words).square().mean()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    print(f"same PyTorch: {torch.__version__}, cuDNN {torch.backends.cudnn.version()}", flush=True)
    for dtype in (torch.float32, torch.bfloat16):
        print(f"same loss after {STEPS} steps, {dtype}: {losses(dtype):.3f}", flush=True)
    torch.manual_seed(0)
    matrix = torch.randn(256, 256, device="cuda", dtype=torch.float64)
    print(f"same largest singular value: {torch.linalg.svdvals(matrix)[0].item():.6f}", flush=True)
    identity = torch.eye(256, device="cuda", dtype=torch.float64)
    print(f"same solution: {torch.allclose(torch.linalg.solve(matrix, matrix), identity)}", flush=True)
    print(f"same Fourier transform: {torch.fft.fft(matrix).abs().sum().item():.3f}", flush=True)
    sparse = torch.randn(64, 64, device="cuda").relu()
    product = sparse.to_sparse_csr() @ torch.ones(64, 1, device="cuda")
    print(f"same sparse product: {torch.allclose(product, sparse.sum(1, keepdim=True), atol=1e-4)}", flush=True)
    values = torch.zeros(4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        values += 1
    for _ in range(3):
        graph.replay()
    print(f"same graph: {values.tolist()}", flush=True)


if __name__ == "__main__":
    main()
