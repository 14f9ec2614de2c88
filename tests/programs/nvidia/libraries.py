# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What PyTorch does with each of NVIDIA's libraries, compared with the CPU. Prints `same NAME: passed` for each check."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from checks import check

torch.manual_seed(0)
A, B, BIAS = torch.randn(200, 300), torch.randn(300, 150), torch.randn(150)
S = torch.randn(40, 40, dtype=torch.float64)
P = S @ S.t() + 40 * torch.eye(40, dtype=torch.float64)


def close(ours, cpu, tolerance=1e-3):
    ours, cpu = (torch.view_as_real(t) if t.is_complex() else t for t in (ours.detach().cpu(), cpu.detach()))
    error = (ours.double() - cpu.double()).abs().max() / cpu.double().abs().max().clamp(min=1e-6)
    assert error < tolerance, f"error {error.item():.2e}"


def both(make, *inputs, tolerance=1e-3):
    """A module on the CPU and on the GPU: results and gradients."""
    cpu, gpu = make(), make().cuda()
    gpu.load_state_dict(cpu.state_dict())
    on_cpu = [x.clone().requires_grad_() for x in inputs]
    on_gpu = [x.cuda().requires_grad_() for x in inputs]
    results = [m(*x) for m, x in ((cpu, on_cpu), (gpu, on_gpu))]
    results = [r[0] if isinstance(r, tuple) else r for r in results]
    close(results[1], results[0], tolerance)
    # Weights that differ: after a normalisation the gradient of a plain sum is nothing but rounding.
    weights = torch.linspace(-1, 1, results[0].numel()).reshape(results[0].shape)
    for result in results:
        (result * weights.to(result.device)).sum().backward()
    for ours, theirs in zip(on_gpu, on_cpu):
        close(ours.grad, theirs.grad, tolerance)
    for ours, theirs in zip(gpu.parameters(), cpu.parameters()):
        close(ours.grad, theirs.grad, tolerance)


def products():
    for dtype, tolerance in ((torch.float32, 1e-3), (torch.float64, 1e-9), (torch.float16, 2e-2), (torch.bfloat16, 5e-2)):
        close((A.cuda().to(dtype) @ B.cuda().to(dtype)), A @ B if dtype != torch.float64 else A.double() @ B.double(), tolerance)
    a, b = torch.complex(A, -A), torch.complex(B, B)
    close(a.cuda() @ b.cuda(), a @ b)
    x, y = torch.randn(7, 40, 50), torch.randn(7, 50, 30)
    close(torch.bmm(x.cuda(), y.cuda()), torch.bmm(x, y))
    close(A.cuda() @ B[:, 0].contiguous().cuda(), A @ B[:, 0])
    close(torch.dot(BIAS.cuda(), BIAS.cuda()), torch.dot(BIAS, BIAS))


def linear():
    both(lambda: nn.Sequential(nn.Linear(300, 150), nn.GELU(), nn.Linear(150, 20)), A)
    weight = B.t().contiguous()
    ours = F.linear(A.cuda().bfloat16(), weight.cuda().bfloat16(), BIAS.cuda().bfloat16())
    close(ours, F.linear(A, weight, BIAS), 5e-2)


def convolution():
    both(lambda: nn.Conv2d(3, 8, 3, padding=1), torch.randn(4, 3, 32, 32))
    both(lambda: nn.ConvTranspose2d(4, 6, 3), torch.randn(2, 4, 8, 8))
    both(lambda: nn.Conv3d(4, 6, 3), torch.randn(2, 4, 8, 8, 8))
    both(lambda: nn.Conv2d(4, 4, 3, groups=4), torch.randn(2, 4, 8, 8))
    torch.backends.cudnn.benchmark = True
    x, w = torch.randn(4, 16, 32, 32), torch.randn(8, 16, 3, 3)
    ours = F.conv2d(x.cuda().bfloat16().to(memory_format=torch.channels_last), w.cuda().bfloat16(), padding=1)
    torch.backends.cudnn.benchmark = False
    close(ours, F.conv2d(x, w, padding=1), 5e-2)


def normalisation():
    both(lambda: nn.BatchNorm2d(8), torch.randn(4, 8, 16, 16))


def recurrent():
    both(lambda: nn.LSTM(10, 20, 2), torch.randn(5, 3, 10), tolerance=5e-3)
    both(lambda: nn.GRU(10, 20), torch.randn(5, 3, 10), tolerance=5e-3)


def attention():
    q, k, v = (torch.randn(2, 4, 64, 32) for _ in range(3))
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    half = [t.cuda().bfloat16() for t in (q, k, v)]
    close(F.scaled_dot_product_attention(*half, is_causal=True), expected, 5e-2)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
        close(F.scaled_dot_product_attention(*half, is_causal=True), expected, 5e-2)


def fourier():
    x, y = torch.randn(4, 128), torch.randn(3, 20, 30, dtype=torch.complex64)
    close(torch.fft.rfft(x.cuda()), torch.fft.rfft(x))
    close(torch.fft.irfft(torch.fft.rfft(x.cuda())), x)
    close(torch.fft.fft2(y.cuda()), torch.fft.fft2(y))
    close(torch.fft.fftn(y.to(torch.complex128).cuda()), torch.fft.fftn(y.to(torch.complex128)))


def solvers():
    close(torch.linalg.cholesky(P.cuda()), torch.linalg.cholesky(P))
    close(torch.linalg.solve(S.cuda(), P.cuda()), torch.linalg.solve(S, P))
    close(torch.linalg.inv(P.cuda()), torch.linalg.inv(P))
    q, r = torch.linalg.qr(S.cuda())
    close(q @ r, S)
    close(torch.linalg.eigvalsh(P.cuda()), torch.linalg.eigvalsh(P))
    values, vectors = torch.linalg.eigh(P.cuda())
    close(vectors @ torch.diag(values) @ vectors.t(), P)
    close(torch.linalg.svdvals(S.cuda()), torch.linalg.svdvals(S))
    batch = torch.stack([P, 2 * P, 3 * P])
    close(torch.linalg.inv(batch.cuda()), torch.linalg.inv(batch))


def sparse():
    matrix = torch.randn(50, 50) * (torch.rand(50, 50) > 0.8)
    dense = torch.randn(50, 8)
    close(torch.sparse.mm(matrix.to_sparse_csr().cuda(), dense.cuda()), matrix @ dense)
    close(torch.sparse.mm(matrix.to_sparse().cuda(), dense.cuda()), matrix @ dense)


def graphs():
    x, w = torch.randn(64, 64, device="cuda"), torch.randn(64, 64, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            torch.relu(x @ w) @ w
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = torch.relu(x @ w) @ w
    x.fill_(1)
    graph.replay()
    close(y, torch.relu(torch.ones(64, 64) @ w.cpu()) @ w.cpu())


def training():
    torch.manual_seed(1)
    layers = [nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True) for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())
    layers[1].cuda()
    optimizers = [torch.optim.AdamW(layer.parameters(), 1e-3) for layer in layers]
    x, y = torch.randn(4, 16, 64), torch.randn(4, 16, 64)
    for _ in range(5):
        losses = [F.mse_loss(layers[0](x), y), F.mse_loss(layers[1](x.cuda()), y.cuda())]
        for optimizer, loss in zip(optimizers, losses):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    close(losses[1], losses[0])


for function in (products, linear, convolution, normalisation, recurrent, attention, fourier, solvers, sparse, graphs, training):
    check(function.__name__, function, end=torch.cuda.synchronize)
