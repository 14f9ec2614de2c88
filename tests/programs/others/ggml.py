# SPDX-License-Identifier: Apache-2.0 OR MIT
"""ggml's tests of its operations (llama.cpp, whisper.cpp), each compared with its CPU backend.

`--input` is the program `test-backend-ops` of llama.cpp, built with `-DGGML_CUDA=ON`.

Prints `same OPERATION: N passed, N failed, N not supported` for each operation, and the time of all.
"""

import argparse
import collections
import os
import re
import subprocess
import sys
import time

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
LINE = re.compile(r"^\s+(\w+)\(.*\): (.*)$")
VERDICTS = [("OK", "passed"), ("FAIL", "failed"), ("not supported", "not supported")]


def verdict_of(text):
    """The word for the end of a test's line, or None."""
    return next((word for mark, word in VERDICTS if mark in text), None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", required=True, help="test-backend-ops")
    parser.add_argument("--operations", help="only these, with a comma between them")
    parser.add_argument("--threads", default="8")
    options = parser.parse_args()
    if not os.access(options.input, os.X_OK):
        sys.exit(f"{options.input} is no program test-backend-ops of llama.cpp")
    command = [options.input, "test", "-b", "CUDA0", "-j", options.threads]
    if options.operations:
        command += ["-o", options.operations]
    begun = time.monotonic()
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, errors="replace")
    seconds = time.monotonic() - begun
    counts = collections.defaultdict(collections.Counter)
    for line in ran.stdout.splitlines():
        line = COLOUR.sub("", line)
        found = LINE.match(line)
        verdict = found and verdict_of(found[2])
        if verdict:
            counts[found[1]][verdict] += 1
            if verdict == "failed":
                print(line)
    for operation, count in sorted(counts.items()):
        print(f"same {operation}: " + ", ".join(f"{count[word]} {word}" for _, word in VERDICTS))
    # 1 if a test failed, which may be so natively.
    print(f"same status: {ran.returncode}")
    print(f"time all tests: {seconds * 1000:.0f} ms")
    if not counts or ran.returncode not in (0, 1):
        sys.exit(f"test-backend-ops ended with {ran.returncode}; {len(counts)} operations were tested before")


if __name__ == "__main__":
    main()
