# SPDX-License-Identifier: Apache-2.0 OR MIT
"""PyTorch's allocators: blocks that go back to the device (`empty_cache`), pinned memory, and segments that grow
(`expandable_segments`). Launches no kernel, so it needs no machine code. Prints `same NAME: passed` for each check and the
times of rounds (`time …`)."""

import torch

from checks import check
from rounds import report

MIB = 1 << 20
PINNED = 4
# The memory that a training asks for: small and large blocks, some of which are freed early.
SIZES = [size * MIB // 4 for size in (1, 2, 8, 40, 3, 96, 7, 64, 160, 5, 12, 256)]


def blocks(sizes):
    return [torch.empty(size, dtype=torch.uint8, device="cuda") for size in sizes]


def returned():
    """Sixteen segments, taken from the device and given back."""
    taken = blocks([32 * MIB] * 16)
    del taken
    torch.cuda.empty_cache()


def kept():
    """The same blocks from PyTorch's cache: no call of CUDA."""
    taken = blocks([32 * MIB] * 16)
    del taken


def grown():
    """Blocks that are freed and taken again in other sizes, then given back."""
    taken = blocks(SIZES)
    del taken[::2]
    taken += blocks(3 * size // 2 for size in SIZES)
    del taken
    torch.cuda.empty_cache()


def pinned():
    return [torch.empty(64 * MIB, dtype=torch.uint8, pin_memory=True) for _ in range(PINNED)]


def pinned_and_freed():
    taken = pinned()
    del taken
    torch._C._host_emptyCache()


def settings(text):
    torch.cuda.empty_cache()
    torch._C._accelerator_setAllocatorSettings(text)


def contents():
    """Blocks that were taken at one time keep what each was given."""
    parts = [torch.full((size,), number % 251, dtype=torch.uint8) for number, size in enumerate(SIZES)]
    taken = blocks(SIZES)
    for block, part in zip(taken, parts):
        block.copy_(part)
    more = blocks(3 * size // 2 for size in SIZES[::2])
    assert all(torch.equal(block.cpu(), part) for block, part in zip(taken, parts))
    del taken, more, block
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == 0, f"{torch.cuda.memory_reserved()} bytes were not given back"


def copies():
    data = torch.arange(64 * MIB // 8).view(torch.uint8)
    there, back = blocks([data.numel()])[0], pinned()[0]
    there.copy_(data)
    back.copy_(there, non_blocking=True)
    torch.cuda.synchronize()
    assert torch.equal(back, data)


check("blocks", contents)
check("pinned memory", copies)
report("16 x 32 MiB, given back (empty_cache)", returned)
report("16 x 32 MiB from the cache", kept)
report("blocks of a training, given back", grown)
report("4 x 64 MiB of pinned memory, allocated and freed", pinned_and_freed, 2)
sources, target = pinned(), blocks([64 * MIB])[0]
report("4 x 64 MiB from pinned memory", lambda: [target.copy_(source, non_blocking=True) for source in sources], 4)
report("4 x 64 MiB to pinned memory", lambda: [source.copy_(target, non_blocking=True) for source in sources], 4)
del target
settings("expandable_segments:True")
check("segments that grow", contents)
report("16 x 32 MiB, given back, expandable segments", returned)
report("blocks of a training, given back, expandable segments", grown)
