"""OTLP JSON as OpenTelemetry's SDK makes it, in every form of the conventions; export and the way back."""

from __future__ import annotations

import base64
import json

import pytest
from google.protobuf.json_format import MessageToJson, Parse
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Status, StatusCode

from refork.formats import reader_for
from refork.formats.otlp import OTLP
from refork.formats.otlp.batches import attributes_list
from refork.formats.otlp.writer import OTLPWriter
from refork.policies.base import Cost
from refork.tree import NewNode, Producer, Score, Tree
from support.foreign_logs import exported, imported, kinds, plain, unpacked, whats


def said(role, *parts, **more):
    return {"role": role, "parts": list(parts), **more}


def text(content):
    return {"type": "text", "content": content}


CALL = {"type": "tool_call", "id": "c1", "name": "weather", "arguments": {"city": "Paris"}}
USER, ANSWER = said("user", text("weather?")), said("assistant", text("It rains."), finish_reason="stop")
ASKS = said("assistant", {"type": "reasoning", "content": "hm"}, CALL, finish_reason="tool_call")
RESULT = said("tool", {"type": "tool_call_response", "id": "c1", "response": "rain"})


class Recorder:
    """OpenTelemetry's SDK with an exporter that keeps spans."""

    def __init__(self):
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(resource=Resource({"service.name": "agent"}))
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = provider.get_tracer("instrument", "1.0", attributes={"scope.key": 1})

    def span(self, operation, **attributes):
        told = {
            "gen_ai.operation.name": operation,
            **{k.replace("__", "."): v for k, v in attributes.items()},
        }
        return self.tracer.start_as_current_span(operation, attributes=told)

    def chat(self, shown, answer, events=(), **attributes):
        content = {"gen_ai.input.messages": json.dumps(shown), "gen_ai.output.messages": json.dumps(answer)}
        told = {"gen_ai.request.model": "m", **(content if shown is not None else {}), **attributes}
        with self.span("chat", **told) as span:
            for name, values in events:
                span.add_event(name, values)

    def write(self, file):
        file.write_text(MessageToJson(encode_spans(self.exporter.get_finished_spans())), encoding="utf-8")
        return file


def read(file):
    reader = reader_for(file)
    assert reader.name == "otlp"
    return imported(reader, file)


def round_trip(tree, folder):
    """A tree written, accepted by the collector's own messages, and read again."""
    file = folder / "again.jsonl"
    count = exported(tree, OTLPWriter(), file)
    for line in file.read_text(encoding="utf-8").split("\n")[:-1]:
        assert Parse(line, TracesData()).resource_spans
        assert Parse(line, ExportTraceServiceRequest()).resource_spans
    return (imported(OTLP(), file)[0] if count else None), count


def agent(recorder):
    """An agent that calls a tool and asks another agent."""
    system = {"gen_ai.system_instructions": json.dumps([text("be brief")])}
    usage = {
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.request.temperature": 0.5,
    }
    graded = {
        "gen_ai.evaluation.name": "ok",
        "gen_ai.evaluation.score.value": 0.5,
        "gen_ai.evaluation.explanation": "so",
    }
    tools = {"gen_ai.tool.definitions": json.dumps([{"type": "function", "name": "weather"}])}
    with recorder.span("invoke_agent", gen_ai__agent__name="outer"):
        recorder.chat([USER], [ASKS], **system, **usage, **tools, **{"own.key": [1, 2]})
        with recorder.span("execute_tool", gen_ai__tool__call__id="c1", gen_ai__tool__name="weather"):
            pass
        with recorder.tracer.start_as_current_span("GET /"):
            pass
        back = {k: v for k, v in ASKS.items() if k != "finish_reason"}
        recorder.chat([USER, back, RESULT], [ANSWER], [("gen_ai.evaluation.result", graded)], **system)
        with recorder.span("invoke_agent", gen_ai__agent__name="inner"):
            recorder.chat(
                [said("user", text("check"))], [said("assistant", text("fine"), finish_reason="length")]
            )


