"""Traces of MLflow: ``Trace.to_json()``, rows of ``search_traces()``, ``traces.json`` of a store, its OTLP.

A file is one of these, JSON lines or an array of them, or what ``mlflow traces search`` prints. Spans are
OpenTelemetry's with attributes in JSON (``mlflow.spanInputs``); of an answer that was streamed, the chunks
that MLflow keeps are read, since what it puts together of them has no calls of tools.

Source: ``mlflow`` 3.17 (``mlflow.entities``, ``mlflow.tracing``), and the spans of its second version.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, final

from refork.errors import BadInput
from refork.formats.base import Head
from refork.formats.conversation import count_of, mapping
from refork.formats.grouped import Grouped
from refork.formats.otlp.batches import Event, Span, is_batch, span_of, spans_of
from refork.formats.platform_spans import Kind, PlatformReader, graded, platform_span
from refork.formats.provider_messages import chat_of_chunks
from refork.json_guard import parse_json
from refork.tree.records import Remark
from refork.tree.score import Producer
from refork.types import Json

_KINDS: Final[dict[str, Kind]] = {"CHAT_MODEL": "call", "LLM": "call", "TOOL": "tool", "AGENT": "agent"}
_CHUNK: Final = "mlflow.chunk.item."
_MARKS: Final = re.compile(r'mlflow\.(?:spanType|traceRequestId)\\*"')
#: Attributes that are read, or say again what the trace or the request says.
_TAKEN: Final = frozenset({
    "mlflow.spanInputs", "mlflow.spanOutputs", "mlflow.spanType", "mlflow.traceRequestId", "mlflow.llm.model",
    "mlflow.chat.tokenUsage", "mlflow.chat.tools", "tools", "model",
})  # fmt: skip


@final
class MLflowTraces(PlatformReader):
    """Reads traces of MLflow; those without a span of a model are counted and left out."""

    name, label = "mlflow", "MLflow"
    order = 67
    elsewhere = re.compile(r"mlflow-attachment://[0-9a-f-]{36}")

    def sniff(self, head: Head) -> bool:
        """Whether the file begins with a trace, a row of traces, or a span that MLflow wrote."""
        start = head.text.lstrip()
        return start.startswith(("{", "[")) and _MARKS.search(start) is not None

    def has(self, columns: frozenset[str]) -> bool:
        """Whether rows with these columns are those of ``search_traces()``."""
        return {"trace_id", "trace", "spans"} <= columns

    def keep(self, grouped: Grouped, body: Json, where: str) -> Iterator[Remark]:
        """Keep spans and assessments by their traces."""
        for one in body["traces"] if isinstance(body.get("traces"), list) else [body]:
            try:
                yield from self._keep(grouped, one, where)
            except BadInput as error:
                yield Remark("skipped", f"the rest of a trace: {error.what}", error.where or where)
            except (TypeError, AttributeError, LookupError, ValueError, ArithmeticError) as error:
                yield Remark("skipped", f"the rest of a trace is not as MLflow has it: {error}"[:200], where)

    def _keep(self, grouped: Grouped, body: Any, where: str) -> Iterator[Remark]:
        if is_batch(body):
            for _, span in spans_of(body, where):
                yield from _add(grouped, span.trace, span, where)
            return
        # A row of search_traces() has the whole trace as a text.
        body = _plain(body.get("trace")) if isinstance(body.get("trace"), str) else body
        info = mapping(body.get("info")) or body
        spans = mapping(body.get("data")).get("spans", body.get("spans"))
        if not isinstance(spans, list):
            yield Remark("skipped", "this is no trace of MLflow, or one without its spans", where)
            return
        trace = info.get("trace_id") or info.get("request_id")
        made = [span_of(_newer(raw), {}, {}) for raw in spans]
        name = str(trace or (made[0].trace if made else where))
        for span in made:
            yield from _add(grouped, name, span, where)
        told = {key: value for key, value in mapping(body.get("info")).items() if key != "assessments"}
        if told:
            grouped.add(name, "info", {"info": told})
        for one in info.get("assessments") or []:
            if mapping(one).get("valid") is False:
                yield Remark("lost", "feedback that other feedback took the place of", where)
            elif isinstance(mapping(one).get("feedback"), Mapping):
                grouped.note(name, str(one.get("span_id") or ""), _score(one))
            else:
                yield Remark(
                    "lost", f"an assessment that is no feedback: {one.get('assessment_name')}", where
                )

    def spans(self, raws: Sequence[Json], trace: str) -> Iterator[Span | Remark]:
        """The spans of a trace; what is said of the trace as a whole stands with the outermost."""
        info = next((raw["info"] for raw in raws if "info" in raw), None)
        for raw in raws:
            if "info" not in raw:
                span = Span(**{**raw, "events": [Event(**one) for one in raw["events"]]})
                yield _span(span, trace, info if span.parent is None else None)


def _add(grouped: Grouped, trace: str, span: Span, where: str) -> Iterator[Remark]:
    if not grouped.add(trace, span.id, asdict(span)):
        yield Remark("skipped", "another span of the same trace and id", where)


def _newer(raw: Any) -> Json:
    """A span, one of MLflow's second version under the names of the third."""
    if not isinstance(raw.get("context"), Mapping):
        return dict(raw)
    return {
        **{key: value for key, value in raw.items() if key not in ("context", "parent_id")},
        "trace_id": _padded(raw["context"].get("trace_id"), 32),
        "span_id": _padded(raw["context"].get("span_id"), 16),
        "parent_span_id": _padded(raw["parent_id"], 16) if raw.get("parent_id") else None,
        "start_time_unix_nano": raw.get("start_time"),
        "end_time_unix_nano": raw.get("end_time"),
        "status": {"code": f"STATUS_CODE_{raw.get('status_code')}", "message": raw.get("status_message")},
    }


