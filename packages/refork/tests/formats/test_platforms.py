"""Traces of observability platforms, made by their own packages (``fixtures/generate_platforms.py``)."""

from __future__ import annotations

import base64
import gzip
import json
import re

import pyarrow
import pyarrow.parquet
import pytest

from refork.errors import BadInput
from refork.formats import Redactor, import_file, reader_for, readers
from refork.formats.base import Head
from refork.formats.provider_messages import chat_answer, chat_request, chat_tool
from refork.tree import Tree
from support.foreign_logs import FIXTURES, imported, plain, unpacked, whats

#: Fixtures of the one agent by their reader.
AGENTS = {
    "langfuse-api.jsonl": "langfuse", "langfuse-otlp.json": "langfuse", "mlflow-trace.json": "mlflow",
    "mlflow-row.jsonl": "mlflow", "weave-calls.jsonl": "weave",
    "braintrust-spans.jsonl": "braintrust", "phoenix-spans.jsonl": "phoenix",
    "phoenix-frame.jsonl": "phoenix", "phoenix-otlpv1.json": "phoenix",
}  # fmt: skip
#: Those of LangChain's agent.
CHAINS = {
    "langfuse-langchain-otlp.json": "langfuse", "langfuse-twice-otlp.json": "langfuse",
    "mlflow-langchain.json": "mlflow", "mlflow-twice.json": "mlflow",
    "weave-twice.jsonl": "weave", "braintrust-langchain.json": "braintrust",
    "phoenix-langchain.json": "phoenix",
}  # fmt: skip
#: Those of the same errand over OpenAI's responses interface.
RESPONSES = {
    "langfuse-responses-otlp.json": "langfuse", "mlflow-responses.json": "mlflow",
    "weave-responses.jsonl": "weave", "braintrust-responses.json": "braintrust",
}  # fmt: skip
READ_BY = {**AGENTS, **CHAINS, **RESPONSES}
#: What the program was answered: text, tokens, calls of tools.
SAID = [
    ("I look twice.", (21, 1), [("c1", "look", {"at": "door"}), ("c2", "look", {"at": "void"})]),
    ("", (22, 2), [("c3", "deputy", {"errand": "count"})]),
    ("There are 3.", (23, 3), []),
    ("A door, and 3 of them.", (24, 4), []),
    ("I am sure.", (25, 5), []),
    ("", (None, None), []),
]
CHAINED = [
    ("", (21, 1), [("c1", "look", {"at": "door"}), ("c2", "look", {"at": "roof"})]),
    ("A door and a roof.", (22, 2), []),
]
#: The main conversation when the model refused: the deputy's is another.
SHOWN = [
    ("system", "Be brief."), ("user", "What is there?"), ("assistant", "I look twice."),
    ("tool", "You look at the door."), ("tool", "error: nothing is there"), ("assistant", ""),
    ("tool", "There are 3."), ("assistant", "A door, and 3 of them."), ("user", "Sure?"),
    ("assistant", "I am sure."), ("user", "Go on."),
]  # fmt: skip


def read(name, folder):
    unpacked(name, folder)
    return imported(reader_for(folder / name), folder / name)


def lines_of(name):
    return [json.loads(line) for line in gzip.decompress((FIXTURES / f"{name}.gz").read_bytes()).splitlines()]


def of_lines(lines, folder, name="export.jsonl"):
    file = folder / name
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return imported(reader_for(file), file)


def actions(tree):
    (path,) = tree.paths(tree.leaves())
    return [step.node for step in path if step.node.kind == "action"]


