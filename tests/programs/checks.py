# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Shared by the programs that consist of checks."""


def check(name, function, *arguments, end=lambda: None):
    """Calls `function`, then `end`. Prints `same NAME: passed`, or the first line of the exception in its place."""
    try:
        function(*arguments)
        end()
        print(f"same {name}: passed", flush=True)
    except Exception as error:  # pylint: disable=broad-exception-caught
        first = (str(error).splitlines() or [""])[0]
        print(f"same {name}: {type(error).__name__}: {first[:200]}", flush=True)
