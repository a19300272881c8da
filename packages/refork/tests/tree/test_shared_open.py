"""Trees on a server: addresses, modes, versions, rights, and what is said where something is wrong."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given, settings

from refork.errors import (
    BadInput,
    CannotDo,
    DiskFull,
    NotATree,
    TreeBusy,
    TreeError,
    TreeVersion,
    UnknownNode,
)
from refork.formats.native import Native
from refork.tree import NewNode, Producer, Score, Tree
from refork.tree.address import is_address, parse_address
from refork.tree.dialect import statement, types
from refork.tree.schema import FIELDS, TABLES, VERSION, columns
from refork.tree.seal import SEALED
from support.modes import check_modes
from tree.tree_builders import seen, small, step, trees


@pytest.fixture
def admin(server):
    """A plain connection of the database's owner."""
    import psycopg

    with psycopg.connect(server.conninfo(), autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize(
    ("place", "server", "tree"),
    [
        ("postgresql://me@host/db?tree=a", "postgresql://me@host/db", "a"),
        ("postgres://host:1/db?sslmode=require&tree=a-1", "postgresql://host:1/db?sslmode=require", "a-1"),
        ("postgresql:///db?tree=a", "postgresql:///db", "a"),
        ("postgresql://me@/db?host=/run/pg&tree=a", "postgresql://me@/db?host=%2Frun%2Fpg", "a"),
        ("postgresql://one,two/db?tree=a", "postgresql://one,two/db", "a"),
    ],
)  # fmt: skip
def test_addresses(place, server, tree):
    found = parse_address(place)
    assert (found.server, found.tree) == (server, tree)
    assert found.schema == f"refork_{tree}"
    # A path object folds slashes, and says the same.
    assert parse_address(Path(place)) == found
    assert found.safe_text == place.replace("postgres:", "postgresql:")
    assert is_address(place)
    assert is_address(Path(place))


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("postgresql://host/db", "names no tree"),
        ("postgresql://host/db?tree=a&tree=b", "2 trees"),
        ("postgresql://host?tree=a", "no database"),
        ("postgresql://host/?tree=a", "no database"),
        ("postgresql://host/db?tree=", "cannot be a tree's name"),
        ("postgresql://host/db?tree=Big", "cannot be a tree's name"),
        ('postgresql://host/db?tree=a"; drop', "cannot be a tree's name"),
        ("postgresql://host/db?tree=" + "a" * 49, "cannot be a tree's name"),
        ("postgresql://host/db?colour=red&tree=a", "not one"),
        ("mysql://host/db?tree=a", "not the address"),
    ],
)
def test_bad_addresses(place, said):
    pytest.importorskip("psycopg")
    from refork.tree.server import open_server

    with pytest.raises(BadInput, match=said):
        open_server(place)


@pytest.mark.parametrize(
    "place", ["postgresql://me:hush@host/db?tree=a", "postgresql://host/db?tree=a&password=hush"]
)
def test_a_password_is_refused_and_not_repeated(place):
    for given_place in (place, Path(place)):
        with pytest.raises(BadInput, match="no password") as caught:
            Tree.open(given_place)
        assert "hush" not in str(caught.value)


def test_files_are_no_addresses(tmp_path):
    assert not any(map(is_address, ("tree.db", "/postgresql/tree.db", "my-postgresql:/x", tmp_path)))


def test_statements_in_another_dialect():
    assert statement(
        "SELECT a FROM t n WHERE n.k IS ? AND n.id IN ({keys}) AND n.row <= ? AND k LIKE '#%'"
    ) == (
        b"SELECT a FROM t n WHERE n.k IS NOT DISTINCT FROM %s AND n.id = ANY(%s) "
        b"AND pg_visible_in_snapshot(n.tx, %s::pg_snapshot) AND k LIKE '#%%'"
    )
    assert statement("SELECT origin IS 'x' WHERE row > ? AND row <= ?") == (
        b"SELECT origin IS NOT DISTINCT FROM 'x' WHERE row > %s "
        b"AND pg_visible_in_snapshot(tx, %s::pg_snapshot)"
    )
    assert {name: len(types(name)) for name in TABLES} == {name: len(columns(name)) for name in TABLES}


