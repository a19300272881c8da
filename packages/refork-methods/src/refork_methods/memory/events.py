"""The events of a memory's log: what happened, in plain JSON, checked when written and when read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from refork.errors import BadInput, TreeVersion
from refork.policies.base import Cost
from refork.types import Json
from refork_methods.journal import Journal

#: Version of the events; a log of another version is refused.
SCHEMA: Final = 1
NOUN: Final = "memory"
#: The log's file name in a memory's folder.
FILE: Final = "memory.jsonl"

#: Every event and its fields, one line each.
EVENTS: Final[Mapping[str, Mapping[str, str]]] = {
    "begin": {"schema": "version of these events"},
    "reflect": {
        "task": "id of the task whose run was read",
        "query": "the task's query",
        "success": "whether the run succeeded; null where nobody judged",
        "items": "the new items, whole",
        "dropped": "candidates that the screen refused: text and reason",
        "by": "who reflected",
        "cost": "tokens and seconds of reflector and screener",
    },
    "add": {"items": "the new items, whole", "by": "who added them"},
    "replay": {
        "task": "id of the task whose run was read; it was not judged a failure",
        "plan": "id of a plan that the task was given",
        "verdict": "same, other or open: whether the run made the calls that the plan makes",
        "words": "where they part; empty where they do not",
    },
    "invalidate": {"item": "id of the item that is never returned again", "reason": "why"},
    "select": {
        "task": "id of the task; null where the selection was only looked at",
        "query": "the query",
        "candidates": "ids retrieved, by kind",
        "items": "ids of the texts chosen",
        "tools": "names of the tools chosen",
        "by": "who chose",
        "cost": "tokens and seconds of retrieval and manager",
    },
    "observe": {
        "task": "id of the task that ran",
        "query": "the task's query",
        "items": "ids of the texts it was given",
        "tools": "names of the tools it was given",
        "called": "names of the tools it called",
        "success": "whether it succeeded; null where nobody judged",
        "steps": "turns it took; null where not counted",
        "cost": "tokens and seconds of the run",
    },
    "admit": {
        "tool": "the tool, whole",
        "functions": "digest of what was documented of each function it calls",
        "repaired": "whether it took a repair",
        "cost": "of the repair",
    },
    "reject": {
        "tool": "the tool, whole",
        "reason": "why it was refused: by the guard, or because other runs did not make the plan's calls",
        "repaired": "whether a repair was refused too",
        "cost": "of the repair",
    },
    "codify": {
        "plan": "id of the plan that was due",
        "tasks": "the distinct tasks of its buffer, which this event empties",
        "queries": "their queries",
        "history": "earlier queries that the codifier was shown",
        "by": "which codifier",
        "tools": "names of the tools that were admitted",
        "refused": "why there is none; empty where there is",
        "cost": "tokens and seconds of the codifier",
    },
    "demote": {"tool": "name of the tool that is text again", "reason": "why"},
}


def checked_event(kind: str, body: Json, where: str | None = None) -> Json:
    """The body, if it is that of a known event with exactly its fields.

    Raises:
        BadInput: an unknown event, or a field too many or too few.
    """
    fields = EVENTS.get(kind)
    if fields is None:
        raise BadInput(f"a memory has no event {kind!r}", where=where, hint=f"one of {', '.join(EVENTS)}")
    odd = sorted(set(fields) ^ set(body))
    if odd:
        raise BadInput(f"the event {kind!r} and the field {odd[0]!r} do not fit", where=where)
    return body


def open_log(store: Path | None) -> Journal:
    """The log of a folder, begun where there is none; in memory for None.

    Raises:
        TreeVersion: it was written by another version.
        BadInput: it holds an event that is none of ours.
        Mismatch: a line was changed or is missing.
    """
    if store is None:
        log = Journal(noun=NOUN)
    else:
        file = store / FILE
        log = Journal(file, noun=NOUN) if file.exists() else Journal.create(file, noun=NOUN)
    # A file that is there may be empty too, after a crash before its first event.
    if not len(log):
        log.append("begin", {"schema": SCHEMA})
    for entry in log:
        place = f"{store / FILE if store else 'memory'}:{entry.n + 1}"
        if entry.n == 0 and entry.body.get("schema") != SCHEMA:
            raise TreeVersion(
                f"this memory has schema {entry.body.get('schema')!r}; this build reads {SCHEMA}", where=place
            )
        checked_event(entry.kind, entry.body, place)
    return log


def cost_of(body: Mapping[str, Any]) -> Cost:
    """The cost that an event tells."""
    told = body.get("cost") or {}
    return Cost(**{key: told.get(key) for key in ("tokens_in", "tokens_out", "seconds", "money")})
