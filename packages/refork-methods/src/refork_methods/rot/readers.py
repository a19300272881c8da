"""Readers of recorded sessions: OpenAI chat JSONL, model calls one a line, our tree, frameworks' saved state.

=====================  ================================================================================
JSONL, a session       ``{"messages": [...]}``: every assistant turn is a call, what stands before it its
                       context. No compaction can be seen in such a line.
JSONL, a message       ``{"role": ..., "content": ...}``: all lines together are one such session
JSONL, a call          ``{"messages": [...], "answer": {...}}``: one model call with the exact context it was
                       sent; also ``{"request": {...}, "response": {...}}`` as a proxy logs it. ``session``
                       groups lines, ``compaction`` is an account if the harness keeps one. Log the
                       summariser's calls too: trimming and omission are then told apart.
a tree                 every action node of a trajectory is a call, ``rewrite`` nodes are compactions
JSON                   AutoGen's ``save_state``, or a bare list of messages
=====================  ================================================================================

A langgraph thread is read from its live graph by :func:`checkpoint_session`, and kept by
:func:`write_session`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from refork.errors import BadInput, TreeError
from refork.forking.context import conversation
from refork.jsonl import json_objects
from refork.tree.address import is_address
from refork.tree.node import Trajectory
from refork.tree.sqlite import is_database
from refork.tree.tree import Tree
from refork.types import Json, Message
from refork_methods.pin.buffer import PinnedBuffer
from refork_methods.rot.session import (
    ModelCall,
    SessionLog,
    compaction_from_json,
    compaction_json,
    content_ids,
    session_of,
)

_ANSWERS = ("answer", "response", "completion", "output")


def read_sessions(path: Path | str) -> list[SessionLog]:
    """The sessions of a file; its kind is found by looking.

    Raises:
        BadInput: no such file, or it is of none of the kinds; it names the line.
    """
    path = Path(path)
    if not (is_address(path) or path.exists()):
        raise BadInput("there is no such file", where=str(path))
    if path.is_dir():
        raise BadInput("this is a folder", where=str(path), hint="name the log file in it")
    if is_database(path):
        return _tree_file(path)
    try:
        # Some editors begin a file with a byte order mark, which JSON does not allow.
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput("this file is neither text nor a tree", where=str(path)) from error
    whole = _json(text)
    # A log of one line is JSON as a whole too; its keys tell it from a saved state.
    if isinstance(whole, dict) and not {"messages", "request", "role"} & whole.keys():
        return _saved_state(path)
    if isinstance(whole, list):
        return [_whole_session(whole, path.stem, str(path))]
    return read_lines(text.split("\n"), str(path), path.stem)  # a text may hold other line separators


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


# -- JSON lines ---------------------------------------------------------------------------------


def read_lines(lines: Sequence[str], where: str, name: str = "session") -> list[SessionLog]:
    """The sessions of JSON lines; lines that are model calls are grouped by their ``session``.

    Raises: BadInput, naming the line, for one without messages; where there is no line at all.
    """
    bodies = list(json_objects(lines, where))
    if bodies and all("role" in body and "messages" not in body for _, body in bodies):
        return [_whole_session([body for _, body in bodies], name, where)]
    found: list[SessionLog] = []
    groups: dict[str, list[ModelCall]] = {}
    tools: dict[str, tuple[Json, ...]] = {}
    extras: dict[str, Json] = {}
    for number, (place, body) in enumerate(bodies, 1):
        call = _as_call(body, place)
        if call is None:
            label = str(body.get("session", f"{name}-{number}"))
            found.append(_whole_session(body.get("messages"), label, place, body.get("tools") or ()))
            continue
        group = str(body.get("session", name))
        groups.setdefault(group, []).append(call)
        inner = body.get("request") if isinstance(body.get("request"), dict) else body
        tools.setdefault(group, tuple((inner or {}).get("tools") or ()))
        extra = body.get("extra")
        extras.setdefault(group, extra if isinstance(extra, dict) else {})
    found += [
        session_of(calls, group, tools=tools[group], extra=extras[group]) for group, calls in groups.items()
    ]
    if not found:
        raise BadInput("this log has no line", where=where)
    return found


def _as_call(body: Json, where: str) -> ModelCall | None:
    """The model call that a line is; None where it holds a whole session."""
    request = body["request"] if isinstance(body.get("request"), dict) else body
    key = next((name for name in _ANSWERS if name in body), None)
    if key is None and request is body:
        return None
    context = content_ids(_messages(request.get("messages"), where))
    answer = _answer(body.get(key or "", None), where)
    account = body.get("compaction")
    by = body.get("by", "agent")
    if by not in ("agent", "summariser"):
        raise BadInput(f"by is {by!r}; it must be 'agent' or 'summariser'", where=where)
    if account is None:
        return ModelCall(context, answer, summariser=by == "summariser")
    if not isinstance(account, dict):
        raise BadInput("compaction is no object", where=where)
    return ModelCall(context, answer, compaction_from_json(account, context, where))


def _messages(data: Any, where: str) -> list[Message]:
    if not isinstance(data, list) or not data:
        raise BadInput("this line has no messages", where=where, hint='expected {"messages": [...]}')
    for message in data:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise BadInput("a message needs a role and a content", where=where)
    return data


def _answer(data: Any, where: str) -> Message | None:
    """An assistant message from itself, a text, or a whole response body."""
    if data is None:
        return None
    if isinstance(data, str):
        return {"role": "assistant", "content": data}
    if isinstance(data, dict):
        choices = data.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            return _answer(choices[0].get("message"), where)
        if "content" in data or "tool_calls" in data:
            return {"role": "assistant", **data}
    raise BadInput(
        "this answer is no assistant message", where=where, hint='{"role": "assistant", "content": ...}'
    )


def _whole_session(data: Any, name: str, where: str, tools: Sequence[Json] = ()) -> SessionLog:
    messages = content_ids(_messages(data, where))
    turns = [i for i, m in enumerate(messages) if m["role"] == "assistant"]
    calls = [ModelCall(messages[:i], messages[i]) for i in turns if i]
    if messages[-1]["role"] != "assistant":
        calls.append(ModelCall(messages, None))
    if not calls:
        raise BadInput("this session has no assistant turn after a message", where=where)
    return SessionLog(name, tuple(calls), tuple(tools))


def session_lines(log: SessionLog) -> Iterator[str]:
    """A session as JSON lines, one model call each; :func:`read_sessions` reads them back."""
    for call in log.calls:
        done = call.compaction
        # An inferred compaction is inferred again by the reader, from the summariser's calls before it;
        # written down, it would pass for an account.
        for asked in done.calls if done is not None and not call.prompted else ():
            line = {"messages": list(asked.prompt), "answer": asked.answer, "by": "summariser"}
            yield json.dumps({"session": log.name, **line}, ensure_ascii=False)
        body: Json = {"session": log.name, "messages": list(call.context), "answer": call.answer}
        if log.tools:
            body["tools"] = list(log.tools)
        if log.extra:
            body["extra"] = log.extra
        if done is not None and call.prompted:
            body["compaction"] = compaction_json(done)
        yield json.dumps(body, ensure_ascii=False)


# -- our tree -----------------------------------------------------------------------------------


def _tree_file(path: Path) -> list[SessionLog]:
    try:
        with Tree.open(path, "r") as tree:
            trajectories = tree.paths(list(tree.leaves()))
            found = [log for trajectory in trajectories if (log := session_on(trajectory)) is not None]
    except TreeError as error:
        raise BadInput(error.what, where=str(path), hint=error.hint) from error
    if not found:
        raise BadInput("no trajectory of this tree holds a policy's turn", where=str(path))
    return found


def session_on(trajectory: Trajectory) -> SessionLog | None:
    """The model calls of one trajectory; None where no policy spoke on it."""
    calls: list[ModelCall] = []
    pending: Json | None = None
    opened = False
    for place, step in enumerate(trajectory.steps):
        node = step.node
        if node.kind == "rewrite":
            pending = node.extra
            if not calls:  # compacted before anything was asked: the history itself stands for a call
                calls.append(ModelCall(_named(Trajectory(trajectory.steps[:place])), None))
        if node.kind != "action" or node.error is not None:
            opened = opened and node.kind == "verdict"
            continue
        if opened:  # consecutive action nodes are one turn
            last = calls[-1]
            said = str((last.answer or {}).get("content") or "") + step.text
            calls[-1] = ModelCall(
                last.context, {"role": "assistant", "content": said}, last.compaction, last.prompted
            )
            continue
        opened = True
        context = _named(Trajectory(trajectory.steps[:place]))
        told = pending.get("account") if pending else None
        account = _last_round(told)
        done = compaction_from_json(account, context) if account is not None else None
        answer = node.message or {"role": "assistant", "content": step.text}
        calls.append(ModelCall(context, answer, done))
        pending = None
    asked = any(call.answer is not None for call in calls)
    return session_of(calls, trajectory.leaf.id[:12]) if asked else None


def _named(trajectory: Trajectory) -> tuple[Message, ...]:
    """The messages of a path, with the ids that a planted session or a compaction's account gives them."""
    messages = [dict(m) for m in conversation(trajectory).messages]
    first = trajectory.context[0].node
    account = first.extra.get("account") if first.kind == "rewrite" else None
    names = first.extra.get("ids", []) if first.kind != "rewrite" else (account or {}).get("after", [])
    for message, name in zip(messages, names, strict=False):
        if name:
            message["id"] = name
    return content_ids(messages)


