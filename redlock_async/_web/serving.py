"""The parts that all web frameworks share: opening and closing the client, and making the lock of a request.

It must not import a framework.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import redlock_async
from redlock_async._rules.template import BadValueError, Template
from redlock_async.client import Redlock, placeholder
from redlock_async.decorators import BY_A_SERVICE, build_lock, check_factory, check_options, parts_of
from redlock_async.errors import ConfigurationError
from redlock_async.locks import BaseLock

LockFactory = Callable[[Redlock, str], BaseLock[Any]]
"""From a client and a name to a lock: `Redlock.fair_lock`, or `functools.partial(Redlock.semaphore, permits=4)`."""

_applications: Counter[Redlock] = Counter()
"""The number of running applications that use each client."""


@asynccontextmanager
async def opened(redlock: Redlock | None) -> AsyncIterator[Redlock]:
    """Open the client, or the default one from the environment; the last application that uses it closes it."""
    client = redlock_async.redlock if redlock is None else redlock
    _applications[client] += 1
    try:
        await client.__aenter__()
        yield client
    finally:
        _applications[client] -= 1
        if not _applications[client]:
            del _applications[client]
            await client.aclose()


def check_client(redlock: object) -> None:
    """Raise ConfigurationError unless it is a client or None."""
    if redlock is not None and not isinstance(redlock, Redlock):
        # The type alone: a URL that was passed by mistake may contain a password.
        kind = f"{type(redlock).__module__}.{type(redlock).__qualname__}".removeprefix("builtins.")
        raise ConfigurationError(
            f"redlock must be a Redlock, or None for the client from the environment, got a {kind}"
        )


class LockDependency:
    """How to make the lock of a request. It is checked where it is declared, and again when the client starts."""

    def __init__(self, template: str, factory: LockFactory | None, options: Mapping[str, Any]) -> None:
        self.template = Template(template)
        check_options(options, factory, BY_A_SERVICE)
        if factory is None:
            self._factory: LockFactory = functools.partial(Redlock.__call__, **options)
            return
        function, _, _ = parts_of(factory)
        if isinstance(factory, Redlock) or isinstance(getattr(function, "__self__", None), Redlock):
            raise ConfigurationError(
                "factory must not be a method of a client, because the application's client exists only after startup: "
                "use the method of the class: Redlock.fair_lock or functools.partial(Redlock.semaphore, permits=4)"
            )
        check_factory(factory, BY_A_SERVICE, "client", "name")
        self._factory = factory
        if getattr(Redlock, getattr(function, "__name__", ""), None) is function:
            self.check(placeholder())

    def check(self, client: Redlock) -> None:
        """Raise ConfigurationError if this client cannot make the lock."""
        build_lock(self._factory, BaseLock, BY_A_SERVICE, client, "x")

    def make(self, client: Redlock, values: Mapping[str, Any]) -> BaseLock[Any]:
        """Make the lock of a request; raise BadValueError if the request's values cannot be part of its name."""
        name = self.template.fill(values)
        try:
            return self._factory(client, name)
        except ConfigurationError:
            _check_name(client, name)
            raise  # the factory is wrong, not the request


def _check_name(client: Redlock, name: str) -> None:
    try:
        client(name)
    except ConfigurationError as exc:
        raise BadValueError("the lock's name would be empty, too long, or reserved") from exc
