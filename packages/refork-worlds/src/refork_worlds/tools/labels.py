"""Rows and notes in words that a very small model can copy by look-ups of one token and extend step by step.

A row is named by one run of letters, the first letter of its table and its id in letters: book 2 is ``Bb``,
and stands with its values between colons, so that each is the same word here and in an answer.
Notes hold all that decides an answer, one step a line; none holds what is only known after the call.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from refork_worlds.tools.goals import Goal
from refork_worlds.tools.schema import MOST, Database, Row, Rows, Table, Value, Verb

#: Every fixed word of the notes.
WORDS = "row rows no yes count sum last free unused new wanted now none same other right wrong said nothing"
_SCANS: Mapping[Verb, str] = {"list": "rows", "search": "rows", "count": "count", "sum": "sum"}
_LONGEST = 40


def label(table: Table, number: int) -> str:
    """The name of a row, by its id from 1 on: ``Ba`` .. ``Bz``, ``Baa`` .."""
    letters = ""
    while number > 0:
        number, place = divmod(number - 1, 26)
        letters = chr(ord("a") + place) + letters
    return table.name[0].upper() + letters


def all_labels(database: Database) -> list[str]:
    """Every label that a text can hold."""
    return [label(table, number) for table in database.tables for number in range(1, MOST + 1)]


def _values(database: Database, table: Table, row: Mapping[str, Value]) -> str:
    """The values that a row has, in the order of its columns; a reference is a label."""
    shown = []
    for column in table.columns:
        if column.name in row:
            value = row[column.name]
            shown.append(label(database.table(column.to), int(value)) if column.kind == "ref" else value)
    return ":".join(map(_words, shown))


def _words(value: Value) -> str:
    """A value in one line, whatever white space it holds."""
    return " ".join(str(value).split())


def line(database: Database, table: Table, row: Row) -> str:
    """A row: its label and its values."""
    return f"{label(table, int(row['id']))}:{_values(database, table, row)}"


def state(database: Database, rows: Rows) -> str:
    """All rows, those of each table below its name and its columns."""
    lines = []
    for table in database.tables:
        lines.append(f"{table.name} : {' '.join(column.name for column in table.columns)}")
        lines += [line(database, table, row) for row in rows[table.name]]
    return "\n".join(lines)


def _row(rows: Rows, table: Table, number: Value) -> Row | None:
    return next((row for row in rows[table.name] if row["id"] == number), None)


def call_note(
    database: Database,
    rows: Rows,
    table: Table,
    verb: Verb,
    given: Mapping[str, Value],
    matched: Collection[Value] = (),
) -> str:
    """What decides the answer to a call whose arguments are checked, from the rows before it.

    ``matched``: for list, search, count and sum, the ids of the rows that fit the arguments.
    """
    if verb in _SCANS:
        return "\n".join(_scan(database, rows, table, verb, given, matched))
    if verb == "create":
        these = rows[table.name]
        first = f"last {label(table, int(these[-1]['id']))}" if these else "no rows"
        return "\n".join([first, *_checks(database, rows, table, given, None)])
    row = _row(rows, table, given["id"])
    if row is None:
        return "no row"
    lines = [line(database, table, row)]
    if verb == "update":
        lines += _checks(database, rows, table, given, row["id"])
    if verb == "delete":
        lines += _users(database, rows, table, row["id"]) or ["unused"]
    return "\n".join(lines)


def _scan(
    database: Database,
    rows: Rows,
    table: Table,
    verb: Verb,
    given: Mapping[str, Value],
    matched: Collection[Value],
) -> list[str]:
    """Every row, what it has beside what is asked for, whether that fits, and what is counted so far.

    Both stand side by side, so that they are compared without another look at the row or at the call.
    """
    asked = {column.name: given[column.name] for column in table.columns if column.name in given}
    if verb == "search" and table.key is not None:
        asked = {table.key.name: str(given["text"]).lower()}
    wanted = _values(database, table, asked)
    found = total = 0
    lines = []
    for row in rows[table.name]:
        fits = row["id"] in matched
        found += fits
        total += int(row[str(given["column"])]) if fits and verb == "sum" else 0
        has = _values(database, table, {name: row[name] for name in asked})
        beside = f";{has}={wanted}" if asked else ""
        counted = f" yes {total if verb == 'sum' else found}"
        lines.append(line(database, table, row) + beside + (counted if fits else " no"))
    return [*(lines or ["no rows"]), f"{_SCANS[verb]} {total if verb == 'sum' else found}"]


def _checks(
    database: Database, rows: Rows, table: Table, given: Mapping[str, Value], number: Value | None
) -> list[str]:
    """What the references and the unique text of a write meet; ``number``: the row that is written."""
    lines = []
    for column in table.of("ref"):
        if column.name in given:
            above = database.table(column.to)
            row = _row(rows, above, given[column.name])
            missing = f"no row {label(above, int(given[column.name]))}"
            lines.append(missing if row is None else line(database, above, row))
    key = table.key
    if key is not None and key.name in given:
        holders = [one for one in rows[table.name] if one[key.name] == given[key.name]]
        others = [line(database, table, one) for one in holders if one["id"] != number]
        lines += others or ["free"]
    return lines


def _users(database: Database, rows: Rows, table: Table, number: Value) -> list[str]:
    return [
        line(database, child, row)
        for child, column in database.children(table.name)
        for row in rows[child.name]
        if row[column.name] == number
    ]


def submit_note(goal: Goal, rows: Rows, output: str) -> str:
    """What decides a verdict: each row that changed or had to, then the rows, then the answer if asked.

    Rows that were added are compared without their ids, as :meth:`Goal.reached` does. ``output``: the answer
    that was submitted, in lower case; empty for none.
    """
    lines = []
    for table in goal.database.tables:
        lines += [*_row_lines(goal, rows, table), *_added(goal, rows, table)]
    lines.append("rows right" if goal.reached(rows) else "rows wrong")
    if goal.answer is not None:
        # A policy can say half of a surrogate pair, which no file can hold.
        shown = _words(output[:_LONGEST].encode("utf-8", "replace").decode()) or "nothing"
        verdict = "right" if output == goal.answer.lower() else "wrong"
        lines.append(f"wanted {goal.answer} said {shown} {verdict}")
    return "\n".join(lines)


def _compared(goal: Goal, table: Table, name: str, wanted: Row | None, now: Row | None, same: bool) -> str:
    shown = ["none" if row is None else _values(goal.database, table, row) for row in (wanted, now)]
    return f"{name} wanted:{shown[0]} now:{shown[1]} {'same' if same else 'other'}"


def _row_lines(goal: Goal, rows: Rows, table: Table) -> list[str]:
    lines = []
    for first in goal.rows[table.name]:
        wanted, now = (_row(some, table, first["id"]) for some in (goal.end, rows))
        if wanted != first or now != first:
            name = label(table, int(first["id"]))
            lines.append(_compared(goal, table, name, wanted, now, wanted == now))
    return lines


def _added(goal: Goal, rows: Rows, table: Table) -> list[str]:
    """Added rows, wanted and there: those that are alike stand together, the rest in order of ids."""
    old = {row["id"] for row in goal.rows[table.name]}
    wanted = [row for row in goal.end[table.name] if row["id"] not in old]
    now = [row for row in rows[table.name] if row["id"] not in old]
    lines, rest = [], []
    for one in wanted:
        alike = next((row for row in now if {**row, "id": 0} == {**one, "id": 0}), None)
        if alike is None:
            rest.append(one)
        else:
            # Each row that is there stands for one wanted row only.
            now.remove(alike)
            lines.append(_compared(goal, table, "new", one, alike, True))
    for place in range(max(len(rest), len(now))):
        pair = [some[place] if place < len(some) else None for some in (rest, now)]
        lines.append(_compared(goal, table, "new", pair[0], pair[1], False))
    return lines
