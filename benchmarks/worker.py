"""One contender in a process of its own: requests on stdin, answers on stdout, a line of JSON each.

Between requests it does nothing, so that the others can be measured. It runs under the contender's interpreter, and
imports nothing else.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any, TextIO

from .contenders import BY_NAME, Contender
from .scenarios import BY_NAME as SCENARIOS
from .scenarios import now, pairs

WARM_UP = 0.05


class Worker:
    """Answers one request after the other."""

    def __init__(self, contender: Contender) -> None:
        self._contender = contender
        self._held: Any = None

    async def answer(self, request: dict[str, Any]) -> dict[str, float]:
        """Do it, and say what came of it."""
        contender, do = self._contender, request["do"]
        if do == "open":
            await contender.open(request["urls"])
            await pairs(contender, f"bench:warm:{os.getpid()}", now() + WARM_UP)
        elif do == "run":
            return await SCENARIOS[request["scenario"]].run(contender, request["seconds"])
        elif do == "acquire":
            self._held = await contender.acquire(request["name"])
            return {"at": now()}
        elif do == "release":
            started = now()
            await contender.release(self._held)
            return {"at": started}
        return {}


async def main(name: str, out: TextIO) -> None:
    """Until stdin ends."""
    requests = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(requests), sys.stdin)
    contender = BY_NAME[name].create()
    worker = Worker(contender)
    while line := await requests.readline():
        try:
            answer: dict[str, Any] = await worker.answer(json.loads(line))
        except Exception as exc:  # noqa: BLE001 - whatever a library does is an answer
            answer = {"error": f"{type(exc).__name__}: {exc}"}
        print(json.dumps(answer), file=out, flush=True)
    await contender.close()


if __name__ == "__main__":
    # What a library prints must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    asyncio.run(main(sys.argv[1], answers))