def test_an_agent_of_the_current_conventions(tmp_path):
    recorder = Recorder()
    agent(recorder)
    tree, remarks = read(recorder.write(tmp_path / "spans.json"))
    assert kinds(tree) == [["task", "action", "observation", "action", "rewrite", "action"]]
    (trajectory,) = tree.paths(tree.leaves())
    task, asks, seen, answer, rewrite, last = (s.node for s in trajectory)
    assert task.text == "be brief\nweather?"
    assert task.extra["tools"] == [{"type": "function", "name": "weather"}]
    assert asks.message["reasoning_content"] == "hm"
    assert asks.message["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"city": "Paris"}'}
    assert (asks.policy, asks.cost.tokens_in, asks.cost.tokens_out, asks.finish) == ("m", 7, 3, "stop")
    assert asks.settings == {"temperature": 0.5}
    assert asks.extra["span"]["attributes"]["own.key"] == [1, 2]
    assert asks.extra["span"]["scope"] == {
        "name": "instrument",
        "version": "1.0",
        "attributes": {"scope.key": 1},
    }
    assert (seen.text, seen.message["tool_call_id"]) == ("rain", "c1")
    assert seen.extra["tool_spans"][0]["attributes"]["gen_ai.tool.name"] == "weather"
    agents = {one["id"]: one["attributes"]["gen_ai.agent.name"] for one in last.extra["trace"]["agents"]}
    assert [agents[one] for one in asks.extra["span"]["agents"]] == ["outer"]
    assert [agents[one] for one in last.extra["span"]["agents"]] == ["outer", "inner"]
    assert (rewrite.extra["messages"], last.finish) == ([{"role": "user", "content": "check"}], "length")
    (score,) = tree.scores()
    assert (score.node, score.name, score.value, score.reason) == (answer.id, "ok", 0.5, "so")
    assert sorted(whats(remarks, "lost")) == [
        "spans of neither models, tools nor agents",
        "token ids and log-probs: spans have none",
    ]
    again, count = round_trip(tree, tmp_path)
    assert (count, plain(again)) == (1, plain(tree))


def old_events(recorder, role="content"):
    """The conventions up to 1.36: an event for each message."""
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
    events = [
        ("gen_ai.system.message", {role: "be brief"}),
        ("gen_ai.user.message", {role: "weather?"}),
        (
            "gen_ai.choice",
            {"index": 0, "finish_reason": "tool_calls", "message": json.dumps({"tool_calls": [call]})},
        ),
    ]
    recorder.chat(None, None, events)
    events = [*events[:2], ("gen_ai.assistant.message", {"tool_calls": json.dumps([call])})]
    events.append(("gen_ai.tool.message", {"id": "c1", role: "rain"}))
    done = json.dumps({"content": "It rains."})
    events.append(("gen_ai.choice", {"index": 0, "finish_reason": "stop", "message": done}))
    recorder.chat(None, None, events)


def older_events(recorder):
    """The conventions up to 1.27: JSON texts in two events."""
    prompt = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "weather?"}]
    events = [
        ("gen_ai.content.prompt", {"gen_ai.prompt": json.dumps(prompt)}),
        (
            "gen_ai.content.completion",
            {"gen_ai.completion": json.dumps([{"role": "assistant", "content": "It rains."}])},
        ),
    ]
    recorder.chat(None, None, events)


def numbered(recorder):
    """OpenLLMetry's attributes."""
    told = {
        "gen_ai.prompt.0.role": "system", "gen_ai.prompt.0.content": "be brief",
        "gen_ai.prompt.1.role": "user", "gen_ai.prompt.1.content": "weather?",
        "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "It rains.",
        "gen_ai.completion.0.finish_reason": "stop",
        "gen_ai.completion.0.tool_calls.0.name": "weather",
        "gen_ai.completion.0.tool_calls.0.arguments": "{}",
        "gen_ai.usage.prompt_tokens": 5,
    }  # fmt: skip
    with recorder.tracer.start_as_current_span(
        "openai.chat", attributes={"llm.request.type": "chat", **told}
    ):
        pass


