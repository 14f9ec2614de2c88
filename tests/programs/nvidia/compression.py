# SPDX-License-Identifier: Apache-2.0 OR MIT
"""nvCOMP: round trips of its formats, also against Python's zlib. Prints `same NAME: passed` for each check, `same NAME:
VALUE` for what must be as natively, and times in milliseconds (`time …`)."""

import gzip
import time
import zlib

import numpy as np
from nvidia import nvcomp

from checks import check

random = np.random.default_rng(0)
TEXT = np.frombuffer(" ".join(f"{number % 977} {number * number}" for number in range(40000)).encode(), np.uint8)
RANDOM = random.integers(0, 256, 300_001, dtype=np.uint8)
SORTED = np.sort(random.integers(0, 5000, 200_000)).astype(np.int32)


def host(array):
    return np.asarray(array.cpu())


def there(array):
    return nvcomp.as_array(np.ascontiguousarray(array)).cuda()


def round_trip(name, algorithm, array, **options):
    codec = nvcomp.Codec(algorithm=algorithm, **options)
    packed = codec.encode(there(array))
    back = host(codec.decode(packed))
    assert back.tobytes() == array.tobytes(), f"{name} returns other data"
    print(f"same ratio of {name}: {array.nbytes / packed.buffer_size:.1f}", flush=True)


def bytes_of_any_kind(algorithm):
    round_trip(f"{algorithm}, text", algorithm, TEXT)
    round_trip(f"{algorithm}, noise", algorithm, RANDOM)
    round_trip(f"{algorithm}, one byte", algorithm, RANDOM[:1])


def numbers():
    round_trip("Cascaded", "Cascaded", SORTED, data_type="<i4")
    round_trip("Bitcomp", "Bitcomp", SORTED, data_type="<i4")
    round_trip("ANS", "ANS", TEXT, data_type="|u1")
    round_trip("LZ4, numbers", "LZ4", SORTED, data_type="<i4")


def chunks():
    for size in (1 << 12, 1 << 15, 1 << 18):
        round_trip(f"LZ4 in chunks of {size}", "LZ4", TEXT, uncomp_chunk_size=size)


def checksums():
    policy = nvcomp.ChecksumPolicy.COMPUTE_AND_VERIFY
    round_trip("LZ4 with a checksum", "LZ4", TEXT, checksum_policy=policy)


def batches():
    arrays = [TEXT[: 1000 * count] for count in range(1, 20)]
    codec = nvcomp.Codec(algorithm="Snappy")
    batch = nvcomp.as_arrays(arrays)
    # Since nvCOMP 6 it is not a list.
    packed = codec.encode([one.cuda() for one in batch] if isinstance(batch, list) else batch.cuda())
    for array, back in zip(arrays, codec.decode(packed), strict=True):
        assert host(back).tobytes() == array.tobytes()


def deflate_for_zlib():
    raw = nvcomp.Codec(algorithm="Deflate", bitstream_kind=nvcomp.BitstreamKind.RAW)
    packed = host(raw.encode(there(TEXT[:60000]))).tobytes()
    assert zlib.decompress(packed, -15) == TEXT[:60000].tobytes()


def gzip_from_python():
    raw = nvcomp.Codec(algorithm="Gzip", bitstream_kind=nvcomp.BitstreamKind.RAW)
    for level in (1, 9):
        packed = np.frombuffer(gzip.compress(TEXT.tobytes(), level), np.uint8)
        assert host(raw.decode(there(packed))).tobytes() == TEXT.tobytes()


def wrong_data():
    try:
        nvcomp.Codec(algorithm="LZ4").decode(there(RANDOM))
    except Exception as error:  # pylint: disable=broad-exception-caught
        print(f"same error: {type(error).__name__}")
    else:
        raise AssertionError("noise was decoded")


def milliseconds(function):
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - start)
    return f"{1000 * best:.3f} ms"


for algorithm in ("LZ4", "Snappy", "Deflate", "GDeflate", "Gzip", "Zstd"):
    check(algorithm, bytes_of_any_kind, algorithm)
for function in (numbers, chunks, checksums, batches, deflate_for_zlib, gzip_from_python, wrong_data):
    check(function.__name__, function)
lz4, large = nvcomp.Codec(algorithm="LZ4"), there(np.tile(TEXT, 4))
packed = lz4.encode(large)
print(f"time packing {4 * TEXT.nbytes} bytes with LZ4: {milliseconds(lambda: lz4.encode(large).buffer_size)}")
print(f"time unpacking them: {milliseconds(lambda: lz4.decode(packed).cpu())}")
