"""Scripted agents of the tools world: one that solves, one that errs and mends, one that explores."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from typing import Any, final

from refork.types import Json
from refork.worlds.dice import Dice
from refork.worlds.environment import ActionObservation
from refork_worlds.tools.call import call_text
from refork_worlds.tools.goals import Goal, Part
from refork_worlds.tools.schema import PEOPLE, THINGS, Column, Table, Value
from refork_worlds.tools.service import Tool, tools_of

SUBMIT = "submit"
_SLIPS = 3

#: What a plan says, what it is answered, and what it ends with.
Plan = Generator[str, Json, Any]


def submit_text(answer: str | None = None) -> str:
    """The last call of an episode."""
    return call_text(SUBMIT, {} if answer is None else {"answer": answer})


def _find(goal: Goal, table: str, text: str) -> Generator[str, Json, Json]:
    """Search a row by its text; its row."""
    seen = yield call_text(f"search_{table}", {"text": text})
    key = goal.database.table(table).key
    rows = [row for row in seen.get("rows", []) if key is not None and row[key.name] == text]
    return rows[0] if rows else {"id": 1}


def _change(goal: Goal, part: Part) -> Plan:
    table = goal.database.table(part.table)
    if part.kind == "add":
        values = dict(part.values)
        refs = table.of("ref")
        for column, (above, _, text) in zip(refs, part.parents, strict=True):
            values[column.name] = (yield from _find(goal, above, text))["id"]
        yield call_text(f"create_{table.one}", values)
        return
    row = yield from _find(goal, part.parents[0][0], part.parents[0][2])
    if part.kind == "remove":
        if table.key is None:
            seen = yield call_text(f"list_{table.name}", {part.column: row["id"]})
            row = (seen.get("rows") or [{"id": 1}])[0]
        yield call_text(f"delete_{table.one}", {"id": row["id"]})
    else:
        value = part.value
        if part.kind == "raise":
            more = int(part.text.rsplit(" ", 1)[1])
            value = int(row.get(part.column, 0)) + more
        yield call_text(f"update_{table.one}", {"id": row["id"], part.column: value})


def _ask(goal: Goal, part: Part) -> Generator[str, Json, str]:
    table = goal.database.table(part.table)
    if part.kind == "hop":
        ref, column = part.column.split(".")
        row = yield call_text(f"get_{table.one}", {"id": part.row})
        above = goal.database.table(table.column(ref).to)
        parent = yield call_text(f"get_{above.one}", {"id": row.get(ref, 1)})
        return str(parent.get(column))
    if part.kind == "most":
        return (yield from _most(table, part))
    row = yield from _find(goal, part.parents[0][0], part.parents[0][2])
    if part.kind == "value":
        return str(row.get(part.column))
    ref, _, column = part.column.partition(".")
    given = {"column": column, ref: row["id"]} if column else {ref: row["id"]}
    seen = yield call_text(f"{part.kind}_{table.name}", given)
    return str(seen.get(part.kind))


def _most(table: Table, part: Part) -> Generator[str, Json, str]:
    rows: list[Json] = []
    offset: int | None = 0
    while offset is not None:
        seen = yield call_text(f"list_{table.name}", {"offset": offset} if offset else {})
        rows += seen.get("rows", [])
        offset = seen.get("next")
    best = max(rows, key=lambda row: int(row[part.column]), default={})
    return str(best.get(table.key.name if table.key else "id"))


def solution(goal: Goal) -> Plan:
    """The calls that reach a goal, each from what was answered before; the last one submits."""
    answer = None
    for part in goal.parts:
        if part.answer is None:
            yield from _change(goal, part)
        else:
            answer = yield from _ask(goal, part)
    yield submit_text(answer)


def _read(text: str) -> Json:
    try:
        body = json.loads(text)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


@final
class Scripted:
    """One of the three, by a number of Dice; what it does is a function of what it has seen.

    It errs by calls that the tools refuse and goes on; it submits early or wrongly now and then.
    """

    def __init__(self, goal: Goal, *parts: object) -> None:
        self._goal = goal
        self._parts = parts
        dice = Dice("tools actor", *parts)
        self.kind = ("solver", "solver", "erring", "erring", "explorer")[dice.below(5)]
        self._wrong = self.kind == "erring" and dice.below(3) == 0
        self._length = 4 + dice.below(4)

    def act(self, history: Sequence[ActionObservation]) -> str | None:
        """The next call; None after the submission."""
        if history and _submits(history[-1][0]):
            return None
        if self.kind == "explorer":
            return self._explore(len(history))
        return self._solve(history)

    def _solve(self, seen: Sequence[ActionObservation]) -> str | None:
        plan = solution(self._goal)
        said = next(plan)
        slips = 0
        for turn, (_, observation) in enumerate(seen):
            slipped = slips < _SLIPS and self._slips(turn)
            slips += slipped
            # A slip is no part of the plan, so its answer does not reach the plan.
            if slipped:
                continue
            try:
                said = plan.send(_read(observation))
            except StopIteration:
                return None
        if slips < _SLIPS and self._slips(len(seen)):
            return self._slip(said, Dice("slip", *self._parts, len(seen)))
        if self._wrong and _submits(said):
            return submit_text(self._guess(Dice("wrong", *self._parts)))
        return said

    def _slips(self, turn: int) -> bool:
        return self.kind == "erring" and Dice("slips", *self._parts, turn).below(3) == 0

    def _slip(self, said: str, dice: Dice) -> str:
        """A call that is refused, like the one that was meant where there was one."""
        body = json.loads(said)
        if body["name"] == SUBMIT:
            return call_text("finish")
        arguments, tool = dict(body["arguments"]), tools_of(self._goal.database)[body["name"]]
        fields = tool.arguments.model_fields
        numbers = [n for n in arguments if isinstance(arguments[n], int) and n != "offset"]
        ways = ["unknown", "name"]
        ways += ["missing"] if any(fields[name].is_required() for name in arguments) else []
        refs = [column.name for column in tool.table.of("ref") if column.name in arguments]
        places = ["id"] if "id" in arguments else refs
        ways += ["type", "type"] if numbers else []
        ways += ["id", "id"] if places else []
        way = dice.choice(ways)
        if way == "missing":
            arguments.pop(dice.choice([n for n in arguments if fields[n].is_required()]))
        elif way == "type":
            arguments[dice.choice(numbers)] = dice.choice(("one", "two", "first"))
        elif way == "id":
            arguments[dice.choice(places)] = 8 + dice.below(2)
        elif way == "unknown":
            arguments[dice.choice(("color", "owner", "page"))] = 1
        else:
            return call_text(f"{dice.choice(('find', 'read', 'remove'))}_{tool.table.one}", arguments)
        return call_text(body["name"], arguments)

    def _guess(self, dice: Dice) -> str | None:
        if self._goal.answer is None:
            return None
        return str(dice.below(10)) if self._goal.answer.isdigit() else dice.choice(THINGS + PEOPLE)

    def _explore(self, turn: int) -> str:
        dice = Dice("explore", *self._parts, turn)
        if turn >= self._length:
            return submit_text(self._guess(dice))
        tool = dice.choice(list(tools_of(self._goal.database).values()))
        return call_text(tool.name, self._arguments(tool, dice))

    def _arguments(self, tool: Tool, dice: Dice) -> Json:
        table, rows = tool.table, self._goal.rows
        most = len(rows[table.name])
        if tool.verb in ("get", "delete"):
            return {"id": 1 + dice.below(most + 1)}
        if tool.verb == "search" and table.key is not None:
            word = str(dice.choice(rows[table.name])[table.key.name])
            return {"text": word if dice.below(4) else dice.choice(THINGS)}
        if tool.verb == "create":
            return {column.name: self._some(column, table, dice) for column in table.columns}
        if tool.verb == "update":
            column = dice.choice(table.columns)
            return {"id": 1 + dice.below(most + 1), column.name: self._some(column, table, dice)}
        given: Json = {}
        if tool.verb == "sum":
            given["column"] = dice.choice(table.of("number")).name
        filters = table.of("ref", "choice")
        if filters and dice.below(2):
            column = dice.choice(filters)
            given[column.name] = self._some(column, table, dice)
        if tool.verb == "list" and dice.below(2):
            given["limit"] = 1 + dice.below(3)
        if tool.verb == "list" and dice.below(2):
            given["offset"] = dice.below(4)
        return given

    def _some(self, column: Column, table: Table, dice: Dice) -> Value:
        """A value for a column: mostly one that the table accepts."""
        if column.kind == "text":
            taken = str(dice.choice(self._goal.rows[table.name])[column.name])
            return taken if dice.below(4) == 0 else dice.choice(THINGS)
        if column.kind == "choice":
            return dice.choice(column.choices)
        if column.kind == "ref":
            return 1 + dice.below(len(self._goal.rows[column.to]) + 1)
        return column.low + dice.below(column.high - column.low + 1)


def _submits(action: str) -> bool:
    return str(_read(action).get("name")) == SUBMIT
