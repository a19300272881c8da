"""OpenTelemetry spans of answers, by its conventions for generative models."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, final

from refork.errors import BadInput, MissingExtra
from refork.serve.exchange import Exchange, Timeline
from refork.serve.metrics import harmless
from refork.serve.served import ActiveRequest, Asked
from refork.types import Json

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

_log = logging.getLogger("refork.server")
_SYSTEM = "refork"


@final
class Tracing:
    """A span for every answer: what was asked, how it ended, how many tokens, when the first one came.

    Names are those of the semantic conventions (``gen_ai.*``); ours begin with ``refork.``. ``content``: also
    messages and answers, which may be private. What goes wrong is logged, and breaks no answer. A span
    continues the trace that a request's ``traceparent`` names.
    """

    def __init__(
        self, tracer: Tracer, *, content: bool = False, provider: TracerProvider | None = None
    ) -> None:
        self._tracer = tracer
        self._content = content
        self._provider = provider

    def begin(self, call: ActiveRequest, asked: Asked) -> OpenSpan | None:
        """The span of a prompt whose answer begins now; None where none could be made."""
        try:
            from opentelemetry.propagate import extract
            from opentelemetry.trace import SpanKind

            name, parent = f"{call.operation} {call.model}", extract(call.headers)
            span = self._tracer.start_span(name, parent, SpanKind.SERVER, attributes=_asked(call, asked))
            return OpenSpan(span, self._content)
        except Exception:
            _log.exception("a span could not be begun")
            return None

    def close(self) -> None:
        """Send what has not been sent; only where the provider was made here."""
        if self._provider is not None:
            with harmless("a span could not be kept"):
                self._provider.shutdown()


@final
class OpenSpan:
    """The span of a request under way."""

    def __init__(self, span: Span, content: bool) -> None:
        self._span = span
        self._content = content

    def end(self, exchange: Exchange | None, times: Timeline, error: BaseException | None) -> None:
        """Close it with what became of the request."""
        with harmless("a span could not be kept"):
            from opentelemetry.trace import StatusCode

            if exchange is not None:
                self._span.set_attributes(_answered(exchange, times))
                if self._content:
                    self._span.set_attributes(_contents(exchange))
            broken = [c.error for c in exchange.choices if c.error is not None] if exchange else []
            if error is not None or broken:
                kind = "upstream_error" if error is None else type(error).__name__
                self._span.set_attribute("error.type", kind)
                self._span.set_status(StatusCode.ERROR, broken[0] if broken else kind)
        with harmless("a span could not be kept"):
            # On its own: a span that could not be described has to be ended all the same, or is never sent.
            self._span.end()


def tracing(otlp: str | None = None, *, content: bool = False) -> Tracing | None:
    """Spans to the collector at ``otlp`` (OTLP over HTTP), else to whatever provider the program has set.

    None: neither is there.

    Raises:
        MissingExtra: an address is given and OpenTelemetry is not installed.
        BadInput: it is no http address.
    """
    try:
        from opentelemetry import trace
    except ImportError as error:
        if otlp is None:
            return None
        raise MissingExtra("opentelemetry", "trace") from error
    if otlp is not None:
        provider = _provider(otlp)
        return Tracing(provider.get_tracer(_SYSTEM), content=content, provider=provider)
    # The program has set no provider, so spans would go nowhere.
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    return Tracing(trace.get_tracer(_SYSTEM), content=content)


def _provider(otlp: str) -> TracerProvider:
    if not otlp.startswith(("http://", "https://")):
        raise BadInput(f"{otlp!r} is no collector", hint="--otlp http://localhost:4318/v1/traces")
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise MissingExtra("opentelemetry", "trace") from error
    made = TracerProvider(resource=Resource.create({"service.name": _SYSTEM}))
    made.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=otlp)))
    return made


def _asked(call: ActiveRequest, asked: Asked) -> Json:
    settings = asked.settings
    found: Json = {
        "gen_ai.operation.name": call.operation,
        "gen_ai.provider.name": _SYSTEM,
        "gen_ai.request.model": call.model,
        "gen_ai.request.choice.count": asked.n,
        "refork.request.stream": call.stream,
    }
    if asked.seed is not None:
        found["gen_ai.request.seed"] = asked.seed
    if settings is None:
        return found
    found["gen_ai.request.max_tokens"] = settings.max_tokens
    # The conventions have a double for each of these, for top_k too.
    for name in ("temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty"):
        if (value := getattr(settings, name)) is not None:
            found[f"gen_ai.request.{name}"] = float(value)
    if settings.stop:
        found["gen_ai.request.stop_sequences"] = list(settings.stop)
    return found


def _answered(exchange: Exchange, times: Timeline) -> Json:
    card = exchange.card
    found: Json = {
        "gen_ai.response.id": exchange.id,
        "gen_ai.response.model": exchange.model if card is None else card.name,
        "gen_ai.response.finish_reasons": [c.finish for c in exchange.choices],
    }
    known = {
        "gen_ai.usage.input_tokens": exchange.counted_in,
        "gen_ai.usage.output_tokens": exchange.counted_out,
        "gen_ai.server.time_to_first_token": times.first,
        "gen_ai.server.time_per_output_token": times.per_token,
        "refork.queue_seconds": times.queued,
        "refork.weights": None if card is None else card.weights,
    }
    rounds = sum(c.rounds for c in exchange.choices)
    if rounds:
        known["refork.drafted_tokens"] = sum(c.drafted for c in exchange.choices)
        known["refork.accepted_tokens"] = sum(c.accepted for c in exchange.choices)
        known["refork.speculative_rounds"] = rounds
    return found | {name: value for name, value in known.items() if value is not None}


def _contents(exchange: Exchange) -> Json:
    """Input and output in the conventions' form: messages of parts, as JSON."""
    from refork.formats.otlp.messages import INPUT, OUTPUT, parts_of_message

    asked = exchange.messages or ({"role": "user", "content": exchange.text},)
    answers = []
    for choice in exchange.choices:
        message = choice.message or {"role": "assistant", "content": choice.text}
        # The conventions' word for it is in the singular.
        finish = "tool_call" if choice.finish == "tool_calls" else choice.finish
        answers.append(parts_of_message(message) | {"finish_reason": finish})
    return {INPUT: json.dumps([parts_of_message(one) for one in asked]), OUTPUT: json.dumps(answers)}
