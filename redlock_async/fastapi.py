"""FastAPI: a client for the lifetime of the application, locks as dependencies, and their errors as problem responses.

    app = FastAPI(lifespan=lifespan())
    add_problem_handlers(app)

    @app.post("/orders/{order_id}/charge")
    async def charge(order_id: int, lease: Annotated[Lease, Locked("orders:{order_id}")]): ...

It must not depend on how locks work. FastAPI finds the values of a request, and passes to the dependency what it passes
to the route's own function.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from inspect import Parameter, Signature
from typing import Any, Unpack

from redlock_async._rules.settings import LockOptions
from redlock_async._rules.template import BadValueError
from redlock_async._web.outliving import Outliving
from redlock_async._web.problems import ERRORS, MEDIA_TYPE, SCHEMA, Problems
from redlock_async._web.serving import LockDependency, LockFactory, check_client, opened

from . import ConfigurationError, Lease, Redlock

try:
    from fastapi import Depends, FastAPI, Request, Response, WebSocket, routing
    from fastapi.dependencies.models import Dependant
    from fastapi.dependencies.utils import get_dependant
    from fastapi.exceptions import DependencyScopeError as _SinceDependsHasAScope  # noqa: F401 - exists since 0.121.1
    from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
    from starlette.requests import HTTPConnection
    from starlette.websockets import WebSocketState
except ImportError as missing:
    raise ImportError(
        f"redlock_async.fastapi needs FastAPI 0.121.1 or newer ({missing}): pip install 'redlock-async[fastapi]'"
    ) from missing

__all__ = ["Locked", "add_problem_handlers", "client", "lifespan", "lock"]

TRY_AGAIN_LATER = 1013
"""The code with which a WebSocket is closed."""

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[Any]]


def lifespan(redlock: Redlock | None = None, *, inner: Lifespan | None = None) -> Lifespan:
    """Return a lifespan that opens a client: `redlock`, or `redlock_async.redlock` from the environment.

    The client is in `app.state.redlock`, also of mounted applications. `inner` is your own lifespan, which begins when
    the client is open. Startup raises ConfigurationError if a `lock` needs a value that its route does not have. If
    nodes are down, startup waits for them up to the client's `wait`, and then continues. The last application that uses
    a client closes it.
    """
    _check_client(redlock)

    @asynccontextmanager
    async def running(app: FastAPI) -> AsyncIterator[Any]:
        async with opened(redlock) as started:
            own = [each for each in _applications(app) if each is app or not hasattr(each.state, "redlock")]
            for each in own:
                for route in _routes(each):
                    _bind(route, started)
            for each in own:  # last, because a client in `state` counts as in use
                each.state.redlock = started
            try:
                if inner is None:
                    yield
                else:
                    async with inner(app) as state:
                        yield state
            finally:
                for each in own:
                    del each.state.redlock

    return running


async def client(connection: HTTPConnection) -> Redlock:
    """Return the application's client, as a dependency: `Annotated[Redlock, Depends(client)]`.

    Raises ConfigurationError if the application has no client.
    """
    redlock: object = getattr(connection.app.state, "redlock", None)
    if not isinstance(redlock, Redlock):
        raise ConfigurationError(
            "the application has no client: create it with FastAPI(lifespan=lifespan()). In tests, enter the "
            "TestClient or app.router.lifespan_context(app), because only those run a lifespan"
        )
    return redlock


def lock(
    template: str, *, factory: LockFactory | None = None, **options: Unpack[LockOptions]
) -> Callable[..., AsyncIterator[Lease]]:
    """Return a dependency whose value is the lease of a lock: `Depends(lock("orders:{order_id}"), scope="function")`.

    Without `scope="function"` the lock is held until the response was sent; `Locked` is the short form with that scope.
    Either way it is released after all other dependencies with `yield` have ended, whatever their order: a session
    commits first.
    The name may use all values of the route: parameters of the path, the query, headers, cookies and the body, the
    values of other dependencies, and their attributes, as in `{item.sku}`. For another kind of lock pass
    `factory=Redlock.fair_lock`, or `factory=partial(Redlock.semaphore, permits=4)`. Raises ConfigurationError for
    invalid arguments.
    """
    return _Locking(LockDependency(template, factory, options))


def Locked(template: str, *, factory: LockFactory | None = None, **options: Unpack[LockOptions]) -> Any:  # noqa: N802 - as Depends
    """Return `Depends(lock(...), scope="function")`, which releases the lock before the response begins.

    If the route has other dependencies with `yield` that end after the response, such as a session without
    `scope="function"`, the lock is released after them.
    """
    return Depends(lock(template, factory=factory, **options), scope="function")


def add_problem_handlers(
    app: FastAPI, *, held: int = 409, unavailable: int = 503, lost: int = 503, stale: int = 409
) -> None:
    """Answer LockTimeout, QuorumUnavailable, LockLost and StaleFence with these statuses, as RFC 9457 describes.

    This includes the errors of locks that a function takes itself. A WebSocket is rejected with the same response, or
    closed with code 1013 once it was accepted. The OpenAPI schema lists the responses for every route with a lock among
    its dependencies; a response that the route declares for the same status is kept. Raises ConfigurationError unless
    each status is from 400 to 599.
    """
    problems = Problems(held=held, unavailable=unavailable, lost=lost, stale=stale)

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
        app.add_exception_handler(error, answer)  # type: ignore[arg-type] # its types allow one kind of connection only
    app.openapi = _documented(app, problems)  # type: ignore[method-assign] # the documented way to extend it


def _documented(app: FastAPI, problems: Problems) -> Callable[[], dict[str, Any]]:
    """Extend the application's `openapi` with the responses, because FastAPI lets no dependency declare any."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        schema = plain()
        added = False
        for route in _routes(app):
            root: Dependant | None = getattr(route, "dependant", None)
            if root is None or next(_locks(root, []), None) is None:
                continue
            operations = schema.get("paths", {}).get(route.path_format, {})
            for method in getattr(route, "methods", None) or ():  # a WebSocket has none
                if (operation := operations.get(method.lower())) is not None:
                    added = True
                    for status, response in problems.responses("#/components/schemas/RedlockProblem").items():
                        operation["responses"].setdefault(status, response)
        if added:
            schema.setdefault("components", {}).setdefault("schemas", {}).setdefault("RedlockProblem", SCHEMA)
        return schema

    return openapi


