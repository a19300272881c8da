"""Tree files damaged in the ways that a disk, a program or a person damages them; the same for a number."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from typer.testing import CliRunner

from refork.cli.tree import app
from refork.errors import ReforkError
from refork.forking.arm import fork
from refork.forking.change import EditMessage, Insert
from refork.formats import writers
from refork.growing.plant import plant
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree import Tree
from refork.tree.browse import Filter
from refork.tree.view import TreeView
from refork.viewer.live import answers
from support.worlds import TwoTurns

#: What a JSON or text column is made into.
TEXTS: Final = (
    "", "{", "[1]", "7", "null", '"text"', '{"a": ', "[" * 100_000, '{"a":' * 100_000, '{"messages": 7}',
    '{"messages": [7]}', '{"messages": [{"role": 7}]}', '{"tool_calls": 7}', '{"pending": 7}',
    '{"content": {"a": 1}, "role": "user"}', '{"tokens_in": "many"}', '{"unknown": 1}', "NaN", "\x00",
    '{"task": 7, "world": 8}', '{"tools": 7}', '{"forced": 7}', '{"line": 7}', '{"span": 7, "trace": 7}',
)  # fmt: skip
#: Values of another kind than a column's.
VALUES: Final = (
    None,
    -1,
    2**62,
    1.5,
    float("inf"),
    b"",
    b"\xff\xfe",
    b"abc",
    "x",
    "\udcff".encode("utf-8", "surrogatepass"),
)


def good(file: Path) -> Path:
    """A tree with rollouts of two tasks, forks, an edit, an insertion, scores, draws and snapshots."""
    policy = ScriptedPolicy.from_replies(["go left now", "ask Élan why", " a"])
    world = TwoTurns(max_turns=2)
    with Tree.open(file) as tree:
        for start in plant(tree, policy, world, world.tasks("train", 2)):
            (trajectory,) = fork(start, policy, 1, world=world, settings=Sampling(max_tokens=12)).leaves()
            said = next(step.node for step in trajectory if step.node.kind == "action")
            for change in (None, EditMessage(0, "Another."), Insert(text=" hm")):
                fork(tree.at(said, 1), policy, 2, change, world=world)
    # All in one file, as after a copy.
    with sqlite3.connect(file) as raw:
        raw.execute("PRAGMA journal_mode = DELETE")
    raw.close()
    return file


def _columns(raw: sqlite3.Connection) -> list[tuple[str, str]]:
    tables = [name for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return [(table, row[1]) for table in tables for row in raw.execute(f"PRAGMA table_info({table})")]


def _cell(file: Path, rng: random.Random) -> str:
    """One value of one row, or of all rows, made another one."""
    raw = sqlite3.connect(file)
    raw.execute("PRAGMA foreign_keys = OFF")
    raw.execute("PRAGMA ignore_check_constraints = ON")
    table, column = rng.choice([c for c in _columns(raw) if c[1] != "row" or rng.random() < 0.2])
    value = rng.choice(TEXTS if rng.random() < 0.6 else VALUES)
    rows = [row for (row,) in raw.execute(f"SELECT rowid FROM {table}")]
    chosen = rows if rng.random() < 0.2 else rng.sample(rows, min(1, len(rows)))
    for row in chosen:
        try:
            raw.execute(f'UPDATE {table} SET "{column}" = ? WHERE rowid = ?', (value, row))
            if isinstance(value, bytes) and rng.random() < 0.5:
                # Bytes that say of themselves that they are text.
                raw.execute(
                    f'UPDATE {table} SET "{column}" = CAST("{column}" AS TEXT) WHERE rowid = ?', (row,)
                )
        except sqlite3.Error:
            continue
    raw.commit()
    raw.close()
    return f"{table}.{column} = {str(value)[:30]!r} in {len(chosen)} row(s)"


def _bytes(file: Path, rng: random.Random) -> str:
    data = bytearray(file.read_bytes())
    count = rng.choice([1, 1, 2, 8, 64])
    for _ in range(count):
        data[rng.randrange(100, len(data))] = rng.randrange(256)
    file.write_bytes(data)
    return f"{count} byte(s)"


def _letters(file: Path, rng: random.Random) -> str:
    """Bytes of texts, JSON and ids changed where they stand, which no page's own structure shows."""
    data = bytearray(file.read_bytes())
    places = [at for at in range(100, len(data)) if data[at] in b'{}[]":,abcdefghijklmnopqrstuvwxyz']
    for at in rng.sample(places, min(len(places), rng.choice([1, 3, 10]))):
        data[at] = rng.choice([0xFF, 0xC3, 0x00, 0x7B, 0x22, 0x39])
    file.write_bytes(data)
    return "letters"


