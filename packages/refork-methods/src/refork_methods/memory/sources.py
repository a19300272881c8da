"""Where trajectories come from: chat messages, OpenTelemetry spans, a tree, or our own JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from refork.errors import BadInput
from refork.forking.arm import resolved_scores
from refork.formats.openai_chat import text_of
from refork.jsonl import json_objects
from refork.plain import from_json
from refork.policies.base import Cost, total_cost
from refork.tree.address import is_address
from refork.tree.node import Node, Trajectory
from refork.tree.sqlite import is_database
from refork.tree.tree import Tree
from refork.types import Json, Message
from refork_methods.memory.grammar import read_turn
from refork_methods.memory.trajectory import RunStep, RunTrajectory

# Chat messages as a trajectory: OpenAI tool calls, or one call a turn written as text.

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
    # The first message then holds the query among other things that the task was told.
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
    return RunStep(name, said, arguments=answer, observation=seen)


# OpenTelemetry spans of generative AI (semantic conventions ``gen_ai.*``) as trajectories, one per trace.


def is_span(body: Mapping[str, Any]) -> bool:
    """Whether a line is a span."""
    return "attributes" in body and ("trace_id" in body or "traceId" in body or "context" in body)


def runs_of_spans(spans: Iterable[tuple[str, Json]]) -> Iterator[RunTrajectory]:
    """A trajectory for every trace: its first user message is the query, its tool spans are the steps.

    Raises:
        BadInput: a trace in which no span holds a user message (content capture is off by default).
    """
    traces: dict[str, list[Json]] = {}
    for _, span in spans:
        traces.setdefault(_trace(span), []).append(span)
    for name, rows in traces.items():
        rows.sort(key=lambda span: str(span.get("start_time") or span.get("startTimeUnixNano") or ""))
        attributes = [_attributes(span) for span in rows]
        query = next((text for one in attributes if (text := _user_text(one))), "")
        if not query:
            raise BadInput(
                "no span of this trace holds a user message", where=f"trace {name}",
                hint="turn on the capture of message content (gen_ai.input.messages)",
            )  # fmt: skip
        tools = [one for one in attributes if one.get("gen_ai.operation.name") == "execute_tool"]
        steps = tuple(_step(f"s{number}", one) for number, one in enumerate(tools, 1))
        chats = [one for one in attributes if "gen_ai.usage.input_tokens" in one]
        cost = total_cost([_cost(one) for one in chats])
        yield RunTrajectory(name, query, steps, None, cost)


def _trace(span: Json) -> str:
    context = span.get("context") or {}
    return str(span.get("trace_id") or span.get("traceId") or context.get("trace_id"))


def _attributes(span: Json) -> Json:
    """Attributes as a plain object; OTLP writes them as a list of keys and typed values."""
    given = span.get("attributes") or {}
    if isinstance(given, list):
        return {one["key"]: next(iter(one.get("value", {}).values()), None) for one in given}
    return dict(given)


def _user_text(attributes: Json) -> str:
    raw = attributes.get("gen_ai.input.messages")
    messages = value_of(raw) if isinstance(raw, str) else raw
    for message in messages if isinstance(messages, list) else []:
        if isinstance(message, dict) and message.get("role") == "user":
            parts = message.get("parts") or []
            texts = [
                str(p.get("content", "")) for p in parts if isinstance(p, dict) and p.get("type") == "text"
            ]
            return "\n".join(texts) or str(message.get("content") or "")
    return ""


def _step(name: str, one: Json) -> RunStep:
    arguments, result = one.get("gen_ai.tool.call.arguments"), one.get("gen_ai.tool.call.result")
    given = value_of(arguments) if isinstance(arguments, str) else arguments
    seen = result if isinstance(result, str) else ""
    value = value_of(result) if isinstance(result, str) else result
    failed = bool(one.get("error.type")) or refuses(value)
    called = function_name(str(one.get("gen_ai.tool.name", "")))
    return RunStep(name, "", called, given if isinstance(given, dict) else {}, value, seen, failed)


def _cost(one: Json) -> Cost:
    def count(key: str) -> int | None:
        value = one.get(key)
        return None if value is None else int(value)

    return Cost(tokens_in=count("gen_ai.usage.input_tokens"), tokens_out=count("gen_ai.usage.output_tokens"))


# Trajectories of a tree: every leaf a run.

_ROLE = {"task": "user", "observation": "user", "action": "assistant"}


def runs_of_tree(path: Path) -> Iterator[RunTrajectory]:
    """A run for every leaf; its task id is the recorded task's and the leaf's, as a task may have many."""
    with Tree.open(path, "r") as tree:
        for leaf in tree.leaves():
            trajectory = tree.path(leaf)
            if any(step.node.kind == "action" for step in trajectory):
                nodes = [step.node.id for step in trajectory]
                # As in lines of messages: a reward says it where no score of the name does.
                scored = resolved_scores(tree, "success", nodes) or resolved_scores(tree, "reward", nodes)
                yield _run_of_leaf(trajectory, scored)


def _run_of_leaf(trajectory: Trajectory, success: dict[str, float]) -> RunTrajectory:
    named = trajectory.root.extra.get("task")
    task = named if isinstance(named, dict) else {}
    data = task.get("data") or {}
    messages = [m for step in trajectory.steps for m in _messages(step.node)]
    # From the leaf up: a score nearer to the end is of more of the run.
    value = next(
        (success[step.node.id] for step in reversed(trajectory.steps) if step.node.id in success), None
    )
    actions = [step.node for step in trajectory.steps if step.node.kind == "action"]
    query = data.get("query")
    return run_of_messages(
        messages,
        f"{task.get('id') or trajectory.root.id}/{trajectory.leaf.id[:12]}",
        query=str(query) if query else None,
        success=None if value is None else value >= 1.0,
        cost=total_cost([node.cost for node in actions]),
    )


def _messages(node: Node) -> list[Message]:
    """The messages of a node; a verdict has none."""
    many = node.extra.get("messages")
    if isinstance(many, list):
        return many
    if node.message is not None:
        return [node.message]
    role = _ROLE.get(node.kind)
    return [{"role": role, "content": node.text}] if role and node.text else []


# Reading a file of trajectories, whichever of the known kinds it is.


def read_runs(path: Path) -> list[RunTrajectory]:
    """The trajectories of a tree, or of JSON lines: OpenAI messages, spans, or our own.

    A line of messages may say ``task`` (else the file's name and the line), ``query``, and ``success`` or
    ``reward``.

    Raises:
        BadInput: a line of no known kind, a trajectory without a query, two of one task id.
    """
    if not (is_address(path) or path.is_file()):
        raise BadInput("there is no such file", where=str(path))
    runs = list(runs_of_tree(path)) if is_database(path) else _lines(path)
    names = [run.task for run in runs]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadInput(f"two trajectories have the task id {twice!r}", where=str(path))
    if not runs:
        raise BadInput("there is no trajectory in this file", where=str(path))
    return runs


def _lines(path: Path) -> list[RunTrajectory]:
    with path.open(encoding="utf-8") as lines:
        rows = list(json_objects(lines, str(path)))
    if rows and all(is_span(body) for _, body in rows):
        return list(runs_of_spans(rows))
    return [_run(place, body, f"{path.stem}:{number}") for number, (place, body) in enumerate(rows, 1)]


def _run(place: str, body: Json, name: str) -> RunTrajectory:
    if "steps" in body and "query" in body:
        return from_json(RunTrajectory, body, place)
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        raise BadInput(
            "this line is no trajectory",
            where=place,
            hint='{"messages": [...]}, {"query": ..., "steps": [...]} or spans',
        )
    task = str(body.get("task") or body.get("task_id") or body.get("id") or name)
    query = body.get("query")
    return run_of_messages(messages, task, query=str(query) if query else None, success=_success(body))


def _success(body: Json) -> bool | None:
    if isinstance(body.get("success"), bool):
        return bool(body["success"])
    reward = body.get("reward")
    return None if reward is None else float(reward) >= 1.0
