# SPDX-License-Identifier: Apache-2.0 OR MIT
"""torchvision's JPEG coding on the GPU (nvJPEG), compared with its CPU version. Prints `same NAME: passed` for each
check, and times in milliseconds (`time …`)."""

import time

import torch
from torchvision.io import ImageReadMode, decode_jpeg, encode_jpeg

from checks import check


def image(height, width):
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    # Decoders enlarge sharp edges of colours in different ways.
    planes = [128 + 100 * torch.sin(x / 23), 128 + 90 * torch.sin(y / 17), 100 + 80 * torch.sin((x + y) / 31)]
    return torch.stack([plane.to(torch.uint8) for plane in planes])


IMAGES = [image(*size) for size in ((64, 64), (97, 131), (480, 640), (17, 1000))]


def near(ours, expected, tolerance):
    """Decoders round in different ways."""
    ours = ours.cpu()
    assert ours.shape == expected.shape and ours.dtype == torch.uint8, f"{ours.shape} of {ours.dtype}"
    error = (ours.float() - expected.float()).abs().mean().item()
    assert error < tolerance, f"mean error {error:.3f}"


def decoding():
    for picture in IMAGES:
        data = encode_jpeg(picture, quality=90)
        near(decode_jpeg(data, device="cuda"), decode_jpeg(data), 3)


def grey():
    data = encode_jpeg(IMAGES[2][:1], quality=90)
    near(decode_jpeg(data, mode=ImageReadMode.GRAY, device="cuda"), decode_jpeg(data, mode=ImageReadMode.GRAY), 1)


def batch():
    data = [encode_jpeg(picture, quality=75) for picture in IMAGES]
    for ours, one in zip(decode_jpeg(data, device="cuda"), data):
        near(ours, decode_jpeg(one), 3)


def encoding():
    for quality in (50, 75, 95):
        for picture in IMAGES:
            ours = decode_jpeg(encode_jpeg(picture.cuda(), quality=quality).cpu())
            theirs = decode_jpeg(encode_jpeg(picture, quality=quality))
            near(ours, theirs, 6)
    print(f"same bytes of an image: {len(encode_jpeg(IMAGES[2].cuda(), quality=75))}")


def damaged():
    data = encode_jpeg(IMAGES[0])
    try:
        decode_jpeg(data[:40], device="cuda")
    except RuntimeError:
        return
    raise AssertionError("a part of an image was decoded")


def milliseconds(function, count=5):
    function()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        function()
    torch.cuda.synchronize()
    return f"{1000 * (time.perf_counter() - start) / count:.3f} ms"


for function in (decoding, grey, batch, encoding, damaged):
    check(function.__name__, function, end=torch.cuda.synchronize)
pictures = [encode_jpeg(IMAGES[2])] * 16
try:
    print(f"time decoding 16 images of 640 x 480: {milliseconds(lambda: decode_jpeg(pictures, device='cuda'))}")
    there = [IMAGES[2].cuda()] * 16
    print(f"time encoding them: {milliseconds(lambda: encode_jpeg(there))}")
except RuntimeError as error:
    print(error)
