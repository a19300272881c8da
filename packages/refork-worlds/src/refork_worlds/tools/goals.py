"""Goals over a database: parts that change rows or ask for a value, alone or one after another.

A part knows its words and the rows that it leads to; a goal's end is its last part's. Which parts stand
together decides the split: some pairs of kinds are seen in held-out tasks only.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from refork.types import Json
from refork.worlds.base import Split
from refork.worlds.dice import Dice
from refork_worlds.tools.schema import PEOPLE, THINGS, Column, Database, Row, Rows, Table, Value

#: Kinds of parts that change rows, and that ask.
CHANGES = ("set", "raise", "add", "remove")
ASKS = ("value", "hop", "count", "most", "sum")
#: Pairs that only held-out tasks have: each kind stands in other pairs in training.
HELD_OUT = frozenset(
    {
        ("set", "remove"), ("raise", "add"), ("add", "set"), ("remove", "raise"),
        ("set", "count"), ("raise", "most"), ("add", "sum"), ("remove", "value"), ("set", "hop"),
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a goal.

    ``table`` and ``row``: what it is about; ``column`` and ``value``: what changes, or what is asked.
    ``parents``: rows that it names by their text, as (table, id, text), for ``add`` with the column first.
    """

    kind: str
    text: str
    table: str
    row: int = 0
    column: str = ""
    value: Value = ""
    parents: tuple[tuple[str, str, str], ...] = ()
    values: tuple[tuple[str, Value], ...] = ()

    @property
    def answer(self) -> str | None:
        """What is asked for; None where rows are to change."""
        return str(self.value) if self.kind in ASKS else None


def draw_rows(database: Database, dice: Dice) -> Rows:
    """Random rows that hold every constraint."""
    rows: Rows = {}
    for table in database.tables:
        low, high = table.size
        count = low + dice.below(high - low + 1)
        pool = PEOPLE if table.name in ("members", "people") else THINGS
        names = dice.sample(pool, count)
        rows[table.name] = [
            {"id": i + 1, **{column.name: _value(column, names[i], rows, dice) for column in table.columns}}
            for i in range(count)
        ]
    return rows


def _value(column: Column, name: str, rows: Rows, dice: Dice) -> Value:
    if column.kind == "text":
        return name
    if column.kind == "choice":
        return dice.choice(column.choices)
    if column.kind == "ref":
        return dice.choice(rows[column.to])["id"]
    return column.low + dice.below(column.high - column.low + 1)


def _words(table: Table, row: Row) -> str:
    """How a part names a row: by its text."""
    return f"{table.one} {row[table.key.name]}" if table.key else f"{table.one} {row['id']}"


def _keyed(database: Database, verb: str) -> list[Table]:
    """Tables whose rows are found by their text, and that have a verb."""
    return [t for t in database.tables if t.key and "search" in t.verbs and verb in t.verbs]


def _set(database: Database, rows: Rows, dice: Dice) -> Part | None:
    table = dice.choice(_keyed(database, "update"))
    row, column = dice.choice(rows[table.name]), dice.choice(table.of("number", "choice"))
    value = _value(column, "", rows, dice)
    if value == row[column.name]:
        return None
    text = f"set {column.name} of {_words(table, row)} to {value}"
    return Part("set", text, table.name, int(row["id"]), column.name, value, (_named(table, row),))


def _raise(database: Database, rows: Rows, dice: Dice) -> Part | None:
    tables = [table for table in _keyed(database, "update") if table.of("number")]
    table = dice.choice(tables)
    row, column = dice.choice(rows[table.name]), dice.choice(table.of("number"))
    more = 1 + dice.below(3)
    text = f"raise {column.name} of {_words(table, row)} by {more}"
    value = int(row[column.name]) + more
    return Part("raise", text, table.name, int(row["id"]), column.name, value, (_named(table, row),))


