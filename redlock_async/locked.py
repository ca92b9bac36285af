"""The decorators: a coroutine function that runs under a lock named after its arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Literal, ParamSpec, Protocol, TypeVar

from ._errors import ConfigurationError, LockTimeout, shown
from ._primitive import Primitive
from ._template import fields
from ._using import BY_A_CLIENT, MAKERS, Client, check_options, check_using, made, parts_of

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M")

Conflict = Literal["wait", "skip", "raise"]


class Locked(Protocol):
    """A decorator whose function always has a result."""

    def __call__(self, function: Callable[P, Awaitable[R]], /) -> Callable[P, Coroutine[Any, Any, R]]:
        """The function under a lock."""
        ...


class LockedOrSkipped(Protocol):
    """A decorator whose function may be left out."""

    def __call__(self, function: Callable[P, Awaitable[R]], /) -> Callable[P, Coroutine[Any, Any, R | None]]:
        """The function under a lock, or None."""
        ...


Using = Callable[[str], Primitive[Any]]
"""What makes a lock of a name: `redlock.fair`, or `functools.partial(redlock.semaphore, permits=4)`."""


def check_conflict(on_conflict: object) -> None:
    """Raise ConfigurationError unless it is one of the three."""
    if not isinstance(on_conflict, str) or on_conflict not in {"wait", "skip", "raise"}:
        raise ConfigurationError(f"on_conflict is 'wait', 'skip' or 'raise', not {shown(on_conflict)}")


def decorator(
    plain: Callable[..., Primitive[Any]],
    template: str,
    on_conflict: Conflict,
    using: Using | None,
    options: Mapping[str, Any],
) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Coroutine[Any, Any, R | None]]]:
    """What `locked` returns: all that can be checked without a client's settings is checked here.

    A module that is being imported may have no settings yet, and a mistake should not wait for the first call.
    """
    check_template(template)
    make = maker(plain, Primitive, on_conflict, using, options)
    return lambda function: under(make, template, function, on_conflict)


def check_template(template: object, example: str = '@redlock.locked("import:{user_id}")') -> None:
    """Raise unless it is a text: `@redlock.locked` without a name would pass the function for one."""
    if not isinstance(template, str):
        what = getattr(template, "__qualname__", None) or shown(template)
        raise ConfigurationError(f"the template of a lock's name is a text, not {what}: write {example}")
    if not template:
        raise ConfigurationError("the template of a lock's name must not be empty")


def maker(
    plain: Callable[..., M],
    kind: type[M],
    on_conflict: Conflict,
    using: Callable[[str], M] | None,
    options: Mapping[str, Any],
) -> Callable[[str], M]:
    """What makes the lock of a name; or a ConfigurationError."""
    check_conflict(on_conflict)
    check_options(options, using, BY_A_CLIENT)
    function, arguments, keywords = parts_of(using)
    if "wait" in (options if using is None else keywords) and on_conflict != "wait":
        raise ConfigurationError(f"wait beside on_conflict={on_conflict!r}, which tries once: leave out one of them")
    if using is None:
        return functools.partial(plain, **options)
    check_using(using, BY_A_CLIENT, "name")
    client = getattr(function, "__self__", None)
    if isinstance(client, Client) and not isinstance(client, type) and function.__name__ in MAKERS:
        # Of any other function nobody knows what else it does, nor what it needs.
        method = functools.partial(function.__func__, client._stand_in())  # noqa: SLF001 - made for this
        made(functools.partial(method, *arguments, **keywords), kind, BY_A_CLIENT, "x")
    return functools.partial(made, using, kind, BY_A_CLIENT)


def under(
    make: Using, template: str, function: Callable[P, Awaitable[R]], on_conflict: Conflict
) -> Callable[P, Coroutine[Any, Any, R | None]]:
    """That function under the lock its arguments name."""
    if not inspect.iscoroutinefunction(function):
        called = shown(getattr(function, "__qualname__", function))
        if isinstance(function, staticmethod | classmethod):
            raise ConfigurationError(f"locked() and once() go below @{type(function).__name__}, not above it: {called}")
        if inspect.isasyncgenfunction(function):
            raise ConfigurationError(
                f"locked() and once() cannot decorate an async generator, {called}: put `async with redlock(...)` "
                "into it"
            )
        raise ConfigurationError(
            f"locked() and once() decorate coroutine functions (async def), not {called}; for others there is "
            "redlock_async.blocking"
        )
    name = naming(template, function)

    @functools.wraps(function)
    async def locked(*args: P.args, **kwargs: P.kwargs) -> R | None:
        lock = make(name(*args, **kwargs))
        try:
            lease = await (lock.acquire() if on_conflict == "wait" else lock.acquire(0))
        except LockTimeout:
            if on_conflict != "skip":
                raise
            return None
        async with lease:
            return await function(*args, **kwargs)

    return locked


def naming(template: str, function: Callable[P, object]) -> Callable[P, str]:
    """What makes a lock's name of the arguments of that function; or a ConfigurationError."""
    signature = inspect.signature(function)
    if missing := fields(template) - set(signature.parameters):
        raise ConfigurationError(
            f"the lock name {shown(template)} needs {', '.join(sorted(missing))}, "
            f"but {getattr(function, '__qualname__', function)}{signature} has no such argument"
        )

    def name(*args: P.args, **kwargs: P.kwargs) -> str:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        try:
            return template.format_map(bound.arguments)
        except (AttributeError, LookupError, TypeError, ValueError) as exc:
            exc.add_note(f"in the name of a lock, {shown(template)}")
            raise

    return name


def constant(template: str) -> str:
    """The name that a template without arguments stands for."""
    if named := fields(template):
        raise ConfigurationError(
            f"the lock name {shown(template)} needs {', '.join(sorted(named))}, which the arguments of a decorated "
            "function would give: without one, give the whole name (a brace in it is written twice)"
        )
    return template.format()