def said(node):
    """The text, the tokens and the calls of an answer."""
    message = node.message or {}
    content = message.get("content") or ""
    calls = [
        (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in message.get("tool_calls") or []
    ]
    return content, (node.cost.tokens_in, node.cost.tokens_out), calls


def context(tree):
    """What the model was shown when it answered last, as roles and texts."""
    (path,) = tree.paths(tree.leaves())
    shown = []
    for step in path.steps[:-1]:
        node = step.node
        messages = node.extra.get("messages") or ([node.message] if node.message else [])
        shown = [*([] if node.kind == "rewrite" else shown), *messages]
    return [(one["role"], words(one["content"])) for one in shown]


def words(content):
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


@pytest.mark.parametrize("name", READ_BY)
def test_a_trace_is_seen_by_its_content(name, tmp_path):
    unpacked(name, tmp_path)
    reader = reader_for(tmp_path / name)
    assert reader.name == READ_BY[name]
    # Behind it stands OTLP alone, whose batches these may be.
    rest = {one.name for one in readers() if one.sniff(Head.of(tmp_path / name))} - {reader.name}
    assert rest <= {"otlp"}
    assert rest == ({"otlp"} if "-otlp." in name else set())
    with Tree.memory() as tree:
        found = import_file(tree, tmp_path / name, reader, redactor=Redactor())
        assert (found.count("skipped"), found.count("redacted")) == (0, 0)
        again = import_file(tree, tmp_path / name, reader_for(tmp_path / name), redactor=Redactor())
        assert (again.nodes, again.scores) == (0, 0)


@pytest.mark.parametrize("name", AGENTS)
def test_answers_calls_and_tokens_are_those_of_the_program(name, tmp_path):
    tree, remarks = read(name, tmp_path)
    made = actions(tree)
    assert [said(node) for node in made] == SAID
    braintrust = name.startswith("braintrust")
    # Its wrapper records what was asked for and not who answered, and of a refusal nothing.
    assert {node.policy for node in made[:5]} == {"tiny" if braintrust else "tiny-1"}
    if braintrust:
        assert (made[-1].error, made[-1].message) == (None, None)
        assert "answers of calls: neither an answer nor an error" in whats(remarks, "lost")
    else:
        assert "no such model" in made[-1].error
    assert [node.error for node in made[:5]] == [None] * 5
    assert context(tree) == SHOWN
    # Nothing is known of tokens, and what nothing is known of is not 0.
    assert all(node.tokens is None and node.logprobs is None for node in tree.walk())
    assert made[-1].cost.money is None
    (root,) = tree.tasks()
    assert [tool["function"]["name"] for tool in root.extra["tools"]] == ["look", "deputy"]
    assert [made[at].settings["temperature"] for at in (0, 3, 4)] == [0.4] * 3
    assert made[0].extra["request"]["temperature"] == 0.4
    assert root.extra["origin"]["format"] == AGENTS[name]


@pytest.mark.parametrize("name", AGENTS)
def test_results_of_tools_stand_with_their_runs(name, tmp_path):
    tree, _ = read(name, tmp_path)
    (path,) = tree.paths(tree.leaves())
    looked = path.steps[2].node
    assert [one["tool_call_id"] for one in looked.extra["messages"]] == ["c1", "c2"]
    fine, failed = looked.extra["tool_spans"]
    assert (fine["name"], fine.get("status", {}).get("code")) != (failed["name"], 2)
    assert "nothing is there" in failed["status"]["message"]


@pytest.mark.parametrize("name", AGENTS)
def test_spans_come_in_the_order_of_their_times_and_know_the_agents_around_them(name, tmp_path):
    tree, _ = read(name, tmp_path)
    made = actions(tree)
    spans = [node.extra["span"] for node in made]
    assert [span["start"] for span in spans] == sorted(span["start"] for span in spans)
    assert all(0 < span["start"] <= span["end"] for span in spans)
    agents = {one["id"]: one["name"] for one in made[-1].extra["trace"]["agents"]}
    above = [[agents[one] for one in span["agents"]][-1] for span in spans]
    assert above == ["finder", "finder", "deputy", "finder", "finder", "finder"]


def ungraded(name):
    """The lines of a fixture before anybody graded them."""
    if name.startswith("mlflow"):
        body = trace_of(name)
        body["info"]["assessments"] = []
        return [body]
    lines = [line for line in lines_of(name) if not {"subject", "annotator_kind", "comment"} & line.keys()]
    for line in lines:
        line.pop("scores", None)
        if "op_name" in line:
            line["summary"]["weave"].pop("feedback", None)
    return lines


@pytest.mark.parametrize(
    ("name", "scores"),
    [("langfuse-api.jsonl", 3), ("mlflow-trace.json", 3), ("weave-calls.jsonl", 4),
     ("braintrust-spans.jsonl", 2), ("phoenix-spans.jsonl", 2)],
)  # fmt: skip
def test_a_trace_that_is_exported_again_with_scores_is_the_same_trace(name, scores, tmp_path):
    tree, _ = of_lines(ungraded(name), tmp_path)
    assert list(tree.scores()) == []
    later = unpacked(name, tmp_path)
    found = import_file(tree, later, reader_for(later))
    assert (found.nodes, found.scores) == (0, scores)


@pytest.mark.parametrize("name", CHAINS)
def test_langchains_agent_is_recorded_once(name, tmp_path):
    tree, remarks = read(name, tmp_path)
    assert [said(node) for node in actions(tree)] == CHAINED
    (path,) = tree.paths(tree.leaves())
    seen = path.steps[2].node
    assert [one["content"] for one in seen.extra["messages"]] == [
        "You look at the door.",
        "You look at the roof.",
    ]
    assert len(seen.extra["tool_spans"]) == 2
    assert path.root.text == "Be brief.\nWhat is there?"
    assert path.root.extra["tools"][0]["function"]["name"] == "look"
    twice = sum(remark.count for remark in remarks if "calls around calls" in remark.what)
    assert twice == (2 if "twice" in name else 0)


@pytest.mark.parametrize("name", RESPONSES)
def test_the_responses_interface_is_read_as_messages(name, tmp_path):
    tree, _ = read(name, tmp_path)
    made = actions(tree)
    assert [said(node) for node in made] == CHAINED
    assert [node.message["reasoning_content"] for node in made] == ["hm", "hm"]
    (path,) = tree.paths(tree.leaves())
    assert [step.node.kind for step in path] == ["task", "action", "observation", "action"]
    assert path.root.text == "Be brief.\nWhat is there?"
    assert path.root.extra["messages"][1]["content"][1]["type"] == "image_url"
    assert path.root.extra["tools"][0]["function"]["name"] == "look"
    assert len(path.steps[2].node.extra["tool_spans"]) == 2


def test_blocks_of_anthropics_messages_are_messages_of_the_chat_interface():
    picture = {"type": "image", "source": {"type": "base64", "data": "aa"}}
    blocks = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "I look."},
              {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": "door"}}]  # fmt: skip
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "wood"}]}
    asked = chat_request({"system": [{"type": "text", "text": "Be brief."}], "max_tokens": 5, "messages": [
        {"role": "user", "content": [picture, {"type": "text", "text": "What?"}]},
        {"role": "assistant", "content": blocks},
        {"role": "user", "content": [result, {"type": "text", "text": "And?"}]},
    ]})  # fmt: skip
    call = {
        "id": "t1",
        "type": "function",
        "function": {"name": "look", "arguments": '{"at": "door"}'},
    }
    answer = {"role": "assistant", "content": "I look.", "reasoning_content": "hm", "tool_calls": [call]}
    assert asked == {"max_tokens": 5, "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [picture, {"type": "text", "text": "What?"}]},
        answer,
        {"role": "tool", "tool_call_id": "t1", "content": "wood"},
        {"role": "user", "content": "And?"},
    ]}  # fmt: skip
    whole = {"role": "assistant", "content": blocks, "stop_reason": "tool_use", "usage": {"input_tokens": 3}}
    assert chat_answer(whole) == {**whole, **answer}
    tool = {"name": "look", "description": "Look.", "input_schema": {"type": "object"}}
    told = {"name": "look", "description": "Look.", "parameters": {"type": "object"}}
    assert chat_tool(tool) == {"type": "function", "function": told}
    assert chat_tool(search := {"type": "web_search_20250305", "name": "web_search"}) is search