def test_a_tree_outlives_its_connection(address, admin):
    with Tree.open(address) as tree:
        _, _, fork = small(tree)
        assert tree.file is None
        assert tree.uri == address
    with Tree.open(Path(address), "r") as tree:
        assert seen(tree.node(fork.id)) == seen(fork)
        stats = tree.stats()
        assert (stats.nodes, stats.version) == (6, VERSION)
        assert stats.bytes > 10_000
    with pytest.raises(TreeError, match="closed"):
        len(tree)
    schema = parse_address(address).schema
    found = admin.execute(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = %s", [schema]
    )
    assert set(found) == {(f.table, f.name) for f in FIELDS} | {("nodes", "tx"), ("scores", "tx")}


def test_modes(address):
    check_modes(address, "there is no tree")


def test_trees_of_one_database_are_apart(server, address):
    with Tree.open(address) as one, Tree.open(server.address("other")) as two:
        small(one)
        assert (len(one), len(two)) == (6, 0)
        two.merge(one)
        assert [n.id for n in one.walk()] == [n.id for n in two.walk()]
    with pytest.raises(NotATree) as caught:
        Tree.open(server.address("nowhere"), "r")
    assert "other" in caught.value.hint


def test_other_schemas_are_left_alone(server, admin):
    admin.execute(
        "CREATE SCHEMA refork_notes; CREATE TABLE refork_notes.note (x int); CREATE SCHEMA refork_empty"
    )
    for mode in ("a", "r"):
        with pytest.raises(NotATree, match="something else"):
            Tree.open(server.address("notes"), mode)
    with pytest.raises(NotATree, match="no tree"):
        Tree.open(server.address("empty"), "r")
    # An administrator may have made it, so that a user need not create any.
    with Tree.open(server.address("empty")) as tree:
        small(tree)


def older(address, admin):
    """Make a tree what version 1 made; its only score."""
    with Tree.open(address) as tree:
        node = tree.append(step("task", "old"))[0]
        score = Score(node.id, "success", 1.0, tree.add_producer(Producer("judge")))
        tree.add_scores([score])
    schema = parse_address(address).schema
    admin.execute(f'ALTER TABLE "{schema}".scores DROP COLUMN reason')
    for table in SEALED:
        admin.execute(f'ALTER TABLE "{schema}".{table} DROP COLUMN seal')
    admin.execute(f"UPDATE \"{schema}\".meta SET value = '1' WHERE key = 'version'")
    return score


def test_an_older_tree_is_migrated(address, admin):
    score = older(address, admin)
    with pytest.raises(TreeVersion, match="--migrate"):
        Tree.open(address, "r")
    with Tree.open(address) as tree:
        assert list(tree.scores()) == [score]
        assert tree.stats().version == VERSION
        new = tree.add_producer(Producer("judge", "2"))
        tree.add_scores([Score(score.node, "success", 0.0, new, "looked again")])
        assert [s.reason for s in tree.scores()] == [None, "looked again"]
        assert list(tree.verify()) == []


def test_a_failed_migration_changes_nothing(address, admin, monkeypatch):
    older(address, admin)
    steps = {1: ("ALTER TABLE scores ADD COLUMN reason TEXT", "ALTER TABLE nothing ADD COLUMN x TEXT")}
    monkeypatch.setattr("refork.tree.server.MIGRATIONS", steps)
    with pytest.raises(TreeError, match="nothing"):
        Tree.open(address)
    monkeypatch.undo()
    with Tree.open(address) as tree:
        assert tree.stats().version == VERSION


def test_a_newer_tree_is_refused(address, admin):
    Tree.open(address).close()
    admin.execute(f"UPDATE \"{parse_address(address).schema}\".meta SET value = '99' WHERE key = 'version'")
    for mode in ("a", "r"):
        with pytest.raises(TreeVersion, match="newer"):
            Tree.open(address, mode)


