"""A lock's block that ends after everything else of its request, so a session commits before the lock is released.

A web framework closes what a request has opened in the reverse order, on one exit stack or on two nested ones. A lock
that is released in its turn would be released before a session that was opened earlier, or on the outer stack, commits.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Any

ExcInfo = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]


class Outliving:
    """Ends the block at the bottom of one of two nested stacks.

    It is the inner one, unless the caller's turn comes on the outer one, or something else is still open there.
    """

    def __init__(self, block: AbstractAsyncContextManager[Any], inner: AsyncExitStack, outer: AsyncExitStack) -> None:
        self._block = block
        self._inner = inner
        self._outer = outer
        self._left = False
        self._ended = False

    async def enter(self) -> Any:
        """Enter the block."""
        entered = await self._block.__aenter__()
        _put_below(self._inner, self._end_of_inner)
        _put_below(self._outer, self._end_of_outer)
        return entered

    def leave(self) -> None:
        """The caller's turn has come: the block may end with the stack that is being closed."""
        self._left = True

    async def _end_of_inner(self, *exc_info: Any) -> None:
        if self._left and not any(map(_is_other, _callbacks(self._outer))):
            await self._end(exc_info)

    async def _end_of_outer(self, *exc_info: Any) -> None:
        await self._end(exc_info)

    async def _end(self, exc_info: Any) -> None:
        if not self._ended:
            self._ended = True
            await self._block.__aexit__(*exc_info)


def _callbacks(stack: AsyncExitStack) -> Any:
    """Return the callbacks of a stack. It has no public way to look at them, or to add one below the others."""
    return stack._exit_callbacks  # type: ignore[attr-defined] # noqa: SLF001 - see above


def _put_below(stack: AsyncExitStack, callback: Any) -> None:
    _callbacks(stack).appendleft((False, callback))


def _is_other(callback: tuple[bool, Any]) -> bool:
    """Whether this is the end of something else than a lock. Synchronous callbacks are the framework's own."""
    synchronous, function = callback
    return not synchronous and not isinstance(getattr(function, "__self__", None), Outliving)
