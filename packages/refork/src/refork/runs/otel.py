"""OpenTelemetry traces and metrics of a run; which exporters, the standard ``OTEL_*`` variables decide.

Nothing of OpenTelemetry is imported unless they ask for it, or the program has set a provider of its own.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import entry_points, version
from typing import TYPE_CHECKING, Any, Final, final

from refork.errors import CannotDo, MissingExtra
from refork.runs.sections import Section
from refork.types import Json

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import Meter, MeterProvider
    from opentelemetry.trace import Span, Tracer, TracerProvider

_SCOPE: Final = "refork"
#: A step of a world that took less is counted and no span; there may be millions.
LEAST: Final = 1_000_000
#: Seconds that ending a run may wait for a collector.
PATIENCE: Final = 5.0
_CONTENT: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_TOKENS: Final = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
_SECONDS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)


def exporters(signal: str, environment: Mapping[str, str]) -> list[str]:
    """Names of the exporters that the environment asks for, of ``traces`` or ``metrics``."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    upper = signal.upper()
    ends = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{upper}_ENDPOINT")
    default = "otlp" if any(environment.get(name) for name in ends) else "none"
    asked = environment.get(f"OTEL_{upper}_EXPORTER") or default
    return [name for part in asked.split(",") if (name := part.strip()) and name != "none"]


def wants_content(environment: Mapping[str, str]) -> bool:
    """Whether prompts and answers are asked for; the variable is the conventions' own."""
    return environment.get(_CONTENT, "").strip().lower() in ("true", "1", "span_only", "event_only",
                                                             "span_and_event")  # fmt: skip


