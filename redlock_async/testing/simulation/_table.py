"""What a command of a master is: what carries it out, and what the master must know before it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ._resp import Reply
from ._store import Store

Arguments = Sequence[bytes]
Run = Callable[[Store, Arguments], Reply]


@dataclass(frozen=True, slots=True)
class Command:
    """A row of the command table."""

    name: bytes
    run: Run
    arity: int
    """Arguments with the name itself; negative: at least so many."""
    writes: bool
    needs_memory: bool
    reads: slice | None
    """Where the keys are that client tracking remembers: those of read-only commands."""

    def check(self, arguments: Arguments) -> bool:
        """Whether there are as many arguments as it takes."""
        return len(arguments) == self.arity if self.arity > 0 else len(arguments) >= -self.arity


FIRST = slice(1, 2)
ALL = slice(1, None)


class Table(dict[bytes, Command]):
    """Commands by their names, which stand before the functions that carry them out."""

    def reading(self, name: bytes, arity: int, keys: slice | None = FIRST) -> Callable[[Run], Run]:
        """One that only reads."""

        def add(run: Run) -> Run:
            self[name] = Command(name, run, arity, writes=False, needs_memory=False, reads=keys)
            return run

        return add

    def writing(self, name: bytes, arity: int, *, needs_memory: bool = False) -> Callable[[Run], Run]:
        """One that writes; `needs_memory`: not at maxmemory."""

        def add(run: Run) -> Run:
            self[name] = Command(name, run, arity, writes=True, needs_memory=needs_memory, reads=None)
            return run

        return add
