"""A fresh tree in each store: in memory, and on a PostgreSQL server where its binaries are."""

import contextlib
import itertools

import pytest

from refork.tree import Tree
from support.postgres import MISSING, PostgresServer, binaries

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def server():
    pytest.importorskip("psycopg")
    if binaries() is None:
        pytest.skip(MISSING)
    with contextlib.closing(PostgresServer()) as server:
        yield server


@pytest.fixture
def address(server):
    return server.address(f"t{next(_NUMBERS)}")


@pytest.fixture(params=["embedded", "shared"])
def place(request, tmp_path):
    """Where a tree may be made: a file, then an address."""
    return tmp_path / "tree.db" if request.param == "embedded" else request.getfixturevalue("address")


@pytest.fixture(params=["embedded", "shared"])
def tree(request):
    if request.param == "embedded":
        with Tree.memory() as tree:
            yield tree
    else:
        with Tree.open(request.getfixturevalue("address"), wait=5) as tree:
            yield tree
