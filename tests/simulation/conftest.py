"""The simulation's programs import each other as they do when they are run by hand."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
