"""Metrics and spans of exchanges, and that neither can break an answer."""

import asyncio
import contextlib
import json
import logging
from dataclasses import replace

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from refork.errors import BadInput
from refork.policies.base import Sampling
from refork.serve.exchange import Choice, Exchange, Timeline
from refork.serve.metrics import Metrics
from refork.serve.observe import Observers
from refork.serve.served import ActiveRequest, Asked
from refork.serve.tracing import Tracing, tracing
from refork.types import token_array


def exchange(**change):
    said = Choice("hi", "stop", tokens=token_array([5, 6]), rounds=2, drafted=6, accepted=3)
    plain = {
        "id": "chatcmpl-1", "operation": "chat", "model": "m", "choices": (said,),
        "prompt": token_array([1, 2, 3]), "text": "hello",
        "messages": ({"role": "user", "content": "secret"},),
    }  # fmt: skip
    return Exchange(**plain | change)


CALL = ActiveRequest("chat", "m", (), "chatcmpl-")


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def values(metrics):
    """Samples by name and label values, these sorted."""
    text = metrics.text()[0].decode()
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def told(watch_of, *said):
    with watch_of as watch:
        watch.timeline.started()
        for tokens in said:
            watch.timeline.count_tokens(tokens)
        asyncio.run(watch.ended(exchange()))


def test_times_of_a_request():
    clock = Clock()
    times = Timeline(clock)
    clock.now = 1.0
    times.started()
    for second, tokens in ((2.0, 1), (4.0, 3), (5.0, 2)):
        clock.now = second
        times.count_tokens(tokens)
    times.count_tokens(0)
    assert (times.queued, times.first, times.tokens) == (1.0, 2.0, 6)
    assert times.per_token == pytest.approx(3.0 / 5)
    assert Timeline(clock).per_token is None


def test_what_a_complete_answer_counts():
    metrics = Metrics()
    told(Observers(metrics).watch(CALL, Asked()), 1, 1)
    metrics.request("/v1/chat/completions", "POST", 200, 0.5)
    metrics.request("/v1/chat/completions", "BREW", 405, 0.5)
    metrics.recorded("written", 3)
    metrics.watch("m", lambda: {"running": 2, "waiting": 1, "kv_bytes": 4096})
    found = values(metrics)
    assert found["refork_answers_total", "complete", "m"] == 1
    assert found["refork_tokens_total", "in", "m"] == 3
    assert found["refork_tokens_total", "m", "out"] == 2
    assert found["refork_time_to_first_token_seconds_count", "m"] == 1
    assert found["refork_time_per_token_seconds_count", "m"] == 1
    assert found["refork_queue_seconds_count", "m"] == 1
    assert found["refork_requests_total", "/v1/chat/completions", "200", "POST"] == 1
    assert found["refork_requests_total", "/v1/chat/completions", "405", "other"] == 1
    assert found["refork_records_total", "written"] == 3
    assert (found["refork_drafted_tokens_total", "m"], found["refork_accepted_tokens_total", "m"]) == (6, 3)
    assert found["refork_tau", "m"] == 2.5
    assert found["refork_running", "m"] == 2
    assert found["refork_kv_bytes", "m"] == 4096


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(asyncio.CancelledError(), "left"), (ZeroDivisionError(), "error"), (None, "error")],
)
def test_an_answer_that_never_ended_is_counted_as_what_it_was(error, outcome):
    metrics = Metrics()
    with (
        contextlib.suppress(asyncio.CancelledError, ZeroDivisionError),
        Observers(metrics).watch(CALL, Asked()),
    ):
        if error is not None:
            raise error
    assert values(metrics)[("refork_answers_total", *sorted(["m", outcome]))] == 1


def test_two_servers_in_one_program_count_apart():
    one, two = Metrics(), Metrics()
    one.request("/", "GET", 200, 0.1)
    assert ("refork_requests_total", "/", "200", "GET") not in values(two)


