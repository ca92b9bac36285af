"""The simulation's programs import each other as they do when they are run by hand."""

import logging
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def logger_as_it_was():
    """Whoever runs thousands of schedules turns the library's log off; the tests that follow read it."""
    yield
    logging.getLogger("redlock_async").disabled = False
