"""Decorators: a coroutine function that runs under a lock named after its arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import (
    Any,
    Literal,
    NoReturn,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Unpack,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

from redlock_async._rules.settings import HoldOptions, LockOptions, Options, check_names
from redlock_async._rules.template import fields

from .errors import ConfigurationError, short_repr
from .locks import BaseLock

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M")

Conflict = Literal["wait", "skip", "raise"]

LockFactory = Callable[[str], BaseLock[Any]]
"""A function from a name to a lock: `redlock.fair_lock`, or `functools.partial(redlock.semaphore, permits=4)`."""

ACQUIRE: Mapping[Conflict, Callable[[Any], Any]] = {
    "wait": lambda lock: lock.acquire(),
    "raise": lambda lock: lock.acquire(wait=0),
    "skip": lambda lock: lock.try_acquire(),
}
"""How a decorated function acquires its lock, by `on_conflict`."""


# The results of `locked` and `once`


class NoTruthValue:
    """A base class of decorators, because `if redlock.locked("x"):` looks like a question and would always be true."""

    __slots__ = ()

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} is a decorator and has no truth value: to ask for the state of a lock, use try_acquire() or "
            "inspect()"
        )


class Decorator(NoTruthValue):
    """A template of a lock's name, and how the lock is made and acquired. Subclasses wrap functions."""

    __slots__ = ("lock", "on_conflict", "template")

    def __init__(self, lock: Callable[[str], Any], template: str, on_conflict: Conflict) -> None:
        self.lock = lock
        """Makes the lock of a name."""
        self.template = template
        """The lock's name, with fields for the arguments of the decorated function."""
        self.on_conflict: Conflict = on_conflict

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {short_repr(self.template)}>"


class Locked(Decorator):
    """A decorator for coroutine functions that always run, and so always have a result."""

    __slots__ = ()

    def __call__(self, function: Callable[P, Awaitable[R]], /) -> Callable[P, Coroutine[Any, Any, R]]:
        """Run a coroutine function under the lock that its arguments name."""
        return run_under_lock(self, function)


class LockedOrSkipped(Decorator):
    """A decorator for coroutine functions whose calls may be skipped."""

    __slots__ = ()

    def __call__(self, function: Callable[P, Awaitable[R]], /) -> Callable[P, Coroutine[Any, Any, R | None]]:
        """Run a coroutine function under the lock that its arguments name, or return None without running it."""
        return run_under_lock(self, function)


def run_under_lock(decorator: Decorator, function: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, Any]]:
    """Wrap a coroutine function so that each call runs under the lock that its arguments name."""
    if not inspect.iscoroutinefunction(function):
        called = short_repr(getattr(function, "__qualname__", function))
        if isinstance(function, staticmethod | classmethod):
            raise ConfigurationError(f"locked() and once() go below @{type(function).__name__}, not above it: {called}")
        if inspect.isasyncgenfunction(function):
            raise ConfigurationError(
                f"locked() and once() cannot decorate an async generator, got {called}: use `async with redlock(...)` "
                "inside it"
            )
        raise ConfigurationError(
            f"locked() and once() decorate coroutine functions (async def), got {called}. For other functions use "
            "redlock_async.blocking"
        )
    name, acquire, lock = name_builder(decorator.template, function), ACQUIRE[decorator.on_conflict], decorator.lock

    @functools.wraps(function)
    async def locked(*args: P.args, **kwargs: P.kwargs) -> R | None:
        lease = await acquire(lock(name(*args, **kwargs)))
        if lease is None:
            return None
        async with lease:
            return await function(*args, **kwargs)

    return locked


# Names


def check_template(template: object, example: str = '@redlock.locked("import:{user_id}")') -> None:
    """Raise ConfigurationError unless it is a string: `@redlock.locked` without a name would pass the function."""
    if not isinstance(template, str):
        got = getattr(template, "__qualname__", None) or short_repr(template)
        raise ConfigurationError(f"the template of a lock's name must be a str, got {got}: write {example}")
    if not template:
        raise ConfigurationError("the template of a lock's name must not be empty")


def name_builder(template: str, function: Callable[P, object]) -> Callable[P, str]:
    """Return a function that turns the arguments of a call into the lock's name, or raise ConfigurationError."""
    signature = inspect.signature(function)
    if missing := fields(template) - set(signature.parameters):
        raise ConfigurationError(
            f"the lock name {short_repr(template)} needs {', '.join(sorted(missing))}, "
            f"but {getattr(function, '__qualname__', function)}{signature} has no such argument"
        )

    def name(*args: P.args, **kwargs: P.kwargs) -> str:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        try:
            return template.format_map(bound.arguments)
        except (AttributeError, LookupError, TypeError, ValueError) as exc:
            exc.add_note(f"while building the lock name {short_repr(template)}")
            raise

    return name


def name_without_fields(template: str) -> str:
    """Return the name that a template without fields stands for, or raise ConfigurationError if it has any."""
    if named := fields(template):
        raise ConfigurationError(
            f"the lock name {short_repr(template)} needs {', '.join(sorted(named))} from the arguments of a decorated "
            "function. Without one, give the complete name, and write a literal brace twice"
        )
    return template.format()


# Factories


FACTORIES = frozenset({"__call__", "fair_lock", "latch", "once", "read_lock", "semaphore", "write_lock"})
"""The methods of a client that build an object for a name, without any other effect."""


@runtime_checkable
class Client(Protocol):
    """A client whose methods make locks: for coroutines or for threads."""

    def _checkable(self) -> Self:
        """Return a client that can make locks now: itself, unless it reads its settings on first use."""
        ...


@dataclass(frozen=True, slots=True)
class CallStyle:
    """How `factory` is called, for messages."""

    example: str
    called_with: str


