# SPDX-License-Identifier: Apache-2.0 OR MIT
"""bitsandbytes: quantisation to 8 and 4 bits, and optimizers of 8 bits. Prints `same NAME: passed` for each check, and
`same NAME: VALUE` for what must be as natively."""

import zlib

import bitsandbytes as bnb
import bitsandbytes.functional as F
import torch

from checks import check

torch.manual_seed(0)
A = torch.randn(64, 256)
W = torch.randn(512, 256) / 16


def digest(name, *tensors):
    """Integers that the GPU computes without a sum are the same everywhere."""
    value = 0
    for tensor in tensors:
        value = zlib.crc32(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes(), value)
    print(f"same digest of {name}: {value:08x}", flush=True)


def near(ours, expected, tolerance):
    error = (ours.detach().float().cpu() - expected).abs().max() / expected.abs().max()
    assert error < tolerance, f"error {error.item():.3e}"


def blocks():
    for size in (64, 256, 4096):
        quantised, state = F.quantize_blockwise(A.cuda(), blocksize=size)
        digest(f"8 bits in blocks of {size}", quantised, state.absmax)
        near(F.dequantize_blockwise(quantised, state), A, 0.05)


def four_bits():
    for kind in ("nf4", "fp4"):
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            quantised, state = F.quantize_4bit(W.cuda().to(dtype), quant_type=kind, compress_statistics=False)
            digest(f"{kind} of {dtype}", quantised, state.absmax)
            near(F.dequantize_4bit(quantised, state), W, 0.3)


def linear_4bit():
    layer = bnb.nn.Linear4bit(256, 512, bias=False, compute_dtype=torch.bfloat16, quant_type="nf4")
    layer.weight = bnb.nn.Params4bit(W.clone(), requires_grad=False, quant_type="nf4")
    layer = layer.cuda()
    weight = F.dequantize_4bit(layer.weight.data, layer.weight.quant_state).float().cpu()
    for rows in (1, 64):  # a matrix times a vector has a kernel of its own
        near(layer(A[:rows].cuda().bfloat16()), A[:rows] @ weight.t(), 0.05)


def linear_8bit():
    layer = bnb.nn.Linear8bitLt(256, 512, bias=False, has_fp16_weights=False, threshold=6.0)
    layer.weight = bnb.nn.Int8Params(W.clone(), requires_grad=False, has_fp16_weights=False)
    near(layer.cuda()(A.cuda().half()), A @ W.t(), 0.05)


def products_of_integers():
    a, b = (torch.randint(-127, 127, shape, dtype=torch.int8) for shape in ((64, 256), (512, 256)))
    ours = F.int8_linear_matmul(a.cuda(), b.cuda())
    assert (ours.cpu() == a.int() @ b.int().t()).all()


def optimizer(make):
    torch.manual_seed(1)
    weight = torch.nn.Parameter(torch.randn(128, 256, device="cuda"))
    goal, steps = torch.randn(128, 256, device="cuda"), make([weight])
    losses = []
    for _ in range(30):
        loss = (weight - goal).square().mean()
        loss.backward()
        steps.step()
        steps.zero_grad()
        losses.append(loss.item())
    return losses


def optimizers():
    for name in ("Adam8bit", "AdamW8bit", "PagedAdamW8bit", "Lion8bit", "SGD8bit", "RMSprop8bit", "Adam"):
        more = {"momentum": 0.9} if name.startswith("SGD") else {}
        losses = optimizer(lambda weights: getattr(bnb.optim, name)(weights, lr=0.02, **more))
        assert losses[-1] < losses[0], f"{name}: {losses[0]} to {losses[-1]}"
        print(f"same loss after {name}: {losses[-1]:.4f}", flush=True)


for function in (blocks, four_bits, linear_4bit, linear_8bit, products_of_integers, optimizers):
    check(function.__name__, function, end=torch.cuda.synchronize)
