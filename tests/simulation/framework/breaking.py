"""How a mutant is declared, and how the library is broken while one is active."""

from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from redlock_async import _transport

MUTANTS = {}
"""By name: a context manager that breaks the library, and the families of schedules that should catch it."""


def mutant(*families):
    """Declare a mutant. Its docstring names the broken rule."""

    def declare(function):
        MUTANTS[function.__name__] = (contextmanager(function), families)
        return function

    return declare


@contextmanager
def rewritten(name, *changes):
    """Replace parts of a script."""
    original = _transport.commands.script(name)
    source = original.source.decode()
    for old, new in changes:
        assert old in source, f"{old!r} is no longer in {name}.lua"
        source = source.replace(old, new)
    changed = _transport.commands.Script.__new__(_transport.commands.Script)
    changed.name, changed.source = name, source.encode()
    changed.sha = _transport.commands.sha1(changed.source, usedforsecurity=False).hexdigest().encode()
    real = _transport.commands.script

    def script(wanted):
        return changed if wanted == name else real(wanted)

    with patch.object(_transport.commands, "script", script), patch.object(_transport.node, "script", script):
        yield


@contextmanager
def broken(name):
    """Break the rule `name` in this block."""
    with ExitStack() as stack:
        stack.enter_context(MUTANTS[name][0]())
        yield
