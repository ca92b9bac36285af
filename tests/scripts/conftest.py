"""The scripts' tests share one_node.py, and test_mutations.py runs them all: they import each other by name."""

import sys
from pathlib import Path

import pytest

# With import-mode importlib no test's folder is on the path.
sys.path.insert(0, str(Path(__file__).parent))

from one_node import Node


@pytest.fixture
def node():
    """A node of its own."""
    return Node()