def _page(file: Path, rng: random.Random) -> str:
    data = bytearray(file.read_bytes())
    size = 4096
    count = len(data) // size
    one, other = rng.randrange(1, count), rng.randrange(1, count)
    kind = rng.choice(["zeros", "noise", "copy"])
    put = (
        bytes(size)
        if kind == "zeros"
        else rng.randbytes(size)
        if kind == "noise"
        else data[other * size :][:size]
    )
    data[one * size : (one + 1) * size] = put
    file.write_bytes(data)
    return f"page {one}: {kind}"


def _cut(file: Path, rng: random.Random) -> str:
    data = file.read_bytes()
    end = rng.randrange(len(data))
    file.write_bytes(data[:end])
    return f"cut at {end}"


def _rows(file: Path, rng: random.Random) -> str:
    """Rows that others refer to are gone, or refer to themselves."""
    raw = sqlite3.connect(file)
    raw.execute("PRAGMA foreign_keys = OFF")
    table = rng.choice(
        [name for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    )
    row = raw.execute(
        f"SELECT rowid FROM {table} ORDER BY rowid LIMIT 1 OFFSET ?", (rng.randrange(6),)
    ).fetchone()
    if row is not None and table == "nodes" and rng.random() < 0.5:
        raw.execute("UPDATE nodes SET parent = row WHERE row = ?", row)
    elif row is not None:
        raw.execute(f"DELETE FROM {table} WHERE rowid = ?", row)
    raw.commit()
    raw.close()
    return f"{table}: row {row}"


DAMAGES: Final[tuple[Callable[[Path, random.Random], str], ...]] = (
    _cell, _cell, _cell, _bytes, _letters, _page, _cut, _rows,
)  # fmt: skip


def spoil(source: Path, file: Path, number: int) -> str:
    """Write damaged file ``number`` of a good one; what was done to it."""
    rng = random.Random(number)
    file.write_bytes(source.read_bytes())
    return DAMAGES[number % len(DAMAGES)](file, rng)


def _commands(file: Path, folder: Path) -> Iterator[list[str]]:
    node = _some_node(file)
    yield ["stats", str(file)]
    yield ["list", str(file)]
    yield ["show", str(file)]
    yield ["verify", str(file)]
    if node is not None:
        yield ["path", str(file), node]
    for writer in writers():
        yield ["export", str(file), str(folder / f"out.{writer.name}"), "--format", writer.name, "--force"]
    yield ["merge", str(folder / "into.db"), str(file)]


def _some_node(file: Path) -> str | None:
    try:
        raw = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
        raw.text_factory = bytes
        found = raw.execute("SELECT id FROM nodes ORDER BY row DESC LIMIT 1").fetchone()
        raw.close()
        return found[0].hex() if found is not None and isinstance(found[0], bytes) else None
    except (sqlite3.Error, UnicodeDecodeError):
        return None


def _viewed(file: Path) -> None:
    """Everything that the viewer asks of a tree."""
    with Tree.open(file, "r") as tree:
        view = TreeView(tree)
        answers.tree(view, "t")
        for row in answers.tasks(view, Filter(), "written", 0, 20, "success")["tasks"]:
            lines = view.lines(row["id"], "success")
            answers.shape(lines, view.version())
            answers.window(view, lines, range(min(len(lines), 50)))
            answers.effects(view, lines)
        for node in list(tree.walk())[:60]:
            answers.nodes(view, [node.id])
            answers.walk(view, node.id)
            answers.branches(view, node.id, "success")
            answers.node_scores(view, node.id)


def crashes(file: Path, folder: Path) -> Iterator[tuple[str, BaseException]]:
    """The reading commands that end in anything but a result or an error of the house."""
    for command in _commands(file, folder):
        result = CliRunner().invoke(app, command)
        error = result.exception
        if error is not None and not isinstance(error, (SystemExit, ReforkError)):
            yield " ".join(command[:1] + command[3:]), error
    try:
        _viewed(file)
    except ReforkError:
        pass
    except Exception as error:
        yield "view", error
    for left in folder.glob("into.db*"):
        left.unlink()
