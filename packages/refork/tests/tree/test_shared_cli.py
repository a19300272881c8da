"""The commands of docs/shared-store.md, and the others that take a tree, on a tree of a server."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from refork.cli import fork, grow, tree
from refork.cli.common import absolute, existing, tree_name
from refork.errors import BadInput
from refork.tree import Tree
from support.repository import ROOT
from tree.tree_builders import small

PAGE = ROOT / "docs" / "shared-store.md"
SHOWN = "postgresql://me@db.example.org/rollouts?tree=lock"

app = typer.Typer()
app.add_typer(tree.app, name="tree")
app.command("fork")(fork.fork_command)
app.command("grow")(grow.grow_command)


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout


def test_the_page_is_true(address, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Tree.open("home.db") as store:
        small(store)
    lines = [line[2:] for line in PAGE.read_text().splitlines() if line.startswith("$ refork")]
    assert len(lines) == 5
    said = [run(*shlex.split(line.replace(SHOWN, address))[1:]) for line in lines]
    assert "32 rollouts of 4 tasks in postgresql://" in said[0]
    assert "task" in said[1]
    assert "6 new nodes" in said[2]
    assert (
        run("tree", "export", address) == run("tree", "export", "lock.db") == Path("lock.jsonl").read_text()
    )
    # The same run on another machine meets what is there.
    again = run(*shlex.split(lines[0].replace(SHOWN, address).replace("runs/a", "runs/b"))[1:])
    assert "0 tokens sampled now" in again


def test_the_rights_that_the_page_lists(server, address):
    import psycopg

    name = re.search("tree=(.*)", address)[1]
    with Tree.open(address) as store:
        small(store)
    grants = re.search("```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
    with psycopg.connect(server.conninfo(), autocommit=True) as admin:
        admin.execute("CREATE ROLE reader LOGIN; CREATE ROLE writer LOGIN")
        admin.execute(grants.replace("refork_lock", f"refork_{name}"))
        with Tree.open(server.address(name, user="reader"), "r") as store:
            assert list(store.verify()) == []
            assert sum(1 for _ in store.records()) == 6
        with Tree.open(server.address(name, user="writer")) as store, Tree.memory() as other:
            small(other)
            assert store.merge(other).nodes == 0
        admin.execute("DROP OWNED BY reader; DROP OWNED BY writer; DROP ROLE reader; DROP ROLE writer")


def test_fork_and_merge(address, tmp_path):
    run("grow", "--world", "lock", "--policy", "scripted:lock", "--draws", 2, "--set", "tasks.count=1",
        "--set", "sampling.max_tokens=32", "--out", tmp_path / "run", "--tree", address)  # fmt: skip
    with Tree.open(address, "r") as store:
        node = next(n for n in store.walk() if n.kind == "action")
    before = json.loads(run("tree", "stats", address, "--json"))
    run("fork", "--tree", address, "--node", node.id, "--policy", "scripted:lock", "--draws", 4, "--json")
    after = json.loads(run("tree", "stats", address, "--json"))
    assert after["forks"] > before["forks"]
    assert after["draws"] == before["draws"] + 4
    assert "nothing found" in run("tree", "verify", address)
    assert f"of {address}" in run("tree", "schema", address).replace("\n", "")
    with pytest.raises(BadInput, match="into itself"):
        run("tree", "merge", address, address)


def test_addresses_are_no_files(address):
    folded = Path(address)
    assert existing(folded) is folded
    assert tree_name(folded) == absolute(folded) == address
    assert tree_name(Path("x/tree.db")) == "x/tree.db"
    assert Path(absolute(Path("tree.db"))).is_absolute()
