"""Write MUTANTS.md, the table of all mutants: `python tests/simulation/table.py`."""

import inspect
import json
from pathlib import Path

from mutants import MUTANTS

FOLDER = Path(__file__).parent
HEAD = """# Mutants

A mutant breaks one rule of the library on purpose, in the tests only. The simulated schedules must notice each of them;
otherwise they would not notice the same mistake in the library either. A test tries the schedule in the last column:
`python tests/simulation/explore.py --mutant NAME`. This table is written by `table.py`.

| mutant | broken rule | a schedule that notices it |
|---|---|---|
"""


def table():
    """Return the text of MUTANTS.md."""
    caught = json.loads((FOLDER / "caught.json").read_text("utf-8"))
    rows = []
    for name, (declared, _) in MUTANTS.items():
        rule = " ".join(inspect.getdoc(declared).partition("\n\n")[0].split()).rstrip(".")
        family, seed = caught[name]
        rows.append(f"| `{name}` | {rule} | `--family {json.dumps(family)} --seed {seed}` |\n")
    return HEAD + "".join(rows)


if __name__ == "__main__":
    (FOLDER / "MUTANTS.md").write_text(table(), "utf-8")