def test_a_tree_restored_on_another_server(address, admin):
    with Tree.open(address) as tree:
        root, *_ = small(tree)
        tree.add_scores([Score(root.id, "success", 1.0, tree.add_producer(Producer("judge")))])
    schema = parse_address(address).schema
    # Its rows bear the numbers of transactions that have not happened here.
    for table in ("nodes", "scores"):
        admin.execute(f"UPDATE \"{schema}\".{table} SET tx = '999999999999'")
    admin.execute(f"UPDATE \"{schema}\".meta SET value = '1' WHERE key = 'cluster'")
    with pytest.raises(TreeVersion, match="restored"):
        Tree.open(address, "r")
    with Tree.open(address) as tree:
        assert sum(1 for _ in tree.walk()) == 6
    with Tree.open(address, "r") as tree:
        assert len(list(tree.scores())) == 1


def test_rights(server, address, admin):
    admin.execute("DROP ROLE IF EXISTS guest; CREATE ROLE guest LOGIN")
    name = parse_address(address).tree
    mine = server.address(name, user="guest")
    with pytest.raises(TreeError, match="forbids"):
        Tree.open(mine)
    with Tree.open(address) as tree:
        small(tree)
    with pytest.raises(TreeError, match="may not use the schema"):
        Tree.open(mine, "r")
    schema = f"refork_{name}"
    admin.execute(
        f"GRANT USAGE ON SCHEMA {schema} TO guest; GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO guest"
    )
    with Tree.open(mine) as tree:
        assert len(list(tree.walk())) == 6
        with pytest.raises(TreeError, match="forbids") as caught:
            tree.append(NewNode(kind="task", text="mine"))
        assert "rights" in caught.value.hint
    admin.execute(
        f"GRANT INSERT ON ALL TABLES IN SCHEMA {schema} TO guest; "
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO guest"
    )
    with Tree.open(mine) as tree:
        tree.append(NewNode(kind="task", text="mine"))
        tree.add_scores([Score(next(tree.tasks()).id, "v", 1.0, tree.add_producer(Producer("p")))])
        # Who only adds cannot take back.
        with pytest.raises(TreeError, match="forbids"):
            tree.retire(tree.producers()[0].id, "no")
    admin.execute("DROP OWNED BY guest; DROP ROLE guest")


def test_no_connection(server, monkeypatch):
    with pytest.raises(TreeError, match="gives no connection") as caught:
        Tree.open(server.address("t", database="nowhere"))
    assert "database" in caught.value.hint
    monkeypatch.delenv("PGPASSWORD", raising=False)
    monkeypatch.setenv("PGPASSFILE", "/dev/null")
    with pytest.raises(TreeError) as caught:
        Tree.open(server.address("t", user="guarded"))
    assert "PGPASSWORD" in caught.value.hint
    monkeypatch.setenv("PGPASSWORD", "hush")
    with pytest.raises(TreeError) as caught:
        Tree.open(server.address("t", user="guarded"))
    assert "check the user's name" in caught.value.hint
    assert "hush" not in str(caught.value)


def test_a_database_of_another_encoding(server, admin):
    admin.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    with pytest.raises(TreeError, match="UTF8"):
        Tree.open(server.address("t", database="latin"))
    admin.execute("DROP DATABASE latin")


def test_what_cannot_be_stored_is_refused_whole(address):
    with Tree.open(address) as tree:
        for text in ("nul \x00 inside", "half \ud800"):
            with pytest.raises(BadInput):
                tree.append([NewNode(kind="task", text="fine"), NewNode(kind="task", text=text)])
        assert len(tree) == 0
        with pytest.raises(UnknownNode, match="no node"):
            tree.node("ab" * 16)
        tree.append(NewNode(kind="task", text="fine", extra={"nul": "\x00"}))
        assert next(tree.tasks()).extra == {"nul": "\x00"}


def test_a_server_that_takes_no_writes(address, admin):
    Tree.open(address).close()
    admin.execute("ALTER ROLE refork SET default_transaction_read_only TO on")
    try:
        with Tree.open(address) as tree:
            tree.append(NewNode(kind="task"))  # what a role prefers is no rule
            tree._db.run(b"SET default_transaction_read_only TO on")
            with pytest.raises(TreeError, match="takes no writes"):
                tree.append(NewNode(kind="task"))
            assert len(tree) == 1
    finally:
        admin.execute("ALTER ROLE refork RESET default_transaction_read_only")


