"""What the tests on real servers share, beside the fixtures in tests/conftest.py: the modules of this folder."""

import sys
from pathlib import Path

# With import-mode importlib no test's folder is on the path.
sys.path.insert(0, str(Path(__file__).parent))