def _add(database: Database, rows: Rows, dice: Dice) -> Part | None:
    table = dice.choice([t for t in database.tables if t.of("ref") and "create" in t.verbs])
    parents, values, words = [], [], []
    taken = {row[table.key.name] for row in rows[table.name]} if table.key else set()
    for column in table.columns:
        value = _value(column, dice.choice([t for t in THINGS if t not in taken]), rows, dice)
        values.append((column.name, value))
        shown = value
        if column.kind == "ref":
            parent = database.table(column.to)
            row = next(row for row in rows[column.to] if row["id"] == value)
            parents.append(_named(parent, row))
            shown = parents[-1][2]
        words.append(f"{column.name} {shown}")
    text = f"add a {table.one} with {' , '.join(words)}"
    return Part("add", text, table.name, parents=tuple(parents), values=tuple(values))


def _remove(database: Database, rows: Rows, dice: Dice) -> Part | None:
    table = dice.choice([t for t in database.tables if t.of("ref") and "delete" in t.verbs])
    row = dice.choice(rows[table.name])
    if table.key:
        named = (_named(table, row),)
        return Part("remove", f"delete {_words(table, row)}", table.name, int(row["id"]), parents=named)
    column = table.of("ref")[0]
    parent = next(one for one in rows[column.to] if one["id"] == row[column.name])
    if sum(one[column.name] == parent["id"] for one in rows[table.name]) != 1:
        return None
    above = database.table(column.to)
    text = f"delete the {table.one} of {_words(above, parent)}"
    return Part("remove", text, table.name, int(row["id"]), column.name, parents=(_named(above, parent),))


def _ask_value(database: Database, rows: Rows, dice: Dice) -> Part | None:
    table = dice.choice(_keyed(database, "get"))
    row, column = dice.choice(rows[table.name]), dice.choice(table.of("number", "choice"))
    text = f"tell {column.name} of {_words(table, row)}"
    value = row[column.name]
    return Part("value", text, table.name, int(row["id"]), column.name, value, (_named(table, row),))


def _hop(database: Database, rows: Rows, dice: Dice) -> Part | None:
    table = dice.choice([t for t in database.tables if t.of("ref") and "get" in t.verbs])
    ref, row = dice.choice(table.of("ref")), dice.choice(rows[table.name])
    above = database.table(ref.to)
    parent = next(one for one in rows[above.name] if one["id"] == row[ref.name])
    column = dice.choice(above.columns)
    text = f"tell {column.name} of the {above.one} of {table.one} {row['id']}"
    return Part("hop", text, table.name, int(row["id"]), f"{ref.name}.{column.name}", parent[column.name])


def _related(
    database: Database, rows: Rows, dice: Dice, verb: str
) -> tuple[Table, Column, Row, list[Row]] | None:
    """A table of refs, one of them, a row it points to, and the rows that point there."""
    table = dice.choice([t for t in database.tables if t.of("ref") and verb in t.verbs])
    column = dice.choice(table.of("ref"))
    if not rows[table.name]:
        return None
    parent = dice.choice(rows[column.to])
    return table, column, parent, [row for row in rows[table.name] if row[column.name] == parent["id"]]


def _count(database: Database, rows: Rows, dice: Dice) -> Part | None:
    found = _related(database, rows, dice, "count")
    if found is None:
        return None
    table, column, parent, members = found
    above = database.table(column.to)
    text = f"count the {table.name} of {_words(above, parent)}"
    return Part("count", text, table.name, 0, column.name, len(members), (_named(above, parent),))


def _sum(database: Database, rows: Rows, dice: Dice) -> Part | None:
    found = _related(database, rows, dice, "sum")
    if found is None or not found[3]:
        return None
    table, column, parent, members = found
    above, number = database.table(column.to), dice.choice(table.of("number"))
    total = sum(int(row[number.name]) for row in members)
    text = f"sum {number.name} of the {table.name} of {_words(above, parent)}"
    where = f"{column.name}.{number.name}"
    return Part("sum", text, table.name, 0, where, total, (_named(above, parent),))


