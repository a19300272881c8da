"""Spans and metrics of runs: in memory, and at a real receiver of OTLP over HTTP, workers included."""

import gzip
import io
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra trace is not installed")

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from refork.errors import CannotDo
from refork.forking import fork
from refork.forking.backend import open_backend
from refork.growing.plant import plant_prompt
from refork.growing.rollouts import grow
from refork.policies.base import Sampling
from refork.policies.open import open_policy
from refork.runs import observe
from refork.runs.observe import observed
from refork.runs.otel import Telemetry, exporters, open_telemetry, wants_content
from refork.tree.tree import Tree
from refork.worlds.open import open_world

LAW = Sampling(max_tokens=40, top_k=5)


@pytest.fixture(autouse=True)
def quiet(tmp_path, monkeypatch):
    monkeypatch.setenv("REFORK_HOME", str(tmp_path))
    for name in list(__import__("os").environ):
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)


class Memory:
    """A run's spans and metrics, kept here."""

    def __init__(self, monkeypatch, **settings):
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        spans, metrics = TracerProvider(shutdown_on_exit=False), MeterProvider([self.reader])
        spans.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.made = Telemetry(spans.get_tracer("t"), metrics.get_meter("t"), **settings)
        monkeypatch.setattr(observe, "open_telemetry", lambda: self.made)
        self.close = metrics.shutdown

    @property
    def spans(self):
        return {span.context.span_id: span for span in self.exporter.get_finished_spans()}

    def named(self, start):
        return [span for span in self.spans.values() if span.name.startswith(start)]

    def points(self):
        data = self.reader.get_metrics_data()
        return {
            metric.name: list(metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


def work(tasks=2, draws=4):
    policy, world = open_policy("scripted:lock"), open_world("lock")
    with observed("grow", ["grow", "--secret"]) as run, Tree.memory() as tree:
        grow(tree, policy, world, world.tasks("held-out", tasks, 0), draws=draws, settings=LAW, seed=3,
             progress=run)  # fmt: skip


def test_a_run_its_stage_groups_calls_steps_and_commits(monkeypatch):
    memory = Memory(monkeypatch, least=0)
    work()
    spans = memory.spans
    (run,) = memory.named("refork grow")
    (stage,) = memory.named("stage rollouts")
    (call,) = memory.named("text_completion scripted:lock")
    groups, steps, commits = (memory.named(n) for n in ("group", "execute_tool lock", "store commit"))
    assert (run.parent, stage.parent.span_id) == (None, run.context.span_id)
    assert {spans[s.parent.span_id].name for s in (call, *steps)} == {"stage rollouts"}
    assert len(steps) == 8
    assert len(commits) >= 3
    assert [g.attributes["refork.draws"] for g in groups] == [4, 4]
    assert all(g.start_time <= g.end_time for g in (*groups, stage))
    assert {s.context.trace_id for s in spans.values()} == {run.context.trace_id}
    assert call.kind == SpanKind.INTERNAL
    facts = dict(call.attributes)
    assert facts.pop("refork.busy_seconds") > 0
    assert facts == {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": "refork",
        "gen_ai.request.model": "scripted:lock",
        "gen_ai.request.temperature": 1.0,
        "gen_ai.request.max_tokens": 40,
        "gen_ai.request.top_k": 5.0,
        "gen_ai.request.seed": 3,
        "gen_ai.usage.input_tokens": facts["gen_ai.usage.input_tokens"],
        "gen_ai.usage.output_tokens": 8 * 33,
        "gen_ai.response.finish_reasons": ("stop",),
        "refork.requests": 8,
    }
    assert run.attributes["refork.rollouts"] == 8


def test_metrics_count_what_the_spans_tell(monkeypatch):
    memory = Memory(monkeypatch)
    work()
    points = memory.points()
    usage = {p.attributes["gen_ai.token.type"]: p.sum for p in points["gen_ai.client.token.usage"]}
    assert usage["output"] == 8 * 33
    assert usage["input"] > 0
    assert points["gen_ai.client.operation.duration"][0].count == 1
    assert points["refork.world.step.duration"][0].count == 8
    assert {p.attributes["refork.end"]: p.value for p in points["refork.rollouts"]} == {"done": 8}
    assert {"sampling", "store", "world"} <= {
        p.attributes["refork.section"] for p in points["refork.section.time"]
    }
    assert points["refork.progress.done"][0].value == points["refork.progress.total"][0].value == 8
    assert "refork.errors" not in points
    memory.close()


def test_short_steps_are_counted_and_no_spans(monkeypatch):
    memory = Memory(monkeypatch, least=10**12)
    work()
    assert memory.named("execute_tool") == []
    assert memory.points()["refork.world.step.duration"][0].count == 8
    memory.close()


def text_of(memory):
    return json.dumps([json.loads(span.to_json()) for span in memory.spans.values()])


def test_no_words_unless_they_are_asked_for(monkeypatch):
    policy = open_policy("scripted:greeter")

    def greet():
        with observed("fork", ["--change", "insert:Psst"]), Tree.memory() as tree:
            fork(plant_prompt(tree, policy, "Say hello."), policy, 3, settings=Sampling(max_tokens=30))

    memory = Memory(monkeypatch)
    greet()
    assert memory.spans
    for word in ("Hello", "Say hello", "Psst"):
        assert word not in text_of(memory)
    memory = Memory(monkeypatch, content=True)
    greet()
    (call,) = memory.named("text_completion")
    said = [json.loads(event.attributes["gen_ai.output.messages"])[0] for event in call.events]
    assert len(said) == 3
    assert all(one["role"] == "assistant" and one["finish_reason"] == "stop" for one in said)
    assert "Psst" in text_of(memory)


@pytest.mark.parametrize("content", [False, True])
def test_what_fails_is_an_error_and_its_message_may_be_private(monkeypatch, content):
    memory = Memory(monkeypatch, content=content)

    def broken():
        with observed("grow"):
            raise ValueError("the secret")

    with pytest.raises(ValueError, match="secret"):
        broken()
    (run,) = memory.named("refork grow")
    assert run.status.status_code == StatusCode.ERROR
    assert run.attributes["error.type"] == "ValueError"
    assert run.status.description == ("the secret" if content else None)


def test_which_exporters_the_environment_asks_for():
    for environment, traces, metrics in (
        ({}, [], []),
        ({"OTEL_TRACES_EXPORTER": "none"}, [], []),
        ({"OTEL_TRACES_EXPORTER": "console, otlp"}, ["console", "otlp"], []),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, ["otlp"], ["otlp"]),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_METRICS_EXPORTER": "none"}, ["otlp"], []),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://x"}, [], ["otlp"]),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}, [], []),
    ):
        found = [exporters(signal, environment) for signal in ("traces", "metrics")]
        assert found == [traces, metrics], environment
    assert open_telemetry({}) is None
    assert not wants_content({})
    assert wants_content({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "True"})
    with pytest.raises(CannotDo, match="no exporter of traces called 'zipkin'"):
        open_telemetry({"OTEL_TRACES_EXPORTER": "zipkin"})


