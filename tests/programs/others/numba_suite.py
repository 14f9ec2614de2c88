# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What numba-cuda's tests expect of the conftest.py in its repository, which its package does not have."""
import pytest


@pytest.fixture(scope="class")
def initialize_from_pytest_config(request):
    request.cls._dump_failed_filechecks = False
