"""The decorator: a coroutine function that runs under a lock named after its arguments."""

from __future__ import annotations

import functools
import inspect
import string
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, Literal, ParamSpec, TypeVar

from ._errors import ConfigurationError, LockTimeout, shown
from .lock import Lock

P = ParamSpec("P")
R = TypeVar("R")

Conflict = Literal["wait", "skip", "raise"]


def check_conflict(on_conflict: object) -> None:
    """Raise ConfigurationError unless it is one of the three."""
    if not isinstance(on_conflict, str) or on_conflict not in {"wait", "skip", "raise"}:
        raise ConfigurationError(f"on_conflict is 'wait', 'skip' or 'raise', not {shown(on_conflict)}")


def under(
    make: Callable[[str], Lock], template: str, function: Callable[P, Awaitable[R]], on_conflict: Conflict
) -> Callable[P, Coroutine[Any, Any, R | None]]:
    """That function under the lock its arguments name."""
    if not inspect.iscoroutinefunction(function):
        called = getattr(function, "__qualname__", function)
        raise ConfigurationError(f"locked() decorates coroutine functions (async def), not {shown(called)}")
    signature = inspect.signature(function)
    if missing := _fields(template) - set(signature.parameters):
        raise ConfigurationError(
            f"the lock name {shown(template)} needs {', '.join(sorted(missing))}, "
            f"but {getattr(function, '__qualname__', function)}{signature} has no such argument"
        )

    @functools.wraps(function)
    async def locked(*args: P.args, **kwargs: P.kwargs) -> R | None:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        lock = make(template.format_map(bound.arguments))
        try:
            lease = await (lock.acquire() if on_conflict == "wait" else lock.acquire(0))
        except LockTimeout:
            if on_conflict != "skip":
                raise
            return None
        async with lease:
            return await function(*args, **kwargs)

    return locked


def _fields(template: str) -> set[str]:
    """The arguments a template names; `{user.id}` and `{ids[0]}` name `user` and `ids`."""
    try:
        parsed = list(_parse(template))
    except (ValueError, TypeError) as exc:
        raise ConfigurationError(f"not a template for a lock's name: {shown(template)}: {exc}") from None
    fields = {field.split(".")[0].split("[")[0] for field in parsed}
    if any(not field or field.isdigit() for field in fields):
        raise ConfigurationError(
            f"a lock's name takes arguments by name, as in 'import:{{user_id}}': {shown(template)}"
        )
    return fields


def _parse(template: str) -> Iterator[str]:
    for _, field, specification, _ in string.Formatter().parse(template):
        if field is not None:
            yield field
            yield from _parse(specification or "")  # as in {user_id:{width}}
