"""Runs of LangSmith: JSON lines, an array, or ``{"runs": [...]}`` (or ``data``), child runs inside or beside.

The runs of one trace are one trajectory in the order of their beginnings: a run of a model is an action, runs
of tools stand with the results that the model was shown, chains and agents above a run are named with it.
Messages are read as LangChain serialises them, as OpenAI has them, or as plain prompts. Feedback is a score.

Source: LangSmith's run data format, and ``langsmith`` 0.15 and ``langchain-core`` 1.7 as they write runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, final

from refork.errors import BadInput
from refork.formats.answers import whole_message
from refork.formats.base import Head
from refork.formats.conversation import amount_of, asked_for, mapping, origin, tool_call
from refork.formats.grouped import Grouped
from refork.formats.log_reader import TraceReader, ancestors
from refork.formats.sampled import finish_of
from refork.formats.spans import ModelCall, ToolRun, TracePath, model_of
from refork.policies.base import Cost, Policy
from refork.tree.records import Record, Remark
from refork.tree.score import Producer, Score
from refork.types import Json, Message

_PRODUCER: Final = Producer("langsmith")
_TYPES: Final = ("llm", "chain", "tool", "retriever", "embedding", "prompt", "parser")
#: What a run repeats of its messages, or of other runs; and feedback, which comes later: what a node holds
#: stays as it was written, and a run that was exported again is the same run.
_REPEATED: Final = frozenset(
    {"inputs", "outputs", "child_runs", "inputs_preview", "outputs_preview", "messages", "feedback_stats"}
)


@final
class LangSmith(TraceReader):
    """Reads runs of LangSmith; those of traces without a model are counted and left out."""

    name, label, parts = "langsmith", "LangSmith", "runs"
    order = 72

    def sniff(self, head: Head) -> bool:
        """Whether the file begins with a run."""
        first = head.first
        if isinstance(first, list) and first:
            first = first[0]
        if isinstance(first, dict):
            listed = first.get("runs", first.get("data"))
            return _is_run(listed[0] if isinstance(listed, list) and listed else first)
        start = head.text.lstrip()
        marks = any(f'"{key}"' in start for key in ("dotted_order", "parent_run_id", "trace_id"))
        return start.startswith(("{", "[")) and '"run_type"' in start and marks

    def unpack(self, body: Any, where: str) -> list[Any]:
        """The runs of an object that lists them; itself where it is one."""
        for key in ("runs", "data"):
            if isinstance(body, Mapping) and not _is_run(body) and isinstance(body.get(key), list):
                return list(body[key])
        return [body]

    def keep(self, grouped: Grouped, body: Json, where: str) -> Iterator[Remark]:
        """Keep runs, and those inside them, by their traces."""
        for run in (one for listed in self.unpack(body, where) for one in _flat(listed)):
            if not _is_run(run):
                yield Remark("skipped", "this is no run of LangSmith", where)
            elif not grouped.add(str(run.get("trace_id") or _id(run)), _id(run), run):
                yield Remark("skipped", "another run of the same id", where)

    def trace(self, grouped: Grouped, trace: str) -> Iterator[Record]:
        """Drafts and scores of one trace."""
        yield from _trace(trace, sorted(grouped.members(trace), key=_moment), self._policy)


def _is_run(body: Any) -> bool:
    return isinstance(body, Mapping) and body.get("run_type") in _TYPES and bool(_id(body))


def _id(run: Mapping[str, Any]) -> str:
    return str(run.get("id") or run.get("run_id") or "")


def _flat(run: Any) -> Iterator[Any]:
    """A run and those inside it, each by itself."""
    if not isinstance(run, dict):
        yield run
        return
    waiting = [(run, run.get("trace_id"))]
    while waiting:
        one, trace = waiting.pop(0)
        children = one.get("child_runs") or []
        trace = one.get("trace_id") or trace or (_id(one) if not one.get("parent_run_id") else None)
        yield {**one, "trace_id": trace}
        # What a child says of its parent goes before the place where it stands.
        waiting += [
            ({"parent_run_id": _id(one), **child}, trace) for child in children if isinstance(child, dict)
        ]


def _moment(run: Json) -> tuple[float, str]:
    return _time(run.get("start_time")) or 0.0, str(run.get("dotted_order") or "")


def _time(raw: Any) -> float | None:
    """Seconds since 1970; times without a zone are UTC, as LangSmith writes them."""
    if not isinstance(raw, str) or not raw:
        return None
    try:
        moment = datetime.fromisoformat(raw)
    except ValueError:
        return None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def _trace(trace: str, runs: Sequence[Json], policy: Policy | None) -> Iterator[Record]:
    by_id = {_id(run): run for run in runs}
    calls = [run for run in runs if run["run_type"] == "llm"]
    tools = [run for run in runs if run["run_type"] == "tool"]
    if not calls:
        yield Remark("skipped", "a trace without a run of a model", f"trace {trace}")
        return
    definitions = next((found for run in calls if (found := _tools(run))), None)
    made = [_call(run, by_id, definitions) for run in calls]
    project = calls[0].get("session_name") or calls[0].get("session_id")
    came = origin("langsmith", model_of(made), project=project)
    ran = [_tool_run(run, by_id) for run in tools]
    trajectory = TracePath.of(made, definitions, ran, policy, came, f"langsmith/{trace}")
    others = [run for run in runs if run["run_type"] not in ("llm", "tool")]
    kept: Json = {"id": trace, "runs": [_rest_of(run, by_id, whole_run=run is others[0]) for run in others]}
    root = others[0] if others else runs[0]
    trajectory.last(kept, _error(root))
    if len(others) > 1:
        yield Remark(
            "lost", "inputs and outputs of chains below the first", f"trace {trace}", len(others) - 1
        )
    yield from trajectory.new_nodes
    for run in runs:
        yield from _scores(run, trajectory.scored_node(_key(run), _id(run)), f"trace {trace}")


def _key(run: Mapping[str, Any]) -> str:
    return f"langsmith/{_id(run)}"


def _rest_of(run: Json, by_id: Mapping[str, Json], *, whole_run: bool = False) -> Json:
    """A run without its messages, and the runs above it."""
    kept = {key: value for key, value in run.items() if key not in _REPEATED and value not in (None, [], {})}
    if whole_run:
        kept |= {key: run[key] for key in ("inputs", "outputs") if run.get(key)}
    above = [_id(one) for one in ancestors(run, by_id, lambda one: str(one.get("parent_run_id")))]
    return kept | ({"above": above} if above else {})


def _call(run: Json, by_id: Mapping[str, Json], tools: Any) -> ModelCall:
    inputs, outputs = run.get("inputs"), run.get("outputs")
    talk = asked_and_said(inputs, outputs)
    kept = _rest_of(run, by_id)
    given = mapping(inputs)
    rest = {key: value for key, value in given.items() if key not in ("messages", "prompts", "prompt")}
    kept |= {"inputs": rest} if rest else {}
    kept |= {"tools": own} if (own := _tools(run)) and own != tools else {}
    start, end = _time(run.get("start_time")), _time(run.get("end_time"))
    usage = talk.usage
    asked = asked_for({**given, **_extra(run, "invocation_params")})
    told: Json = {
        "policy": _model(run) or talk.model,
        "cost": Cost(
            tokens_in=_whole(run.get("prompt_tokens"), usage.get("input_tokens"), usage.get("prompt_tokens")),
            tokens_out=_whole(
                run.get("completion_tokens"), usage.get("output_tokens"), usage.get("completion_tokens")
            ),
            seconds=end - start if start is not None and end is not None and end > start else None,
            money=_money(run.get("total_cost")),
        ),
        "error": _error(run),
        **asked,
        "extra": asked.get("extra", {}) | {"run": kept},
    }
    choices = [
        {"finish": finish_of(reason), "extra": {"answer": extra} if extra else {}}
        for reason, extra in zip(talk.ends, talk.extras, strict=True)
    ]
    return ModelCall(_key(run), talk.inputs, talk.outputs, told, choices)


def _tool_run(run: Json, by_id: Mapping[str, Json]) -> ToolRun:
    outputs = mapping(run.get("outputs"))
    output = outputs.get("output", outputs)
    body = output.get("kwargs", output) if isinstance(output, Mapping) else {}
    call = body.get("tool_call_id") or mapping(run.get("extra")).get("tool_call_id")
    content = body.get("content", output)
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    result: Message = {"role": "tool", "tool_call_id": str(call), "content": text}
    kept = _rest_of(run, by_id, whole_run=True)
    return ToolRun(None if call is None else str(call), result if output else None, kept)


def _extra(run: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    """What a run's extra facts say under a name: ``metadata`` or ``invocation_params``."""
    return mapping(mapping(run.get("extra")).get(part))