def test_a_search_of_the_providers_own_stays_with_the_answer():
    search = {"type": "web_search_call", "id": "w", "status": "completed"}
    spoken = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Rain."}]}
    (message,) = chat_answer({"output": [search, spoken]})["messages"]
    assert message == {"role": "assistant", "content": "Rain.", "items": [search]}


@pytest.mark.parametrize("name", READ_BY)
def test_a_file_that_was_cut_is_read_up_to_there_or_refused(name, tmp_path):
    data = unpacked(name, tmp_path).read_bytes()
    format_ = READ_BY[name]
    for part in (0.3, 0.7, 0.99):
        file = tmp_path / "cut.json"
        file.write_bytes(data[: int(len(data) * part)])
        refused: list[BadInput] = []
        with Tree.memory() as tree:
            try:
                assert import_file(tree, file, reader_for(file, format_)).count("skipped") >= 1
            except BadInput as error:
                refused.append(error)
            assert list(tree.verify()) == []
        assert all(str(file) in str(error.where) for error in refused)


# Langfuse


def scores_of(tree):
    made = {producer.id: producer for producer in tree.producers()}
    return {
        score.name: (score.value, score.reason, tree.node(score.node).text, made[score.producer].config)
        for score in tree.scores()
    }


def test_scores_of_langfuse_are_for_the_trace_or_the_answer(tmp_path):
    tree, remarks = read("langfuse-api.jsonl", tmp_path)
    api = {"source": "API"}
    assert scores_of(tree) == {
        "helpful": (0.5, "so so", "", api),
        "safe": (1.0, None, "", api),
        "brief": (1.0, None, "A door, and 3 of them.", api),
    }
    assert {producer.name for producer in tree.producers()} == {"langfuse"}
    assert "an evaluation that is no number: tone" in whats(remarks, "lost")
    assert "pictures: the file names them" in whats(remarks, "lost")
    # A price that nobody knew is none.
    assert [node.cost.money for node in actions(tree)] == [None, None, None, 0.25, None, None]