def _most(database: Database, rows: Rows, dice: Dice) -> Part | None:
    tables = [t for t in database.tables if t.key and t.of("number") and "list" in t.verbs]
    table = dice.choice(tables)
    column = dice.choice(table.of("number"))
    best = sorted(rows[table.name], key=lambda row: -int(row[column.name]))
    # Two rows with the most would be two right answers.
    if table.key is None or len(best) < 2 or best[0][column.name] == best[1][column.name]:
        return None
    text = f"tell the {table.one} with the most {column.name}"
    return Part("most", text, table.name, int(best[0]["id"]), column.name, best[0][table.key.name])


def _named(table: Table, row: Row) -> tuple[str, str, str]:
    return (table.name, str(row["id"]), str(row[table.key.name]) if table.key else "")


Drawer: TypeAlias = Callable[[Database, Rows, Dice], Part | None]
_DRAW: dict[str, Drawer] = {
    "set": _set, "raise": _raise, "add": _add, "remove": _remove, "value": _ask_value,
    "hop": _hop, "count": _count, "sum": _sum, "most": _most,
}  # fmt: skip


def after(rows: Rows, part: Part) -> Rows:
    """The rows once a part is done."""
    rows = copy.deepcopy(rows)
    these = rows[part.table]
    if part.kind in ("set", "raise"):
        next(row for row in these if row["id"] == part.row)[part.column] = part.value
    elif part.kind == "remove":
        these[:] = [row for row in these if row["id"] != part.row]
    elif part.kind == "add":
        number = max((int(row["id"]) for row in these), default=0) + 1
        these.append({"id": number, **dict(part.values)})
    return rows


@dataclass(frozen=True, slots=True)
class Goal:
    """Rows, the parts of a goal, and the rows that it ends in."""

    database: Database
    rows: Rows
    parts: tuple[Part, ...]
    end: Rows

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of its parts."""
        return tuple(part.kind for part in self.parts)

    @property
    def text(self) -> str:
        """What is to be done."""
        return " ; then ".join(part.text for part in self.parts)

    @property
    def answer(self) -> str | None:
        """What is to be submitted; None where nothing is asked."""
        return self.parts[-1].answer

    @property
    def split(self) -> Split:
        """The split of its composition."""
        return "held-out" if self.kinds in HELD_OUT else "train"

    def reached(self, rows: Rows) -> bool:
        """Whether rows are those of the end; rows that were added count without their ids."""
        return _comparable(self.rows, rows) == _comparable(self.rows, self.end)


def _comparable(first: Rows, rows: Rows) -> Json:
    out: Json = {}
    for table, these in rows.items():
        old = {row["id"] for row in first[table]}
        kept = [row for row in these if row["id"] in old]
        new = [{k: v for k, v in row.items() if k != "id"} for row in these if row["id"] not in old]
        out[table] = (kept, sorted(new, key=lambda row: sorted((k, str(v)) for k, v in row.items())))
    return out


def draw_goal(database: Database, split: Split, dice: Dice) -> Goal | None:
    """A random goal of a split; None where this draw has none."""
    rows = draw_rows(database, dice)
    kinds: tuple[str, ...]
    if split == "held-out":
        kinds = dice.choice(sorted(HELD_OUT))
    elif dice.below(3) == 0:
        kinds = (dice.choice(CHANGES + ASKS),)
    else:
        pairs = [(a, b) for a in CHANGES for b in CHANGES + ASKS if (a, b) not in HELD_OUT]
        kinds = dice.choice(pairs)
    now, parts = rows, []
    for kind in kinds:
        part = _DRAW[kind](database, now, dice)
        if part is None:
            return None
        parts.append(part)
        now = after(now, part)
    goal = Goal(database, rows, tuple(parts), now)
    # Two changes may undo each other: then nothing would have to be done.
    return None if goal.answer is None and goal.reached(rows) else goal
