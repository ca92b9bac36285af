"""Makes the benchmarks and the modules beside these tests importable: import-mode importlib has neither on the path."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]