def older(lines):
    """The objects of the API before its fifth version: a trace with its observations and scores inside."""
    spans = [line for line in lines if "startTime" in line]
    trace = spans[0]["traceId"]
    scores = []
    for line in lines:
        if "subject" in line:
            subject = line.pop("subject")
            told = {"observationId": subject["id"]} if subject["kind"] == "observation" else {}
            scores.append({**line, "traceId": trace, **told})
    for span in spans:
        usage = span.pop("usageDetails")
        span["usage"] = {"input": usage.get("input"), "output": usage.get("output"), "unit": "TOKENS"}
        span["calculatedTotalCost"] = (span.pop("costDetails") or {}).get("total")
    return {
        "id": trace, "timestamp": spans[0]["startTime"], "name": "errand", "sessionId": None, "tags": ["t"],
        "observations": spans, "scores": scores, "htmlPath": "/p/t", "totalCost": 0,
    }  # fmt: skip


def as_blob(line):
    """A row of the blob storage export: names with underscores, texts of JSON, moments without a zone."""
    made = {re.sub("[A-Z]", lambda m: "_" + m[0].lower(), key): value for key, value in line.items()}
    made["provided_model_name"] = made.pop("model", None)
    for key in ("input", "output"):
        made[key] = json.dumps(made.get(key)) if isinstance(made.get(key), dict | list) else made.get(key)
    for key in ("start_time", "end_time"):
        made[key] = made[key].replace("T", " ").removesuffix("Z").removesuffix("+00:00")
    return made


@pytest.mark.parametrize("form", ["older", "ui", "page", "blob"])
def test_every_form_of_an_export_of_langfuse_says_the_same(form, tmp_path):
    lines = lines_of("langfuse-api.jsonl")
    tree, _ = read("langfuse-api.jsonl", tmp_path)
    if form == "older":
        made = [older(lines)]
    elif form == "ui":
        body = older(lines)
        made = [{"trace": body, "observations": body.pop("observations")}]
    elif form == "page":
        made = [{"data": lines, "meta": {"cursor": None}}]
    else:
        made = [as_blob(line) if "startTime" in line else line for line in lines]
    other, remarks = of_lines(made, tmp_path)
    assert whats(remarks, "skipped") == []
    assert [said(node) for node in actions(other)] == SAID
    assert [n.cost for n in actions(other)] == [n.cost for n in actions(tree)]
    assert context(other) == SHOWN
    assert {s.name for s in other.scores()} == {"helpful", "safe", "brief"}


def test_what_no_observation_is_and_whose_trace_is_not_there_is_said(tmp_path):
    lines = lines_of("langfuse-api.jsonl")
    score = next(line for line in lines if line["name"] == "helpful")
    alone = {**score, "id": "x", "subject": {"kind": "trace", "id": "other"}}
    session = {**score, "id": "y", "subject": {"kind": "session", "id": "s"}}
    lost = {
        **score,
        "id": "z",
        "subject": {"kind": "observation", "id": "gone", "traceId": lines[0]["traceId"]},
    }
    more = [alone, session, lost, {"id": "q", "what": 1}]
    tree, remarks = of_lines([*lines, *more], tmp_path)
    assert whats(remarks, "skipped") == ["this is no observation, trace or score of Langfuse"]
    assert {
        "what is said of traces whose spans the file does not have",
        "scores of sessions and experiments, and not of a trace",
        "a score of a span that the file does not have",
    } <= set(whats(remarks, "lost"))
    assert plain(tree)[0] == plain(read("langfuse-api.jsonl", tmp_path)[0])[0]