@final
class Telemetry:
    """Spans and metrics of sections. ``least``: nanoseconds under which a world's step is no span.

    ``content``: prompts and answers go along as events of the model calls' spans.
    """

    def __init__(
        self,
        tracer: Tracer,
        meter: Meter,
        *,
        content: bool = False,
        parent: Context | None = None,
        least: int = LEAST,
        ends: Iterable[Any] = (),
    ) -> None:
        self.content = content
        self._tracer = tracer
        self._parent = parent
        self._least = least
        self._ends = tuple(ends)
        self._home = threading.get_ident()
        self._seconds: dict[str, float] = {}
        self._stages: dict[str, float] = {}
        self.gauges: dict[str, float] = {}
        self._quiet = 0.0
        self._instruments(meter)

    def _instruments(self, meter: Meter) -> None:
        def histogram(name: str, unit: str, text: str, bounds: Iterable[float]) -> Any:
            return meter.create_histogram(
                name, unit, text, explicit_bucket_boundaries_advisory=[float(b) for b in bounds]
            )

        self._usage = histogram("gen_ai.client.token.usage", "{token}", "Tokens of model calls.", _TOKENS)
        self._calls = histogram("gen_ai.client.operation.duration", "s", "Model calls.", _SECONDS)
        self._steps = histogram("refork.world.step.duration", "s", "Steps of worlds.", _SECONDS)
        self._commits = histogram("refork.store.commit.duration", "s", "Transactions of stores.", _SECONDS)
        self._rollouts = meter.create_counter("refork.rollouts", "{rollout}", "Draws that ended.")
        self._errors = meter.create_counter("refork.errors", "{error}", "Draws that failed, by kind.")
        from opentelemetry.metrics import Observation

        def times(kept: dict[str, float], key: str) -> Callable[[Any], list[Observation]]:
            return lambda options: [Observation(value, {key: name}) for name, value in dict(kept).items()]

        meter.create_observable_counter(
            "refork.section.time", [times(self._seconds, "refork.section")], "s", "Own time of sections."
        )
        meter.create_observable_counter(
            "refork.stage.time", [times(self._stages, "refork.stage")], "s", "Time of stages."
        )
        for name, unit in (
            ("refork.progress.done", "1"),
            ("refork.progress.total", "1"),
            ("refork.tokens_per_second", "{token}/s"),
        ):
            meter.create_observable_gauge(name, [self._gauge(name)], unit)

    def _gauge(self, name: str) -> Callable[[Any], list[Any]]:
        from opentelemetry.metrics import Observation

        return lambda options: [Observation(self.gauges[name])] if name in self.gauges else []

    # What a recorder tells

    def opened(self, section: Section) -> None:
        """Begin its span."""
        if section.kind == "time":
            return
        from opentelemetry.trace import SpanKind

        remote = section.attributes.get("gen_ai.provider.name") == "openai"
        kind = SpanKind.CLIENT if remote else SpanKind.INTERNAL
        section.marks["span"] = self._tracer.start_span(_title(section), self._context(section), kind)

    def _context(self, section: Section) -> Context | None:
        from opentelemetry.trace import set_span_in_context

        here = section.parent
        while here is not None:
            if "span" in here.marks:
                return set_span_in_context(here.marks["span"])
            here = here.parent
        return self._parent

    def ran(self, section: Section, began: int, ended: int, own: int) -> None:
        """Add its own time, where it is of the run's thread."""
        if section.kind not in ("run", "stage", "unit") and threading.get_ident() == self._home:
            self._seconds[section.name] = self._seconds.get(section.name, 0.0) + own / 1e9

    def closed(self, section: Section) -> None:
        """End its span, and measure it. A span that is never ended is never sent."""
        if section.kind == "time":
            return
        self._measure(section)
        span: Span = section.marks["span"]
        if section.kind == "world" and section.spent < self._least and section.error is None:
            return
        span.set_attributes({k: v for k, v in section.attributes.items() if v is not None})
        if section.kind == "model":
            span.set_attribute("refork.busy_seconds", section.spent / 1e9)
            for asked, said, finish in section.marks.get("texts", ()) if self.content else ():
                span.add_event("gen_ai.client.inference.operation.details", _content(asked, said, finish))
        if section.error is not None:
            _fail(span, section.error, content=self.content)
        span.end(section.marks.get("end"))

    def _measure(self, section: Section) -> None:
        seconds = section.spent / 1e9
        if section.kind == "store":
            self._commits.record(seconds)
        outer = None if section.parent is None else section.parent.up(section.kind)
        if outer is not None:  # a call inside a call is counted with that one
            return
        facts = section.attributes
        if section.kind == "world":
            self._steps.record(seconds, {"gen_ai.tool.name": facts.get("gen_ai.tool.name", "")})
        if section.kind == "model":
            keys = ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model")
            shared = {key: facts[key] for key in keys if key in facts}
            failed = {} if section.error is None else {"error.type": type(section.error).__name__}
            self._calls.record(seconds, shared | failed)
            for kind in ("input", "output"):
                count = facts.get(f"gen_ai.usage.{kind}_tokens")
                if count is not None:
                    self._usage.record(count, shared | {"gen_ai.token.type": kind})

    # What a run tells

    def rollouts(self, ends: Mapping[str, int]) -> None:
        """So many draws ended so."""
        for end, count in ends.items():
            self._rollouts.add(count, {"refork.end": end})

    def errors(self, kinds: Mapping[str, int]) -> None:
        """So many draws failed of these."""
        for kind, count in kinds.items():
            self._errors.add(count, {"error.type": kind})

    def stage(self, name: str, seconds: float) -> None:
        """A stage went on for so long."""
        self._stages[name] = self._stages.get(name, 0.0) + seconds

    def headers(self, section: Section) -> dict[str, str]:
        """What a child process is given so that its spans lie in a section's."""
        from opentelemetry.trace import set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier, set_span_in_context(section.marks["span"]))
        return {name.upper(): value for name, value in carrier.items()}

    def flush(self) -> None:
        """Send what is done; after a collector has been slow, not for a minute."""
        before = time.monotonic()
        if before < self._quiet:
            return
        for one in self._ends:
            one.force_flush(1000)
        if time.monotonic() - before > 1.0:
            self._quiet = time.monotonic() + 60.0

    def close(self) -> None:
        """Send the rest, and end what was begun here; a collector that does not answer is given up."""

        def end() -> None:
            for one in self._ends:
                one.shutdown()

        thread = threading.Thread(target=end, daemon=True)
        thread.start()
        thread.join(PATIENCE)


def _title(section: Section) -> str:
    facts = section.attributes
    if section.kind == "model":
        return f"{facts.get('gen_ai.operation.name')} {facts.get('gen_ai.request.model')}"
    if section.kind == "world":
        return f"execute_tool {facts.get('gen_ai.tool.name')}"
    return {"store": "store commit", "group": "group", "unit": "unit"}.get(section.kind, section.name)


def _fail(span: Span, error: BaseException, *, content: bool) -> None:
    from opentelemetry.trace import StatusCode

    span.set_attribute("error.type", type(error).__name__)
    # A message may quote what was said.
    span.set_status(StatusCode.ERROR, str(error) if content else None)


