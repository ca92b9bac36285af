"""aiohttp: a client for as long as the application runs, locks around handlers, and their errors as problems.

    app = web.Application(middlewares=[problem_middleware()])
    app.cleanup_ctx.append(client_ctx())

    @locked("orders:{order_id}")
    async def charge(request: web.Request, lease: Lease) -> web.Response: ...

It knows nothing of how locks work.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any, Protocol, TypeVar, TypeVarTuple, Unpack, overload

from . import ConfigurationError, Lease, Redlock
from ._errors import shown
from ._primitive import Primitive
from ._problems import ERRORS, MEDIA_TYPE, Problems, refused
from ._serving import Recipe, Using, check_client, opened
from ._settings import LockOptions
from ._template import BadValueError

try:
    from aiohttp import hdrs, web
    from aiohttp.typedefs import Handler, Middleware
except ImportError as missing:
    raise ImportError(
        f"redlock_async.aiohttp needs aiohttp 3.10 or newer ({missing}): pip install 'redlock-async[aiohttp]'"
    ) from missing

__all__ = ["REDLOCK", "client_ctx", "locked", "problem_middleware"]

Arguments = TypeVarTuple("Arguments")
Answer = TypeVar("Answer", bound=web.StreamResponse)
L = TypeVar("L", bound=Lease)
Given_co = TypeVar("Given_co", bound=Lease, covariant=True)

REDLOCK = web.AppKey("REDLOCK", Redlock)  # aiohttp itself puts the module before it
"""Where the client is: `request.app[REDLOCK]`, or `request.config_dict[REDLOCK]` in a sub-application."""

OTHERS = {"query", "headers"}
"""What a template has besides the path's parameters: `{query[sku]}`, `{headers[webhook-id]}`."""


def client_ctx(redlock: Redlock | None = None) -> Callable[[web.Application], AsyncIterator[None]]:
    """A client for the application's life, for `app.cleanup_ctx`: the one given, or the one from the environment.

    It is in `app[REDLOCK]`, and serves sub-applications as well. Starting fails with ConfigurationError when a handler
    is `locked` by what its route has not got; it does not fail while masters are down, but waits for them up to the
    client's `wait`. A client that several applications use is closed by the last of them.
    """
    if isinstance(redlock, web.Application):
        raise ConfigurationError(
            "client_ctx was given the application: call it, as in app.cleanup_ctx.append(client_ctx())"
        )
    check_client(redlock)

    async def living(app: web.Application) -> AsyncIterator[None]:
        async with opened(redlock) as started:
            app[REDLOCK] = started
            for route in app.router.routes():
                _check(route, started)
            yield

    return living


class Locked(Protocol[Given_co]):
    """A decorator of handlers whose last argument is a lease of that type."""

    def __call__(
        self, handler: Callable[[Unpack[Arguments], Given_co], Awaitable[Answer]], /
    ) -> Callable[[Unpack[Arguments]], Coroutine[Any, Any, Answer]]:
        """The handler under a lock."""
        ...


@overload
def locked(template: str, *, using: None = None, **options: Unpack[LockOptions]) -> Locked[Lease]: ...


@overload
def locked(template: str, *, using: Callable[[Redlock, str], Primitive[L]]) -> Locked[L]: ...