def test_messages_in_a_form_of_ones_own_do_not_take_the_trace_with_them(tmp_path):
    lines = lines_of("langfuse-api.jsonl")
    odd = next(
        line for line in lines if "There are 3." in str(line.get("output")) and line["type"] == "GENERATION"
    )
    odd["input"], odd["output"] = {"messages": [[1], 2]}, [[{"said": 3}]]
    tree, remarks = of_lines(lines, tmp_path)
    made = actions(tree)
    assert [said(node)[0] for node in made] == [text if text != "There are 3." else "" for text, _, _ in SAID]
    assert made[2].extra["span"]["attributes"]["input.value"] == {"messages": [[1], 2]}
    assert made[2].cost.tokens_in == 23
    what = "messages of calls in a form that is not known: they stand as they are under extra"
    assert what in whats(remarks, "lost")


# MLflow


def trace_of(name):
    return json.loads(gzip.decompress((FIXTURES / f"{name}.gz").read_bytes()))


@pytest.mark.parametrize("name", ["mlflow-trace.json", "mlflow-row.jsonl"])
def test_feedback_of_mlflow_is_for_the_trace_or_the_span(name, tmp_path):
    tree, remarks = read(name, tmp_path)
    assert scores_of(tree) == {
        "helpful": (0.5, "so so", "", {"source_type": "HUMAN", "source_id": "ann"}),
        "safe": (1.0, None, "", {"source_type": "CODE", "source_id": "default"}),
        "brief": (1.0, None, "A door, and 3 of them.", {"source_type": "LLM_JUDGE", "source_id": "judge-1"}),
    }
    assert {
        "an evaluation that is no number: tone",
        "an assessment that is no feedback: expected",
        "pictures: the file names them",
    } <= set(whats(remarks, "lost"))


def test_feedback_of_mlflow_that_was_replaced_is_no_score(tmp_path):
    body = trace_of("mlflow-trace.json")
    old = next(one for one in body["info"]["assessments"] if one["assessment_name"] == "helpful")
    old["valid"] = False
    new = {
        **old,
        "assessment_id": "b",
        "valid": True,
        "feedback": {"value": 1.0},
        "overrides": old["assessment_id"],
    }
    body["info"]["assessments"].append(new)
    tree, remarks = of_lines([body], tmp_path)
    assert scores_of(tree)["helpful"][0] == 1.0
    assert "feedback that other feedback took the place of" in whats(remarks, "lost")


def test_a_streamed_answer_of_mlflow_is_put_together_from_its_chunks(tmp_path):
    """What MLflow puts together itself has no calls of tools."""
    body = trace_of("mlflow-trace.json")
    streamed = next(span for span in body["data"]["spans"] if "mlflow.chunk" in str(span["events"]))
    assert (
        json.loads(streamed["attributes"]["mlflow.spanOutputs"])["choices"][0]["message"]["tool_calls"]
        is None
    )
    tree, _ = read("mlflow-trace.json", tmp_path)
    assert said(actions(tree)[1]) == SAID[1]
    assert "events" not in actions(tree)[1].extra["span"]


def as_second(span):
    """A span as MLflow 2 wrote it."""
    made = {key: span[key] for key in ("name", "attributes", "events")}
    ids = {key: span_bytes(span[key]) for key in ("trace_id", "span_id", "parent_span_id")}
    return made | {
        "context": {"trace_id": ids["trace_id"], "span_id": ids["span_id"]},
        "parent_id": ids["parent_span_id"],
        "start_time": span["start_time_unix_nano"], "end_time": span["end_time_unix_nano"],
        "status_code": span["status"]["code"].removeprefix("STATUS_CODE_"),
        "status_message": span["status"]["message"],
    }  # fmt: skip


def span_bytes(text):
    return None if text is None else "0x" + base64.b64decode(text).hex().lstrip("0")


def as_otlp(span):
    """A span in a batch of OTLP."""
    made = {key: value for key, value in span.items() if key not in ("attributes", "events", "links")}
    return made | {
        "attributes": [
            {"key": key, "value": {"stringValue": value}} for key, value in span["attributes"].items()
        ],
        "events": [
            {
                "name": one["name"],
                "timeUnixNano": one["time_unix_nano"],
                "attributes": [{"key": k, "value": {"stringValue": v}} for k, v in one["attributes"].items()],
            }
            for one in span["events"]
        ],
    }