def _content(asked: Iterable[Mapping[str, Any]], said: str, finish: str) -> Json:
    """Messages in the conventions' form."""
    from refork.formats.otlp.messages import INPUT, OUTPUT, parts_of_message

    answer = parts_of_message({"role": "assistant", "content": said}) | {"finish_reason": finish}
    return {INPUT: json.dumps([parts_of_message(dict(one)) for one in asked]), OUTPUT: json.dumps([answer])}


def open_telemetry(environment: Mapping[str, str] | None = None) -> Telemetry | None:
    """What the environment asks for, else what the program has set up itself; None: neither.

    Raises:
        MissingExtra: the environment asks, and OpenTelemetry is not installed.
        CannotDo: it names an exporter that is not installed.
    """
    found = os.environ if environment is None else environment
    traces, metrics = exporters("traces", found), exporters("metrics", found)
    disabled = found.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if not (traces or metrics):
        return None if disabled or "opentelemetry" not in sys.modules else _of_program(found)
    try:
        made, ends = _providers(traces, metrics, found)
    except ImportError as error:
        raise MissingExtra("opentelemetry", "trace") from error
    return _telemetry(*made, found, ends)


def _of_program(environment: Mapping[str, str]) -> Telemetry | None:
    from opentelemetry import metrics, trace

    tracers, meters = trace.get_tracer_provider(), metrics.get_meter_provider()
    mine = [type(one).__module__.startswith("opentelemetry.sdk") for one in (tracers, meters)]
    return _telemetry(tracers, meters, environment, ()) if any(mine) else None


def _telemetry(
    tracers: TracerProvider, meters: MeterProvider, environment: Mapping[str, str], ends: Iterable[Any]
) -> Telemetry:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {name.lower(): environment.get(name, "") for name in ("TRACEPARENT", "TRACESTATE")}
    parent = TraceContextTextMapPropagator().extract(carrier)
    own = version("refork")
    tracer, meter = tracers.get_tracer(_SCOPE, own), meters.get_meter(_SCOPE, own)
    return Telemetry(tracer, meter, content=wants_content(environment), parent=parent, ends=ends)


def _providers(
    traces: list[str], metrics: list[str], environment: Mapping[str, str]
) -> tuple[tuple[TracerProvider, MeterProvider], list[Any]]:
    from opentelemetry import trace
    from opentelemetry.metrics import NoOpMeterProvider
    from opentelemetry.sdk import metrics as sdk_metrics
    from opentelemetry.sdk import trace as sdk_trace
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    named = environment.get("OTEL_SERVICE_NAME") or "service.name=" in environment.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    own = {"process.pid": os.getpid()} | ({} if named else {"service.name": _SCOPE})
    resource = Resource.create(own | {"service.version": version("refork")})
    ends: list[Any] = []
    tracers: TracerProvider = trace.NoOpTracerProvider()
    if traces:
        # Ended by us, within a bound: at the exit of the process it would wait for a collector that is
        # silent.
        spans = sdk_trace.TracerProvider(resource=resource, shutdown_on_exit=False)
        for name in traces:
            spans.add_span_processor(BatchSpanProcessor(_exporter("traces", name, environment)))
        tracers = spans
        ends.append(spans)
    meters: MeterProvider = NoOpMeterProvider()
    if metrics:
        readers = [PeriodicExportingMetricReader(_exporter("metrics", name, environment)) for name in metrics]
        kept = sdk_metrics.MeterProvider(readers, resource=resource, shutdown_on_exit=False)
        meters = kept
        ends.append(kept)
    return (tracers, meters), ends


def _exporter(signal: str, name: str, environment: Mapping[str, str]) -> Any:
    """An exporter by its standard name; the console's writes to standard error, beside no results."""
    wanted = name
    if name == "otlp":
        protocol = environment.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL") or environment.get(
            "OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"
        )
        wanted = "otlp_proto_grpc" if protocol == "grpc" else "otlp_proto_http"
    found = list(entry_points(group=f"opentelemetry_{signal}_exporter", name=wanted))
    if not found:
        raise CannotDo(
            f"no exporter of {signal} called {name!r} is installed",
            where=f"OTEL_{signal.upper()}_EXPORTER",
            hint="otlp or console; others come with their packages",
        )
    make = found[0].load()
    return make(out=sys.stderr) if wanted == "console" else make()
