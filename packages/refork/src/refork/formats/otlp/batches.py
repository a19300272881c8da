"""OTLP's JSON: attribute values as plain data and back, ids in hexadecimal, spans and logs of batches.

Source: ``opentelemetry-proto`` (its files ``trace``, ``logs`` and ``common``) and the OTLP specification.
Ids are hexadecimal where Protobuf's own JSON has base64: both are read, as are names in either case.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, final

from refork.errors import BadInput
from refork.types import Json

_KINDS: Final = {
    "SPAN_KIND_UNSPECIFIED": 0, "SPAN_KIND_INTERNAL": 1, "SPAN_KIND_SERVER": 2, "SPAN_KIND_CLIENT": 3,
    "SPAN_KIND_PRODUCER": 4, "SPAN_KIND_CONSUMER": 5,
}  # fmt: skip
#: Our own attributes as they were called while the package was Ramify.
_FORMER: Final = {"ramify.node": "refork.node", "ramify.producer": "refork.producer"}
_STATUS: Final = {"STATUS_CODE_UNSET": 0, "STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": 2}


@final
@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a span, or a log record of it; ``body`` of a log record."""

    name: str
    time: int
    attributes: Json
    body: Any = None

    def plain(self) -> Json:
        """As kept with a node; a log record's body is an attribute, since an event of a span has none."""
        body = {} if self.body is None else {"gen_ai.event.content": self.body}
        return {"name": self.name, "time": self.time, "attributes": self.attributes | body}


@final
@dataclass(slots=True)
class Span:
    """One span; times in nanoseconds since 1970, ``other`` what it has beside."""

    trace: str
    id: str
    parent: str | None
    name: str
    kind: int
    start: int
    end: int
    attributes: Json
    events: list[Event]
    status: Json
    scope: Json = field(default_factory=dict)
    resource: Json = field(default_factory=dict)
    other: Json = field(default_factory=dict)


def key_of(body: Mapping[str, Any], *names: str) -> Any:
    """The value under the first of several spellings of a key that is there."""
    return next((body[name] for name in names if name in body), None)


def plain_value(value: Any) -> Any:
    """An ``AnyValue`` as plain data; bytes stay ``{"bytesValue": base64}``."""
    if not isinstance(value, Mapping):
        return value
    for kind, raw in value.items():
        if raw is None and len(value) > 1:
            continue  # Phoenix writes every kind, all null but one
        name = kind.replace("_value", "Value")
        if name == "intValue":
            return int(raw)
        if name == "doubleValue":
            return _double(raw)
        if name in ("stringValue", "boolValue"):
            return raw
        if name == "arrayValue":
            return [plain_value(one) for one in (raw or {}).get("values") or []]
        if name == "kvlistValue":
            return plain_attributes((raw or {}).get("values"))
        if name == "bytesValue":
            return {"bytesValue": raw}
    return None


def plain_attributes(raw: Any) -> Json:
    """Attributes as a dictionary; a list of keys and values, or one already."""
    if isinstance(raw, Mapping):
        return {str(key): value for key, value in raw.items()}
    return {str(one["key"]): plain_value(one.get("value")) for one in raw or []}


def _own_attributes(raw: Any) -> Json:
    """Attributes of a span or an event, those that we write by their present names."""
    return {_FORMER.get(key, key): value for key, value in plain_attributes(raw).items()}


