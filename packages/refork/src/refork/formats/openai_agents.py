"""Traces of OpenAI's agents SDK, as its tracing exports them: an object a line, or an array of them.

The spans of one trace are one trajectory in the order of their beginnings: a ``generation`` is an action,
agents and other spans are named with it, and runs of functions stand with the trace. Calls of the Responses
interface export no messages; they are counted as lost.

Source: ``agents.tracing`` of openai-agents 0.24 (``Span.export``, ``Trace.export``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any, Final, final

from refork.formats.answers import whole_message
from refork.formats.base import Head, whole
from refork.formats.conversation import asked_for, origin
from refork.formats.grouped import Grouped
from refork.formats.rows import objects
from refork.formats.spans import ModelCall, ToolRun, TracePath
from refork.formats.tokenised import lacking
from refork.policies.base import Cost, Policy
from refork.tree.records import Position, Record, Remark
from refork.types import Json

_KINDS: Final = ("trace", "trace.span")
#: What a span repeats of its messages.
_REPEATED: Final = frozenset({"input", "output"})


@final
class OpenAIAgents:
    """Reads traces of the agents SDK; those without a call of a model are counted and left out."""

    name = "openai-agents"
    order = 71

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy = policy

    def sniff(self, head: Head) -> bool:
        """Whether the file begins with a trace or a span."""
        first = head.first
        if isinstance(first, list) and first:
            first = first[0]
        if isinstance(first, dict):
            return first.get("object") in _KINDS and ("span_data" in first or "workflow_name" in first)
        start = head.text.lstrip()
        return start.startswith(("{", "[")) and '"trace.span"' in start and '"span_data"' in start

    def read(self, path: Path) -> Iterator[Record]:
        """Drafts of every trace, in the order in which they begin in the file."""
        with closing(Grouped()) as kept:
            for where, body in objects(path):
                if isinstance(body, (Remark, Position)):
                    yield body
                elif body.get("object") not in _KINDS or not body.get("id"):
                    yield Remark("skipped", "this is no span and no trace of the agents SDK", where)
                elif not kept.add(str(body.get("trace_id") or body["id"]), str(body["id"]), body):
                    yield Remark("skipped", "another span of the same id", where)
            found = False
            for trace in kept.names():
                found = True
                spans = sorted(kept.members(trace), key=lambda one: str(one.get("started_at") or ""))
                yield from whole(_trace(trace, spans, self._policy), f"{path}, trace {trace}", "the SDK")
            if found:
                yield Remark("lost", f"{lacking(self._policy)}: spans have none", str(path))


def _trace(trace: str, spans: Sequence[Json], policy: Policy | None) -> Iterator[Record]:
    by_id = {str(span["id"]): span for span in spans}
    where = f"trace {trace}"
    calls = [span for span in spans if _kind(span) == "generation"]
    if silent := sum(_kind(span) == "response" for span in spans):
        what = "calls of the Responses interface: the SDK exports no messages of theirs"
        yield Remark("lost", what, where, silent)
    if not calls:
        yield Remark("skipped", "a trace without a call of a model whose messages were exported", where)
        return
    made = [_call(span, by_id, where) for span in calls]
    model = next((call.facts["policy"] for call in made if call.facts.get("policy")), None)
    head = next((span for span in spans if span.get("object") == "trace"), {})
    came = origin("openai-agents", model, workflow=head.get("workflow_name"))
    # Functions are not named by the call that they answer; what they gave is in the next call's messages.
    runs = [ToolRun(None, None, _rest_of(span, by_id)) for span in spans if _kind(span) == "function"]
    walk = TracePath(None, runs, policy, came)
    walk.add(made)
    walk.finish(f"agents/{trace}")
    others = [
        _rest_of(span, by_id) for span in spans if _kind(span) not in ("generation", "function", "response")
    ]
    unplaced = walk.unplaced()
    told: Json = {"id": trace, "spans": others} | ({"tools": unplaced} if unplaced else {})
    failed = next((span for span in spans if span.get("error") and not span.get("parent_id")), None)
    walk.last({"trace": told}, None if failed is None else _error(failed))
    yield from walk.new_nodes


def _data(span: Mapping[str, Any]) -> Mapping[str, Any]:
    data = span.get("span_data")
    return data if isinstance(data, Mapping) else {}


def _kind(span: Mapping[str, Any]) -> str | None:
    kind = _data(span).get("type")
    return kind if isinstance(kind, str) else None


def _rest_of(span: Json, by_id: Mapping[str, Json]) -> Json:
    """A span without its messages, and the agents that it lies in, the outermost first."""
    hidden = _REPEATED if _kind(span) == "generation" else frozenset[str]()
    data = {k: v for k, v in _data(span).items() if k not in hidden and v is not None}
    kept = {key: value for key, value in span.items() if key != "span_data" and value is not None}
    above: list[str] = []
    at, seen = by_id.get(str(span.get("parent_id"))), {str(span["id"])}
    while at is not None and str(at["id"]) not in seen:
        seen.add(str(at["id"]))
        if _kind(at) == "agent":
            above.append(str(_data(at).get("name")))
        at = by_id.get(str(at.get("parent_id")))
    return kept | {"span_data": data} | ({"agents": above[::-1]} if above else {})


def _call(span: Json, by_id: Mapping[str, Json], where: str) -> ModelCall:
    data = _data(span)
    shown = [whole_message(one, f"{where}, input") for one in data.get("input") or []]
    said = [whole_message(one, f"{where}, output") for one in data.get("output") or []]
    asked = asked_for(data.get("model_config"))
    usage = data.get("usage") if isinstance(data.get("usage"), Mapping) else {}
    told: Json = {
        "policy": str(data["model"]) if data.get("model") else None,
        "cost": Cost(
            tokens_in=_count(usage, "input_tokens"),
            tokens_out=_count(usage, "output_tokens"),
            seconds=_seconds(span),
        ),
        "error": _error(span),
        **asked,
        "extra": asked.get("extra", {}) | {"span": _rest_of(span, by_id)},
    }
    return ModelCall(f"agents/{span['id']}", shown, said, told)


def _count(usage: Any, name: str) -> int | None:
    value = usage.get(name)
    return value if type(value) is int else None


def _seconds(span: Mapping[str, Any]) -> float | None:
    try:
        start, end = (datetime.fromisoformat(str(span[key])) for key in ("started_at", "ended_at"))
        seconds = (end - start).total_seconds()
    except (KeyError, ValueError, TypeError):
        return None
    return seconds if seconds > 0 else None


def _error(span: Mapping[str, Any]) -> str | None:
    error = span.get("error")
    if not error:
        return None
    return str(error.get("message") or error) if isinstance(error, Mapping) else str(error)