def locked(template: str, *, using: Using | None = None, **options: Unpack[LockOptions]) -> Locked[Any]:
    """Run a handler under a lock; the lease is its last argument: `async def charge(request, lease)`.

    The name may use the parameters of the path, `{order_id}`, of the query, `{query[sku]}`, and headers,
    `{headers[webhook-id]}`, as they stand there: 007 is another name than 7, so give a route with a number a pattern
    that has one spelling for each, `/orders/{order_id:[1-9][0-9]*}`. The handler may be a function, a method that takes
    a request, or one of a `web.View`, `async def post(self, lease)`. Other kinds of locks come by `using`:
    `using=Redlock.fair`, or `using=partial(Redlock.semaphore, permits=4)`.
    """
    recipe = Recipe(template, using, options)

    def decorate(
        handler: Callable[[Unpack[Arguments], Any], Awaitable[Answer]],
    ) -> Callable[[Unpack[Arguments]], Coroutine[Any, Any, Answer]]:
        if not inspect.iscoroutinefunction(handler):
            called = getattr(handler, "__qualname__", handler)
            raise ConfigurationError(f"locked() decorates handlers (async def), not {shown(called)}")
        _check_takes_lease(handler)

        @functools.wraps(handler)
        async def under_lock(*arguments: *Arguments) -> Answer:
            called_with: tuple[Any, ...] = arguments
            given = called_with[-1]
            request: web.Request = given.request if isinstance(given, web.View) else given
            redlock = _client(request)
            try:
                values = {"query": request.query, "headers": request.headers, **request.match_info}
                made = recipe.make(redlock, values)
            except BadValueError as exc:
                raise web.HTTPBadRequest(text=refused(400, str(exc)).body, content_type=MEDIA_TYPE) from exc
            async with made as lease:
                return await handler(*arguments, lease)

        under_lock.redlock_recipe = recipe  # type: ignore[attr-defined] # for `_check`, through decorators around it
        return under_lock

    return decorate


def problem_middleware(*, held: int = 409, unavailable: int = 503, lost: int = 503) -> Middleware:
    """Answer LockTimeout, QuorumUnavailable and LockLost with that status, as application/problem+json (RFC 9457).

    Also where they come from locks that were taken in a handler's body. Once a response has begun nothing can be
    answered: the error passes, and aiohttp ends the connection.
    """
    problems = Problems(held=held, unavailable=unavailable, lost=lost)

    @web.middleware
    async def answering(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except ERRORS as error:
            if request.writer.output_size > 0:
                raise
            problem = problems.of(error)
            return web.Response(
                text=problem.body, status=problem.status, headers=problem.headers, content_type=MEDIA_TYPE
            )

    return answering


def _client(request: web.Request) -> Redlock:
    if REDLOCK not in request.config_dict:
        raise ConfigurationError("the application has no client: app.cleanup_ctx.append(client_ctx())")
    redlock: Redlock = request.config_dict[REDLOCK]
    return redlock


def _check_takes_lease(handler: Callable[..., object]) -> None:
    """Raise ConfigurationError if there is no place for the lease behind the request, or the view."""
    try:
        inspect.signature(handler).bind("request", "lease")
    except TypeError:
        try:
            inspect.signature(handler).bind("self", "request", "lease")
        except TypeError:
            raise ConfigurationError(
                f"{getattr(handler, '__qualname__', handler)}{inspect.signature(handler)} cannot be given the lease: "
                "it is a handler's last argument, as in `async def charge(request, lease)`"
            ) from None


def _check(route: web.AbstractRoute, redlock: Redlock) -> None:
    """Raise ConfigurationError if a locked handler cannot have its lock on that route."""
    resource = route.resource
    pattern = resource.get_info().get("pattern") if resource is not None else None
    variables = set(pattern.groupindex) if pattern is not None else set()
    for handler in _handlers(route.handler):
        recipe = getattr(handler, "redlock_recipe", None)
        if not isinstance(recipe, Recipe):
            continue
        recipe.check(redlock)
        if lacking := recipe.template.fields - variables - OTHERS:
            where = resource.canonical if resource is not None else "its route"
            raise ConfigurationError(
                f"the lock name '{recipe.template}' needs {', '.join(sorted(lacking))}, but {where} has no such "
                "parameter; one of the query is {query[name]}, and a header {headers[name]}"
            )
        if recipe.template.entire & (OTHERS - variables):
            raise ConfigurationError(
                f"the lock name '{recipe.template}' does not say which: one of the query is {{query[name]}}, and a "
                "header {headers[name]}"
            )


def _handlers(handler: object) -> Iterator[object]:
    """What answers on a route: the handler, or a view's method for each verb."""
    if isinstance(handler, type):
        yield from (getattr(handler, verb.lower(), None) for verb in hdrs.METH_ALL)
    else:
        yield handler
