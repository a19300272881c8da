"""Chat messages as a trajectory: OpenAI tool calls, or one call a turn written as text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from refork.errors import BadInput
from refork.formats.openai_chat import text_of
from refork.policies.base import Cost
from refork.types import Json, Message
from refork_methods.memory.trajectory import RunStep, RunTrajectory
from refork_testbed.worlds.miniapps.grammar import read_turn

#: How a function-calling interface, whose names have no dots, writes "app.function".
_JOINED = "__"


def run_of_messages(
    messages: Sequence[Message],
    task: str,
    *,
    query: str | None = None,
    success: bool | None = None,
    cost: Cost | None = None,
) -> RunTrajectory:
    """A conversation as a trajectory. The query is the first user message unless it is given.

    Raises:
        BadInput: no user message and no query.
    """
    users = [text_of(m) for m in messages if m.get("role") == "user"]
    asked = query or (users[0] if users else "")
    if not asked.strip():
        raise BadInput(
            "a trajectory has no query", where=f"task {task!r}", hint="no message has the role user"
        )
    context = "\n".join(text_of(m) for m in messages if m.get("role") in {"system", "developer"})
    if query and users:
        context += "\n" + users[0].replace(query, "")
    steps: list[RunStep] = []
    for place, message in enumerate(messages):
        if message.get("role") != "assistant":
            continue
        answers = _answers(messages[place + 1 :])
        calls = [call for call in message.get("tool_calls") or [] if isinstance(call, dict)]
        name = f"m{place}"
        if calls:
            said = str(message.get("content") or "")
            steps += [_tool_call(f"{name}.{n}", said, call, answers) for n, call in enumerate(calls)]
        else:
            steps.append(_text_turn(name, text_of(message), answers))
    return RunTrajectory(task, asked, tuple(steps), success, cost or Cost(), context.strip())


def _answers(after: Sequence[Message]) -> list[Message]:
    """What came back before the assistant spoke again."""
    found: list[Message] = []
    for message in after:
        if message.get("role") == "assistant":
            break
        found.append(message)
    return found


def value_of(text: str) -> Any:
    """A text as JSON where it is, else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def refuses(result: Any) -> bool:
    """Whether an answer says that the call failed: an error field, or an HTTP status of 400 and above."""
    if isinstance(result, str):
        return result.lstrip().lower().startswith(("error", "execution failed", "traceback"))
    if not isinstance(result, dict):
        return False
    status = result.get("status_code")
    return bool(result.get("error")) or (isinstance(status, int) and status >= 400)


def function_name(name: str) -> str:
    """``app__function`` as "app.function"; a name without an app gets the app "env"."""
    if "." in name:
        return name
    app, joined, rest = name.partition(_JOINED)
    return f"{app}.{rest}" if joined and app and rest else f"env.{name}"


def _tool_call(name: str, said: str, call: Json, answers: Sequence[Message]) -> RunStep:
    function = call.get("function") or {}
    given = function.get("arguments")
    arguments = value_of(given) if isinstance(given, str) else given
    mine = [m for m in answers if m.get("role") == "tool" and m.get("tool_call_id") == call.get("id")]
    seen = text_of(mine[0]) if mine else ""
    result = value_of(seen) if mine else None
    called = function_name(str(function.get("name", "")))
    given_json = arguments if isinstance(arguments, dict) else {}
    return RunStep(name, said, called, given_json, result, seen, refuses(result))


def _text_turn(name: str, said: str, answers: Sequence[Message]) -> RunStep:
    """A turn of text: a call where it is written as one, else words."""
    act = read_turn(said)
    seen = "\n".join(text_of(message) for message in answers)
    if act.kind in {"call", "tool"}:
        result = value_of(seen)
        function = f"tools.{act.name}" if act.kind == "tool" else act.name
        return RunStep(name, said, function, dict(act.arguments), result, seen, refuses(result))
    answer = {"answer": act.answer} if act.kind == "done" and act.answer is not None else {}
    return RunStep(name, said, arguments=answer, seen=seen)
