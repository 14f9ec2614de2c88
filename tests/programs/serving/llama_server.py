# SPDX-License-Identifier: Apache-2.0 OR MIT
"""llama.cpp's server with a small Llama of random weights, and eight clients. Needs the package gguf.

`--input` is llama.cpp's program `llama-server`, built with `-DGGML_CUDA=ON` or with a CUDA backend beside it.

Prints `same …` for the answers, and the times of a start and of requests (`time …`). The first tokens must be those of the CPU.
"""

import argparse
import os
import sys
import tempfile

from clients import complete, serve, started
from random_gguf import TOKENS, write

CLIENTS, LENGTH = 8, 32


def prompts():
    """Numbers of letters' tokens, the beginning of a text before them."""
    letters = len(TOKENS) - 3 - 52
    return [[1, *(letters + (client * 7 + place * 5) % 52 for place in range(LENGTH))] for client in range(CLIENTS)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", required=True, help="llama-server")
    parser.add_argument("--small", action="store_true", help="little work, for emulated GPUs")
    options = parser.parse_args()
    if not os.access(options.input, os.X_OK):
        sys.exit(f"{options.input} is no program llama-server of llama.cpp")
    size = {"width": 256, "heads": 4, "layers": 2, "hidden": 512} if options.small else \
        {"width": 1024, "heads": 16, "layers": 8, "hidden": 2816}
    tokens = 8 if options.small else 64
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "model.gguf")
        write(model, context=2048, **size)
        command = [options.input, "-m", model, "--host", "127.0.0.1", "-c", str(CLIENTS * 256), "-np", str(CLIENTS), "--no-warmup",
                   "--log-verbosity", "2"]
        with started([*command, "--device", "none"]) as (port, _):
            expected, _ = complete(port, prompts()[0], 4)
        on_gpu = [*command, "--device", "CUDA0", "-ngl", "99"]
        with started(on_gpu) as (port, _):
            answer, _ = complete(port, prompts()[0], 4)
        # Later tokens may differ: a GPU adds halves in another order.
        print(f"same first tokens: {answer!r}, {'as' if answer == expected else repr(expected)} on the CPU", flush=True)
        serve(on_gpu, prompts(), tokens)
    if answer != expected:
        sys.exit("the GPU's first tokens differ from the CPU's")


if __name__ == "__main__":
    main()