@pytest.mark.parametrize("form", ["events", "older", "numbered", "details"])
def test_the_older_conventions(tmp_path, form):
    recorder = Recorder()
    if form == "details":
        told = {
            "gen_ai.input.messages": json.dumps([said("system", text("be brief")), USER]),
            "gen_ai.output.messages": json.dumps([ANSWER]),
        }
        recorder.chat(None, None, [("gen_ai.client.inference.operation.details", told)])
    else:
        {"events": lambda r: _within(r, old_events), "older": older_events, "numbered": numbered}[form](
            recorder
        )
    tree, _ = read(recorder.write(tmp_path / "spans.json"))
    (trajectory,) = tree.paths(tree.leaves())
    assert trajectory.root.text == "be brief\nweather?"
    assert trajectory.leaf.text.startswith("It rains.")
    expected = ["task", "action", "observation", "action"] if form == "events" else ["task", "action"]
    assert [s.node.kind for s in trajectory] == expected
    if form == "events":
        assert trajectory.steps[2].node.message == {"role": "tool", "content": "rain", "tool_call_id": "c1"}
    if form == "numbered":
        assert (trajectory.leaf.cost.tokens_in, trajectory.leaf.finish) == (5, "stop")
        assert trajectory.leaf.message["tool_calls"][0]["function"]["name"] == "weather"
    again, _ = round_trip(tree, tmp_path)
    assert plain(again) == plain(tree)


def _within(recorder, inner):
    with recorder.span("invoke_agent"):
        inner(recorder)


def test_spans_of_openinference_as_phoenix_takes_them(tmp_path):
    """Made by its instrumentation of OpenAI's package (``fixtures/generate_openinference.py``)."""
    unpacked("openinference.json", tmp_path)
    reader = reader_for(tmp_path / "openinference.json")
    tree, remarks = imported(reader, tmp_path / "openinference.json")
    assert (reader.name, whats(remarks, "skipped")) == ("otlp", [])
    (path,) = tree.paths(tree.leaves())
    assert kinds(tree) == [["task", "action", "observation", "action", "observation", "action"]]
    root, first, last = path.root, path.steps[1].node, path.leaf
    assert root.extra["tools"][0]["function"]["name"] == "look"
    assert root.extra["origin"] == {"format": "otlp", "model": "tiny-1", "service": "finder"}
    (call,) = first.message["tool_calls"]
    assert (call["id"], call["function"]) == ("call_1", {"name": "look", "arguments": '{"at": "door"}'})
    assert (first.message["content"], first.settings) == ("I look.", {"temperature": 0.4})
    assert first.extra["request"] == {"temperature": 0.4}
    assert (first.cost.tokens_in, first.cost.tokens_out, first.finish) == (20, 5, "stop")
    assert (path.steps[2].text, path.steps[4].text) == ("You look at the door.", "Sure?")
    assert (last.text, "no such model" in last.error) == ("", True)
    # What the attributes say twice is kept once; the agent is told with the trace, the run of the tool, which
    # names no call, with the result of the call of its name and arguments.
    assert not [key for key in first.extra["span"]["attributes"] if key.startswith(("input.", "llm.input"))]
    (ran,) = path.steps[2].node.extra["tool_spans"]
    assert ran["attributes"]["output.value"] == "You look at the door."
    assert last.extra["trace"]["agents"][0]["name"] == "Finder"
    exported(tree, OTLPWriter(), tmp_path / "again.jsonl")
    again, _ = imported(OTLP(), tmp_path / "again.jsonl")
    # A call without an answer is written without what it was shown.
    assert plain(again)[0][:4] == plain(tree)[0][:4]


def test_log_records_are_events_of_their_spans(tmp_path):
    """Messages as log records, in batches of their own, as the instrumentations of 1.28 to 1.36 sent them."""
    recorder = Recorder()
    recorder.chat(None, None)
    spans = json.loads(recorder.write(tmp_path / "spans.json").read_text())
    span = spans["resourceSpans"][0]["scopeSpans"][0]["spans"][0]

    def record(name, body):
        value = {
            "kvlistValue": {"values": [{"key": k, "value": {"stringValue": v}} for k, v in body.items()]}
        }
        return {
            "timeUnixNano": "5",
            "eventName": name,
            "traceId": span["traceId"],
            "spanId": span["spanId"],
            "body": value,
        }

    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": [
        record("gen_ai.user.message", {"content": "q"}),
        record("gen_ai.choice", {"content": "a", "finish_reason": "stop"}),
        record("other.event", {"kept": "yes"}),
        {"body": {"stringValue": "of no span"}},
    ]}]}]}  # fmt: skip
    file = tmp_path / "both.jsonl"
    file.write_text("".join(json.dumps(batch) + "\n" for batch in (logs, spans)))
    tree, _ = read(file)
    (trajectory,) = tree.paths(tree.leaves())
    assert [s.text for s in trajectory] == ["q", "a"]
    assert trajectory.leaf.extra["span"]["events"][0]["attributes"]["gen_ai.event.content"] == {"kept": "yes"}
    again, _ = round_trip(tree, tmp_path)
    assert plain(again) == plain(tree)


