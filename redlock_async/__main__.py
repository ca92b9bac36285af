"""`python -m redlock_async` is `redlock-async`; nothing else happens here."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