@pytest.mark.parametrize("form", ["artifact", "second", "otlp", "printed", "array"])
def test_every_form_of_a_trace_of_mlflow_says_the_same(form, tmp_path):
    body = trace_of("mlflow-trace.json")
    spans = body["data"]["spans"]
    file = tmp_path / "traces.json"
    made = {
        "artifact": {"spans": spans},
        "second": {"info": {"request_id": "r"}, "data": {"spans": list(map(as_second, spans))}},
        "otlp": {"resourceSpans": [{"scopeSpans": [{"spans": list(map(as_otlp, spans))}]}]},
        "printed": {"traces": [body], "next_page_token": None},
        "array": [body, {"info": {"trace_id": "without"}, "data": {}}],
    }[form]
    file.write_text(json.dumps(made, indent=2 if form == "printed" else None))
    reader = reader_for(file)
    tree, remarks = imported(reader, file)
    assert reader.name == "mlflow"
    assert [said(node) for node in actions(tree)] == SAID
    assert context(tree) == SHOWN
    skipped = ["this is no trace of MLflow, or one without its spans"] if form == "array" else []
    assert whats(remarks, "skipped") == skipped


# Weave


def test_feedback_of_weave_that_is_a_number_is_a_score(tmp_path):
    tree, remarks = read("weave-calls.jsonl", tmp_path)
    ann = {"creator": "ann", "wb_user_id": "u"}
    assert scores_of(tree) == {
        "helpful": (0.5, "so so", "", ann),
        "safe": (1.0, None, "", ann),
        "brief.passed": (1.0, None, "A door, and 3 of them.", ann),
        "brief.words": (7.0, None, "A door, and 3 of them.", ann),
    }
    assert {f"an evaluation that is no number: wandb.{kind}.1" for kind in ("reaction", "note")} <= set(
        whats(remarks, "lost")
    )
    assert [node.cost.money for node in actions(tree)] == [None, None, None, 0.25, None, None]


def test_calls_of_weave_of_which_nothing_says_what_they_are(tmp_path):
    """As other clients may write them; and the scores of an evaluation."""
    lines = lines_of("weave-calls.jsonl")
    for line in lines:
        line["attributes"] = {}
        line["summary"].pop("weave")
    root = next(line for line in lines if line["parent_id"] is None)
    root["op_name"] = root["op_name"].replace("errand:", "Evaluation.predict_and_score:")
    root["output"] = {"output": "x", "scores": {"right": True, "judge": {"grade": 0.25, "why": "so"}}}
    tree, remarks = of_lines([{"calls": lines}], tmp_path)
    assert [said(node) for node in actions(tree)] == SAID
    assert {name: found[:2] for name, found in scores_of(tree).items()} == {
        "right": (1.0, None),
        "judge.grade": (0.25, None),
    }
    assert "an evaluation that is no number: judge.why" in whats(remarks, "lost")
    _, remarks = of_lines([*lines, {"op_name": "x", "trace_id": "y"}, lines[0]], tmp_path)
    assert "this is no call of Weave" in whats(remarks, "skipped")


# Braintrust


def test_scores_of_braintrust_are_their_spans(tmp_path):
    tree, remarks = read("braintrust-spans.jsonl", tmp_path)
    # One that is null is none.
    assert {name: found[:3] for name, found in scores_of(tree).items()} == {
        "helpful": (0.5, None, ""),
        "brief": (1.0, None, "A door, and 3 of them."),
    }
    assert {"comments: a tree has no place for them", "pictures: the file names them"} <= set(
        whats(remarks, "lost")
    )
    (path,) = tree.paths(tree.leaves())
    root = path.leaf.extra["trace"]["agents"][0]
    assert (root["name"], root["other"]["expected"], root["other"]["tags"]) == ("errand", "two doors", ["t"])


