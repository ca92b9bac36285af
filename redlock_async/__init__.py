"""Redlock for asyncio over N independent Redis or Valkey masters.

Modules whose names begin with an underscore are internal; everything public is listed in `__all__`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._public import *  # noqa: F403 - `_public` has the one list there is
    from ._public import __all__ as __all__

    __version__: str
else:
    # Until a name is used, importing the package costs next to nothing: the command line, which has to say what it
    # takes, and the plugin for pytest, which is there in every run, import it and often need none.

    def __getattr__(name):
        from importlib import import_module, metadata  # noqa: PLC0415 - as above

        if name == "__version__":
            return metadata.version("redlock-async")
        if name == "__all__" or not name.startswith("_"):
            public = import_module("._public", __name__)
            if name == "__all__" or name in public.__all__:
                for each in ("__all__", *public.__all__):
                    globals().setdefault(each, getattr(public, each))
                return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *__getattr__("__all__")})
