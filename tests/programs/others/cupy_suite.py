# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A share of CuPy's own tests. Prints `same TEST: passed` (or failed, skipped, …) for each.

`--write FILE` notes which tests ran in time, and `--compare FILE` runs exactly these. `--input` is the folder `tests` of CuPy's
sources, of the version that is installed; `--help` has the other options.

This file is also the plugin of pytest that chooses the tests and prints their results.
"""

import argparse
import collections
import os
import re
import sys
import time
import zlib

USUAL = """
cupy_tests/binary_tests cupy_tests/core_tests cupy_tests/creation_tests cupy_tests/fft_tests cupy_tests/functional_tests
cupy_tests/indexing_tests cupy_tests/linalg_tests cupy_tests/logic_tests cupy_tests/manipulation_tests
cupy_tests/math_tests cupy_tests/misc_tests cupy_tests/padding_tests cupy_tests/polynomial_tests cupy_tests/random_tests
cupy_tests/sorting_tests cupy_tests/statistics_tests cupy_tests/cuda_tests cupy_tests/test_cublas.py
cupyx_tests/jit_tests cupyx_tests/linalg_tests cupyx_tests/scipy_tests/fft_tests cupyx_tests/scipy_tests/linalg_tests
cupyx_tests/scipy_tests/ndimage_tests cupyx_tests/scipy_tests/sparse_tests cupyx_tests/scipy_tests/special_tests
cupyx_tests/test_cusolver.py cupyx_tests/test_cusparse.py cupyx_tests/test_lapack.py
"""
# Tests that run other programs, or that need several GPUs.
UNUSUAL = r"test_compiler.py|test_nccl|test_cutensor|multi_?gpu|MultiGPU|test_hip"
LATE = "no time was left"
# A phase of a test that did not pass replaces the phases before it.
verdicts = {}
deadline = None
# The options as pytest's processes get them.
options = None


def add_options(add):
    """Adds the options of the choice of tests to a parser."""
    add("--list", help="a file with names of tests as they are printed, a line for each: only these, whatever the share")
    add("--noted", help="the file for the names of the tests that ran")
    add("--share", type=int, default=50, help="N: of each test function, the first of every N values of its parameters, "
        "in the order of a digest of their names")
    add("--skipped", default=UNUSUAL, help="tests that are left out: a regular expression")
    add("--seconds", type=float, default=240, help="after the first test in which no more test is begun; not with a list")


def pytest_addoption(parser):
    # Processes of pytest-xdist get the values, too.
    add_options(parser.getgroup("cupy_suite").addoption)


def pytest_configure(config):
    global options
    options = config.option


def function_of(test):
    """The name of a test without the values of its parameters."""
    return re.sub(r"_param_\d+_\{.*\}(?=::|$)", "", test).partition("[")[0]


def printed(test):
    """The name of a test in a line: it may have line ends, and colons, which end the name of a result."""
    return test.encode("unicode_escape").decode().replace(": ", ":")


def pytest_collection_modifyitems(items):
    if options.list:
        with open(options.list, encoding="utf-8") as file:
            wanted = set(file.read().splitlines())
        items[:] = [item for item in items if printed(item.nodeid) in wanted]
        return
    skipped = re.compile(options.skipped)
    positions, chosen = collections.Counter(), set()
    for item in sorted(items, key=lambda item: (zlib.crc32(item.nodeid.encode()), item.nodeid)):
        if skipped.search(item.nodeid) or any(mark in item.keywords for mark in ("slow", "multi_gpu")):
            continue
        function = function_of(item.nodeid)
        if positions[function] % max(1, options.share) == 0:
            chosen.add(item)
        positions[function] += 1
    # CuPy's order: tests of a class stay together.
    items[:] = [item for item in items if item in chosen]


def pytest_collectreport(report):
    if report.failed:
        verdicts[report.nodeid] = "cannot be imported"


def pytest_runtest_setup(item):
    import pytest

    global deadline
    deadline = deadline or time.time() + options.seconds
    if time.time() > deadline and not options.list:
        pytest.skip(LATE)


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        late = report.skipped and LATE in str(report.longrepr)
        expected = "as expected" if hasattr(report, "wasxfail") else ""
        verdicts[report.nodeid] = LATE if late else f"{report.outcome} {expected}".strip()


def pytest_sessionfinish(session):
    if hasattr(session.config, "workerinput"):
        return
    print()
    ran = {printed(test): verdict for test, verdict in verdicts.items() if verdict != LATE}
    for test, verdict in sorted(ran.items()):
        print(f"same {test}: {verdict}")
    if options.noted:
        with open(options.noted, "w", encoding="utf-8") as file:
            file.writelines(f"{test}\n" for test in sorted(ran))
    for verdict, count in sorted(collections.Counter(verdicts.values()).items()):
        print(f"{count} tests: {verdict}")


def main():
    import cupy
    import pytest

    parser = argparse.ArgumentParser()
    parser.add_argument("--write")
    parser.add_argument("--compare")
    parser.add_argument("--input", required=True, help="the folder `tests` of CuPy's sources")
    parser.add_argument("--only", default=USUAL, help="files and folders below it, with a space between them")
    parser.add_argument("--workers", default="8", help="processes")
    add_options(parser.add_argument)
    chosen = parser.parse_args()
    tests = chosen.input
    if not os.path.isdir(os.path.join(tests, "cupy_tests")):
        sys.exit(f"{tests} is no folder `tests` of CuPy {cupy.__version__}'s sources")
    passed = {"noted": chosen.write or chosen.noted, "list": chosen.compare or chosen.list}
    passed = {name: os.path.abspath(file) for name, file in passed.items() if file}
    passed.update(share=chosen.share, skipped=chosen.skipped, seconds=chosen.seconds)
    here = os.path.dirname(os.path.abspath(__file__))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    # All processes must find the same tests.
    os.environ["PYTHONHASHSEED"] = "0"
    sys.path.insert(0, here)
    names = chosen.only.split()
    arguments = ["-q", "-p", "cupy_suite", "-p", "no:cacheprovider", "--tb=line", "--no-header", "-W", "ignore"]
    arguments += ["--rootdir", os.path.dirname(os.path.abspath(tests)), "--max-worker-restart=50"]
    # A test that hangs outside of Python ends its process; the others of the process are run by another one.
    arguments += ["--timeout=60", "--timeout-method=thread", "--continue-on-collection-errors"]
    arguments += ["-n", chosen.workers, "--dist", "worksteal"]
    arguments += [f"--{name}={value}" for name, value in passed.items()]
    os.chdir(tests)
    status = pytest.main(arguments + names)
    # Failed tests are results; the first way decides which ones are right.
    sys.exit(0 if status in (0, 1) else int(status))


if __name__ == "__main__":
    main()
