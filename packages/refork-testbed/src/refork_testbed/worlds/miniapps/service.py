"""Calls: checked, authorised, counted, answered. A wrong call is an answer, never an exception."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, final

from refork.types import Json
from refork_testbed.worlds.miniapps.catalogue import PAGE_SIZE, TOKEN_LIFE, Function, function_named
from refork_testbed.worlds.miniapps.shift import Shift
from refork_testbed.worlds.miniapps.store import Store

#: A function's own work: the database, the version of the apps, and the checked arguments.
Handler: TypeAlias = Callable[[Store, Shift, Json], Any]

USERNAME = "robin@home.example"
#: The user's passwords, which the prompt names.
PASSWORDS = {"mail": "m-4471", "pay": "p-9020", "notes": "n-3316", "calendar": "c-5508", "music": "u-7149"}


class Refusal(Exception):
    """A handler's way to say that a call cannot be done; it becomes an answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


def refused(status: int, message: str) -> Json:
    """The answer to a call that cannot be done."""
    return {"status_code": status, "message": message}


def is_refused(result: Any) -> bool:
    """Whether a result is the answer to a call that could not be done."""
    return isinstance(result, Mapping) and "status_code" in result


def paged(items: list[Json], arguments: Mapping[str, Any], shift: Shift) -> Json:
    """One page of a list, with its number and the number of the last page.

    A page that does not exist is empty, as many services answer.
    """
    first = shift.first_page
    page = int(arguments["page"])
    last = max(0, len(items) - 1) // PAGE_SIZE + first
    start = (page - first) * PAGE_SIZE
    shown = items[start : start + PAGE_SIZE] if page >= first else []
    return {"items": shown, "page": page, "last_page": last}


def entry(store: Store, table: str, row: int, what: str) -> Json:
    """The row of an id; refuses with 404 where there is none."""
    found = store.query(f"SELECT * FROM {table} WHERE id = ?", row)
    if not found:
        raise Refusal(404, f"there is no {what} with id {row}")
    return found[0]


@final
class Service:
    """The five apps over one database."""

    def __init__(self, store: Store, shift: Shift) -> None:
        self.store = store
        self.shift = shift
        #: Counts changes of what tasks are about, so that a canonical form can be kept until then.
        self.writes = 0

    def call(self, name: str, arguments: Mapping[str, Any]) -> Json:
        """The answer to one call; it counts on the clock of tokens whatever it is."""
        from refork_testbed.worlds.miniapps.apps import HANDLERS

        function = function_named(name, self.shift)
        clock = self.store.tick()
        if function is None:
            return refused(404, f"there is no function {name!r}")
        checked = check_arguments(function, arguments)
        if isinstance(checked, str):
            return refused(422, f"validation error: {checked}")
        if name.endswith(".login"):
            return self._login(function.app, checked, clock)
        problem = self._token_problem(function.app, checked.pop("access_token"), clock)
        if problem:
            return refused(401, problem)
        try:
            answer: Json = HANDLERS[name](self.store, self.shift, checked)
        except Refusal as refusal:
            return refused(refusal.status, refusal.message)
        if not function.read_only:
            self.writes += 1
        return answer

    def logins(self) -> tuple[str, ...]:
        """Apps with a token that still works."""
        oldest = self.store.clock - TOKEN_LIFE
        found = self.store.query("SELECT DISTINCT app FROM sessions WHERE issued >= ? ORDER BY app", oldest)
        return tuple(row["app"] for row in found)

    def _login(self, app: str, arguments: Json, clock: int) -> Json:
        if arguments["username"] != USERNAME or arguments["password"] != PASSWORDS[app]:
            return refused(401, f"wrong username or password for {app}")
        token = f"{app}-{clock:03d}"
        self.store.log_in(app, token)
        return {"access_token": token, "expires_after_calls": TOKEN_LIFE}

    def _token_problem(self, app: str, token: str, clock: int) -> str | None:
        found = self.store.query("SELECT * FROM sessions WHERE id = ?", token)
        if not found or found[0]["app"] != app:
            return f"this is no access token of {app}; log in first"
        if clock - int(found[0]["issued"]) > TOKEN_LIFE:
            return "the access token has expired; log in again"
        return None


def check_arguments(function: Function, arguments: Mapping[str, Any]) -> Json | str:
    """Arguments with defaults filled in, or what is wrong with them."""
    known: Json = function.parameters["properties"]
    for key in arguments:
        if key not in known:
            return f"{key}: {function.name} has no such parameter; it has {', '.join(known)}"
    for key in function.parameters["required"]:
        if key not in arguments:
            return f"{key}: this parameter is missing"
    filled: Json = {}
    for key, schema in known.items():
        value = arguments.get(key, schema.get("default"))
        if not _fits(value, schema["type"]):
            return f"{key}: {value!r} is not of type {schema['type']}"
        filled[key] = value
    return filled


def _fits(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return False
    if kind == "integer":
        return isinstance(value, int) and abs(value) < 2**53
    if kind == "number":
        return isinstance(value, int | float) and abs(value) < 2**53
    # A lone surrogate is no text: it cannot be stored.
    return (
        isinstance(value, str) and len(value) <= 10_000 and not any("\ud800" <= c <= "\udfff" for c in value)
    )
