"""Traces of OpenAI's agents SDK, as its tracing exports them: an object a line, or an array of them.

The spans of one trace are one trajectory in the order of their beginnings: a ``generation`` is an action,
agents and other spans are named with it, and runs of functions stand with the trace. Calls of the Responses
interface export no messages; they are counted as lost.

Source: ``agents.tracing`` of openai-agents 0.24 (``Span.export``, ``Trace.export``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, final

from refork.formats.answers import whole_message
from refork.formats.base import Head
from refork.formats.conversation import asked_for, count_of, mapping, origin
from refork.formats.grouped import Grouped
from refork.formats.log_reader import TraceReader, ancestors
from refork.formats.spans import ModelCall, ToolRun, TracePath, model_of
from refork.policies.base import Cost, Policy
from refork.tree.records import Record, Remark
from refork.types import Json

_KINDS: Final = ("trace", "trace.span")
#: What a span repeats of its messages.
_REPEATED: Final = frozenset({"input", "output"})


@final
class OpenAIAgents(TraceReader):
    """Reads traces of the agents SDK; those without a call of a model are counted and left out."""

    name, label, parts = "openai-agents", "the SDK", "spans"
    order = 71

    def sniff(self, head: Head) -> bool:
        """Whether the file begins with a trace or a span."""
        first = head.first
        if isinstance(first, list) and first:
            first = first[0]
        if isinstance(first, dict):
            return str(first.get("object")) in _KINDS and ("span_data" in first or "workflow_name" in first)
        start = head.text.lstrip()
        return start.startswith(("{", "[")) and '"trace.span"' in start and '"span_data"' in start

    def keep(self, grouped: Grouped, body: Json, where: str) -> Iterator[Remark]:
        """Keep a span or a trace by its trace's id."""
        if str(body.get("object")) not in _KINDS or not body.get("id"):
            yield Remark("skipped", "this is no span and no trace of the agents SDK", where)
        elif not grouped.add(str(body.get("trace_id") or body["id"]), str(body["id"]), body):
            yield Remark("skipped", "another span of the same id", where)

    def trace(self, grouped: Grouped, trace: str) -> Iterator[Record]:
        """Drafts of one trace."""
        spans = sorted(grouped.members(trace), key=lambda one: str(one.get("started_at") or ""))
        yield from _trace(trace, spans, self._policy)


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
    head = next((span for span in spans if span.get("object") == "trace"), {})
    came = origin("openai-agents", model_of(made), workflow=head.get("workflow_name"))
    # Functions are not named by the call that they answer; what they gave is in the next call's messages.
    runs = [ToolRun(None, None, _rest_of(span, by_id)) for span in spans if _kind(span) == "function"]
    trajectory = TracePath.of(made, None, runs, policy, came, f"agents/{trace}")
    others = [
        _rest_of(span, by_id) for span in spans if _kind(span) not in ("generation", "function", "response")
    ]
    failed = next((span for span in spans if span.get("error") and not span.get("parent_id")), None)
    trajectory.last({"id": trace, "spans": others}, None if failed is None else _error(failed))
    yield from trajectory.new_nodes


def _kind(span: Mapping[str, Any]) -> str | None:
    kind = mapping(span.get("span_data")).get("type")
    return kind if isinstance(kind, str) else None


def _rest_of(span: Json, by_id: Mapping[str, Json]) -> Json:
    """A span without its messages, and the agents that it lies in, the outermost first."""
    hidden = _REPEATED if _kind(span) == "generation" else frozenset[str]()
    data = {k: v for k, v in mapping(span.get("span_data")).items() if k not in hidden and v is not None}
    kept = {key: value for key, value in span.items() if key != "span_data" and value is not None}
    above = ancestors(span, by_id, lambda one: str(one.get("parent_id")))
    agents = [str(one["span_data"].get("name")) for one in above if _kind(one) == "agent"]
    return kept | {"span_data": data} | ({"agents": agents} if agents else {})


def _call(span: Json, by_id: Mapping[str, Json], where: str) -> ModelCall:
    data = mapping(span.get("span_data"))
    shown = [whole_message(one, f"{where}, input") for one in data.get("input") or []]
    said = [whole_message(one, f"{where}, output") for one in data.get("output") or []]
    asked = asked_for(data.get("model_config"))
    told: Json = {
        "policy": str(data["model"]) if data.get("model") else None,
        "cost": Cost(
            tokens_in=count_of(data.get("usage"), "input_tokens"),
            tokens_out=count_of(data.get("usage"), "output_tokens"),
            seconds=_seconds(span),
        ),
        "error": _error(span),
        **asked,
        "extra": asked.get("extra", {}) | {"span": _rest_of(span, by_id)},
    }
    return ModelCall(f"agents/{span['id']}", shown, said, told)


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