def test_calls_of_tools_that_an_answer_lacks_are_those_that_the_next_request_repeats(tmp_path):
    """Braintrust's callback of LangChain leaves them out of what a model said."""
    body = trace_of("braintrust-langchain.json")
    models = [row for row in body["events"] if row["span_attributes"]["type"] == "llm"]
    assert "tool_calls" not in models[0]["output"]["generations"][0][0]["message"]
    _, remarks = read("braintrust-langchain.json", tmp_path)
    what = "calls of tools: an answer does not have them, or not whole, and the next request repeats it"
    assert [remark.count for remark in remarks if remark.what == what] == [1]
    # Cut ones are completed too; what no request repeats stays as it is told.
    lines = lines_of("weave-calls.jsonl")
    streamed = next(
        line
        for line in lines
        if "completions.create" in line["op_name"] and "deputy" in json.dumps(line["output"])
    )
    streamed["output"]["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = 'rand": "count"}'
    tree, remarks = of_lines(lines, tmp_path)
    assert [said(node) for node in actions(tree)] == SAID
    assert what in whats(remarks, "lost")


@pytest.mark.parametrize("page", ["events", "data", "array"])
def test_pages_and_arrays_of_braintrust(page, tmp_path):
    lines = lines_of("braintrust-spans.jsonl")
    made = [line | {"span_attributes": {**line["span_attributes"], "type": "function"}}
            if line.get("span_attributes", {}).get("type") == "tool" else line for line in lines]  # fmt: skip
    (tmp_path / "e.json").write_text(json.dumps(made if page == "array" else {page: made}))
    reader = reader_for(tmp_path / "e.json")
    tree, remarks = imported(reader, tmp_path / "e.json")
    assert reader.name == "braintrust"
    assert [said(node) for node in actions(tree)] == SAID
    (path,) = tree.paths(tree.leaves())
    assert len(path.steps[2].node.extra["tool_spans"]) == 2
    _, remarks = of_lines([*lines, {"id": "x"}], tmp_path)
    assert whats(remarks, "skipped") == ["this is no span of Braintrust"]


# Phoenix


def test_annotations_of_phoenix_beside_its_spans_or_inside_them(tmp_path):
    expected = {
        "helpful": (0.5, "meh: so so", "", {"annotator_kind": "HUMAN", "source": "API"}),
        "brief": (1.0, None, "A door, and 3 of them.", {"annotator_kind": "CODE", "source": "API"}),
    }
    tree, remarks = read("phoenix-spans.jsonl", tmp_path)
    assert scores_of(tree) == expected
    assert "an evaluation that is no number: tone" in whats(remarks, "lost")
    lines = lines_of("phoenix-spans.jsonl")
    notes = [line for line in lines if "annotator_kind" in line]
    spans = [line for line in lines if "annotator_kind" not in line]
    for span in spans:
        span["annotations"] = [one for one in notes if one["span_id"] == span["context"]["span_id"]]
    other, _ = of_lines([{"traceId": "t", "spans": spans}], tmp_path)
    assert plain(other) == plain(tree)
    # Columns of the dataframe of annotations, before the spans that they are about.
    flat = [
        {
            **{key: one[key] for key in ("span_id", "annotator_kind", "source")},
            "annotation_name": one["name"],
            **{f"result.{key}": one["result"][key] for key in ("score", "label", "explanation")},
        }
        for one in notes
    ]
    frame = lines_of("phoenix-frame.jsonl")
    other, _ = of_lines([frame[0], *flat, *frame[1:]], tmp_path)
    assert scores_of(other) == expected
    lone = {**notes[0], "span_id": "0" * 16}
    _, remarks = of_lines([*lines, lone, {"id": "x"}], tmp_path)
    assert "what is said of traces whose spans the file does not have" in whats(remarks, "lost")
    assert whats(remarks, "skipped") == ["this is no span and no annotation of Phoenix"]


@pytest.mark.parametrize("name", ["phoenix-frame.jsonl", "mlflow-row.jsonl"])
def test_dataframes_that_were_written_as_parquet(name, tmp_path):
    rows = lines_of(name)
    for row in rows:
        # An object without keys, which Parquet cannot hold, and columns that are the same again.
        row.pop("attributes.tool.parameters", None)
        row.pop("assessments", None)
        row.setdefault("spans", [])
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "frame.parquet")
    reader = reader_for(tmp_path / "frame.parquet")
    tree, remarks = imported(reader, tmp_path / "frame.parquet")
    assert (reader.name, whats(remarks, "skipped")) == ("parquet", [])
    assert [said(node) for node in actions(tree)] == SAID
    assert context(tree) == SHOWN
    named, _ = imported(reader_for(tmp_path / "frame.parquet", AGENTS[name]), tmp_path / "frame.parquet")
    assert plain(named) == plain(tree)
