# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The tests of other people's software, unchanged, as suites.toml lists them. Prints `same TEST: passed` (or failed, skipped).

Each file of tests runs in a process of its own, because an error that stays in a context is that file's. Tests with known failures are
printed as `known` with the reason, and are not compared. The exit status is 1 if a test failed that is not known to fail here.

What the suites need:

    pip install numba-cuda==0.30.4 cuda-bindings==13.0.* 'cuda-toolkit[cudart,nvvm,nvrtc,cccl]==13.0.*' cffi filecheck \
        ml_dtypes psutil pytest pytest-timeout scipy
    git clone --depth=1 --branch v13.0.3 https://github.com/NVIDIA/cuda-python      # --input cuda-bindings=cuda-python
    cargo test --release --lib --no-run --no-default-features --features std,driver,nvrtc,dynamic-loading,cuda-13000,f16
        # in the sources of cudarc, in the version of Cargo.lock: --input cudarc=PROGRAM

This file is also the plugin of pytest that notes the results.
"""

import argparse
import collections
import concurrent.futures
import glob
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
# The places whose known failures hold in a place.
HOLD = {"everywhere": ["everywhere"], "stack": ["everywhere", "stack"], "emulated": ["everywhere", "stack", "emulated"]}
UNFINISHED = "did not end"
RUST = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. (\w+)", re.MULTILINE)
RUST_VERDICTS = {"ok": "passed", "ignored": "skipped"}
# Exit statuses of pytest and of cargo's test programs: all passed, some failed, no tests.
ENDED = {True: [0, 1, 5], False: [0, 101]}
results = None


def pytest_addoption(parser):
    parser.getgroup("suites").addoption("--results", help="the file for the results")


def pytest_configure(config):
    global results
    results = config.getoption("--results", None)


def note(test, verdict):
    """Written at once: the process may end at any time."""
    with open(results, "a", encoding="utf-8") as file:
        print(f"{verdict}\t{test.encode('unicode_escape').decode()}", file=file)


def pytest_runtest_logstart(nodeid, location):
    note(nodeid, UNFINISHED)


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        # What fails as its author expects has passed.
        note(report.nodeid, "passed" if hasattr(report, "wasxfail") else report.outcome)


def of_python(file, stem):
    """The verdicts of a file of tests. A failure stays, also before a later phase that passes."""
    verdicts = {}
    with open(file, encoding="utf-8") as lines:
        for line in lines:
            verdict, _, test = line.rstrip("\n").partition("\t")
            name = f"{stem}::{test.partition('::')[2]}"
            if verdicts.get(name) != "failed":
                verdicts[name] = verdict
    return verdicts


def commands(suite, given, folder):
    """The commands of a suite: a name, arguments of pytest or a program's, and whether it is pytest."""
    if "alone" in suite:
        yield "tests", [given, "--test-threads=1"], False
        for test in suite["alone"]:
            yield test, [given, test, "--exact", "--ignored"], False
    elif "package" in suite:
        home = list(importlib.util.find_spec(suite["package"]).submodule_search_locations)[0]
        for area in suite["folders"]:
            for file in sorted(glob.glob(os.path.join(home, area, "test_*.py"))):
                stem = os.path.basename(file)[:-3]
                yield stem, ["--pyargs", f"{suite['module']}.{os.path.basename(area)}.{stem}"], True
    else:
        for file in suite["files"]:
            # Beside each other only: the repository has settings of its own for pytest.
            copy = shutil.copy(os.path.join(given, file), folder)
            yield os.path.basename(file)[:-3], [copy], True


