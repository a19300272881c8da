"""Observations of Langfuse: what its API, its UI and its blob storage export give, and what its SDK sends.

A file is JSON lines, an array, or pages of the API (``{"data": [...]}``), of observations, of traces with
theirs inside, and of scores; names are the API's (``traceId``) or those of the blob storage (``trace_id``).
OTLP whose spans have ``langfuse.observation.*`` attributes is read as observations too.

Source: ``langfuse`` 5.0 (types of its API, attributes of its spans), Langfuse's reference of export fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, final

from refork.errors import BadInput
from refork.formats.base import Head
from refork.formats.conversation import count_of, mapping
from refork.formats.grouped import Grouped
from refork.formats.otlp.batches import Span, is_batch, spans_of
from refork.formats.platform_spans import (
    Kind,
    PlatformReader,
    graded,
    nanoseconds,
    platform_span,
    unquoted,
)
from refork.tree.records import Remark
from refork.tree.score import Producer
from refork.types import Json

_KINDS: Final[dict[str, Kind | None]] = {
    "GENERATION": "call", "TOOL": "tool", "AGENT": "agent", "SPAN": None, "EVENT": None, "CHAIN": None,
    "RETRIEVER": None, "EVALUATOR": None, "EMBEDDING": None, "GUARDRAIL": None,
}  # fmt: skip
_OTEL: Final = "langfuse.observation."
_INPUT: Final = ("input", "prompt_tokens", "promptTokens", "input_tokens")
_OUTPUT: Final = ("output", "completion_tokens", "completionTokens", "output_tokens")
#: What is read of an observation, or changes when it is exported again.
_TAKEN: Final = frozenset({
    "id", "traceId", "parentObservationId", "name", "type", "startTime", "endTime", "input", "output", "model",
    "providedModelName", "modelParameters", "statusMessage", "createdAt", "updatedAt", "scores", "observations",
})  # fmt: skip
_MARKS: Final = ('"parentObservationId"', '"parent_observation_id"', '"langfuse.observation.', '"traceId"')


@final
class Langfuse(PlatformReader):
    """Reads observations of Langfuse; those of traces without a generation are counted and left out."""

    name, label = "langfuse", "Langfuse"
    order = 66
    elsewhere = re.compile(r"@@@langfuseMedia:[^@]*@@@")

    def sniff(self, head: Head) -> bool:
        """Whether the file begins with an observation, a trace, a score, or a batch of such spans."""
        first = head.first
        if isinstance(first, list) and first:
            first = first[0]
        start = head.text.lstrip()
        if isinstance(first, dict) and not is_batch(first):
            return any(_part(one) is not None for one in _flat(first))
        known = '"startTime"' in start or '"start_time"' in start or '"observations"' in start
        return start.startswith(("{", "[")) and (
            f'"{_OTEL}type"' in start or (known and any(mark in start for mark in _MARKS[:2]))
        )

    def keep(self, grouped: Grouped, body: Json, where: str) -> Iterator[Remark]:
        """Keep observations, traces and scores by their traces."""
        if is_batch(body):
            yield from self._batch(grouped, body, where)
            return
        for one in _flat(body):
            part = _part(one)
            if part is None:
                yield Remark("skipped", "this is no observation, trace or score of Langfuse", where)
                continue
            one = _camel(one)
            trace = str(one.get("traceId") or one["id"])
            if part == "score" and not one.get("traceId"):
                yield Remark("lost", "scores of sessions and experiments, and not of a trace", where)
            elif part == "score":
                grouped.note(trace, str(one.get("observationId") or ""), _score(one))
            elif not grouped.add(trace, f"{part} {one['id']}", one | {"part": part}):
                yield Remark("skipped", f"another {part} of the same id", where)

    def _batch(self, grouped: Grouped, body: Json, where: str) -> Iterator[Remark]:
        try:
            for place, span in spans_of(body, where):
                if not any(key.startswith(_OTEL) for key in span.attributes):
                    yield Remark("lost", "spans without attributes of Langfuse", place)
                elif not grouped.add(span.trace, f"observation {span.id}", _observation(span)):
                    yield Remark("skipped", "another observation of the same id", place)
        except (BadInput, TypeError, AttributeError, LookupError, ValueError, ArithmeticError) as error:
            yield Remark("skipped", f"the rest of a batch is not as OTLP has it: {error}"[:200], where)

    def spans(self, raws: Sequence[Json], trace: str) -> Iterator[Span | Remark]:
        """The observations of a trace, and the trace itself where the file has it."""
        for raw in raws:
            if raw["part"] == "trace":
                yield platform_span(
                    f"trace {raw['id']}", trace, None, raw.get("name"), "agent",
                    (nanoseconds(raw.get("timestamp")), 0), raw.get("input"), raw.get("output"), rest=_rest(raw),
                )  # fmt: skip
            else:
                yield _span(raw, trace)


def _flat(body: Any) -> Iterator[Any]:
    """The parts of an object of the file: of a page, of a trace, of the UI's ``{"trace", "observations"}``."""
    if not isinstance(body, Mapping) or "startTime" in body or "start_time" in body:
        yield body
        return
    trace = body.get("trace")
    owner = trace if isinstance(trace, Mapping) else body
    lists = [body.get(key) for key in ("data", "observations", "scores")]
    if isinstance(trace, Mapping):
        yield from _flat(trace)
    elif not isinstance(body.get("data"), list):
        yield body
    for listed in lists:
        # A list of traces has the ids of observations only, which say nothing of their own.
        for one in listed if isinstance(listed, list) else ():
            if isinstance(one, Mapping):
                yield from _flat(one if lists[0] is listed else {"traceId": owner.get("id"), **one})