def test_evaluations_are_for_the_end_of_the_trace_and_the_first_of_two_is_kept(tmp_path):
    recorder = Recorder()
    with recorder.span("invoke_agent") as span:
        recorder.chat([USER], [ANSWER, said("assistant", text("No."), finish_reason="stop")])
        for value in (1.0, 0.5):
            graded = {"gen_ai.evaluation.name": "ok", "gen_ai.evaluation.score.value": value}
            span.add_event("gen_ai.evaluation.result", graded)
    tree, remarks = read(recorder.write(tmp_path / "t.json"))
    assert [(tree.node(s.node).text, s.value) for s in tree.scores()] == [("It rains.", 1.0)]
    assert "another value of the score ok" in whats(remarks, "lost")


def test_choices_errors_and_content_that_was_not_captured(tmp_path):
    recorder = Recorder()
    with recorder.span("invoke_workflow") as span:
        recorder.chat([USER], [said("assistant", text("no"), finish_reason="stop"), ANSWER])
        back = said("assistant", text("It rains."))
        recorder.chat([USER, back, said("user", text("sure?"))], [said("assistant", text("yes"))])
        recorder.chat(None, None)
        span.set_status(Status(StatusCode.ERROR, "gave up"))
    tree, remarks = read(recorder.write(tmp_path / "spans.json"))
    trajectories = {len(trajectory): trajectory for trajectory in tree.paths(tree.leaves())}
    assert [s.text for s in trajectories[2]] == ["weather?", "no"]
    assert [s.text for s in trajectories[5]] == ["weather?", "It rains.", "sure?", "yes", ""]
    assert trajectories[5].leaf.error == "gave up"
    assert trajectories[5].leaf.message is None
    assert "messages of calls: their content was not captured" in whats(remarks, "lost")
    again, count = round_trip(tree, tmp_path)
    assert count == 1
    # The error of a trace is that of its outermost span, and is written back with it.
    assert plain(again) == plain(tree)


