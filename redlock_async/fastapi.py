"""FastAPI: a client for as long as the application runs, locks as dependencies, and their errors as problems.

    app = FastAPI(lifespan=lifespan())
    add_problem_handlers(app)

    @app.post("/orders/{order_id}/charge")
    async def charge(order_id: int, lease: Annotated[Lease, Locked("orders:{order_id}")]): ...

It knows nothing of how locks work; and what a request's values are is left to FastAPI, which tells the dependency what
it tells the route's own function.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from inspect import Parameter, Signature
from typing import Any, Unpack

from . import ConfigurationError, Lease, Redlock
from ._problems import ERRORS, MEDIA_TYPE, Problems
from ._serving import Recipe, Using, check_client, opened
from ._settings import LockOptions
from ._template import BadValueError

try:
    from fastapi import Depends, FastAPI, Request, Response, WebSocket, routing
    from fastapi.dependencies.models import Dependant
    from fastapi.dependencies.utils import get_dependant
    from fastapi.exceptions import DependencyScopeError as _SinceDependsHasAScope  # noqa: F401 - says that it is new enough
    from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
    from starlette.requests import HTTPConnection
    from starlette.websockets import WebSocketState
except ImportError as missing:
    raise ImportError(
        f"redlock_async.fastapi needs FastAPI 0.121.1 or newer ({missing}): pip install 'redlock-async[fastapi]'"
    ) from missing

__all__ = ["Locked", "add_problem_handlers", "client", "lifespan", "lock"]

TRY_AGAIN_LATER = 1013
"""The code a WebSocket is closed with."""

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[Any]]


def lifespan(redlock: Redlock | None = None, *, inner: Lifespan | None = None) -> Lifespan:
    """A client for the application's life: the one given, or `redlock_async.redlock`, from the environment.

    It is in `app.state.redlock`, also of the applications that are mounted. `inner` is a lifespan of your own, which
    begins when the client is there. Starting fails with ConfigurationError when a `lock` names what its route has not
    got; it does not fail while masters are down, but waits for them up to the client's `wait`. A client that several
    applications use is closed by the last of them.
    """
    _check_client(redlock)

    @asynccontextmanager
    async def living(app: FastAPI) -> AsyncIterator[Any]:
        async with opened(redlock) as started:
            mine = [each for each in _applications(app) if each is app or not hasattr(each.state, "redlock")]
            for each in mine:
                for route in _routes(each):
                    _bind(route, started)
            for each in mine:  # once nothing can go wrong any more: a client that is there is one that is in use
                each.state.redlock = started
            try:
                if inner is None:
                    yield
                else:
                    async with inner(app) as state:
                        yield state
            finally:
                for each in mine:
                    del each.state.redlock

    return living


async def client(connection: HTTPConnection) -> Redlock:
    """The application's client, as a dependency: `Annotated[Redlock, Depends(client)]`."""
    redlock: object = getattr(connection.app.state, "redlock", None)
    if not isinstance(redlock, Redlock):
        raise ConfigurationError(
            "the application has no client: give it FastAPI(lifespan=lifespan()), and in tests enter the TestClient, "
            "or app.router.lifespan_context(app), for nothing else runs a lifespan there"
        )
    return redlock


def lock(
    template: str, *, using: Using | None = None, **options: Unpack[LockOptions]
) -> Callable[..., AsyncIterator[Lease]]:
    """A dependency that holds a lock; its value is the lease: `Depends(lock("orders:{order_id}"), scope="function")`.

    Without that scope the lock is held until the response has been sent: `Locked` is the short form with it. The name
    may use whatever the route takes by that name: parameters of the path, the query, headers, cookies and the body, and
    other dependencies' values; and attributes of them, `{item.sku}`. Other kinds of locks come by `using`:
    `using=Redlock.fair`, or `using=partial(Redlock.semaphore, permits=4)`.
    """
    return _Locking(Recipe(template, using, options))


def Locked(template: str, *, using: Using | None = None, **options: Unpack[LockOptions]) -> Any:  # noqa: N802 - as Depends
    """`Depends(lock(...), scope="function")`: the lock is given back before the response begins."""
    return Depends(lock(template, using=using, **options), scope="function")


def add_problem_handlers(app: FastAPI, *, held: int = 409, unavailable: int = 503, lost: int = 503) -> None:
    """Answer LockTimeout, QuorumUnavailable and LockLost with that status, as application/problem+json (RFC 9457).

    Also where they come from locks that were taken in a function's body. A WebSocket is refused with the same answer,
    or closed with code 1013 once it was accepted.
    """
    problems = Problems(held=held, unavailable=unavailable, lost=lost)

    async def answer(connection: Request | WebSocket, error: Exception) -> Response | None:
        problem = problems.of(error)
        response = Response(problem.body, problem.status, dict(problem.headers), MEDIA_TYPE)
        if not isinstance(connection, WebSocket):
            return response
        begins = connection.application_state is WebSocketState.CONNECTING
        if begins and "websocket.http.response" in connection.scope.get("extensions", {}):
            await connection.send_denial_response(response)
        elif connection.application_state is not WebSocketState.DISCONNECTED:
            await connection.close(TRY_AGAIN_LATER)
        return None

    for error in ERRORS:
        app.add_exception_handler(error, answer)  # type: ignore[arg-type] # for one kind of connection, say its types