class _Locking:
    """The dependency that FastAPI calls. Its signature has the connection only; `_bind` adds the route's values."""

    def __init__(self, recipe: LockDependency) -> None:
        self.recipe = recipe
        connection = Parameter("redlock_connection", Parameter.KEYWORD_ONLY, annotation=HTTPConnection)
        self.__signature__ = Signature([connection])

    def __repr__(self) -> str:
        # FastAPI shows this if a Depends is missing, or there is one too many.
        return f"lock({str(self.recipe.template)!r})"

    async def __call__(self, /, *, redlock_connection: HTTPConnection, **values: Any) -> AsyncIterator[Lease]:
        redlock = await client(redlock_connection)
        if missing := self.recipe.template.fields - values.keys():
            raise ConfigurationError(
                f"the lock name '{self.recipe.template}' lacks {', '.join(sorted(missing))}: its route was added after "
                "the application started. Add it earlier"
            )
        try:
            request_lock = self.recipe.make(redlock, values)
        except BadValueError as exc:
            websocket = isinstance(redlock_connection, WebSocket)
            error = WebSocketRequestValidationError if websocket else RequestValidationError
            raise error([{"type": "value_error", "loc": ("lock",), "msg": str(exc), "input": None}]) from exc
        stacks = redlock_connection.scope
        block = Outliving(request_lock, stacks["fastapi_function_astack"], stacks["fastapi_inner_astack"])
        lease = await block.enter()
        try:
            yield lease
        finally:
            block.leave()


def _check_client(redlock: object) -> None:
    """Raise ConfigurationError unless it is a client or None."""
    if isinstance(redlock, FastAPI):
        raise ConfigurationError(
            "lifespan was given the application: write FastAPI(lifespan=lifespan()), with the parentheses"
        )
    check_client(redlock)


def _applications(app: FastAPI) -> Iterator[FastAPI]:
    """Iterate over the application and those mounted in it, whose state is separate and whose lifespans never run."""
    yield app
    for route in _routes(app):
        if isinstance(mounted := getattr(route, "app", None), FastAPI):
            yield from _applications(mounted)