def test_an_exporter_that_is_not_there_stops_no_run(monkeypatch):
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "zipkin")
    with observed("x") as run:
        run("s", 1, 1)
    assert "zipkin" in run.complaint
    assert run.recorder is None


def test_the_console_is_standard_error(monkeypatch, capsys):
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    with observed("x") as run:
        run("s", 1, 1)
    out, err = capsys.readouterr()
    assert out == ""
    assert '"refork x"' in err


class Receiver:
    """A collector: what it is sent by OTLP over HTTP."""

    def __init__(self, status=200):
        self.spans, self.metrics, self.services, self.status = [], set(), set(), status
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.GzipFile(fileobj=io.BytesIO(body)).read()
                receiver.take(self.path, body)
                self.send_response(receiver.status)
                self.end_headers()

            def log_message(self, *arguments):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = False
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})

    def take(self, path, body):
        if path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                facts = {a.key: a.value for a in resource.resource.attributes}
                self.services.add(facts["service.name"].string_value)
                for scope in resource.scope_spans:
                    self.spans += [(facts["process.pid"].int_value, span) for span in scope.spans]
        elif path == "/v1/metrics":
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for scope in resource.scope_metrics:
                    self.metrics |= {metric.name for metric in scope.metrics}

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}"


def test_a_collector_gets_the_run_and_its_workers_as_one_trace(monkeypatch):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    with Receiver() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address)
        with open_backend("processes:1?unit=4") as backend, observed("fork"):
            policy = backend.open("scripted:coin")
            with Tree.memory() as tree:
                start = plant_prompt(tree, policy, "Toss.")
                fork(start, policy, 8, settings=Sampling(max_tokens=3), backend=backend)
    (whole,) = [(pid, span) for pid, span in collector.spans if span.name == "refork fork"]
    units = [(pid, span) for pid, span in collector.spans if span.name == "unit"]
    calls = [(pid, span) for pid, span in collector.spans if span.name == "text_completion scripted:coin"]
    assert collector.services == {"mine"}
    assert {span.trace_id for _, span in collector.spans} == {whole[1].trace_id}
    assert len(units) == len(calls) == 2
    assert {pid for pid, _ in units} == {pid for pid, _ in calls} != {whole[0]}
    assert {span.parent_span_id for _, span in units} == {whole[1].span_id}
    assert {span.parent_span_id for _, span in calls} == {span.span_id for _, span in units}
    assert {
        "refork.rollouts",
        "gen_ai.client.token.usage",
        "refork.store.commit.duration",
    } <= collector.metrics


def test_a_run_goes_on_with_the_trace_that_began_it(monkeypatch):
    with Receiver() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{collector.address}/v1/traces")
        monkeypatch.setenv("TRACEPARENT", f"00-{'ab' * 16}-{'cd' * 8}-01")
        with observed("x"):
            pass
    ((_, span),) = collector.spans
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == ("ab" * 16, "cd" * 8)
    assert collector.metrics == set()