class _Locking:
    """What FastAPI calls. It asks for the connection only: the rest of its parameters are the route's, see `_bind`."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        connection = Parameter("redlock_connection", Parameter.KEYWORD_ONLY, annotation=HTTPConnection)
        self.__signature__ = Signature([connection])

    def __repr__(self) -> str:
        # What FastAPI shows where a Depends is missing, or one too many.
        return f"lock({str(self.recipe.template)!r})"

    async def __call__(self, /, *, redlock_connection: HTTPConnection, **values: Any) -> AsyncIterator[Lease]:
        redlock = await client(redlock_connection)
        if missing := self.recipe.template.fields - values.keys():
            raise ConfigurationError(
                f"the lock name '{self.recipe.template}' lacks {', '.join(sorted(missing))}: its route was not there "
                "when the application started"
            )
        try:
            made = self.recipe.make(redlock, values)
        except BadValueError as exc:
            websocket = isinstance(redlock_connection, WebSocket)
            error = WebSocketRequestValidationError if websocket else RequestValidationError
            raise error([{"type": "value_error", "loc": ("lock",), "msg": str(exc), "input": None}]) from exc
        async with made as lease:
            yield lease


def _check_client(redlock: object) -> None:
    """Raise ConfigurationError for what is no client."""
    if isinstance(redlock, FastAPI):
        raise ConfigurationError("lifespan was given the application: call it, as in FastAPI(lifespan=lifespan())")
    check_client(redlock)


def _applications(app: FastAPI) -> Iterator[FastAPI]:
    """It, and those that are mounted in it: they have a state of their own, and nobody runs their lifespans."""
    yield app
    for route in _routes(app):
        if isinstance(mounted := getattr(route, "app", None), FastAPI):
            yield from _applications(mounted)


def _routes(app: FastAPI) -> Iterator[Any]:
    """All routes, in the form in which they are served."""
    # Newer versions keep the routers that are included, and know each route's own prefix and parameters beside them.
    yield from getattr(routing, "iter_route_contexts", iter)(app.routes)


def _bind(route: Any, redlock: Redlock) -> None:
    """Have FastAPI give the locks of a route the values that they name, checked and converted as for its function.

    As it does for any dependency with such parameters. A lock cannot have them by itself: it does not know the types,
    and by the raw texts /orders/7 and /orders/007 would be two orders.
    """
    root: Dependant | None = getattr(route, "dependant", None)
    for dependant, callers in _locks(root, []) if root is not None else ():
        assert isinstance(dependant.call, _Locking)  # noqa: S101 - that is how it was found
        recipe = dependant.call.recipe
        recipe.check(redlock)
        for name in sorted(recipe.template.fields - {each.name for each in _values(dependant)}):
            if not any(_give(dependant, caller, callers, name, recipe) for caller in callers) and not _give(
                dependant, _of_the_path(route.path_format, name), [], name, recipe
            ):
                given = (each for caller in callers for each in _values(caller) if _is_given(each, callers))
                known = sorted({each.name for each in given if each.name})
                raise ConfigurationError(
                    f"the lock name '{recipe.template}' needs {name}, but {route.path_format} has no such parameter; "
                    f"it has {', '.join(known) or 'none'}"
                )


def _locks(dependant: Dependant, callers: list[Dependant]) -> Iterator[tuple[Dependant, list[Dependant]]]:
    """The locks in a tree of dependencies, each with those that need it, the nearest first."""
    if isinstance(dependant.call, _Locking):
        yield dependant, callers
        return
    for each in dependant.dependencies:
        yield from _locks(each, [dependant, *callers])


PLACES = ("path_params", "query_params", "header_params", "cookie_params", "body_params", "dependencies")


def _values(dependant: Dependant) -> Iterator[Any]:
    """What is found for it: fields, and other dependencies."""
    for place in PLACES:
        yield from getattr(dependant, place)


def _give(locking: Dependant, caller: Dependant, callers: list[Dependant], name: str, recipe: Recipe) -> bool:
    """Let the lock have the value that a caller has by that name; returns whether it has one."""
    for place in PLACES:
        for value in getattr(caller, place):
            if value.name == name and _is_given(value, callers):
                if not getattr(value, "use_cache", True):
                    raise ConfigurationError(
                        f"the lock name '{recipe.template}' needs {name}, a dependency with use_cache=False: it would "
                        "be called for the lock and once more for the function, which would have another value"
                    )
                _check_attributes(value, name, recipe)
                getattr(locking, place).append(value)
                return True
    return False


def _is_given(value: Any, callers: list[Dependant]) -> bool:
    """Whether that is there before the lock: neither a lease nor what waits for this one."""
    return not isinstance(getattr(value, "call", None), _Locking) and all(value is not each for each in callers)


def _check_attributes(value: Any, name: str, recipe: Recipe) -> None:
    """Raise ConfigurationError if the value is of a model without the attributes that are named of it."""
    model: Any = getattr(getattr(value, "field_info", None), "annotation", None)
    for of, attribute in recipe.template.attributes:
        if (
            of == name
            and attribute not in getattr(model, "model_fields", {attribute})
            and not hasattr(model, attribute)
        ):
            raise ConfigurationError(
                f"the lock name '{recipe.template}' needs {name}.{attribute}, which {model.__name__} has not got"
            )


def _of_the_path(path: str, name: str) -> Dependant:
    """What would take a parameter of the path that the route's function does not: it is used as it stands there."""

    def takes() -> None:
        raise NotImplementedError

    declared = [Parameter(name, Parameter.KEYWORD_ONLY, annotation=Any)] if f"{{{name}}}" in path else []
    takes.__signature__ = Signature(declared)  # type: ignore[attr-defined] # of any callable
    return get_dependant(path=path, call=takes)
