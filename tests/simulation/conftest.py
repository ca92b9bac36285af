"""Puts this folder on sys.path, as running explore.py or exhaustive.py does."""

import logging
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def restore_logger():
    """Turn the library's log on again: exploring turns it off, and later tests read it."""
    yield
    logging.getLogger("redlock_async").disabled = False