def test_a_tree_that_is_removed_while_it_is_open(address, admin):
    with Tree.open(address) as tree:
        admin.execute(f'DROP SCHEMA "{parse_address(address).schema}" CASCADE')
        with pytest.raises(NotATree, match="removed"):
            tree.append(NewNode(kind="task"))


def test_what_another_program_spoilt_is_found(address, admin):
    with Tree.open(address) as tree:
        small(tree)
    schema = parse_address(address).schema
    admin.execute(
        f'SET session_replication_role TO replica; UPDATE "{schema}".nodes SET parent = 99 WHERE depth = 2'
    )
    with Tree.open(address, "r") as tree:
        (finding,) = tree.verify()
    assert finding.what == "row 6 of nodes refers to a row of nodes that does not exist"


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        ("DiskFull", DiskFull), ("IdleInTransactionSessionTimeout", TreeError), ("QueryCanceled", TreeError),
        ("DataCorrupted", NotATree), ("IndexCorrupted", NotATree),
        ("NumericValueOutOfRange", BadInput), ("AdminShutdown", TreeError), ("CannotConnectNow", TreeError),
        ("SyntaxError", TreeError),
    ],
)  # fmt: skip
def test_errors_of_the_server(error, ours):
    psycopg = pytest.importorskip("psycopg")
    from refork.tree.server_errors import translated

    with pytest.raises(ours, match="something"), translated("here"):
        raise getattr(psycopg.errors, error)("\nsomething\nDETAIL: more")
    for busy in ("LockNotAvailable", "SerializationFailure", "DeadlockDetected", "UniqueViolation"):
        with pytest.raises(TreeBusy), translated("here"):
            raise getattr(psycopg.errors, busy)("something")


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with pytest.raises(CannotDo, match=r"pip install 'psycopg\[binary\]>="):
        Tree.open("postgresql://host/db?tree=a")


def exported(tree):
    out = io.StringIO()
    Native().write(tree.records(), out)
    return out.getvalue()


@settings(max_examples=12)
@given(trees(size=8))
def test_what_one_store_exports_the_other_imports(server, tree):
    place = server.address("copy")
    try:
        with Tree.open(place, "x") as shared, Tree.memory() as back:
            shared.load(tree.records())
            assert exported(shared) == exported(tree)
            back.load(shared.records())
            assert exported(back) == exported(tree)
            assert shared.load(tree.records()).nodes == 0
            assert list(shared.verify()) == []
            drawn = shared.outline(), tree.outline()
            assert [(x.guide, x.below, x.mean) for x in drawn[0].lines] == [
                (x.guide, x.below, x.mean) for x in drawn[1].lines
            ]
    finally:
        import psycopg

        with psycopg.connect(server.conninfo(), autocommit=True) as connection:
            connection.execute("DROP SCHEMA IF EXISTS refork_copy CASCADE")


def test_a_tree_made_while_the_package_was_ramify_keeps_its_schema(server):
    psycopg = pytest.importorskip("psycopg")
    address = server.address("former")
    with Tree.open(address) as tree:
        (node,) = tree.append(step("task", "before"))
    with psycopg.connect(server.conninfo(), autocommit=True) as connection:
        connection.execute("ALTER SCHEMA refork_former RENAME TO ramify_former")
    with Tree.open(address, mode="r") as tree:
        assert tree.node(node.id).text == "before"
    with Tree.open(address) as tree:
        assert len(tree) == 1
        tree.append(step("task", "after"))
    with psycopg.connect(server.conninfo(), autocommit=True) as connection:
        sql = "SELECT count(*) FROM pg_namespace WHERE nspname = 'refork_former'"
        assert connection.execute(sql).fetchone() == (0,)
    with pytest.raises(NotATree, match="no tree 'missing'") as told:
        Tree.open(server.address("missing"), mode="r")
    assert "former" in told.value.hint