def _routes(app: FastAPI) -> Iterator[Any]:
    """Iterate over all routes, in the form in which they are served."""
    # Newer versions of FastAPI keep included routers, with the prefix and parameters of each route beside them.
    yield from getattr(routing, "iter_route_contexts", iter)(app.routes)


def _bind(route: Any, redlock: Redlock) -> None:
    """Make FastAPI pass the values that the locks of a route name, checked and converted as for the route's function.

    FastAPI does so for any dependency with such parameters. A lock cannot read them from the request, because it does
    not know their types: as raw text, /orders/7 and /orders/007 would be two orders.
    """
    root: Dependant | None = getattr(route, "dependant", None)
    for dependant, callers in _locks(root, []) if root is not None else ():
        assert isinstance(dependant.call, _Locking)  # noqa: S101 - `_locks` yields no others
        recipe = dependant.call.recipe
        recipe.check(redlock)
        for name in sorted(recipe.template.fields - {value.name for value in _values(dependant)}):
            if not any(_give(dependant, caller, callers, name, recipe) for caller in callers) and not _give(
                dependant, _of_the_path(route.path_format, name), [], name, recipe
            ):
                values = (value for caller in callers for value in _values(caller) if _is_earlier(value, callers))
                known = sorted({value.name for value in values if value.name})
                raise ConfigurationError(
                    f"the lock name '{recipe.template}' needs {name}, but {route.path_format} has no such parameter; "
                    f"it has {', '.join(known) or 'none'}"
                )


def _locks(dependant: Dependant, callers: list[Dependant]) -> Iterator[tuple[Dependant, list[Dependant]]]:
    """Iterate over the locks in a tree of dependencies, each with its callers, nearest first."""
    if isinstance(dependant.call, _Locking):
        yield dependant, callers
        return
    for dependency in dependant.dependencies:
        yield from _locks(dependency, [dependant, *callers])


PLACES = ("path_params", "query_params", "header_params", "cookie_params", "body_params", "dependencies")


def _values(dependant: Dependant) -> Iterator[Any]:
    """Iterate over everything that FastAPI passes to it: fields, and the values of other dependencies."""
    for place in PLACES:
        yield from getattr(dependant, place)


def _give(locking: Dependant, caller: Dependant, callers: list[Dependant], name: str, recipe: LockDependency) -> bool:
    """Pass a caller's value of this name to the lock, too; return whether the caller has one."""
    for place in PLACES:
        for value in getattr(caller, place):
            if value.name == name and _is_earlier(value, callers):
                if not getattr(value, "use_cache", True):
                    raise ConfigurationError(
                        f"the lock name '{recipe.template}' needs {name}, a dependency with use_cache=False: FastAPI "
                        "would call it twice, and the function might get another value than the lock"
                    )
                _check_attributes(value, name, recipe)
                getattr(locking, place).append(value)
                return True
    return False


def _is_earlier(value: Any, callers: list[Dependant]) -> bool:
    """Whether a value exists before the lock is taken: it is neither a lease nor a dependency on this lock."""
    return not isinstance(getattr(value, "call", None), _Locking) and all(value is not caller for caller in callers)


def _check_attributes(value: Any, name: str, recipe: LockDependency) -> None:
    """Raise ConfigurationError if the value's model lacks an attribute that the template names."""
    model: Any = getattr(getattr(value, "field_info", None), "annotation", None)
    for owner, attribute in recipe.template.attributes:
        if (
            owner == name
            and attribute not in getattr(model, "model_fields", {attribute})
            and not hasattr(model, attribute)
        ):
            raise ConfigurationError(
                f"the lock name '{recipe.template}' needs {name}.{attribute}, but {model.__name__} lacks it"
            )


def _of_the_path(path: str, name: str) -> Dependant:
    """Return a dependant for a path parameter that the route's function does not take; the lock gets its raw text."""

    def takes() -> None:
        raise NotImplementedError

    declared = [Parameter(name, Parameter.KEYWORD_ONLY, annotation=Any)] if f"{{{name}}}" in path else []
    takes.__signature__ = Signature(declared)  # type: ignore[attr-defined] # inspect reads it from any callable
    return get_dependant(path=path, call=takes)
