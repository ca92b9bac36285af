"""What web applications share, whichever framework serves them: the client's life, and a lock's making.

No framework is imported here.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import redlock_async

from ._errors import ConfigurationError
from ._primitive import Primitive
from ._template import BadValueError, Template
from ._using import BY_A_SERVICE, check_options, check_using, made, parts_of
from .client import Redlock, stand_in

Using = Callable[[Redlock, str], Primitive[Any]]
"""What makes a lock of a client and a name: `Redlock.fair`, or `functools.partial(Redlock.semaphore, permits=4)`."""

_applications: Counter[Redlock] = Counter()
"""How many applications that are running use a client."""


@asynccontextmanager
async def opened(redlock: Redlock | None) -> AsyncIterator[Redlock]:
    """The client, or the one from the environment, until the last application that uses it ends."""
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
    """Raise ConfigurationError for what is no client."""
    if redlock is not None and not isinstance(redlock, Redlock):
        # Its type alone: URLs, which are given by mistake, may have passwords.
        kind = f"{type(redlock).__module__}.{type(redlock).__qualname__}".removeprefix("builtins.")
        raise ConfigurationError(f"a Redlock, or None for the one from the environment, not a {kind}")


class Recipe:
    """How the lock of a request is made: checked where it is written down, and with the client when that starts."""

    def __init__(self, template: str, using: Using | None, options: Mapping[str, Any]) -> None:
        self.template = Template(template)
        check_options(options, using, BY_A_SERVICE)
        if using is None:
            self._using: Using = functools.partial(Redlock.__call__, **options)
            return
        function, _, _ = parts_of(using)
        if isinstance(using, Redlock) or isinstance(getattr(function, "__self__", None), Redlock):
            raise ConfigurationError(
                "using is a client's own, but the client is there only when the application has started: give it "
                "that of the class, as Redlock.fair or functools.partial(Redlock.semaphore, permits=4)"
            )
        check_using(using, BY_A_SERVICE, "client", "name")
        self._using = using
        if getattr(Redlock, getattr(function, "__name__", ""), None) is function:
            self.check(stand_in())

    def check(self, client: Redlock) -> None:
        """Raise ConfigurationError if no lock can be made with that client, whatever the name."""
        made(self._using, Primitive, BY_A_SERVICE, client, "x")

    def make(self, client: Redlock, values: Mapping[str, Any]) -> Primitive[Any]:
        """The lock of a request, or BadValueError, which says why its values cannot name one."""
        name = self.template.fill(values)
        try:
            return self._using(client, name)
        except ConfigurationError:
            _check_name(client, name)
            raise  # what `using` does is the service's business, not that of whoever sent the request


def _check_name(client: Redlock, name: str) -> None:
    try:
        client(name)
    except ConfigurationError as exc:
        raise BadValueError("the lock's name would be empty, too long, or one of the library's own") from exc
