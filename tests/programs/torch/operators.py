# SPDX-License-Identifier: Apache-2.0 OR MIT
"""PyTorch's own operator database on CUDA, forward and backward.

    operators.py --write FILE     runs everything twice, and writes what came out the same both times, within PyTorch's tolerance
    operators.py --compare FILE   runs everything, and prints for each entry how it differs

Prints `same NAME: bits` for an entry with the same bits, `tolerance` for one within PyTorch's tolerance. With --write
each entry that passes counts as `bits`, so that the lines of both can be compared: `tolerance` is printed as `bits`, too,
and counted at the end.
"""

import argparse
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import types
import unittest
import warnings

warnings.filterwarnings("ignore")

# Their results are memory that nobody has written.
UNINITIALISED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
SAMPLES = 6
SECONDS = 30


class Slow(Exception):
    """An entry takes too long."""


def give_up(*_):
    raise Slow("takes too long")


def load():
    """torch, and its database, which asks for a package that it hardly uses."""
    try:
        import expecttest  # noqa: F401
    except ImportError:
        module = types.ModuleType("expecttest")
        module.TestCase, module.__version__ = unittest.TestCase, "0"
        module.assert_expected_inline = lambda *_, **__: None
        sys.modules["expecttest"] = module
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    return torch, op_db


def tensors(torch, value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for part in value for tensor in tensors(torch, part)]
    return []


def pack(torch, tensor):
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    plain = torch.empty(plain.shape, dtype=plain.dtype).copy_(plain).reshape(-1)
    return str(plain.dtype)[6:], tuple(tensor.shape), plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b""


def unpack(torch, packed):
    dtype, shape, data = packed
    dtype = getattr(torch, dtype)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(dtype).reshape(shape) if data else torch.empty(shape, dtype=dtype)


def outputs(torch, op, dtype):
    """What an entry gives for its first samples, and the gradients."""
    found = []
    with_gradients = op.supports_autograd and dtype == torch.float32
    torch.manual_seed(0)
    for index, sample in enumerate(op.sample_inputs("cuda", dtype, requires_grad=with_gradients)):
        if index >= SAMPLES:
            break
        torch.manual_seed(1)
        result = op(sample.input, *sample.args, **sample.kwargs)
        if sample.output_process_fn_grad is not None:
            result = sample.output_process_fn_grad(result)
        results = [tensor for tensor in tensors(torch, result) if tensor.layout == torch.strided]
        found += [pack(torch, tensor) for tensor in results]
        of = [t for t in results if t.requires_grad and (t.is_floating_point() or t.is_complex())]
        by = tensors(torch, [sample.input, list(sample.args), list(sample.kwargs.values())])
        by = [t for t in by if t.requires_grad and t.is_leaf]
        if with_gradients and of and by:
            try:
                gradients = torch.autograd.grad([t.abs().sum() for t in of], by, allow_unused=True)
            except (RuntimeError, NotImplementedError) as error:
                found.append(f"no gradient: {type(error).__name__}")
                continue
            found += [pack(torch, t) for t in gradients if t is not None and t.layout == torch.strided]
    torch.cuda.synchronize()
    return found


def attempt(torch, op, dtype):
    signal.alarm(SECONDS)
    try:
        return outputs(torch, op, dtype)
    except Exception as error:  # pylint: disable=broad-exception-caught
        return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:160]}"
    finally:
        signal.alarm(0)


def verdict(torch, expected, found):
    if isinstance(found, str):
        return found
    if len(expected) != len(found):
        return f"{len(found)} results, not {len(expected)}"
    if expected == found:
        return "bits"
    for one, other in zip(expected, found):
        if isinstance(one, str) or isinstance(other, str) or one[:2] != other[:2]:
            if one != other:
                return "another kind of result"
            continue
        tolerance = 1.6e-2 if one[0] in ("bfloat16", "float16") else 1e-4
        try:
            torch.testing.assert_close(unpack(torch, other), unpack(torch, one), rtol=tolerance, atol=tolerance, equal_nan=True)
        except AssertionError as error:
            return "different: " + str(error).splitlines()[-1][:120]
    return "tolerance"


def part(arguments):
    """One of several processes: some of the entries."""
    signal.signal(signal.SIGALRM, give_up)
    torch, op_db = load()
    number, count = (int(word) for word in arguments.part.split("/"))
    reference = {} if arguments.write else pickle.load(open(arguments.compare, "rb"))
    entries = {}
    for op in op_db[number::count]:
        if op.name in UNINITIALISED:
            continue
        for dtype in (torch.float32, torch.bfloat16, torch.complex64):
            name = f"{op.name}{'.' if op.variant_test_name else ''}{op.variant_test_name} {str(dtype)[6:]}"
            if not op.supports_dtype(dtype, "cuda") or (arguments.compare and name not in reference):
                continue
            found = attempt(torch, op, dtype)
            if arguments.compare:
                entries[name] = verdict(torch, reference[name], found)
            elif not isinstance(found, str) and verdict(torch, found, attempt(torch, op, dtype)) in ("bits", "tolerance"):
                entries[name] = found
    pickle.dump(entries, open(arguments.output, "wb"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--write")
    parser.add_argument("--compare")
    parser.add_argument("--part")
    parser.add_argument("--output")
    arguments = parser.parse_args()
    if arguments.part:
        part(arguments)
        return
    count = max(1, min(8, (os.cpu_count() or 2) // 2))
    mode = ["--write", arguments.write] if arguments.write else ["--compare", arguments.compare]
    entries = {}
    with tempfile.TemporaryDirectory() as folder:
        files = [os.path.join(folder, str(number)) for number in range(count)]
        # The order of some entries' samples is that of a set of texts, which depends on the hash seed.
        parts = [subprocess.Popen([sys.executable, __file__, *mode, "--part", f"{number}/{count}", "--output", file],
                                  env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}) for number, file in enumerate(files)]
        for number, (process, file) in enumerate(zip(parts, files)):
            if process.wait() != 0:
                print(f"same part {number}: ended with {process.returncode}")
            if os.path.exists(file):
                entries.update(pickle.load(open(file, "rb")))
    if arguments.write:
        pickle.dump(entries, open(arguments.write, "wb"))
        entries = dict.fromkeys(entries, "bits")
    for name, how in sorted(entries.items()):
        print(f"same {name}: {'bits' if how == 'tolerance' else how}")
    print(f"{len(entries)} entries, {sum(how == 'tolerance' for how in entries.values())} within tolerance")


if __name__ == "__main__":
    main()
