"""Fences in HTTP requests: the service that holds the lock sends them, and the service that has the data checks them.

The header raises the register of its name: accept it from services that you trust with the lock, and remove it from all
other requests. The damage is limited: the receiver chooses the name, and a token cannot be far ahead of its clock.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from redlock_async._rules.settings import Duration, positive
from redlock_async._rules.template import BadValueError, Template
from redlock_async.errors import ConfigurationError, short_repr

from .check import Fence, Holder, fences_of

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["HEADER", "Fenced", "fence_from", "fence_of", "headers"]

HEADER = "Fencing-Token"

AHEAD = timedelta(days=1)
"""How far a token may be ahead of the receiver's clock. A token is a time in µs since 1970, by the clock of a node."""


def headers(*leases: Holder) -> dict[str, str]:
    """Return the header to send with a request: `await client.put(url, json=order, headers=headers(lease))`."""
    return {HEADER: ", ".join(f"{quote(each.name, safe='')}={each.token}" for each in fences_of(*leases))}


def fence_from(headers: Mapping[str, str], name: str, *, ahead: Duration = AHEAD) -> Fence:
    """Return the fence of this lock name that a request carries: `fence_from(request.headers, f"orders:{order_id}")`.

    Raises ConfigurationError, a ValueError, if there is none, or if its token is further `ahead` than that.
    """
    found = next((value for key, value in headers.items() if key.lower() == HEADER.lower()), "")
    pairs = (part.strip().rpartition("=") for part in found.split(","))
    token = next((token for quoted, _, token in pairs if unquote(quoted) == name), "")
    if not (token.isascii() and token.isdecimal() and len(token) <= 16):  # noqa: PLR2004 - 2^53 has as many digits
        raise ConfigurationError(f"the request needs the header {HEADER} with a token of {short_repr(name)}")
    fence = Fence(name, int(token))
    if fence.token > (time.time() + positive("ahead", ahead)) * 1e6:
        raise ConfigurationError(
            f"the token {token} of {short_repr(name)} in the header {HEADER} is ahead of this service's clock"
        )
    return fence


def fence_of(request: web.Request, template: str, *, ahead: Duration = AHEAD) -> Fence:
    """Return the fence of a request to aiohttp, for a lock such as "orders:{order_id}", or raise HTTPBadRequest."""
    from aiohttp import web  # noqa: PLC0415 - other services have no aiohttp

    try:
        return fence_from(request.headers, Template(template).fill(request.match_info), ahead=ahead)
    except (BadValueError, ConfigurationError) as exc:
        raise web.HTTPBadRequest(text=str(exc)) from exc


def Fenced(template: str, *, ahead: Duration = AHEAD) -> Any:  # noqa: N802 - as Depends and Locked
    """Return a dependency of FastAPI, `fence: Annotated[Fence, Fenced("orders:{order_id}")]`; without a fence, 400."""
    from fastapi import Depends, HTTPException, Request  # noqa: PLC0415 - other services have no FastAPI

    name = Template(template)

    def fence(request: Request) -> Fence:
        try:
            return fence_from(request.headers, name.fill(request.path_params), ahead=ahead)
        except (BadValueError, ConfigurationError) as exc:
            raise HTTPException(400, str(exc)) from exc

    fence.__annotations__["request"] = Request  # the annotation is text, and its name is local
    return Depends(fence)
