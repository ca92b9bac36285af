"""Distributed locks for asyncio, held on a majority of independent Redis or Valkey nodes.

Modules whose names begin with an underscore are internal. `__all__` lists the public names.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._public import *  # noqa: F403 - `_public` has the only list of names
    from ._public import __all__ as __all__

    __version__: str
else:
    # Importing the package is cheap until a name is used, because the command line (for `--help`) and the pytest plugin
    # (in every run) import it and often use none.

    def __getattr__(name):
        from importlib import import_module, metadata  # noqa: PLC0415 - only when a name is used

        if name == "__version__":
            return metadata.version("redlock-async")
        if name == "__all__" or not name.startswith("_"):
            public = import_module("._public", __name__)
            if name == "__all__" or name in public.__all__:
                for exported in ("__all__", *public.__all__):
                    globals().setdefault(exported, getattr(public, exported))
                return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *__getattr__("__all__")})
