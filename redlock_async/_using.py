"""What makes the lock of a decorated function, or of a request: checked where it is written down. It knows no kind."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar, Unpack, get_args, get_origin, get_type_hints, runtime_checkable

from ._errors import ConfigurationError, shown
from ._settings import HoldOptions, LockOptions, Options, check_names

M = TypeVar("M")

MAKERS = frozenset({"__call__", "fair", "latch", "once", "read", "semaphore", "write"})
"""A client's methods that make something of a name, and do nothing else."""


@runtime_checkable
class Client(Protocol):
    """Whose methods make locks."""

    def _stand_in(self) -> Self:
        """One that can make locks now: itself, unless its settings are not there before its first use."""
        ...


@dataclass(frozen=True, slots=True)
class Form:
    """How `using` is called, for a message."""

    example: str
    called_with: str


BY_A_CLIENT = Form("redlock", "a name")
BY_A_SERVICE = Form("Redlock", "a client and a name")


def check_options(options: Mapping[str, Any], using: object, form: Form) -> None:
    """Raise unless they are a plain lock's, and good; or there are none, beside what makes the lock by itself."""
    hint = (
        ": what other kinds of lock take is given to them, as in "
        f"using=functools.partial({form.example}.semaphore, permits=4)"
    )
    check_names("a lock", options, LockOptions.__annotations__, hint)
    if using is None:
        Options(ttl=1.0, wait=None, fencing=True).with_overrides(drift_factor=0.0, **options)
    elif options:
        remedies = []
        if options.keys() & HoldOptions.__annotations__:
            remedies.append(f"give it the options, as in functools.partial({form.example}.fair, ttl=30)")
        if plain := sorted(options.keys() - HoldOptions.__annotations__):
            remedies.append(f"leave out {', '.join(plain)}, which only the plain lock takes")
        raise ConfigurationError(
            f"{', '.join(sorted(options))} beside using, which makes the lock by itself: {'; '.join(remedies)}"
        )


def check_using(using: object, form: Form, *called_with: object) -> None:
    """Raise ConfigurationError unless it can be called with that."""
    if not callable(using) or inspect.iscoroutinefunction(using):
        raise ConfigurationError(
            f"using is what makes a lock of {form.called_with}, as {form.example}.fair does, not {shown(using)}"
        )
    function, arguments, keywords = parts_of(using)
    try:
        signature = inspect.signature(function)
    except ValueError:
        return  # a built-in that does not tell what it takes
    # Without the client, of which a bound method's repr is full.
    name = getattr(function, "__qualname__", None) or shown(function)
    takes = _keywords(function, signature)
    if takes is not None and (unknown := sorted(keywords.keys() - set(takes))):
        raise ConfigurationError(
            f"using gives {', '.join(unknown)} to {name}, which does not take that, but {', '.join(takes)}"
        )
    try:
        signature.bind(*arguments, *called_with, **keywords)
    except TypeError as exc:
        raise ConfigurationError(
            f"using is called with {form.called_with} alone, and {name} cannot be ({exc}): give it the rest, as in "
            f"functools.partial({form.example}.semaphore, permits=4)"
        ) from None


def parts_of(using: Any) -> tuple[Any, tuple[Any, ...], Mapping[str, Any]]:
    """What is called, and what it is given besides: a partial's parts."""
    if isinstance(using, functools.partial):
        return _called(using.func), using.args, using.keywords
    return _called(using), (), {}


def _called(function: Any) -> Any:
    """A client that is called itself makes a lock as its methods do."""
    return getattr(function, "__call__") if isinstance(function, Client) else function  # noqa: B004, B009 - its method


def _keywords(function: Any, signature: inspect.Signature) -> list[str] | None:
    """What it takes by name; None for anything."""
    takes: list[str] = []
    for each in signature.parameters.values():
        if each.kind is each.VAR_KEYWORD:
            try:
                options = get_type_hints(function)[each.name]
            except Exception:  # noqa: BLE001 - whatever the annotations of others may raise
                return None
            if get_origin(options) is not Unpack:
                return None
            takes += get_args(options)[0].__annotations__
        elif each.kind in {each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY}:
            takes.append(each.name)
    return takes


def made(using: Callable[..., M], kind: type[M], form: Form, *called_with: Any) -> M:
    """The lock that it makes; or a ConfigurationError if that is none."""
    lock = using(*called_with)
    if not isinstance(lock, kind):
        raise ConfigurationError(
            f"using made {shown(lock)} of {shown(called_with[-1])}: it must make a lock, as {form.example}.fair, "
            f"{form.example}.read, {form.example}.write and functools.partial({form.example}.semaphore, permits=4) do"
        )
    return lock