def test_ids_in_both_encodings_and_batches_in_parts(tmp_path):
    recorder = Recorder()
    agent(recorder)
    whole, _ = read(recorder.write(tmp_path / "spans.json"))
    batch = json.loads((tmp_path / "spans.json").read_text())
    lines = []
    for span in batch["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for key in ("traceId", "spanId", "parentSpanId"):
            if key in span:
                span[key] = base64.b64decode(span[key]).hex().upper()
        resource = batch["resourceSpans"][0]
        scope = resource["scopeSpans"][0]
        part = {"resource": resource["resource"], "scopeSpans": [{"scope": scope["scope"], "spans": [span]}]}
        lines.append(json.dumps({"resourceSpans": [part]}))
    file = tmp_path / "parts.jsonl"
    # Twice the same line is one span; the order of lines is not that of time.
    file.write_text("\n".join([*lines[::-1], lines[0]]))
    parts, remarks = read(file)
    assert not whats(remarks, "skipped")
    assert plain(parts) == plain(whole)


def test_bad_spans_are_skipped_and_the_others_read(tmp_path):
    recorder = Recorder()
    recorder.chat([USER], [ANSWER])
    good = recorder.write(tmp_path / "spans.json").read_text()
    batch = json.loads(good)
    span = batch["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    bad = []
    for change in (
        {"traceId": "xyz"},
        {"startTimeUnixNano": "-5"},
        {"startTimeUnixNano": "9" * 30},
        {"attributes": [{"no": "key"}]},
        {"attributes": 7},
        {"events": "x"},
    ):
        other = json.loads(good)
        other["resourceSpans"][0]["scopeSpans"][0]["spans"][0] = span | {"spanId": "AAAAAAAAAAA="} | change
        bad.append(other)
    file = tmp_path / "some.jsonl"
    odd = [{"resourceSpans": [7]}, {"resourceSpans": []}, {"other": 1}]
    file.write_text("\n".join(json.dumps(one) for one in (*bad, *odd, batch)) + '\n{"resourceSpans": [')
    tree, remarks = read(file)
    assert kinds(tree) == [["task", "action"]]
    assert len(whats(remarks, "skipped")) == 9


def test_a_span_that_says_two_things_under_one_id(tmp_path):
    recorder = Recorder()
    recorder.chat([USER], [ANSWER])
    first = json.loads(recorder.write(tmp_path / "spans.json").read_text())
    second = json.loads(json.dumps(first))
    second["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["name"] = "other"
    file = tmp_path / "two.jsonl"
    file.write_text(json.dumps(first) + "\n" + json.dumps(second))
    tree, remarks = read(file)
    assert (kinds(tree), whats(remarks, "skipped")) == (
        [["task", "action"]],
        ["another span of the same trace and id"],
    )


def test_a_trace_whose_parents_go_in_a_circle(tmp_path):
    recorder = Recorder()
    agent(recorder)
    batch = json.loads(recorder.write(tmp_path / "spans.json").read_text())
    spans = batch["resourceSpans"][0]["scopeSpans"][0]["spans"]
    for span, above in zip(spans, [*spans[1:], spans[0]], strict=True):
        span["parentSpanId"] = above["spanId"]
    (tmp_path / "circle.json").write_text(json.dumps(batch))
    assert len(read(tmp_path / "circle.json")[0]) == 6


def grown():
    """A tree of our own: a fork inside a turn, a rewrite, a verdict, two judges."""
    tree = Tree.memory()
    task = tree.append(NewNode(kind="task", text="go", tokens=[1, 2]))[0]
    step = tree.append(
        NewNode(
            kind="action", parent=task.id, text="ab", tokens=[7, 8], offsets=[1, 2], policy="p",
            finish="stop", settings={"temperature": 0.5, "stop": ["x"]},
            cost=Cost(tokens_in=2, tokens_out=2, seconds=0.25),
        )
    )[0]  # fmt: skip
    call = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }
    seen = tree.append(NewNode(kind="observation", parent=step.id, text="s"))[0]
    last = tree.append(NewNode(kind="action", parent=seen.id, text="", message=call, policy="p"))[0]
    told = {"role": "tool", "tool_call_id": "c", "content": "r"}
    tree.append(NewNode(kind="observation", parent=last.id, text="r", message=told))
    verdict = tree.append(NewNode(kind="verdict", parent=last.id, text="good"))[0]
    other = tree.append(NewNode(kind="action", parent=step.id, keep=1, text="x", tokens=[5], error="broke"))[
        0
    ]
    context = {"messages": [{"role": "user", "content": "short"}]}
    rewrite = tree.append(NewNode(kind="rewrite", parent=step.id, text="short", extra=context))[0]
    tree.append(NewNode(kind="action", parent=rewrite.id, text="after"))
    one, two = (tree.add_producer(Producer("judge", version, {"k": 1})) for version in "12")
    tree.add_scores([Score(verdict.id, "ok", 1.0, one, "well"), Score(other.id, "ok", 0.0, two)])
    return tree


def talks(tree):
    """What the trajectories say."""
    return sorted(
        [(s.node.kind, s.text) for s in trajectory if s.node.kind != "verdict"]
        for trajectory in tree.paths(tree.leaves())
    )


def test_our_own_trees_are_traces_with_their_forks(tmp_path):
    tree = grown()
    first, count = round_trip(tree, tmp_path)
    assert count == 3
    assert talks(first) == [
        [
            ("task", "go"),
            ("action", "ab"),
            ("observation", "s"),
            ("action", '{"name": "f", "arguments": "{}"}'),
        ],
        [("task", "go"), ("action", "ab"), ("rewrite", "short"), ("action", "after")],
        [("task", "go"), ("action", "ax")],
    ]
    node = next(n for n in first.walk() if n.text == "ab")
    assert (node.policy, node.finish, node.cost) == (
        "p",
        "stop",
        Cost(tokens_in=2, tokens_out=2, seconds=0.25),
    )
    assert node.settings == {"temperature": 0.5, "stop": ["x"]}
    assert {n.text: n.error for n in first.walk() if n.error} == {"ax": "broke"}
    found = {(s.name, s.value, s.reason) for s in first.scores()}
    assert found == {("ok", 1.0, "well"), ("ok", 0.0, None)}
    assert {p.id for p in first.producers()} == {p.id for p in tree.producers()}
    once = sorted((tmp_path / "again.jsonl").read_text(encoding="utf-8").split("\n"))
    second, _ = round_trip(first, tmp_path)
    assert plain(second) == plain(first)
    assert sorted((tmp_path / "again.jsonl").read_text(encoding="utf-8").split("\n")) == once


def test_what_a_failed_call_was_shown_is_written(tmp_path):
    tree = Tree.memory()
    task = tree.append(NewNode(kind="task", text="go"))[0]
    tree.append(NewNode(kind="action", parent=task.id, text="", policy="p", error="overloaded"))
    again, count = round_trip(tree, tmp_path)
    assert count == 1
    assert [(one.kind, one.text, one.error) for one in again.walk()] == [
        ("task", "go", None),
        ("action", "", "overloaded"),
    ]


words = st.text(max_size=4)
arguments = st.dictionaries(words, st.integers() | words | st.none(), max_size=2)
parts = st.lists(
    st.builds(text, words)
    | st.builds(lambda url: {"type": "uri", "modality": "image", "uri": url}, words)
    | st.builds(lambda t: {"type": "reasoning", "content": t}, st.text(min_size=1, max_size=3)),
    max_size=2,
)
shown = st.lists(
    st.builds(lambda role, given: said(role, *given), st.sampled_from(["user", "system", "tool"]), parts),
    max_size=2,
)


@st.composite
def traces(draw):
    """Calls of one trace, each going on from the one before, or not."""
    context, calls = draw(shown), []
    for number in range(draw(st.integers(1, 4))):
        given = draw(parts)
        if draw(st.booleans()):
            call = {
                "type": "tool_call",
                "id": f"c{number}",
                "name": draw(words),
                "arguments": draw(arguments),
            }
            given = [*given, call]
        answer = said("assistant", *given)
        end = draw(st.none() | st.sampled_from(["stop", "length", "odd"]))
        extra = draw(
            st.dictionaries(
                words,
                st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | words | st.booleans(),
                max_size=2,
            )
        )
        calls.append((list(context), answer | ({"finish_reason": end} if end else {}), extra))
        results = [
            said("tool", {"type": "tool_call_response", "id": p["id"], "response": draw(words)})
            for p in given
            if p["type"] == "tool_call"
        ]
        context = [*context, answer, *results, *draw(shown)] if draw(st.integers(0, 3)) else draw(shown)
    return calls


@settings(max_examples=40, deadline=None)
@given(st.lists(traces(), min_size=1, max_size=2))
def test_import_export_import_is_the_identity(tmp_path_factory, several):
    folder = tmp_path_factory.mktemp("traces")
    lines = []
    for trace, calls in enumerate(several):
        spans = []
        for number, (context, answer, extra) in enumerate(calls):
            told = {
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": "m",
                **{f"x.{k}": v for k, v in extra.items()},
            }
            told |= {
                "gen_ai.input.messages": json.dumps(context),
                "gen_ai.output.messages": json.dumps([answer]),
            }
            told = {
                k: str(v) if isinstance(v, float) and abs(v) == float("inf") else v for k, v in told.items()
            }
            spans.append({
                "traceId": f"{trace + 1:032x}", "spanId": f"{number + 1:016x}", "name": "chat", "kind": 3,
                "startTimeUnixNano": str(1000 * number + 1),
                "endTimeUnixNano": str(1000 * number + 1 + number),
                "attributes": attributes_list(told),
            })  # fmt: skip
        lines.append(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}))
    (folder / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    tree, remarks = imported(OTLP(), folder / "a.jsonl")
    assert not whats(remarks, "skipped")
    assert sum(node.kind == "action" and "span" in node.extra for node in tree.walk()) == sum(
        map(len, several)
    )
    again, _ = round_trip(tree, folder)
    assert plain(again) == plain(tree)
