"""Runs as LangChain's tracer and LangSmith's client post them, kept as LangSmith's own records."""

from __future__ import annotations

import json
import uuid

import pytest

from refork.formats import import_file, reader_for
from support.foreign_logs import imported, kinds, whats

WALK = ["task", "action", "observation", "action"]


class Session:
    """Keeps what a client would send."""

    def __init__(self):
        self.runs = {}

    def mount(self, *_):
        """No adapters."""

    def request(self, method, url, data=b"", **_):
        body = json.loads(data or b"{}")
        if "/runs" in url:
            name = body.get("id") or url.rpartition("/")[2]
            self.runs[name] = self.runs.get(name, {}) | {k: v for k, v in body.items() if v not in (None, {})}
        return Answer()

    def close(self):
        """Nothing is open."""


class Answer:
    status_code, text, content, headers = 200, "{}", b"{}", {}

    def raise_for_status(self):
        """All is well."""

    def json(self):
        return {}


@pytest.fixture(scope="module")
def posted():
    """The runs of an agent with one tool, as posted and brought up to date."""
    langsmith = pytest.importorskip("langsmith", reason="langsmith is not installed")
    pytest.importorskip("langchain_core", reason="langchain-core is not installed")
    from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
    from langchain_core.runnables import RunnableLambda
    from langchain_core.tools import tool
    from langchain_core.tracers import LangChainTracer

    @tool
    def weather(city: str) -> str:
        """The weather."""
        return f"rain in {city}"

    asks = AIMessage(
        content="",
        tool_calls=[{"name": "weather", "args": {"city": "Paris"}, "id": "c1"}],
        usage_metadata={"input_tokens": 7, "output_tokens": 3, "total_tokens": 10},
        response_metadata={"model_name": "m-1", "finish_reason": "tool_calls"},
    )
    says = AIMessage(content="It rains.", response_metadata={"model_name": "m-1", "finish_reason": "stop"})
    model = FakeMessagesListChatModel(responses=[asks, says])

    def agent(question, config):
        messages = [SystemMessage("be brief"), HumanMessage(question)]
        said = model.invoke(messages, config)
        result = weather.invoke(said.tool_calls[0] | {"type": "tool_call"}, config)
        return model.invoke([*messages, said, result], config).content

    session = Session()
    client = langsmith.Client(
        api_key="k", api_url="http://127.0.0.1:9", session=session, auto_batch_tracing=False, info={}
    )
    tracer = LangChainTracer(client=client, project_name="p")
    assert RunnableLambda(agent).invoke("weather?", {"callbacks": [tracer]}) == "It rains."
    tracer.wait_for_futures()
    return list(session.runs.values())


@pytest.fixture(scope="module")
def recorded(posted):
    """The same runs as ``Client.list_runs`` gives them, written by LangSmith's own schema."""
    from langsmith.schemas import Run

    more = {"session_id": str(uuid.UUID(int=1)), "feedback_stats": {"correct": {"n": 2, "avg": 0.5}}}
    runs = [Run(**(run | more)) for run in posted]
    return [
        json.loads(run.model_dump_json() if hasattr(run, "model_dump_json") else run.json()) for run in runs
    ]


def write(folder, runs, form="lines"):
    file = folder / "runs.json"
    text = "\n".join(json.dumps(run) for run in runs)
    if form != "lines":
        text = json.dumps(runs if form == "array" else {form: runs}, indent=2)
    file.write_text(text, encoding="utf-8")
    return file


def read(file):
    reader = reader_for(file)
    assert reader.name == "langsmith"
    return imported(reader, file)


