"""The pytest plugin: real masters for a service's tests, and what can happen to its locks.

Every run of pytest loads this module wherever the package is installed. So it imports nothing of the package, and
neither asyncio nor redis-py, before a test asks for a fixture. How to use it: docs/testing.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from redlock_async import Redlock
    from redlock_async.testing import Faults, LocalCluster
    from redlock_async.testing._stage import Stage

MARKER = (
    "redlock(nodes=5, proxied=False, leaves='', **options): how many masters the test has; whether the network in "
    "front of them can fail; names (patterns) that may stay locked; and the options of every client, such as ttl=1"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """How many masters there are."""
    parser.addini("redlock_masters", "how many masters redlock_cluster starts", default="5")


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", MARKER)


def _failure(error: Exception) -> BaseException:
    """The same as a test's failure: what it says is all there is to see."""
    return pytest.fail.Exception(str(error), pytrace=False)


def _masters(config: pytest.Config) -> int:
    wanted = config.getini("redlock_masters")
    if not wanted.isdecimal() or int(wanted) < 1:
        pytest.fail(f"redlock_masters is the number of masters, 1 or more, not {wanted!r}", pytrace=False)
    return int(wanted)


@pytest.fixture(scope="session")
def redlock_cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """The masters of this session, a LocalCluster: for fixtures that outlive a test. Tests use redlock_nodes."""
    from redlock_async.testing import LocalCluster, LocalServerError  # noqa: PLC0415 - only who asks for it pays

    cluster = LocalCluster(_masters(request.config))
    try:
        cluster.start()
    except LocalServerError as error:
        raise _failure(error) from None
    yield cluster
    cluster.stop()


@pytest.fixture
def _redlock_stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """The masters of this test, and the environment that names them."""
    from redlock_async.testing import LocalServerError  # noqa: PLC0415 - only who asks for it pays
    from redlock_async.testing._stage import Stage, Wishes  # noqa: PLC0415 - the same

    try:
        wishes = Wishes.of([(mark.args, mark.kwargs) for mark in request.node.iter_markers("redlock")])
        session = None if wishes.proxied else request.getfixturevalue("redlock_cluster")
        stage = Stage(wishes, session, _masters(request.config))
    except (LocalServerError, ValueError) as error:
        raise _failure(error) from None
    failed = request.session.testsfailed
    with pytest.MonkeyPatch.context() as environment:
        for variable, value in wishes.environment(stage.urls).items():
            environment.setenv(variable, value)
        try:
            stage.prepare()
            yield stage
            left = stage.left() if request.session.testsfailed == failed else None
        finally:
            stage.close()
    if left is not None:
        pytest.fail(left, pytrace=False)


@pytest.fixture
def redlock_nodes(_redlock_stage: Stage) -> list[str]:
    """The URLs of this test's masters, sound and empty; REDLOCK_NODES names them, so the default client works."""
    return list(_redlock_stage.urls)


@pytest.fixture
def redlock(_redlock_stage: Stage) -> Iterator[Redlock]:
    """A client on this test's masters, closed after it; the test fails if a lease was not released by then."""
    from redlock_async.testing._stage import close  # noqa: PLC0415 - only who asks for it pays

    client = _redlock_stage.client()
    yield client
    close(client)


@pytest.fixture
def redlock_faults(_redlock_stage: Stage) -> Faults:
    """What can happen to locks and masters: lose, held_elsewhere, no_quorum, kill, pause, restart, cut, delay."""
    return _redlock_stage.faults
