"""The tools of a database: typed, checked before they run, and answered in fixed words."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, Literal, final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from refork.types import Json
from refork_worlds.tools.call import compact
from refork_worlds.tools.labels import call_note
from refork_worlds.tools.schema import MOST, Column, Database, Table, Value, Verb
from refork_worlds.tools.store import Store

PAGE = 3
LARGEST_PAGE = 5
_LONGEST = 40
_WORDS = {
    "missing": "{name} is missing",
    "extra_forbidden": "there is no argument {name}",
    "int_type": "{name} must be a number",
    "int_from_float": "{name} must be a number",
    "string_type": "{name} must be a text",
}


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool of a database."""

    name: str
    verb: Verb
    table: Table
    arguments: type[BaseModel]

    @property
    def doc(self) -> str:
        """What it does, in a line."""
        one, many = self.table.one, self.table.name
        return {
            "list": f"{many} page by page, with the given values",
            "get": f"one {one}",
            "search": f"{many} with a text in their {self.table.key.name if self.table.key else ''}",
            "create": f"add a {one}",
            "update": f"change a {one}",
            "delete": f"delete a {one} that nothing refers to",
            "count": f"how many {many} have the given values",
            "sum": f"sum of a column of the {many} with the given values",
        }[self.verb]

    @property
    def parameters(self) -> Json:
        """JSON schema of its arguments."""
        schema = self.arguments.model_json_schema()
        schema.pop("title", None)
        for one in schema.get("properties", {}).values():
            one.pop("title", None)
        return schema

    @property
    def signature(self) -> str:
        """``get_book(id)``; arguments that may be left out stand in brackets."""
        fields = self.arguments.model_fields
        names = [name if field.is_required() else f"[{name}]" for name, field in fields.items()]
        return f"{self.name}({' '.join(names)})"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool says; ``note`` is what decided it."""

    text: str
    note: str | None = None
    ok: bool = True


def refusal(words: str, note: str | None = None) -> Answer:
    """An answer that says what is wrong."""
    return Answer(compact({"error": words}), note, ok=False)


def _typed(column: Column) -> Any:
    if column.kind == "text":
        return Annotated[str, Field(min_length=1, max_length=_LONGEST)]
    if column.kind == "choice":
        return Literal[column.choices]
    # What is no number is a reference here: an id, and ids begin at 1.
    low = column.low if column.kind == "number" else 1
    return Annotated[int, Field(ge=low, le=MOST)]


def _fields(table: Table, verb: Verb) -> dict[str, Any]:
    page = {
        "limit": (Annotated[int, Field(ge=1, le=LARGEST_PAGE)], PAGE),
        "offset": (Annotated[int, Field(ge=0, le=MOST)], 0),
    }
    number = {"id": (Annotated[int, Field(ge=1, le=MOST)], ...)}
    filters = {column.name: (_typed(column), None) for column in table.of("ref", "choice")}
    if verb == "list":
        return {**filters, **page}
    if verb in ("get", "delete"):
        return number
    if verb == "search":
        return {"text": (Annotated[str, Field(min_length=1, max_length=_LONGEST)], ...), **page}
    if verb == "create":
        return {column.name: (_typed(column), ...) for column in table.columns}
    if verb == "update":
        return {**number, **{column.name: (_typed(column), None) for column in table.columns}}
    if verb == "count":
        return filters
    names = tuple(column.name for column in table.of("number"))
    return {"column": (Literal[names], ...), **filters}


@lru_cache(maxsize=8)
def tools_of(database: Database) -> dict[str, Tool]:
    """The tools of a database by their names, ``submit`` left out."""
    found = {}
    for table in database.tables:
        for verb in table.verbs:
            name = f"{verb}_{table.one if verb in ('get', 'create', 'update', 'delete') else table.name}"
            model = create_model(
                name, __config__=ConfigDict(strict=True, extra="forbid"), **_fields(table, verb)
            )
            found[name] = Tool(name, verb, table, model)
    return found


def wrong(error: ValidationError) -> str:
    """The first thing that is wrong with arguments, in fixed words that name the argument."""
    first = error.errors(include_url=False)[0]
    name = str(first["loc"][0])[:_LONGEST] if first["loc"] else "arguments"
    kind, context = first["type"], first.get("ctx", {})
    if kind == "literal_error":
        return f"{name} must be {str(context['expected']).replace(chr(39), '').replace(',', ' or')}"
    if kind == "greater_than_equal":
        return f"{name} must be at least {context['ge']}"
    if kind == "less_than_equal":
        return f"{name} must be at most {context['le']}"
    return _WORDS.get(kind, "{name} is wrong").format(name=name)


@final
class Service:
    """Runs calls on one store; ``labels``: notes are those of :mod:`refork_worlds.tools.labels`."""

    def __init__(self, store: Store, labels: bool = False) -> None:
        self.store = store
        self.labels = labels
        self.tools = tools_of(store.database)

    def call(self, name: str, arguments: Mapping[str, Any]) -> Answer:
        """The answer to a call; a wrong one is an answer too."""
        tool = self.tools.get(name)
        if tool is None:
            return refusal("there is no such tool")
        try:
            checked = tool.arguments.model_validate(dict(arguments))
        except ValidationError as error:
            return refusal(wrong(error))
        given = {key: value for key, value in checked.model_dump().items() if value is not None}
        if not self.labels:
            return self._run(tool, given)
        # Before the call runs: what decided the answer are the rows as they were.
        note = self._labelled(tool, given)
        return replace(self._run(tool, given), note=note)

    def _labelled(self, tool: Tool, given: Mapping[str, Value]) -> str:
        """The note in labels of a call that has not run yet."""
        where = {column.name: given[column.name] for column in tool.table.columns if column.name in given}
        text = str(given["text"]) if tool.verb == "search" else None
        matched = {row["id"] for row in self.store.find(tool.table, where, text)}
        return call_note(self.store.database, self.store.rows(), tool.table, tool.verb, given, matched)

    def _run(self, tool: Tool, given: dict[str, Any]) -> Answer:
        if tool.verb in ("get", "update", "delete"):
            return self._one(tool, int(given.pop("id")), given)
        if tool.verb == "create":
            return self._create(tool.table, given)
        if tool.verb in ("list", "search"):
            return self._page(tool.table, given)
        column = given.pop("column", None)
        rows = self.store.find(tool.table, given)
        if column is None:
            return Answer(compact({"count": len(rows)}), _ids(rows))
        total = self.store.total(tool.table, column, given)
        return Answer(compact({"sum": total}), " + ".join(str(row[column]) for row in rows) or "none")

    def _page(self, table: Table, given: dict[str, Any]) -> Answer:
        limit, offset, text = given.pop("limit"), given.pop("offset"), given.pop("text", None)
        rows = self.store.find(table, given, text)
        after = offset + limit
        page = {"rows": rows[offset:after], "next": after if after < len(rows) else None}
        return Answer(compact(page), _ids(rows))

    def _one(self, tool: Tool, number: int, given: dict[str, Value]) -> Answer:
        row = self.store.get(tool.table, number)
        if row is None:
            return refusal(f"no {tool.table.one} {number}", "no row")
        if tool.verb == "get":
            return Answer(compact(row))
        if tool.verb == "delete":
            return self._delete(tool.table, number)
        if not given:
            return refusal("nothing to change")
        return self._write(tool.table, given, number)

    def _delete(self, table: Table, number: int) -> Answer:
        users = [
            f"{child.one} {row['id']}"
            for child, column in self.store.database.children(table.name)
            for row in self.store.find(child, {column.name: number})
        ]
        note = f"used by {' '.join(users)}" if users else "used by none"
        try:
            self.store.delete(table, number)
        except sqlite3.IntegrityError:
            return refusal(f"{table.one} {number} is in use", note)
        return Answer(compact({"deleted": number}), note)

    def _create(self, table: Table, given: dict[str, Value]) -> Answer:
        return self._write(table, given, None)

    def _write(self, table: Table, given: dict[str, Value], number: int | None) -> Answer:
        """Insert or change; the database decides, and the words name what forbade it."""
        rows = self.store.find(table)
        # Rows come in the order of their ids.
        last = rows[-1]["id"] if rows else 0
        if number is None and int(last) >= MOST:
            return refusal("the table is full")
        before = next((row for row in rows if row["id"] == number), None)
        note = f"last id {last}" if before is None else f"row {compact(before)}"
        try:
            if number is None:
                row = self.store.create(table, given)
            else:
                row = self.store.update(table, number, given)
        except sqlite3.IntegrityError as error:
            return refusal(self._forbidden(table, given, str(error)), note)
        return Answer(compact(row), note)

    def _forbidden(self, table: Table, given: dict[str, Value], error: str) -> str:
        if error.startswith("UNIQUE") and table.key is not None:
            return f"{table.key.name} {given[table.key.name]} is taken"
        # SQLite does not say which reference it was.
        for column in table.of("ref"):
            target = self.store.database.table(column.to)
            if column.name in given and self.store.get(target, int(given[column.name])) is None:
                return f"no {target.one} {given[column.name]}"
        return "not allowed"


def _ids(rows: list[dict[str, Value]]) -> str:
    return "ids " + " ".join(str(row["id"]) for row in rows) if rows else "ids none"
