"""The pytest plugin: real nodes for a service's tests, with fault injection.

Every pytest run loads this module if the package is installed. So it imports nothing else of the package, and neither
asyncio nor redis-py, until a test requests a fixture. See docs/testing.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from redlock_async import Redlock
    from redlock_async.testing import Faults, LocalCluster
    from redlock_async.testing._setup import NodeSetup

MARKER = (
    "redlock(nodes=5, proxied=False, allow_locked='', longest_wait=None, **options): the number of nodes; whether a "
    "proxy in front of each can make the network fail; names (patterns) that may stay locked; the longest wait for any "
    "lock; and options for every client, such as ttl=1"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the ini option `redlock_nodes`."""
    parser.addini("redlock_nodes", "the number of nodes that redlock_cluster starts", default="5")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", MARKER)


def _failure(error: Exception) -> BaseException:
    """Return the error as a test failure that shows only its message."""
    return pytest.fail.Exception(str(error), pytrace=False)


def _node_count(config: pytest.Config) -> int:
    value = config.getini("redlock_nodes")
    if not value.isdecimal() or int(value) < 1:
        pytest.fail(f"redlock_nodes must be a number, 1 or more, got {value!r}", pytrace=False)
    return int(value)


@pytest.fixture(scope="session")
def redlock_cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """The session's nodes, a LocalCluster, for fixtures that outlive a test. Tests use redlock_nodes."""
    from redlock_async.testing import LocalCluster, LocalServerError  # noqa: PLC0415 - imported only when the fixture is used

    cluster = LocalCluster(_node_count(request.config))
    try:
        cluster.start()
    except LocalServerError as error:
        raise _failure(error) from None
    yield cluster
    cluster.stop()


@pytest.fixture
def _redlock_setup(request: pytest.FixtureRequest) -> Iterator[NodeSetup]:
    """This test's nodes, and the environment variables that name them."""
    from redlock_async.testing import LocalServerError  # noqa: PLC0415 - imported only when the fixture is used
    from redlock_async.testing._setup import MarkerOptions, NodeSetup, shorten_waits  # noqa: PLC0415 - as above

    try:
        options = MarkerOptions.of([(mark.args, mark.kwargs) for mark in request.node.iter_markers("redlock")])
        session = None if options.proxied else request.getfixturevalue("redlock_cluster")
        setup = NodeSetup(options, session, _node_count(request.config))
    except (LocalServerError, ValueError) as error:
        raise _failure(error) from None
    failed = request.session.testsfailed
    with pytest.MonkeyPatch.context() as environment:
        for variable, value in options.environment(setup.urls).items():
            environment.setenv(variable, value)
        if options.longest_wait is not None:
            shorten_waits(environment.setattr, options.longest_wait)
        try:
            setup.prepare()
            yield setup
            leftovers = setup.leftovers() if request.session.testsfailed == failed else None
        finally:
            setup.close()
    if leftovers is not None:
        pytest.fail(leftovers, pytrace=False)


@pytest.fixture
def redlock_nodes(_redlock_setup: NodeSetup) -> list[str]:
    """The URLs of this test's nodes, which are up and empty. REDLOCK_NODES is set to them for the default client."""
    return list(_redlock_setup.urls)


@pytest.fixture
def redlock(_redlock_setup: NodeSetup) -> Iterator[Redlock]:
    """A client for this test's nodes, closed after the test, which fails if a lease was not released by then."""
    from redlock_async.testing._setup import close  # noqa: PLC0415 - imported only when the fixture is used

    client = _redlock_setup.client()
    yield client
    close(client)


@pytest.fixture
def redlock_faults(_redlock_setup: NodeSetup) -> Faults:
    """Faults of locks and nodes: force_loss, held_elsewhere, no_quorum, kill, pause, restart, cut, delay and more."""
    return _redlock_setup.faults


@pytest.fixture
def redlock_zombie(_redlock_setup: NodeSetup) -> Callable[..., Any]:
    """Check that a write is fenced: `await redlock_zombie(write)`, or without await if `write` is a plain function.

    It runs `write(lease)` for a later holder of a lock and then for an earlier one, and fails unless the late write is
    rejected. Options: `name`, the name of the lock, and `rejected`, the error that stands for StaleFence.
    """
    from redlock_async.testing._zombie import zombie_of_environment  # noqa: PLC0415 - imported only when the fixture is used

    return zombie_of_environment
