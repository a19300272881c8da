"""Writes trajectories as ATIF 1.7, a trajectory a line.

A trajectory that was read from ATIF is put together again step by step. Of others, a turn of the policy is an
agent step with its calls, metrics, token ids and log-probs; what answered its calls is its observation.

Source: the ATIF specification, version 1.7 (Harbor, ``0001-trajectory-format.md``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, Final, final

import numpy as np

from refork.errors import BadInput
from refork.formats.chat_export import messages_of, rest_of, written
from refork.formats.openai_chat import text_of
from refork.formats.recorded import leaf_trajectories, recorded, scores_of
from refork.json_guard import parse_json
from refork.policies.base import Cost
from refork.tree.node import Trajectory
from refork.tree.records import Record
from refork.tree.score import Score
from refork.tree.turn import Part, Turn
from refork.types import Json, Message

_VERSION: Final = "ATIF-v1.7"
_SOURCES: Final = {"system": "system", "developer": "system", "assistant": "agent"}


@final
class ATIFWriter:
    """Writes ATIF paths as JSON lines; a tree of one path gives a file that is one path."""

    name = "atif"

    def write(self, records: Iterable[Record], out: IO[str]) -> int:
        """Write a trajectory for each trajectory; how many."""
        with recorded(records) as tree:
            bodies = (
                _trajectory(trajectory, scores_of(tree, trajectory.leaf))
                for trajectory in leaf_trajectories(tree)
            )
            return written((body for body in bodies if body["steps"]), out)


def _trajectory(trajectory: Trajectory, scores: Sequence[Score]) -> Json:
    pairs = list(messages_of(trajectory))
    rest = rest_of(trajectory, "atif")
    tools = trajectory.root.extra.get("tools")
    if rest is not None and isinstance(rest.get("steps"), list):
        kept = rest.pop("steps")
        agent = dict(rest.pop("agent", {})) | ({"tool_definitions": tools} if tools else {})
        return rest | {"agent": agent, "steps": list(_steps(pairs, kept))}
    policies = [part.node.policy for _, part in pairs if isinstance(part, Turn) and part.node.policy]
    agent = {"name": policies[0] if policies else "unknown", "version": "unknown"}
    agent |= {"tool_definitions": tools} if tools else {}
    body: Json = {"schema_version": _VERSION, "session_id": trajectory.leaf.id, "agent": agent}
    kept = list(_grouped(pairs))
    body["steps"] = [step | {"step_id": n} for n, step in enumerate(_steps(pairs, kept), start=1)]
    graded = {score.name: float(score.value) for score in scores if not isinstance(score.value, np.ndarray)}
    return body | ({"extra": {"scores": graded}} if graded else {})


def _grouped(pairs: Sequence[tuple[Message, Part]]) -> Iterator[Json]:
    """How many messages are one step: a turn, with the results of its calls."""
    at = 0
    while at < len(pairs):
        message = pairs[at][0]
        end = at + 1
        if message["role"] == "assistant":
            while end < len(pairs) and pairs[end][0]["role"] == "tool":
                end += 1
        yield {"source": _SOURCES.get(message["role"], "user"), "messages": end - at}
        at = end


def _steps(pairs: Sequence[tuple[Message, Part]], kept: Sequence[Json]) -> Iterator[Json]:
    at = 0
    for form in kept:
        count = int(form["messages"])
        group = pairs[at : at + count]
        at += count
        if not group:
            return
        (message, part), results = group[0], [one for one, _ in group[1:]]
        step = {key: value for key, value in form.items() if key != "messages"}
        step["message"] = _content(message.get("content"))
        if step.get("source") == "agent":
            step |= _agent(message, part if isinstance(part, Turn) else None)
        if results:
            step["observation"] = {"results": [_result(one) for one in results]}
        yield step


def _agent(message: Message, turn: Turn | None) -> Json:
    """What an agent step says beside its message; nothing of its sampling where it was only shown."""
    step: Json = {}
    if message.get("reasoning_content"):
        step["reasoning_content"] = message["reasoning_content"]
    if message.get("tool_calls"):
        step["tool_calls"] = [_call(call, number) for number, call in enumerate(message["tool_calls"])]
    if turn is None:
        return step
    # What an import kept of a step is of the whole of it; other formats keep their own under that name.
    own = turn.whole and turn.node.key.startswith("atif/")
    told = dict(turn.node.extra.get("step") or {}) if own else {}
    step |= {"model_name": turn.node.policy} if turn.node.policy else {}
    if "metrics" not in told and (metrics := _metrics(turn)):
        told["metrics"] = metrics
    return step | told


def _metrics(turn: Turn) -> Json:
    """What a turn cost, and its token ids; of one that was cut or edited only what is true of the whole."""
    cost = turn.node.cost if turn.whole else Cost()
    ids, logprobs = turn.tokens, turn.values("logprobs")
    found: Json = {
        "prompt_tokens": cost.tokens_in,
        "completion_tokens": cost.tokens_out,
        "cost_usd": cost.money,
        "completion_token_ids": None if ids is None else ids.tolist(),
        "logprobs": None if logprobs is None or not np.isfinite(logprobs).all() else logprobs.tolist(),
    }
    return {key: value for key, value in found.items() if value is not None}


def _call(call: Json, number: int) -> Json:
    inner = call.get("function", call)
    raw = inner.get("arguments")
    try:
        arguments: Any = parse_json(raw.encode(), "") if isinstance(raw, str) else raw
    except BadInput:
        arguments = None
    made: Json = {
        "tool_call_id": str(call.get("id") or f"call_{number}"),
        "function_name": str(inner.get("name", "")),
        # ATIF has an object there and nothing else.
        "arguments": arguments if isinstance(arguments, dict) else {"text": raw},
    }
    return made | ({"extra": call["extra"]} if call.get("extra") else {})


def _result(message: Message) -> Json:
    call = message.get("tool_call_id")
    made: Json = {"content": _content(message.get("content"))}
    made |= {} if call is None else {"source_call_id": call}
    for name in ("subagent_trajectory_ref", "extra"):
        made |= {name: message[name]} if message.get(name) else {}
    return made


def _content(raw: Any) -> str | list[Json]:
    """A text, or ATIF's parts."""
    if not isinstance(raw, list):
        return str(raw or "")
    parts: list[Json] = []
    for part in raw:
        link = part.get("image_url") if isinstance(part, dict) else None
        if isinstance(link, dict):
            source = {"path": link.get("url", ""), "media_type": link.get("media_type", "image/png")}
            parts.append({"type": "image", "source": source})
        else:
            parts.append({"type": "text", "text": text_of({"content": [part]})})
    return parts