def _model(run: Mapping[str, Any]) -> str | None:
    told = _extra(run, "invocation_params")
    name = _extra(run, "metadata").get("ls_model_name") or told.get("model") or told.get("model_name")
    return str(name) if name else None


def _tools(run: Mapping[str, Any]) -> Any:
    found = _extra(run, "invocation_params").get("tools") or mapping(run.get("inputs")).get("tools")
    return found if isinstance(found, list) and found else None


def _whole(*values: Any) -> int | None:
    """The first that is a count; LangSmith writes 0 where it does not know."""
    return next((value for value in values if type(value) is int and value > 0), None)


def _money(raw: Any) -> float | None:
    """A price, which LangSmith writes as a text."""
    try:
        return amount_of(float(raw))
    except (TypeError, ValueError, OverflowError):
        return None


def _error(run: Mapping[str, Any]) -> str | None:
    error = run.get("error")
    return str(error) if error else None


def _scores(run: Mapping[str, Any], node: str, where: str) -> Iterator[Record]:
    """The mean of each kind of feedback, and a remark on feedback that has none."""
    for name, one in mapping(run.get("feedback_stats")).items():
        mean = one.get("avg") if isinstance(one, Mapping) else one
        if isinstance(mean, (int, float)) and not isinstance(mean, bool):
            yield _PRODUCER
            yield Score(node, str(name), float(mean), _PRODUCER.id)
        else:
            yield Remark("lost", "feedback that is no number", where)


