"""Makes fakes.py importable: with import-mode importlib no test's folder is on the path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