def any_value(value: Any) -> Json:
    """Plain data as an ``AnyValue``; None is one without a value."""
    if value is None:
        return {}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        # Whole numbers are texts in Protobuf's JSON; what is beyond 64 bits can only stay a text.
        return {"intValue": str(value)} if -(2**63) <= value < 2**63 else {"stringValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, Mapping):
        if set(value) == {"bytesValue"}:
            return {"bytesValue": value["bytesValue"]}
        return {"kvlistValue": {"values": attributes_list(value)}}
    if isinstance(value, (list, tuple)):
        return {"arrayValue": {"values": [any_value(one) for one in value]}}
    return {"stringValue": str(value)}


def attributes_list(attributes: Mapping[str, Any]) -> list[Json]:
    """A dictionary as OTLP's list of keys and values."""
    return [{"key": str(key), "value": any_value(value)} for key, value in attributes.items()]


def spans_of(body: Any, where: str) -> Iterator[tuple[str, Span]]:
    """The spans of a batch with their places; BadInput where a part is of another kind."""
    for number, holder, scope, resource in _scoped(body, "Spans", where):
        for count, raw in enumerate(key_of(holder, "spans") or []):
            yield f"{where}, resource {number}, span {count + 1}", span_of(raw, scope, resource)


def logs_of(body: Any, where: str) -> Iterator[tuple[str, tuple[str, str, Event]]]:
    """The log records of a batch that belong to a span, each with the ids of trace and span."""
    for number, holder, _, _ in _scoped(body, "Logs", where):
        for count, raw in enumerate(key_of(holder, "logRecords", "log_records") or []):
            place = f"{where}, resource {number}, log record {count + 1}"
            trace, span = key_of(raw, "traceId", "trace_id"), key_of(raw, "spanId", "span_id")
            if not trace or not span:
                continue
            attributes = plain_attributes(raw.get("attributes"))
            name = key_of(raw, "eventName", "event_name") or attributes.get("event.name") or ""
            time = _time(key_of(raw, "timeUnixNano", "time_unix_nano", "observedTimeUnixNano"))
            event = Event(str(name), time, attributes, plain_value(raw.get("body")))
            yield place, (hex_id(trace, 16), hex_id(span, 8), event)


def is_batch(body: Any) -> bool:
    """Whether an object is a batch of spans or of log records."""
    names = ("resourceSpans", "resource_spans", "resourceLogs", "resource_logs")
    return isinstance(body, Mapping) and any(isinstance(body.get(name), list) for name in names)


def _scoped(body: Any, what: str, where: str) -> Iterator[tuple[int, Mapping[str, Any], Json, Json]]:
    lower = what.lower()
    for number, one in enumerate(key_of(body, f"resource{what}", f"resource_{lower}") or [], start=1):
        if not isinstance(one, Mapping):
            raise BadInput("a resource of the batch is no object", where=where)
        resource = plain_attributes((one.get("resource") or {}).get("attributes"))
        # Before OTLP 0.16 the scopes were called instrumentation libraries.
        names = (f"scope{what}", f"scope_{lower}", f"instrumentationLibrary{what}")
        for holder in key_of(one, *names) or []:
            scope = key_of(holder, "scope", "instrumentationLibrary") or {}
            told = {key: value for key, value in scope.items() if key != "attributes" and value}
            more = plain_attributes(scope.get("attributes"))
            yield number, holder, told | ({"attributes": more} if more else {}), resource


def span_of(raw: Mapping[str, Any], scope: Json, resource: Json) -> Span:
    """A span of a batch, or one that stands alone."""
    known = {
        "traceId", "trace_id", "spanId", "span_id", "parentSpanId", "parent_span_id", "name", "kind",
        "startTimeUnixNano", "start_time_unix_nano", "endTimeUnixNano", "end_time_unix_nano", "attributes",
        "events", "status",
    }  # fmt: skip
    parent = key_of(raw, "parentSpanId", "parent_span_id")
    kind = raw.get("kind") or 0
    return Span(
        trace=hex_id(key_of(raw, "traceId", "trace_id"), 16),
        id=hex_id(key_of(raw, "spanId", "span_id"), 8),
        parent=hex_id(parent, 8) if parent else None,
        name=str(raw.get("name") or ""),
        kind=_KINDS.get(kind, 0) if isinstance(kind, str) else int(kind),
        start=_time(key_of(raw, "startTimeUnixNano", "start_time_unix_nano")),
        end=_time(key_of(raw, "endTimeUnixNano", "end_time_unix_nano")),
        attributes=_own_attributes(raw.get("attributes")),
        events=[_event(one) for one in raw.get("events") or []],
        status=_status(raw.get("status")),
        scope=scope,
        resource=resource,
        other={
            key: value for key, value in raw.items() if key not in known and value not in ("", [], 0, None)
        },
    )


def _event(raw: Mapping[str, Any]) -> Event:
    time = _time(key_of(raw, "timeUnixNano", "time_unix_nano"))
    return Event(str(raw.get("name") or ""), time, _own_attributes(raw.get("attributes")))


def _status(raw: Any) -> Json:
    if not isinstance(raw, Mapping):
        return {}
    code = raw.get("code") or 0
    code = _STATUS.get(code, 0) if isinstance(code, str) else int(code)
    message = raw.get("message")
    return ({"code": code} if code else {}) | ({"message": str(message)} if message else {})


def _time(raw: Any) -> int:
    """Nanoseconds, a number or its text; 0 where they are not said."""
    value = int(raw or 0)
    if not 0 <= value < 2**64:
        raise BadInput(f"a time is {str(raw)[:40]!r}, which is no count of nanoseconds")
    return value


def _double(raw: Any) -> Any:
    """A number; Protobuf names those that JSON cannot write."""
    value = float(raw)
    if math.isfinite(value):
        return value
    return None if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def hex_id(raw: Any, size: int) -> str:
    """An id of ``size`` bytes in lower-case hexadecimal, from that or from base64.

    Raises:
        BadInput: neither.
    """
    text = str(raw)
    try:
        # The length tells them apart: 16 bytes are 32 digits or 24 letters of base64, 8 bytes 16 or 12.
        if len(text) == 2 * size:
            return bytes.fromhex(text).hex()
        data = base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error) as error:
        raise BadInput(f"{text[:40]!r} is no id of a trace or span") from error
    if len(data) != size:
        raise BadInput(f"{text[:40]!r} is no id of {size} bytes")
    return data.hex()