# Messages as LangChain serialises them, or as its clients pass them on, in OpenAI's form.


_ROLES: Final = {
    "human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "tool",
    "HumanMessage": "user", "HumanMessageChunk": "user", "AIMessage": "assistant",
    "AIMessageChunk": "assistant", "SystemMessage": "system", "SystemMessageChunk": "system",
    "ToolMessage": "tool", "ToolMessageChunk": "tool", "FunctionMessage": "tool", "developer": "system",
    "model": "assistant",
}  # fmt: skip
#: What a serialised message has beside its content, and what OpenAI's form has a place for.
_PLACED: Final = frozenset(
    {"content", "type", "tool_calls", "tool_call_id", "name", "role", "additional_kwargs"}
)


@final
@dataclass(slots=True)
class RunMessages:
    """What a run of a model was asked and said; one end and one ``extra`` for each answer."""

    inputs: list[Message] = field(default_factory=list)
    outputs: list[Message] = field(default_factory=list)
    ends: list[str | None] = field(default_factory=list)
    extras: list[Json] = field(default_factory=list)
    usage: Mapping[str, Any] = field(default_factory=dict)
    model: str | None = None

    def answer(self, raw: Any, end: Any, extra: Json) -> None:
        """Add an answer."""
        message, more = langchain_message(raw, "assistant")
        self.outputs.append(message)
        told = mapping(more.get("response_metadata"))
        end = end or told.get("finish_reason") or told.get("stop_reason")
        self.ends.append(end if isinstance(end, str) else None)
        self.extras.append(more | extra)
        usage = more.get("usage_metadata") or told.get("token_usage")
        self.usage = usage if isinstance(usage, Mapping) else self.usage
        name = told.get("model_name") or told.get("model")
        self.model = str(name) if name else self.model


def asked_and_said(inputs: Any, outputs: Any) -> RunMessages:
    """The messages of a run's inputs and outputs.

    Raises:
        BadInput: a message is none.
    """
    talk = RunMessages()
    body = inputs if isinstance(inputs, Mapping) else {"prompt": inputs}
    listed = body.get("messages", body.get("prompts", body.get("prompt", body.get("input"))))
    # LangChain passes on a batch of conversations, of which a run has one.
    if isinstance(listed, list) and len(listed) == 1 and isinstance(listed[0], list):
        listed = listed[0]
    for raw in listed if isinstance(listed, list) else ([] if listed is None else [listed]):
        message, rest = langchain_message(raw, "user")
        talk.inputs.append({**rest, **message})
    if isinstance(body.get("system"), str):
        talk.inputs.insert(0, {"role": "system", "content": body["system"]})
    _answers(talk, outputs)
    return talk


