# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Kernels of Triton's that multiply blocks of matrices, and attention: on a Hopper GPU they consist of `wgmma`, with operands in shared
memory in both orders, and in registers. Compared with the CPU. Prints `same NAME: passed` for each check."""

import torch
import triton
import triton.language as tl

from checks import check
from compiled import prepare

torch.manual_seed(0)


@triton.jit
def product(a, b, c, rows, columns, depth, a_row, a_step, b_step, b_column, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
            DEPTH: tl.constexpr, SUM: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    step = tl.arange(0, DEPTH)
    sums = tl.zeros((ROWS, COLUMNS), dtype=SUM)
    for start in range(0, depth, DEPTH):
        inside = start + step < depth
        left = tl.load(a + row[:, None] * a_row + (start + step)[None, :] * a_step, mask=(row < rows)[:, None] & inside[None, :], other=0.0)
        right = tl.load(b + (start + step)[:, None] * b_step + column[None, :] * b_column,
                        mask=inside[:, None] & (column < columns)[None, :], other=0.0)
        sums = tl.dot(left, right, sums, out_dtype=SUM)
    tl.store(c + row[:, None] * columns + column[None, :], sums, mask=(row < rows)[:, None] & (column < columns)[None, :])


@triton.jit
def product_by_descriptors(a, b, c, rows, columns, depth, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr):
    in_a = tl.make_tensor_descriptor(a, [rows, depth], [depth, 1], [ROWS, DEPTH])
    in_b = tl.make_tensor_descriptor(b, [columns, depth], [depth, 1], [COLUMNS, DEPTH])
    in_c = tl.make_tensor_descriptor(c, [rows, columns], [columns, 1], [ROWS, COLUMNS])
    row, column = tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS
    sums = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(0, depth, DEPTH):
        sums = tl.dot(in_a.load([row, start]), in_b.load([column, start]).T, sums)
    in_c.store([row, column], sums.to(tl.float16))


@triton.jit
def attend(q, k, v, out, length, scale, WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr):
    head = tl.program_id(1) * length * WIDTH
    row, width = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES), tl.arange(0, WIDTH)
    queries = tl.load(q + head + row[:, None] * WIDTH + width[None, :])
    highest = tl.full((QUERIES,), float("-inf"), tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    sums = tl.zeros((QUERIES, WIDTH), tl.float32)
    for start in range(0, tl.program_id(0) * QUERIES + QUERIES, KEYS):
        key = start + tl.arange(0, KEYS)
        keys = tl.load(k + head + key[None, :] * WIDTH + width[:, None])
        scores = tl.where(row[:, None] >= key[None, :], tl.dot(queries, keys) * scale, float("-inf"))
        new = tl.maximum(highest, tl.max(scores, 1))
        weights, old = tl.exp2(scores - new[:, None]), tl.exp2(highest - new)
        total, highest = total * old + tl.sum(weights, 1), new
        values = tl.load(v + head + key[:, None] * WIDTH + width[None, :])
        sums = tl.dot(weights.to(values.dtype), values, sums * old[:, None])
    tl.store(out + head + row[:, None] * WIDTH + width[None, :], (sums / total[:, None]).to(queries.dtype))


def multiply(kind, rows, columns, depth, a_by_rows=True, b_by_rows=True, sizes=(64, 64, 64), warps=4, stages=3):
    integers = kind == torch.int8
    make = (lambda *size: torch.randint(-128, 128, size, dtype=kind)) if integers else (lambda *size: torch.randn(*size).to(kind))
    # Transposed in memory where the order says so.
    a = make(rows, depth) if a_by_rows else make(depth, rows).t()
    b = make(depth, columns) if b_by_rows else make(columns, depth).t()
    on_a, on_b = a.cuda(), b.cuda()
    assert on_a.stride() == a.stride() and on_b.stride() == b.stride()
    c = torch.empty(rows, columns, dtype=torch.int32 if integers else torch.float32, device="cuda")
    grid = (triton.cdiv(rows, sizes[0]), triton.cdiv(columns, sizes[1]))
    compiled = product[grid](on_a, on_b, c, rows, columns, depth, *a.stride(), *b.stride(), *sizes, tl.int32 if integers else tl.float32,
                             num_warps=warps, num_stages=stages)
    if torch.cuda.get_device_capability()[0] == 9:
        assert "wgmma.mma_async" in compiled.asm["ptx"], "no wgmma in the kernel"
    expected = a.int() @ b.int() if integers else a.double() @ b.double()
    if integers:
        assert torch.equal(c.cpu(), expected)
    else:
        error = ((c.cpu().double() - expected).abs().max() / expected.abs().max()).item()
        # Products of 8-bit floats are added with fewer bits on the GPU, and f32 is multiplied with 10 bits of its fraction.
        limit = {torch.float32: 2e-3, torch.float8_e4m3fn: 2e-3, torch.float8_e5m2: 2e-3}.get(kind, 1e-5)
        assert error < limit, f"error {error:.2e}"


def by_descriptors():
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    a, b = torch.randn(192, 128).half(), torch.randn(128, 128).half()
    c = torch.empty(192, 128, dtype=torch.float16, device="cuda")
    product_by_descriptors[(2, 1)](a.cuda(), b.cuda(), c, 192, 128, 128, 128, 128, 64, num_warps=8)
    expected = a.double() @ b.double().t()
    error = (c.cpu().double() - expected).abs().max().item()
    assert error < 0.05, f"error {error:.2e}"


def attention(kind, width):
    q, k, v = (torch.randn(2, 256, width).to(kind) for _ in range(3))
    out = torch.empty(2, 256, width, dtype=kind, device="cuda")
    scale = width ** -0.5 * 1.4426950408889634
    attend[(2, 2)](q.cuda(), k.cuda(), v.cuda(), out, 256, scale, width, 128, 64, num_warps=8 if width == 128 else 4, num_stages=2)
    expected = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True)
    error = (out.cpu().double() - expected).abs().max().item()
    assert error < (0.005 if kind == torch.float16 else 0.04), f"error {error:.2e}"


prepare()
for kind in (torch.float16, torch.bfloat16):
    for a_by_rows in (True, False):
        for b_by_rows in (True, False):
            orders = f"A by {'rows' if a_by_rows else 'columns'}, B by {'rows' if b_by_rows else 'columns'}"
            check(f"{kind}, {orders}", multiply, kind, 128, 192, 160, a_by_rows, b_by_rows)
for kind in (torch.float32, torch.float8_e4m3fn, torch.float8_e5m2, torch.int8):
    check(f"{kind}", multiply, kind, 128, 128, 128, True, False)
check("eight warps, blocks of 128 by 256", multiply, torch.float16, 130, 250, 130, True, True, (128, 256, 64), 8)
check("blocks of 64 by 16", multiply, torch.bfloat16, 100, 40, 64, True, True, (64, 16, 32), 4, 1)
check("tensor descriptors", by_descriptors)
check("attention, f16, heads of 64", attention, torch.float16, 64)
check("attention, bf16, heads of 128", attention, torch.bfloat16, 128)