def test_gauges_that_fail_are_left_out(caplog):
    metrics = Metrics()
    metrics.watch("bad", lambda: 1 / 0)
    metrics.watch("good", lambda: {"running": 1})
    with caplog.at_level(logging.CRITICAL, "refork.server"):
        found = values(metrics)
    assert found["refork_running", "good"] == 1
    assert ("refork_running", "bad") not in found


def test_a_count_that_cannot_be_made_is_logged_and_nothing_else(caplog):
    metrics = Metrics()
    metrics.answer("m", "not an exchange", Timeline(), "complete")
    assert "could not be counted" in caplog.text


@pytest.fixture
def spans():
    """Spans kept in memory, and a Tracing that makes them; keyword arguments go to it."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    memory = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))

    def make(**given):
        return Tracing(provider.get_tracer("test"), provider=provider, **given)

    yield memory, make
    provider.shutdown()


def test_a_span_says_what_was_asked_and_answered(spans):
    memory, make = spans
    settings = Sampling(temperature=0.5, top_p=0.9, max_tokens=7, stop=("x",))
    told(Observers(tracing=make()).watch(replace(CALL, stream=True), Asked(settings=settings, seed=3)), 1, 1)
    (span,) = memory.get_finished_spans()
    found = dict(span.attributes)
    assert span.name == "chat m"
    assert span.kind.name == "SERVER"
    assert found["gen_ai.operation.name"] == "chat"
    assert found["gen_ai.request.temperature"] == 0.5
    assert found["gen_ai.request.max_tokens"] == 7
    assert found["gen_ai.request.stop_sequences"] == ("x",)
    assert found["gen_ai.request.seed"] == 3
    assert found["gen_ai.response.finish_reasons"] == ("stop",)
    assert (found["gen_ai.usage.input_tokens"], found["gen_ai.usage.output_tokens"]) == (3, 2)
    assert found["refork.accepted_tokens"] == 3
    assert not any("secret" in str(value) or value == "hi" for value in found.values())
    assert "gen_ai.input.messages" not in found


def test_a_span_tells_no_settings_of_a_model_that_has_its_own(spans):
    memory, make = spans
    told(Observers(tracing=make()).watch(CALL, Asked(seed=3)))
    found = memory.get_finished_spans()[0].attributes
    asked = {name for name in found if name.startswith("gen_ai.request.")}
    assert asked == {"gen_ai.request.model", "gen_ai.request.choice.count", "gen_ai.request.seed"}


def test_contents_only_where_they_are_asked_for(spans):
    memory, make = spans
    told(Observers(tracing=make(content=True)).watch(CALL, Asked()))
    found = memory.get_finished_spans()[0].attributes
    (asked,) = json.loads(found["gen_ai.input.messages"])
    assert asked == {"role": "user", "parts": [{"type": "text", "content": "secret"}]}
    (said,) = json.loads(found["gen_ai.output.messages"])
    assert said["finish_reason"] == "stop"


def test_a_span_continues_the_clients_trace_and_says_how_it_broke(spans):
    memory, make = spans
    parent = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    with (
        pytest.raises(ZeroDivisionError),
        Observers(tracing=make()).watch(replace(CALL, headers=parent), Asked()),
    ):
        raise ZeroDivisionError
    (span,) = memory.get_finished_spans()
    assert f"{span.context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert span.attributes["error.type"] == "ZeroDivisionError"
    assert span.status.status_code.name == "ERROR"


def test_a_tracer_that_fails_breaks_no_answer(caplog):
    class Broken:
        def start_span(self, *given, **named):
            raise RuntimeError

    told(Observers(tracing=Tracing(Broken())).watch(CALL, Asked()))
    assert "could not be begun" in caplog.text


def test_no_provider_no_spans_and_a_collector_is_an_address():
    assert tracing() is None
    with pytest.raises(BadInput, match="collector"):
        tracing("localhost:4318")


def test_counts_that_are_not_known_stay_unknown():
    assert exchange(choices=(Choice("a", "stop"),)).counted_out is None
    assert exchange(prompt=None).counted_in is None
    assert exchange(prompt=None, tokens_in=4).counted_in == 4
    assert exchange(choices=(Choice("a", "stop", tokens=np.zeros(0, np.int32)),)).counted_out == 0
