"""OpenTelemetry spans of generative AI (semantic conventions ``gen_ai.*``) as trajectories, one per trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from refork.errors import BadInput
from refork.policies.base import Cost
from refork.types import Json
from refork_methods.memory.events import added
from refork_methods.memory.sources.messages import function_name, refuses, value_of
from refork_methods.memory.trajectory import RunStep, RunTrajectory


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
        cost = added(*(_cost(one) for one in chats)) if chats else Cost()
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
