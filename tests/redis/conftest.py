"""What the tests on real servers share, beside the fixtures in tests/conftest.py: the modules of this folder."""

import os
import sys
from pathlib import Path

import pytest

# With import-mode importlib no test's folder is on the path.
sys.path.insert(0, str(Path(__file__).parent))

REPEAT = int(os.environ.get("REDLOCK_REPEAT", "1"))


@pytest.fixture
def repetition(request):
    """The number of this repetition."""
    return getattr(request, "param", 0)


def pytest_generate_tests(metafunc):
    """Repeat the cases that are marked for it."""
    if REPEAT > 1 and "repetition" in metafunc.fixturenames:
        metafunc.parametrize("repetition", range(REPEAT), indirect=True)
