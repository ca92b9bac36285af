"""The databases of these tests: each is started once, when the first test asks for it."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from databases import DatabaseMissingError, mariadb, postgresql
from stores import STORES, create, dialect_of, opened


@pytest.fixture(scope="session")
def postgres_url():
    """PostgreSQL, started once."""
    with postgresql() as url:
        yield url


@pytest.fixture(scope="session")
def mariadb_socket():
    """MariaDB, started once where it is installed."""
    try:
        server = mariadb()
        socket = server.__enter__()
    except DatabaseMissingError as missing:
        pytest.skip(str(missing))
    yield socket
    server.__exit__(None, None, None)


@pytest.fixture(params=STORES)
def adapter(request):
    """The name of each adapter on each database."""
    return request.param


@pytest.fixture
def database(adapter, request, tmp_path):
    """Its database, with empty tables."""
    dialect = dialect_of(adapter)
    if dialect == "sqlite":
        place = str(tmp_path / "data.sqlite")
    else:
        place = request.getfixturevalue({"postgresql": "postgres_url", "mysql": "mariadb_socket"}[dialect])
    create(dialect, place)
    return place


@pytest.fixture
def open_store(adapter, database):
    """Open a store: `async with open_store() as store`."""
    return lambda isolation=None: opened(adapter, database, isolation)