def _answers(talk: RunMessages, outputs: Any) -> None:
    body = outputs if isinstance(outputs, Mapping) else {"output": outputs}
    _usage(talk, body)
    if isinstance(body.get("generations"), list):
        generations = body["generations"]
        flat = [one for part in generations for one in (part if isinstance(part, list) else [part])]
        for one in flat:
            info = mapping(mapping(one).get("generation_info"))
            raw = one.get("message") or one.get("text") if isinstance(one, Mapping) else one
            talk.answer(raw, info.get("finish_reason"), {})
    elif isinstance(body.get("choices"), list):
        for one in body["choices"]:
            rest = {
                key: value
                for key, value in one.items()
                if key not in ("message", "text") and value is not None
            }
            talk.answer(one.get("message", one.get("text")), one.get("finish_reason"), rest)
    elif isinstance(body.get("messages"), list):
        for raw in body["messages"]:
            talk.answer(raw, None, {})
    elif "content" in body or "lc" in body or "kwargs" in body:
        talk.answer(body, body.get("stop_reason"), {})
    elif (single := body.get("output", body.get("message"))) is not None:
        talk.answer(single, None, {})


def _usage(talk: RunMessages, body: Mapping[str, Any]) -> None:
    """The usage and the model of a run's outputs as a whole."""
    told = mapping(body.get("llm_output"))
    talk.usage = mapping(body.get("usage_metadata") or body.get("usage") or told.get("token_usage"))
    name = body.get("model") or told.get("model_name")
    talk.model = str(name) if name else None


def langchain_message(raw: Any, role: str) -> tuple[Message, Json]:
    """A message in OpenAI's form and what has no place in it; a text is one said by ``role``.

    Raises:
        BadInput: no message.
    """
    if isinstance(raw, str):
        return {"role": role, "content": raw}, {}
    if isinstance(raw, (list, tuple)) and len(raw) == 2 and isinstance(raw[0], str):
        raw = {"role": raw[0], "content": raw[1]}
    if not isinstance(raw, Mapping):
        raise BadInput(f"a message is a {type(raw).__name__}")
    kind = raw.get("role") or raw.get("type")
    body: Mapping[str, Any] = raw
    if isinstance(raw.get("kwargs"), Mapping):
        body = raw["kwargs"]
        named = raw.get("id")
        kind = body.get("type") or (named[-1] if isinstance(named, list) and named else None)
    elif isinstance(raw.get("data"), Mapping) and "type" in raw:
        body = raw["data"]
        kind = raw["type"]
    elif raw.get("role") is not None:
        made = {**raw, "role": _ROLES.get(str(kind), str(kind))}
        return whole_message(made, "message"), {}
    known = _ROLES.get(str(kind), str(kind) if kind in ("user", "assistant") else role)
    message: Message = {"role": known, "content": body.get("content")}
    calls = [_tool_call(call) for call in body.get("tool_calls") or [] if isinstance(call, Mapping)]
    message |= {"tool_calls": calls} if calls else {}
    message |= {key: body[key] for key in ("tool_call_id", "name") if body.get(key) is not None}
    more = mapping(body.get("additional_kwargs"))
    reasoning = more.get("reasoning_content")
    message |= {"reasoning_content": reasoning} if isinstance(reasoning, str) and reasoning else {}
    rest = {key: value for key, value in body.items() if key not in _PLACED and value not in (None, [], {})}
    others = {key: value for key, value in more.items() if key not in ("tool_calls", "reasoning_content")}
    return whole_message(message, "message"), rest | ({"additional_kwargs": others} if others else {})


def _tool_call(raw: Mapping[str, Any]) -> Json:
    """A call of LangChain's form, or of OpenAI's."""
    inner = raw.get("function")
    if isinstance(inner, Mapping):
        return tool_call(str(inner.get("name")), inner.get("arguments"), raw.get("id"))
    return tool_call(str(raw.get("name")), raw.get("args", raw.get("arguments")), raw.get("id"))