def _padded(raw: Any, digits: int) -> str:
    return str(raw).removeprefix("0x").zfill(digits)


def _span(span: Span, trace: str, info: Json | None) -> Span:
    told = {key: _plain(value) for key, value in span.attributes.items()}
    chunks = [event for event in span.events if event.name.startswith(_CHUNK)]
    said = chat_of_chunks([_plain(event.attributes.get("mlflow.chunk.value")) for event in chunks])
    usage = told.get("mlflow.chat.tokenUsage")
    rest = {key: value for key, value in told.items() if key not in _TAKEN}
    made = platform_span(
        span.id, trace, span.parent, span.name, _KINDS.get(str(told.get("mlflow.spanType"))),
        (span.start, span.end), inputs=told.get("mlflow.spanInputs"),
        outputs=told.get("mlflow.spanOutputs") if said is None else said, model=told.get("mlflow.llm.model"),
        tools=told.get("mlflow.chat.tools"),
        tokens=(count_of(usage, "input_tokens"), count_of(usage, "output_tokens")),
        money=mapping(told.get("mlflow.llm.cost")).get("total_cost"),
        events=[event for event in span.events if said is None or event not in chunks],
        rest=span.other | {"attributes": rest, "info": info},
    )  # fmt: skip
    made.status = span.status if span.status.get("code") == 2 else {}
    return made


def _score(one: Mapping[str, Any]) -> Json:
    source = mapping(one.get("source"))
    config = {key: source[key] for key in ("source_type", "source_id") if source.get(key)}
    value = one["feedback"].get("value")
    # A judge of MLflow answers yes or no.
    value = {"yes": True, "no": False}.get(value, value) if isinstance(value, str) else value
    return graded(Producer("mlflow", config=config), one.get("assessment_name"), value, one.get("rationale"))


def _plain(raw: Any) -> Any:
    """What a JSON text says; a text that is none as it is."""
    try:
        return parse_json(raw.encode(), "") if isinstance(raw, str) else raw
    except BadInput:
        return raw