def run(suite, command, folder, seconds):
    """Runs a command. Returns the verdicts by test, and the output if it did not end as it should."""
    name, arguments, is_python = command
    noted = os.path.join(folder, f"{name.replace('::', '.')}.results")
    open(noted, "w", encoding="utf-8").close()
    path = ":".join([HERE, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = dict(os.environ, PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="1")
    if is_python:
        plugins = [word for plugin in ["suites", *suite.get("plugin", "").split()] for word in ("-p", plugin)]
        settings = ["-c", os.path.join(folder, "pytest.ini"), "--rootdir", folder, "--results", noted]
        start = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugins, *settings]
        arguments = start + arguments
    else:
        # NVRTC, as the packages have it.
        found = importlib.util.find_spec("nvidia")
        homes = found.submodule_search_locations if found else []
        libraries = [path for home in homes for path in glob.glob(os.path.join(home, "*", "lib"))]
        before = environment.get("LD_LIBRARY_PATH")
        environment["LD_LIBRARY_PATH"] = ":".join(([before] if before else []) + libraries)
    try:
        ended = subprocess.run(arguments, env=environment, cwd=folder, timeout=seconds, text=True, errors="replace",
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        output, how = ended.stdout, f"ended with {ended.returncode}"
        is_whole = ended.returncode in ENDED[is_python]
    except subprocess.TimeoutExpired as late:
        output = (late.stdout or b"").decode(errors="replace")
        how, is_whole = "took too long", False
    if is_python:
        verdicts = of_python(noted, name)
    else:
        verdicts = {test: RUST_VERDICTS.get(word, "failed") for test, word in RUST.findall(output)}
        if "--exact" in arguments:
            verdicts = {test: verdict for test, verdict in verdicts.items() if test == name}
    if not is_whole:
        verdicts[f"{name} ({how})"] = UNFINISHED
    return verdicts, output


def known(suite, test, place):
    """Whether the table names the test, and the reason if it is known to fail in this place."""
    named = [one for one in suite.get("expected", []) if re.fullmatch(one["test"], test)]
    return bool(named), next((one["why"] for one in named if one["on"] in HOLD[place]), None)


def main():
    import tomllib

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", required=True, help="its name in suites.toml")
    parser.add_argument("--place", choices=HOLD, default="everywhere", help="the place whose known failures hold")
    parser.add_argument("--input", help="what the suite needs besides its packages: see above")
    parser.add_argument("--only", default="", help="only files of tests whose names match this regular expression")
    parser.add_argument("--seconds", type=float, default=600, help="the maximum time of a file")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="files at a time")
    arguments = parser.parse_args()
    with open(os.path.join(HERE, "suites.toml"), "rb") as file:
        suite = {suite["name"]: suite for suite in tomllib.load(file)["suite"]}[arguments.suite]
    verdicts, counts, is_good = {}, collections.Counter(), True
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "pytest.ini"), "w", encoding="utf-8") as file:
            file.write("[pytest]\nconsider_namespace_packages = true\n")
        chosen = [one for one in commands(suite, arguments.input, folder) if re.search(arguments.only, one[0])]
        with concurrent.futures.ThreadPoolExecutor(max(1, arguments.jobs)) as pool:
            work = [pool.submit(run, suite, command, folder, arguments.seconds) for command in chosen]
            for done in concurrent.futures.as_completed(work):
                found, output = done.result()
                verdicts.update(found)
                if "failed" in found.values() or UNFINISHED in found.values():
                    print(output)
    for test, verdict in sorted(verdicts.items()):
        is_named, why = known(suite, test, arguments.place)
        has_failed = verdict in ("failed", UNFINISHED)
        if is_named:
            print(f"known {test}: {verdict}" + (f": {why}" if has_failed and why else ""))
        else:
            print(f"same {test.replace(': ', ':')}: {verdict}")
        counts["known to fail" if has_failed and why else verdict] += 1
        if has_failed and not why:
            print(f"{test} {verdict}, and is not known to", file=sys.stderr)
            is_good = False
    for verdict, count in sorted(counts.items()):
        print(f"{count} tests: {verdict}")
    sys.exit(0 if is_good and verdicts else 1)


if __name__ == "__main__":
    main()
