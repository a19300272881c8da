"""Trees on a server whose schema holds more than a tree: code, hidden rows, other definitions; all named."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from refork.errors import NotATree
from refork.tree import NewNode, Tree
from tree.tree_builders import small

_RETURNS = "CREATE FUNCTION public.tidy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {} RETURN NEW; END $$"


@pytest.fixture
def psycopg(server):
    return pytest.importorskip("psycopg")


@pytest.fixture
def run(server, address, psycopg):
    """A function that runs statements in a tree's schema as its owner, who may do anything."""
    schema = f"refork_{address.rpartition('=')[2]}"

    def run(*statements):
        with psycopg.connect(server.conninfo(), autocommit=True) as connection:
            connection.execute(f'SET search_path TO "{schema}", public')
            for statement in statements:
                last = connection.execute(statement)
            return last.fetchall() if last.description else None

    yield run
    run("DROP FUNCTION IF EXISTS public.tidy() CASCADE", "DROP TABLE IF EXISTS public.more")


_CASES = {
    "a trigger deletes a node on append": (
        [
            _RETURNS.format("DELETE FROM nodes WHERE depth = 2;"),
            "CREATE TRIGGER tidying AFTER INSERT ON nodes FOR EACH ROW EXECUTE FUNCTION public.tidy()",
        ],
        "trigger 'tidying'",
    ),
    "a rule writes something else": (
        ["CREATE RULE kept AS ON INSERT TO scores DO INSTEAD NOTHING"],
        "rule 'kept'",
    ),
    "a view stands for the scores": (
        ["ALTER TABLE scores RENAME TO hidden", "CREATE VIEW scores AS SELECT * FROM hidden"],
        "'_RETURN'|'hidden'",
    ),
    "a view without end stands for the facts": (
        [
            "ALTER TABLE meta RENAME TO hidden",
            "CREATE VIEW meta AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT 1 FROM n) "
            "SELECT 'version'::text AS key, x::text AS value FROM n",
        ],
        "something else than a tree",
    ),
    "rows are hidden from some": (
        ["ALTER TABLE nodes ENABLE ROW LEVEL SECURITY", "CREATE POLICY few ON nodes USING (depth < 2)"],
        "row policy 'few'",
    ),
    "all rows are hidden": (["ALTER TABLE nodes ENABLE ROW LEVEL SECURITY"], "nodes shows each user"),
    "producers are born retired": (
        ["ALTER TABLE producers ALTER COLUMN retired_at SET DEFAULT 1"],
        "column producers.retired_at",
    ),
    "a computed column": (
        [
            "ALTER TABLE scores DROP COLUMN reason",
            "ALTER TABLE scores ADD COLUMN reason TEXT COLLATE \"C\" GENERATED ALWAYS AS ('fine') STORED",
        ],
        "column scores.reason",
    ),
    "a column more": (["ALTER TABLE draws ADD COLUMN note text"], "column draws.'note'"),
    "a column of a type of its own": (
        ["CREATE DOMAIN kind AS text CHECK (VALUE <> 'verdict')", "ALTER TABLE nodes ALTER kind TYPE kind"],
        "type 'kind'",
    ),
    "a check": (["ALTER TABLE nodes ADD CONSTRAINT no CHECK (depth < 3)"], "constraint 'no'"),
    "rows go with others": (
        [
            "ALTER TABLE scores DROP CONSTRAINT scores_producer_fkey",
            "ALTER TABLE scores ADD CONSTRAINT gone FOREIGN KEY (producer) REFERENCES producers(row) "
            "ON DELETE CASCADE",
        ],
        "constraint 'gone'",
    ),
    "an index refuses the second of a kind": (
        ["CREATE UNIQUE INDEX one ON nodes (kind) WHERE kind = 'verdict'"],
        "index 'one'",
    ),
    "an index calls a function": (
        [
            "CREATE FUNCTION public.tidy() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1'",
            "CREATE INDEX wide ON nodes ((depth + public.tidy()))",
        ],
        "index 'wide'",
    ),
    "a function takes a name that is asked for": (
        ["CREATE FUNCTION length(json) RETURNS int LANGUAGE sql AS 'SELECT 1'"],
        "function 'length'",
    ),
    "an operator fits better than the server's": (
        [
            "CREATE FUNCTION public.never(bigint, int) RETURNS boolean LANGUAGE sql AS 'SELECT false'",
            "CREATE OPERATOR < (LEFTARG = bigint, RIGHTARG = int, FUNCTION = public.never)",
            "ALTER FUNCTION public.never(bigint, int) RENAME TO tidier",
        ],
        "operator '<'",
    ),
    "rows of another table are among ours": (
        ["CREATE TABLE public.more () INHERITS (nodes)"],
        "others' rows.*'nodes'",
    ),
    "a table that a crash empties": (["ALTER TABLE draws SET UNLOGGED"], "draws is not a lasting"),
    "a table more": (["CREATE TABLE extra (x int)"], "'extra'"),
    "an index less": (["DROP INDEX nodes_parent"], "lacks an index of nodes over parent"),
    "a reference less": (["ALTER TABLE draws DROP CONSTRAINT draws_leaf_fkey"], "draws.leaf refers to no"),
}


@pytest.mark.parametrize("name", _CASES)
def test_a_schema_that_holds_more_than_a_tree_is_refused_by_name(name, run, address):
    statements, said = _CASES[name]
    with Tree.open(address) as tree:
        small(tree)
    run(*statements)
    for mode in ("r", "a"):
        with pytest.raises(NotATree, match=said):
            Tree.open(address, mode)
    count = "SELECT count(*) FROM nodes"
    assert run("SET row_security = off", count) == [(6,)]
    run("DROP FUNCTION IF EXISTS public.tidier(bigint, int) CASCADE")


def test_a_schema_that_was_prepared_for_a_tree_is_refused_before_anything_is_written(run, address, server):
    schema = f"refork_{address.rpartition('=')[2]}"
    run(
        f'CREATE SCHEMA "{schema}"',
        f"CREATE FUNCTION \"{schema}\".length(json) RETURNS int LANGUAGE sql AS 'SELECT 1'",
    )
    with pytest.raises(NotATree, match="function 'length'"):
        Tree.open(address)
    assert run(
        "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        f"WHERE nspname = '{schema}'"
    ) == [(0,)]


def test_temporary_tables_of_a_kept_session_stand_for_none_of_ours(address):
    with Tree.open(address) as tree:
        tree.append(NewNode(kind="task"))
        tree._db.run(b"CREATE TEMPORARY TABLE nodes (row bigint)")
        assert len(tree) == 1


def test_a_statement_of_the_server_hears_ctrl_c(address):
    with Tree.open(address) as tree:
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            tree._db.scalar("SELECT pg_sleep(60)")
        timer.join()
        assert len(tree) == 0