@pytest.mark.parametrize("form", ["lines", "array", "runs", "data"])
def test_a_trace_of_langchain(tmp_path, posted, form):
    tree, remarks = read(write(tmp_path, posted, form))
    assert kinds(tree) == [WALK]
    (trajectory,) = tree.paths(tree.leaves())
    task, asks, seen, says = (s.node for s in trajectory)
    assert task.text == "be brief\nweather?"
    assert asks.message["tool_calls"] == [
        {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
    ]
    assert (asks.policy, asks.cost.tokens_in, asks.cost.tokens_out, asks.finish) == ("m-1", 7, 3, "stop")
    assert asks.cost.seconds > 0
    assert (seen.text, seen.message["tool_call_id"]) == ("rain in Paris", "c1")
    assert seen.extra["tool_spans"][0]["name"] == "weather"
    assert (says.text, says.cost.tokens_in) == ("It rains.", None)
    root = says.extra["trace"]["runs"][0]
    assert (root["name"], root["inputs"]) == ("agent", {"input": "weather?"})
    assert says.extra["run"]["above"] == [root["id"]]
    assert says.extra["run"]["extra"]["metadata"]["ls_model_type"] == "chat"
    assert whats(remarks, "lost") == ["token ids and log-probs: runs have none"]


def test_records_of_the_client_and_their_feedback(tmp_path, recorded):
    tree, _ = read(write(tmp_path, recorded))
    assert kinds(tree) == [WALK]
    assert {(s.name, s.value) for s in tree.scores()} == {("correct", 0.5)}
    # The last answer is the trace's end, and has the feedback of the agent's run too.
    scored = [tree.node(score.node).kind for score in tree.scores()]
    assert sorted(scored) == ["action", "action", "observation"]


def test_child_runs_inside_their_parents(tmp_path, posted):
    root = next(run for run in posted if not run.get("parent_run_id"))
    inside = [{k: v for k, v in run.items() if k != "parent_run_id"} for run in posted if run is not root]
    tree, _ = read(write(tmp_path, [root | {"child_runs": inside}], "array"))
    (trajectory,) = tree.paths(tree.leaves())
    assert [s.node.kind for s in trajectory] == WALK
    assert trajectory.leaf.extra["run"]["above"] == [root["id"]]


def openai_run(name, inputs, outputs, **more):
    told = {
        "id": name,
        "trace_id": "t",
        "run_type": "llm",
        "name": "ChatOpenAI",
        "start_time": f"2026-01-01T00:00:0{name}",
    }
    return told | {"inputs": inputs, "outputs": outputs} | more


def test_openai_calls_plain_prompts_choices_and_errors(tmp_path):
    user = {"role": "user", "content": "q"}
    message = {"role": "assistant", "content": "a", "tool_calls": None}
    runs = [
        openai_run(
            "1",
            {"messages": [user], "model": "m", "temperature": 0, "tools": [{"type": "function"}]},
            {
                "choices": [
                    {"index": 0, "message": message | {"content": "b"}, "finish_reason": "length"},
                    {"index": 1, "message": message, "finish_reason": "stop"},
                ],
                "usage": {"prompt_tokens": 2, "completion_tokens": 1},
                "model": "m-7",
            },
            total_cost="0.25",
            custom={"kept": 1},
        ),
        openai_run("2", {"messages": [user, message, user]}, None, error="rate limit"),
        {**openai_run("3", {"prompts": ["tell"]}, {"generations": [[{"text": "told"}]]}), "trace_id": "u"},
        {**openai_run("4", {}, {}), "trace_id": "v", "run_type": "chain"},
        {**openai_run("5", "plain", "text"), "trace_id": "w"},
        {"no": "run"},
    ]
    tree, remarks = read(write(tmp_path, runs))
    assert whats(remarks, "skipped") == ["this is no run of LangSmith", "a trace without a run of a model"]
    trajectories = {trajectory.leaf.text: trajectory for trajectory in tree.paths(tree.leaves())}
    assert sorted(trajectories) == ["", "b", "text", "told"]
    failed = trajectories[""]
    assert [s.text for s in failed] == ["q", "a", "q", ""]
    assert failed.leaf.error == "rate limit"
    chosen = failed.steps[1].node
    assert (chosen.finish, chosen.policy, chosen.cost.money, chosen.cost.tokens_in) == (
        "stop",
        "m-7",
        0.25,
        2,
    )
    assert chosen.extra["run"]["custom"] == {"kept": 1}
    assert chosen.extra["run"]["inputs"]["temperature"] == 0
    assert failed.root.extra["tools"] == [{"type": "function"}]
    assert trajectories["b"].leaf.finish == "length"


def traced(*feedback):
    """An agent's run, a call of a model with two answers and two runs of its tool, each with feedback."""
    user = {"role": "user", "content": "q"}
    calls = [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]
    asks = {"role": "assistant", "content": "", "tool_calls": calls}
    result = {"output": {"kwargs": {"tool_call_id": "c", "content": "second"}}}
    shown = {"role": "tool", "tool_call_id": "c", "content": "second"}
    two = {"generations": [[{"text": "first"}, {"text": "second"}]]}
    answers = {"generations": [[{"message": asks}, {"text": "other"}]]}
    runs = [
        openai_run("0", {"q": 1}, {"a": 1}, run_type="chain"),
        openai_run("1", {"messages": [user]}, answers),
        openai_run("2", {"x": 1}, result, run_type="tool", error="boom"),
        openai_run("3", {"x": 1}, result, run_type="tool"),
        openai_run("4", {"messages": [user, asks, shown]}, two),
    ]
    told = dict(zip("0123456", feedback, strict=False))
    return [run | ({"feedback_stats": told[run["id"]]} if told.get(run["id"]) else {}) for run in runs]


def mean(value):
    return {"correct": {"n": 1, "avg": value}}


def test_feedback_is_for_the_answer_the_tool_or_the_end_of_the_trace(tmp_path):
    tree, remarks = read(write(tmp_path, traced(mean(1.0), mean(0.25), None, mean(0.0))))
    scored = {tree.node(score.node).text: score.value for score in tree.scores()}
    assert scored == {"first": 1.0, '{"name": "f", "arguments": "{}"}': 0.25, "second": 0.0}
    assert {tree.node(score.node).kind for score in tree.scores() if score.value == 0.0} == {"observation"}
    assert not whats(remarks, "skipped")


def test_every_run_of_a_tool_that_was_tried_again_is_kept(tmp_path):
    tree, _ = read(write(tmp_path, traced()))
    (shown,) = (node for node in tree.walk() if node.kind == "observation")
    assert [(run["id"], run.get("error")) for run in shown.extra["tool_spans"]] == [
        ("2", "boom"),
        ("3", None),
    ]


def test_a_trace_that_is_exported_again_with_feedback_is_the_same_trace(tmp_path):
    tree, _ = read(write(tmp_path, traced()))
    later = write(tmp_path, traced(mean(1.0), {"note": {"n": 1, "avg": None}}))
    found = import_file(tree, later, reader_for(later))
    assert (found.nodes, found.scores) == (0, 1)
    assert whats(found.remarks, "lost").count("feedback that is no number") == 1