BY_A_CLIENT = CallStyle("redlock", "a name")
BY_A_SERVICE = CallStyle("Redlock", "a client and a name")


def lock_builder(
    plain: Callable[..., M],
    kind: type[M],
    template: str,
    on_conflict: Conflict,
    factory: Callable[[str], M] | None,
    options: Mapping[str, Any],
) -> Callable[[str], M]:
    """Check the arguments of `locked`, and return a function that makes the lock of a name.

    The checks need no settings, because a module that is being imported may have none yet, and a mistake should show
    there, not at the first call.
    """
    check_template(template)
    check_conflict(on_conflict)
    check_options(options, factory, BY_A_CLIENT)
    function, arguments, keywords = parts_of(factory)
    if "wait" in (options if factory is None else keywords) and on_conflict != "wait":
        raise ConfigurationError(f"wait cannot be combined with on_conflict={on_conflict!r}, which never waits")
    if factory is None:
        return functools.partial(plain, **options)
    check_factory(factory, BY_A_CLIENT, "name")
    client = getattr(function, "__self__", None)
    if isinstance(client, Client) and not isinstance(client, type) and function.__name__ in FACTORIES:
        # Any other function might have side effects, or need a running event loop.
        method = functools.partial(function.__func__, client._checkable())  # noqa: SLF001 - made for this
        build_lock(functools.partial(method, *arguments, **keywords), kind, BY_A_CLIENT, "x")
    return functools.partial(build_lock, factory, kind, BY_A_CLIENT)


def check_conflict(on_conflict: object) -> None:
    """Raise ConfigurationError unless it is "wait", "skip" or "raise"."""
    if not isinstance(on_conflict, str) or on_conflict not in ACQUIRE:
        raise ConfigurationError(f"on_conflict must be 'wait', 'skip' or 'raise', got {short_repr(on_conflict)}")


def check_options(options: Mapping[str, Any], factory: object, style: CallStyle) -> None:
    """Raise unless the options are valid for a plain lock, and absent if a factory makes the lock."""
    hint = (
        ". Give the options of other kinds of lock to those, as in "
        f"factory=functools.partial({style.example}.semaphore, permits=4)"
    )
    check_names("a lock", options, LockOptions.__annotations__, hint)
    if factory is None:
        Options(ttl=1.0, wait=None, fencing=True).with_overrides(drift_factor=0.0, **options)
    elif options:
        remedies = []
        if options.keys() & HoldOptions.__annotations__:
            remedies.append(f"give the options to it, as in functools.partial({style.example}.fair_lock, ttl=30)")
        if plain := sorted(options.keys() - HoldOptions.__annotations__):
            remedies.append(f"leave out {', '.join(plain)}, which only the plain lock takes")
        raise ConfigurationError(
            f"{', '.join(sorted(options))} cannot be combined with factory, which makes the lock: {'; '.join(remedies)}"
        )


def check_factory(factory: object, style: CallStyle, *called_with: object) -> None:
    """Raise ConfigurationError unless the factory can be called with these arguments."""
    if not callable(factory) or inspect.iscoroutinefunction(factory):
        raise ConfigurationError(
            f"factory must make a lock from {style.called_with}, as {style.example}.fair_lock does, "
            f"got {short_repr(factory)}"
        )
    function, arguments, keywords = parts_of(factory)
    try:
        signature = inspect.signature(function)
    except ValueError:
        return  # a built-in without a signature
    # The name alone: the repr of a bound method contains the client's.
    name = getattr(function, "__qualname__", None) or short_repr(function)
    takes = _keywords(function, signature)
    if takes is not None and (unknown := sorted(keywords.keys() - set(takes))):
        raise ConfigurationError(
            f"factory passes {', '.join(unknown)} to {name}, which does not take that, but {', '.join(takes)}"
        )
    try:
        signature.bind(*arguments, *called_with, **keywords)
    except TypeError as exc:
        raise ConfigurationError(
            f"factory is called with {style.called_with} alone, and {name} cannot be ({exc}): supply the other "
            f"arguments, as in functools.partial({style.example}.semaphore, permits=4)"
        ) from None


def parts_of(factory: Any) -> tuple[Any, tuple[Any, ...], Mapping[str, Any]]:
    """Split a factory into the function that it calls, and the arguments that a partial adds."""
    if isinstance(factory, functools.partial):
        return _called(factory.func), factory.args, factory.keywords
    return _called(factory), (), {}


def _called(function: Any) -> Any:
    """A client that is called itself makes a lock, as its methods do."""
    return getattr(function, "__call__") if isinstance(function, Client) else function  # noqa: B004, B009 - its method


def _keywords(function: Any, signature: inspect.Signature) -> list[str] | None:
    """Return the keyword arguments that a function takes; None if it takes any."""
    takes: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            try:
                options = get_type_hints(function)[parameter.name]
            except Exception:  # noqa: BLE001 - another author's annotations may raise anything
                return None
            if get_origin(options) is not Unpack:
                return None
            takes += get_args(options)[0].__annotations__
        elif parameter.kind in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}:
            takes.append(parameter.name)
    return takes


def build_lock(factory: Callable[..., M], kind: type[M], style: CallStyle, *called_with: Any) -> M:
    """Call the factory; raise ConfigurationError unless it returns a lock."""
    lock = factory(*called_with)
    if not isinstance(lock, kind):
        raise ConfigurationError(
            f"factory returned {short_repr(lock)} for {short_repr(called_with[-1])}: it must return a lock, as "
            f"{style.example}.fair_lock, {style.example}.read_lock, {style.example}.write_lock and "
            f"functools.partial({style.example}.semaphore, permits=4) do"
        )
    return lock