def _part(body: Any) -> str | None:
    """``observation``, ``score`` or ``trace``; None where it is none of Langfuse's."""
    if not isinstance(body, Mapping) or not body.get("id"):
        return None
    one = _camel(body)
    if "startTime" in one:
        return "observation" if str(one.get("type")).upper() in _KINDS and one.get("traceId") else None
    if "value" in one or "stringValue" in one:
        return "score" if one.get("name") and ("traceId" in one or "subject" in one) else None
    return (
        "trace"
        if "timestamp" in one and {"observations", "sessionId", "userId", "htmlPath"} & one.keys()
        else None
    )


def _camel(body: Mapping[str, Any]) -> Json:
    """The names of the API where the blob storage has its own; a score's subject beside its value."""
    made: Json = {re.sub(r"_([a-z])", lambda m: m[1].upper(), key): value for key, value in body.items()}
    subject = mapping(made.get("subject"))
    if subject.get("kind") == "observation":
        made |= {"traceId": subject.get("traceId"), "observationId": subject.get("id")}
    elif subject.get("kind") == "trace":
        made |= {"traceId": subject.get("id")}
    return made


def _observation(span: Span) -> Json:
    """A span of the SDK as the API would give it."""
    told = {key: value for key, value in span.attributes.items() if not key.startswith(_OTEL)}
    own = {
        key.removeprefix(_OTEL): unquoted(v) for key, v in span.attributes.items() if key.startswith(_OTEL)
    }
    metadata = {
        key.removeprefix("metadata."): own.pop(key) for key in list(own) if key.startswith("metadata.")
    }
    failed = span.status.get("message") if span.status.get("code") == 2 else None
    return {
        "part": "observation", "id": span.id, "traceId": span.trace, "parentObservationId": span.parent,
        "name": span.name, "type": str(own.pop("type", "span")), "startTime": span.start, "endTime": span.end,
        "model": own.pop("model.name", None), "modelParameters": own.pop("model.parameters", None),
        "usageDetails": own.pop("usage_details", None), "costDetails": own.pop("cost_details", None),
        "level": own.pop("level", "ERROR" if failed else None), "metadata": metadata,
        "statusMessage": own.pop("status_message", failed), "attributes": told, **own,
    }  # fmt: skip


def _span(raw: Json, trace: str) -> Span:
    asked, tools = _asked(unquoted(raw.get("input")))
    usage = mapping(unquoted(raw.get("usageDetails"))) or mapping(raw.get("usage")) or raw
    cost = mapping(unquoted(raw.get("costDetails")))
    failed = raw.get("level") == "ERROR"
    return platform_span(
        str(raw["id"]), trace, raw.get("parentObservationId"), raw.get("name"),
        _KINDS.get(str(raw.get("type")).upper()),
        (nanoseconds(raw.get("startTime")), nanoseconds(raw.get("endTime"))), asked, unquoted(raw.get("output")),
        model=raw.get("model") or raw.get("providedModelName"),
        parameters=unquoted(raw.get("modelParameters")), tools=tools,
        tokens=(count_of(usage, *_INPUT), count_of(usage, *_OUTPUT)),
        money=next(filter(None, (cost.get("total"), raw.get("totalCost"), raw.get("calculatedTotalCost"))), None),
        finish=mapping(raw.get("metadata")).get("finish_reason"),
        error=(raw.get("statusMessage") or "error") if failed else None, rest=_rest(raw),
    )  # fmt: skip


def _rest(raw: Mapping[str, Any]) -> Json:
    return {key: value for key, value in raw.items() if key not in _TAKEN and key != "part"}


def _asked(asked: Any) -> tuple[Any, Any]:
    """An input without the tools that LangChain's callback puts among its messages, and those tools."""
    if not isinstance(asked, list):
        return asked, None
    offered = [one for one in asked if isinstance(mapping(one).get("content"), Mapping)]
    tools = [one["content"] for one in offered if one.get("role") == "tool"]
    return [one for one in asked if not any(one is other for other in offered)], tools


def _score(one: Mapping[str, Any]) -> Json:
    config = {key: one[key] for key in ("source", "authorUserId", "configId", "evaluatorId") if one.get(key)}
    value = one.get("value")
    return graded(Producer("langfuse", config=config), one["name"], value, one.get("comment"))