def _last_round(account: Any) -> Json | None:
    """The account of all rounds as one: everything seen, dropped and asked."""
    if not isinstance(account, dict) or not account.get("rounds"):
        return None
    rounds = account["rounds"]
    return {
        "fired": any(one.get("fired") for one in rounds),
        "seen": [name for one in rounds for name in one.get("seen", [])],
        "dropped": [name for one in rounds for name in one.get("dropped", [])],
        "inserted": list(rounds[-1].get("inserted", [])),
        "calls": [call for one in rounds for call in one.get("calls", [])],
        "reason": account.get("reason", ""),
    }


# -- frameworks' saved state --------------------------------------------------------------------


def _saved_state(path: Path) -> list[SessionLog]:
    from refork_methods.pin.frameworks.autogen_state import read_autogen_state

    return [
        SessionLog(name, tuple(ModelCall(c.context, c.answer, c.compaction) for c in calls))
        for name, calls in read_autogen_state(path).items()
        if calls
    ]


def checkpoint_session(
    graph: Any,
    config: Any,
    name: str = "langgraph",
    context: Any = None,
    *,
    pinned: PinnedBuffer | None = None,
) -> SessionLog:
    """The session of a langgraph thread, from its checkpoints; ``context`` as ``checkpoint_calls`` takes it.

    Checkpoints hold the state, not what the model node sends. Where the node pins by itself
    (``pinned_model``, ``PinningMiddleware``) name the rules it pins as ``pinned``, where it adds something
    else give ``context``; with neither, an audit says that a loss may be none.

    Raises:
        BadInput: the thread has no checkpoint with a model call.
        MissingExtra: langgraph is not installed.
    """
    from refork_methods.pin.frameworks.langgraph import checkpoint_calls

    calls = checkpoint_calls(graph, config, context)
    if pinned is not None:
        calls = [(pinned.apply(shown), answer) for shown, answer in calls]
    known = context is not None or pinned is not None
    return session_of(calls, name, extra={} if known else {"contexts": "rebuilt"})


def write_session(log: SessionLog, path: Path | str) -> Path:
    """Write a session as JSON lines that :func:`read_sessions` reads; where it is."""
    path = Path(path)
    path.write_text("".join(line + "\n" for line in session_lines(log)), encoding="utf-8")
    return path
