"""Spans of Phoenix: what its client and its API give, rows of its dataframe, its OTLP, and annotations.

A file is JSON lines or an array of spans, a page of the API (``{"data": [...]}``), or a trace of its command
line (``{"spans": [...]}``). Attributes are OpenInference's, flat or nested in columns (``attributes.llm...``).
Annotations, as lines beside the spans or inside them, are scores.

Source: ``arize-phoenix`` 20.26, ``arize-phoenix-client`` 3.5 (``get_spans``, ``get_spans_dataframe``,
``get_span_annotations``), OpenInference 0.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, final

from refork.errors import BadInput
from refork.formats.base import Head
from refork.formats.conversation import mapping
from refork.formats.grouped import Grouped
from refork.formats.otlp.batches import Event, Span, span_of
from refork.formats.otlp.messages import INFERENCE_KIND, SpanMessages, span_messages
from refork.formats.platform_spans import PlatformReader, graded, nanoseconds
from refork.tree.records import Remark
from refork.tree.score import Producer
from refork.types import Json

_COLUMN: Final = "attributes."
_TAKEN: Final = frozenset({
    "name", "context", "context.trace_id", "context.span_id", "span_kind", "parent_id", "start_time",
    "end_time", "status_code", "status_message", "attributes", "events", "annotations",
})  # fmt: skip


@final
class Phoenix(PlatformReader):
    """Reads spans of Phoenix; those of traces without a model are counted and left out."""

    name, label = "phoenix", "Phoenix"
    order = 69

    def sniff(self, head: Head) -> bool:
        """Whether the file begins with a span of Phoenix's own forms."""
        first = head.first
        if isinstance(first, list) and first:
            first = first[0]
        if isinstance(first, dict):
            return any(_ids(one) is not None for one in self.unpack(first, "")[:1])
        start = head.text.lstrip()
        named = '"span_kind"' in start and '"trace_id"' in start and '"context"' in start
        bare = '"start_time_unix_nano"' in start and start.startswith('{"data"')
        return start.startswith(("{", "[")) and (named or bare or '"context.trace_id"' in start)

    def has(self, columns: frozenset[str]) -> bool:
        """Whether rows with these columns are those of Phoenix's dataframe."""
        return {"context.trace_id", "context.span_id", "span_kind"} <= columns

    def unpack(self, body: Any, where: str) -> list[Any]:
        """The spans of a page or of a trace; itself where it is one."""
        lists = (mapping(body).get(key) for key in ("data", "spans") if _ids(body) is None)
        return next((list(listed) for listed in lists if isinstance(listed, list)), [body])

    def keep(self, grouped: Grouped, body: Json, where: str) -> Iterator[Remark]:
        """Keep spans by their traces, and annotations by their spans."""
        for one in self.unpack(body, where):
            try:
                yield from self._keep(grouped, one, where)
            except (BadInput, TypeError, AttributeError, LookupError, ValueError, ArithmeticError) as error:
                yield Remark("skipped", f"a span is not as Phoenix has it: {error}"[:200], where)

    def _keep(self, grouped: Grouped, one: Any, where: str) -> Iterator[Remark]:
        ids = _ids(one)
        if ids is not None:
            if not grouped.add(*ids, asdict(_span(one, *ids))):
                yield Remark("skipped", "another span of the same trace and id", where)
                return
            for note in one.get("annotations") or []:
                grouped.note(ids[0], ids[1], _score(note))
        elif isinstance(one, Mapping) and one.get("span_id") and (one.get("annotator_kind")):
            # An annotation does not say which trace its span belongs to.
            grouped.note("", str(one["span_id"]), _score(one))
        else:
            yield Remark("skipped", "this is no span and no annotation of Phoenix", where)

    def spans(self, raws: Sequence[Json], trace: str) -> Iterator[Span | Remark]:
        """The spans of a trace."""
        for raw in raws:
            yield Span(**{**raw, "events": [Event(**one) for one in raw["events"]]})

    def messages(self, span: Span) -> tuple[SpanMessages, Json, list[Event]]:
        """The conversation of a call, under OpenInference's attributes."""
        return span_messages(span)


def _ids(body: Any) -> tuple[str, str] | None:
    """The ids of the trace and of the span; None where it is no span."""
    one = mapping(body)
    if "annotator_kind" in one:
        return None
    context = mapping(one.get("context"))
    timed = "start_time_unix_nano" in one
    trace = context.get("trace_id") or one.get("context.trace_id") or (one.get("trace_id") if timed else None)
    span = context.get("span_id") or one.get("context.span_id") or (one.get("span_id") if timed else None)
    return (str(trace), str(span)) if trace and span else None


def _span(one: Json, trace: str, id_: str) -> Span:
    if "start_time_unix_nano" in one:
        return span_of(one, {}, {})
    columns = {key.removeprefix(_COLUMN): v for key, v in one.items() if key.startswith(_COLUMN)}
    attributes = dict(_flat("", {**mapping(one.get("attributes")), **columns}))
    attributes.setdefault(INFERENCE_KIND, str(one.get("span_kind")))
    failed = {"code": 2, "message": str(one.get("status_message") or "")}
    parent = one.get("parent_id")
    return Span(
        trace, id_, str(parent) if parent else None, str(one.get("name") or ""), 0,
        nanoseconds(one.get("start_time")), nanoseconds(one.get("end_time")), attributes,
        [_event(event) for event in one.get("events") or []], failed if one.get("status_code") == "ERROR" else {},
        other={k: v for k, v in one.items() if k not in _TAKEN and not k.startswith(_COLUMN) and v is not None},
    )  # fmt: skip


def _event(raw: Mapping[str, Any]) -> Event:
    return Event(str(raw.get("name") or ""), nanoseconds(raw.get("timestamp")), dict(mapping(raw.get("attributes"))))


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Attributes under flat keys, whatever was nested in them; a column without a value is none."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else str(key), inner)
    elif isinstance(value, list) and value and all(isinstance(inner, Mapping) for inner in value):
        for number, inner in enumerate(value):
            yield from _flat(f"{prefix}.{number}", inner)
    elif value is not None:
        # A column of whole numbers with gaps holds fractions.
        whole = isinstance(value, float) and prefix.startswith("llm.token_count.") and value.is_integer()
        yield prefix, int(value) if whole else value


def _score(one: Mapping[str, Any]) -> Json:
    result = mapping(one.get("result"))
    told = {key: result.get(key, one.get(f"result.{key}")) for key in ("score", "label", "explanation")}
    config = {key: str(one[key]) for key in ("annotator_kind", "source", "identifier", "user_id") if one.get(key)}
    reason = ": ".join(str(told[key]) for key in ("label", "explanation") if told[key]) or None
    name = one.get("name") or one.get("annotation_name")
    return graded(Producer("phoenix", config=config), name, told["score"], reason)
