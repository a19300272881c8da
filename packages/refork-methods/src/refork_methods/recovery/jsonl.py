"""Traces in JSON lines: chat messages, and step lists; read and written in the same form.

Chat: ``{"messages": [...], "outcome": 1}``. What comes before an assistant turn is what was seen, the turn is
the action. Step lists: ``{"steps": [{"state": ..., "action": ...}, ...], "end": ..., "outcome": 1}``; a step
may say ``"backtrack": true``, and a state may be any JSON value.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import IO, Any, Final

from refork.errors import BadInput
from refork.formats.openai_chat import text_of
from refork.jsonl import json_objects
from refork.types import Json, Message
from refork_methods.recovery.traces import Step, Trace, label_of

OUTCOMES: Final = ("outcome", "success", "reward")
_STATES: Final = ("state", "observation")


def _outcome(body: Json, field: str | None, where: str) -> float:
    names = OUTCOMES if field is None else (field,)
    for name in names:
        value = body.get(name)
        if isinstance(value, bool | int | float):
            return float(value)
    raise BadInput(
        "this trace has no outcome, so its recoveries cannot be told from its failures",
        where=where,
        hint=f"give every line a number or true/false under {' or '.join(names)}, or name the field",
    )


def _text(value: Any) -> str:
    # Sorted, so that equal values are one state, whatever the order of their keys.
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)


def from_messages(body: Json, name: str, outcome: float) -> Trace:
    """The trace of a chat; the first assistant turn acts on the last message before it.

    Assistant messages in a row are one turn: nothing was seen between them.

    Raises:
        BadInput: no assistant turn, or messages without a role.
    """
    messages = body["messages"]
    if not isinstance(messages, list) or not all(
        isinstance(m, dict) and isinstance(m.get("role"), str) for m in messages
    ):
        raise BadInput("messages must be a list of objects with a role", where=name)
    steps: list[Step] = []
    seen: list[Message] = []
    for said, group in groupby(messages, lambda m: m["role"] == "assistant"):
        if said:
            steps.append(_chat_step(seen, list(group)))
            seen = []
        else:
            seen = list(group)
    if not steps:
        raise BadInput("this chat has no assistant turn", where=name)
    end = Step(text_of(seen[-1]), "", observed=tuple(seen)) if seen else None
    rest = {key: value for key, value in body.items() if key != "messages"}
    return Trace(name, tuple(steps), end, outcome, rest | {"_form": "messages"})


def _chat_step(seen: Sequence[Message], turn: Sequence[Message]) -> Step:
    return Step(
        state=text_of(seen[-1]) if seen else "",
        action="\n".join(map(text_of, turn)),
        label=label_of(message.get("backtrack") for message in turn),
        observed=tuple(seen),
        actions=tuple(turn),
    )


def from_steps(body: Json, name: str, outcome: float) -> Trace:
    """The trace of a step list.

    Raises:
        BadInput: no steps, or a step without a state and an action.
    """
    steps = []
    listed = body["steps"]
    if not isinstance(listed, list) or not listed:
        raise BadInput("steps must be a list of at least one step", where=name)
    for number, entry in enumerate(listed):
        field = next((f for f in _STATES if isinstance(entry, dict) and f in entry), None)
        if field is None or "action" not in entry:
            raise BadInput("a step needs a state and an action", where=f"{name}, step {number}")
        said = {key: value for key, value in entry.items() if key not in _STATES}
        steps.append(
            Step(
                state=_text(entry[field]),
                action=_text(entry["action"]),
                recorded=entry.get("state_key"),
                label=label_of([entry.get("backtrack")]),
                observed=(field, entry[field]),
                actions=(said,),
            )
        )
    end = Step(_text(body["end"]), "", body.get("end_key")) if "end" in body else None
    rest = {key: value for key, value in body.items() if key != "steps"}
    return Trace(name, tuple(steps), end, outcome, rest | {"_form": "steps"})


def read_jsonl(path: Path, outcome: str | None = None) -> list[Trace]:
    """The traces of a JSON-lines file, of either form.

    Raises:
        BadInput: a line that is neither form, or has no outcome; it names the line.
    """
    found = []
    with path.open(encoding="utf-8") as lines:
        for where, body in json_objects(lines, str(path)):
            form = next((f for f in ("messages", "steps") if f in body), None)
            if form is None:
                raise BadInput(
                    "this line is no trace",
                    where=where,
                    hint='expected {"messages": [...]} or {"steps": [...]}',
                )
            value = _outcome(body, outcome, where)
            found.append(
                from_messages(body, where, value) if form == "messages" else from_steps(body, where, value)
            )
    return found


def plain(trace: Trace) -> Json:
    """The line of a trace, in the form it was read in."""
    rest = {key: value for key, value in trace.rest.items() if key != "_form"}
    if trace.rest.get("_form") == "messages":
        said: list[Any] = [m for step in trace.steps for m in (*step.observed, *step.actions)]
        return {"messages": said + list(trace.end.observed if trace.end else ()), **rest}
    return {"steps": [_plain_step(step) for step in trace.steps], **rest}


def _plain_step(step: Step) -> Json:
    name, value = step.observed if step.observed else ("state", step.state)
    return {name: value, **(step.actions[0] if step.actions else {"action": step.action})}


def write_jsonl(traces: Iterable[Trace], out: IO[str]) -> int:
    """Write a line per trace, in the form each was read in; how many."""
    count = 0
    for trace in traces:
        out.write(json.dumps(plain(trace), ensure_ascii=False) + "\n")
        count += 1
    return count
