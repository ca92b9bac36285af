"""The command table: the function of each command, and the properties that are checked before it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ._resp import Reply
from ._store import Store

Arguments = Sequence[bytes]
Handler = Callable[[Store, Arguments], Reply]


@dataclass(frozen=True, slots=True)
class Command:
    """A row of the command table."""

    name: bytes
    handler: Handler
    arity: int
    """The number of arguments with the name; if negative, the minimum."""
    writes: bool
    needs_memory: bool
    reads: slice | None
    """The positions of the keys that client tracking records, for read-only commands."""

    def accepts(self, arguments: Arguments) -> bool:
        """Whether the number of arguments is right."""
        return len(arguments) == self.arity if self.arity > 0 else len(arguments) >= -self.arity


FIRST = slice(1, 2)
ALL = slice(1, None)


class Table(dict[bytes, Command]):
    """Commands by name. Its methods are decorators of the functions that execute them."""

    def reading(self, name: bytes, arity: int, keys: slice | None = FIRST) -> Callable[[Handler], Handler]:
        """Add a read-only command."""

        def add(handler: Handler) -> Handler:
            self[name] = Command(name, handler, arity, writes=False, needs_memory=False, reads=keys)
            return handler

        return add

    def writing(self, name: bytes, arity: int, *, needs_memory: bool = False) -> Callable[[Handler], Handler]:
        """Add a command that writes. `needs_memory`: it is rejected at maxmemory."""

        def add(handler: Handler) -> Handler:
            self[name] = Command(name, handler, arity, writes=True, needs_memory=needs_memory, reads=None)
            return handler

        return add
