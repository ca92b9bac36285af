"""aiohttp: a client for the lifetime of the application, locks around handlers, and their errors as problem responses.

    app = web.Application(middlewares=[problem_middleware()])
    app.cleanup_ctx.append(client_ctx())

    @locked("orders:{order_id}")
    async def charge(request: web.Request, lease: Lease) -> web.Response: ...

It must not depend on how locks work.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from contextvars import ContextVar
from typing import Any, Generic, TypeVar, TypeVarTuple, Unpack, overload

from redlock_async._rules.settings import LockOptions
from redlock_async._rules.template import BadValueError
from redlock_async._web.problems import ERRORS, MEDIA_TYPE, Problems, refused
from redlock_async._web.serving import LockDependency, LockFactory, check_client, opened

from . import ConfigurationError, Lease, Redlock
from .decorators import NoTruthValue
from .errors import short_repr
from .locks import BaseLock

try:
    from aiohttp import hdrs, web
    from aiohttp.typedefs import Handler, Middleware
except ImportError as missing:
    raise ImportError(
        f"redlock_async.aiohttp needs aiohttp 3.10 or newer ({missing}): pip install 'redlock-async[aiohttp]'"
    ) from missing

__all__ = ["REDLOCK", "client_ctx", "locked", "problem_middleware"]

Arguments = TypeVarTuple("Arguments")
Response = TypeVar("Response", bound=web.StreamResponse)
L = TypeVar("L", bound=Lease)
L_co = TypeVar("L_co", bound=Lease, covariant=True)

REDLOCK = web.AppKey("REDLOCK", Redlock)  # aiohttp adds the name of the module
"""The key of the client: `request.app[REDLOCK]`, or `request.config_dict[REDLOCK]` in a sub-application."""

_outermost: ContextVar[tuple[AsyncExitStack, asyncio.Task[Any] | None] | None] = ContextVar(
    "redlock_request", default=None
)
"""The stack on which the locks of this request end, and the task that closes it."""

MAPPINGS = {"query", "headers"}
"""The fields of a template that are no parameters of the path: `{query[sku]}`, `{headers[webhook-id]}`."""


def client_ctx(redlock: Redlock | None = None) -> Callable[[web.Application], AsyncIterator[None]]:
    """Return a context for `app.cleanup_ctx` that opens a client: `redlock`, or the one from the environment.

    The client is in `app[REDLOCK]`, and serves sub-applications, too. Startup raises ConfigurationError if a handler is
    `locked` by a value that its route does not have. If nodes are down, startup waits for them up to the client's
    `wait`, and then continues. The last application that uses a client closes it.
    """
    if isinstance(redlock, web.Application):
        raise ConfigurationError(
            "client_ctx was given the application: write app.cleanup_ctx.append(client_ctx()), with the parentheses"
        )
    check_client(redlock)

    async def running(app: web.Application) -> AsyncIterator[None]:
        async with opened(redlock) as started:
            app[REDLOCK] = started
            for route in app.router.routes():
                _check(route, started)
            yield

    return running


class Locked(NoTruthValue, Generic[L_co]):
    """A decorator for handlers whose last argument is a lease of type L_co."""

    __slots__ = ("_recipe",)

    def __init__(self, recipe: LockDependency) -> None:
        self._recipe = recipe

    def __repr__(self) -> str:
        return f"<Locked {str(self._recipe.template)!r}>"

    def __call__(
        self, handler: Callable[[Unpack[Arguments], L_co], Awaitable[Response]], /
    ) -> Callable[[Unpack[Arguments]], Coroutine[Any, Any, Response]]:
        """Run a handler under the lock that its request names. Raises ConfigurationError unless it takes a lease."""
        recipe = self._recipe
        if not inspect.iscoroutinefunction(handler):
            called = getattr(handler, "__qualname__", handler)
            raise ConfigurationError(f"locked() decorates handlers (async def), got {short_repr(called)}")
        _check_takes_lease(handler)

        @functools.wraps(handler)
        async def under_lock(*arguments: *Arguments) -> Response:
            called_with: tuple[Any, ...] = arguments
            last = called_with[-1]
            request: web.Request = last.request if isinstance(last, web.View) else last
            redlock = _client(request)
            try:
                values = {"query": request.query, "headers": request.headers, **request.match_info}
                lock = recipe.make(redlock, values)
            except BadValueError as exc:
                raise web.HTTPBadRequest(text=refused(400, str(exc)).body, content_type=MEDIA_TYPE) from exc
            # Middlewares in between may commit a transaction when the handler has returned.
            stack, task = _outermost.get() or (None, None)
            if stack is not None and task is asyncio.current_task():
                lease: Any = await stack.enter_async_context(lock)
                return await handler(*arguments, lease)
            async with lock as own_lease:
                return await handler(*arguments, own_lease)

        under_lock.redlock_recipe = recipe  # type: ignore[attr-defined] # for `_check`, through other decorators
        return under_lock


@overload
def locked(template: str, *, factory: None = None, **options: Unpack[LockOptions]) -> Locked[Lease]: ...


@overload
def locked(template: str, *, factory: Callable[[Redlock, str], BaseLock[L]]) -> Locked[L]: ...


def locked(template: str, *, factory: LockFactory | None = None, **options: Unpack[LockOptions]) -> Locked[Any]:
    """Decorate a handler to run under a lock; its last argument is the lease: `async def charge(request, lease)`.

    The name may use parameters of the path, `{order_id}`, of the query, `{query[sku]}`, and headers,
    `{headers[webhook-id]}`. They are used as raw text, so 007 and 7 are different names: give the route of a number a
    pattern that allows one spelling, `/orders/{order_id:[1-9][0-9]*}`. The handler may be a function, a method that
    takes a request, or a method of a `web.View`, `async def post(self, lease)`. For another kind of lock pass
    `factory=Redlock.fair_lock`, or `factory=partial(Redlock.semaphore, permits=4)`. Raises ConfigurationError for
    invalid arguments.
    """
    return Locked(LockDependency(template, factory, options))


def problem_middleware(*, held: int = 409, unavailable: int = 503, lost: int = 503, stale: int = 409) -> Middleware:
    """Answer LockTimeout, QuorumUnavailable, LockLost and StaleFence with these statuses, as RFC 9457 describes.

    This includes the errors of locks that a handler takes itself. Once a response has begun it cannot be replaced: the
    error passes, and aiohttp closes the connection. List this middleware first: the locks of `locked` handlers are then
    released after all other middlewares, such as one that commits a session. Raises ConfigurationError unless each
    status is from 400 to 599.
    """
    problems = Problems(held=held, unavailable=unavailable, lost=lost, stale=stale)

    @web.middleware
    async def answering(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if _outermost.get() is not None:  # an application around this one has the middleware, too
                return await handler(request)
            async with AsyncExitStack() as stack:
                token = _outermost.set((stack, asyncio.current_task()))
                try:
                    return await handler(request)
                finally:
                    _outermost.reset(token)
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
        raise ConfigurationError("the application has no client: add app.cleanup_ctx.append(client_ctx())")
    redlock: Redlock = request.config_dict[REDLOCK]
    return redlock


def _check_takes_lease(handler: Callable[..., object]) -> None:
    """Raise ConfigurationError unless the handler takes a lease after the request or the view."""
    try:
        inspect.signature(handler).bind("request", "lease")
    except TypeError:
        try:
            inspect.signature(handler).bind("self", "request", "lease")
        except TypeError:
            raise ConfigurationError(
                f"{getattr(handler, '__qualname__', handler)}{inspect.signature(handler)} does not take the lease: "
                "add it as the last argument, as in `async def charge(request, lease)`"
            ) from None


def _check(route: web.AbstractRoute, redlock: Redlock) -> None:
    """Raise ConfigurationError if the route of a locked handler lacks a value that the lock's name needs."""
    resource = route.resource
    pattern = resource.get_info().get("pattern") if resource is not None else None
    variables = set(pattern.groupindex) if pattern is not None else set()
    for handler in _handlers(route.handler):
        recipe = getattr(handler, "redlock_recipe", None)
        if not isinstance(recipe, LockDependency):
            continue
        recipe.check(redlock)
        if lacking := recipe.template.fields - variables - MAPPINGS:
            where = resource.canonical if resource is not None else "its route"
            raise ConfigurationError(
                f"the lock name '{recipe.template}' needs {', '.join(sorted(lacking))}, but {where} has no such "
                "parameter. For the query write {query[name]}, for a header {headers[name]}"
            )
        if recipe.template.entire & (MAPPINGS - variables):
            raise ConfigurationError(
                f"the lock name '{recipe.template}' does not say which parameter: for the query write {{query[name]}}, "
                "for a header {headers[name]}"
            )


def _handlers(handler: object) -> Iterator[object]:
    """Iterate over the handlers of a route: the handler, or a view's method for each verb."""
    if isinstance(handler, type):
        yield from (getattr(handler, verb.lower(), None) for verb in hdrs.METH_ALL)
    else:
        yield handler
