"""Run a coroutine step by step, so that a test can act at exactly the await that it names."""

import types


@types.coroutine
def counting(coroutine, at, act):
    """Run the coroutine, and call `act` when it suspends for the `at`-th time; returns (result, suspensions)."""
    steps, send, value = 0, coroutine.send, None
    while True:
        try:
            yielded = send(value)
        except StopIteration as stop:
            return stop.value, steps
        steps += 1
        if steps == at:
            act()
        try:
            value = yield yielded
            send = coroutine.send
        except BaseException as exc:  # noqa: BLE001 - whatever is thrown in is passed on
            send, value = coroutine.throw, exc
