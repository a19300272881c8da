"""Steps of programs that nobody edits: which node, agent or module made a request, and a graph's state there.

Packages that are not installed are skipped. REFORK_PROGRAMS may name a Python that has them.
"""

from __future__ import annotations

import contextvars
import json
import os
import subprocess
import sys
import types

import pytest
from typer.testing import CliRunner

from agents import provider as fake
from refork import agents
from refork.agents.endpoint import listening
from refork.agents.fork import Outcome
from refork.agents.program_side import VARIABLE, ask
from refork.agents.step_names import HEADER, steps_now
from refork.agents.steps import AskedBy, ToldSteps, step_words
from refork.agents.tape import Tape, graph_state
from refork.agents.tool_calls import ToolCalls
from refork.cli.agent import app
from refork.errors import BadInput
from refork.tree import Tree

from .test_tools import Nobody

#: A graph of two nodes, one of which is asked twice; a key stands in its state.
GRAPH = """
import os, sys
from typing import TypedDict
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph

class State(TypedDict):
    turn: int
    plan: str
    key: str

model = ChatOpenAI(model="m")

def plan(state):
    return {"plan": model.invoke("plan " + str(state["turn"])).content, "turn": state["turn"] + 1}

async def act(state):
    return {"plan": (await model.ainvoke("act on " + state["plan"])).content}

graph = StateGraph(State)
graph.add_node("plan", plan)
graph.add_node("act", act)
graph.add_edge(START, "plan")
graph.add_conditional_edges("plan", lambda state: "act" if state["turn"] > 1 else "plan")
graph.add_edge("act", END)
whole = StateGraph(State)
whole.add_node("inner", graph.compile())
whole.add_edge(START, "inner")
whole.add_edge("inner", END)
import asyncio
given = {"turn": 0, "plan": "", "key": os.environ["SOME_API_KEY"]}
print(asyncio.run(whole.compile().ainvoke(given))["plan"])
"""
OPENAI_AGENTS = """
from agents import Agent, Runner, set_default_openai_api
set_default_openai_api("chat_completions")
print(Runner.run_sync(Agent(name="Clerk", model="m"), "hi").final_output)
"""
PYDANTIC_AI = """
from pydantic_ai import Agent
print(Agent("openai-chat:m", name="clerk").run_sync("hi").output)
"""
SMOLAGENTS = """
import os
from smolagents import OpenAIServerModel, ToolCallingAgent
agent = ToolCallingAgent([], OpenAIServerModel("m", api_key=os.environ["OPENAI_API_KEY"]), name="clerk")
print(agent.run("hi", max_steps=2))
"""
AUTOGEN = """
import asyncio
from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient
agent = AssistantAgent("clerk", OpenAIChatCompletionClient(model="gpt-4o"))
print(asyncio.run(agent.run(task="hi")).messages[-1].content)
"""
DSPY = """
import dspy
dspy.configure(lm=dspy.LM("openai/m", cache=False), adapter=dspy.JSONAdapter())
try:
    dspy.ChainOfThought("question -> answer")(question="hi")
except Exception as error:
    print(error)
"""
CREWAI = """
from crewai import Agent, Crew, LLM, Task
agent = Agent(role="clerk", goal="say", backstory="You say.", llm=LLM(model="openai/gpt-4o"))
task = Task(name="greet", description="say hi", expected_output="hi", agent=agent)
print(Crew(agents=[agent], tasks=[task]).kickoff().raw)
"""
AGENT_FRAMEWORK = """
import asyncio
from agent_framework import Agent
from agent_framework.openai import OpenAIChatCompletionClient
print(asyncio.run(Agent(OpenAIChatCompletionClient(model="m"), name="clerk").run("hi")).text)
"""
INSPECT = """
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.solver import generate
task = Task(dataset=[Sample(input="hi", target="x")], solver=[generate()])
print(eval(task, model="openai/gpt-4o", display="plain", log_dir="logs")[0].status)
"""

PYTHON = os.environ.get("REFORK_PROGRAMS") or sys.executable


def need(package):
    """Skip where the programs' Python has no such package, or not the OpenAI package that it wants."""
    look = f"import importlib.util as u; bad = u.find_spec({package!r}) is None\n"
    if package == "inspect_ai":
        look += "import openai; bad = bad or int(openai.__version__.split('.')[0]) < 3\n"
    look += "raise SystemExit(bad)"
    if subprocess.run([PYTHON, "-c", look], check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip(f"{package} is not installed")


def recorded(tmp_path, text, script, monkeypatch):
    """A program run with its steps told: its tape, its run, and the headers that the provider saw."""
    (tmp_path / "program.py").write_text(text)
    for name in ("OPENAI_AGENTS_DISABLE_TRACING", "CREWAI_DISABLE_TELEMETRY", "LITELLM_LOCAL_MODEL_COST_MAP"):
        monkeypatch.setenv(name, "True" if name.startswith("LITELLM") else "1")
    tree = Tree.open(tmp_path / "tape.db")
    with fake.serving(script) as (provider, to):
        run = agents.record(
            tree,
            [PYTHON, "program.py"],
            to=f"{to}/v1",
            folder=tmp_path,
            quiet=True,
            settings=agents.RecordSettings(patch=True),
        )
    return tree, run, provider


def test_a_graphs_nodes_and_its_state_are_on_the_tape_and_no_provider_hears_of_them(tmp_path, monkeypatch):
    need("langgraph")
    need("langchain_openai")
    monkeypatch.setenv("SOME_API_KEY", "quite-secret-words")
    script = [("first", None), ("second", None), ("third", None)]
    tree, run, provider = recorded(tmp_path, GRAPH, script, monkeypatch)
    assert run.output == "third\n"
    assert not [name for headers in provider.headers for name in headers if "refork" in name]
    with tree:
        rows = agents.exchanges(tree, run)
        assert [row["by"] for row in rows] == [
            "node `plan` of the graph (inner/plan)",
            "node `plan` of the graph (inner/plan)",
            "node `act` of the graph (inner/act)",
        ]
        (first, *_, last) = [row["steps"][0] for row in rows]
        assert first["by"] == "langgraph"
        assert first["step"] + 2 == last["step"]
        assert first["checkpoint"] != last["checkpoint"]
        states = [graph_state(tree, run, step) for step in range(3)]
        assert [(state["turn"], state["plan"]) for state in states] == [(0, ""), (1, "first"), (2, "second")]
        assert "quite-secret-words" not in json.dumps(states)
        assert len({row["state"] for row in rows}) == 3
        with pytest.raises(BadInput, match="no exchange 3"):
            graph_state(tree, run, 3)
        told = agents.replay(tree, run, quiet=True)
    assert (told.identical, told.byte_equal) == (True, 3)
    shown = CliRunner().invoke(app, ["show", str(tmp_path / "tape.db")], env={"COLUMNS": "160"})
    assert "node `plan` of the graph" in shown.stdout
    state = CliRunner().invoke(app, ["show", str(tmp_path / "tape.db"), "--state", "1"])
    assert json.loads(state.stdout)["plan"] == "first"


@pytest.mark.parametrize(
    ("package", "text", "says", "fields"),
    [
        ("agents", OPENAI_AGENTS, "agent `Clerk`", {"by": "openai-agents"}),
        ("pydantic_ai", PYDANTIC_AI, "agent `clerk`, its step 1", {"by": "pydantic-ai", "step": 1}),
        ("smolagents", SMOLAGENTS, "agent `clerk`, its step 1", {"by": "smolagents", "step": 1}),
        ("autogen_ext", AUTOGEN, "agent `clerk`", {"by": "autogen"}),
        (
            "dspy", DSPY, "module `ChainOfThought/Predict` for `question -> reasoning, answer`",
            {"by": "dspy", "name": "Predict"},
        ),
        ("crewai", CREWAI, "agent `clerk` at task `greet`", {"by": "crewai", "task": "greet"}),
        ("inspect_ai", INSPECT, "solver `generate`", {"by": "inspect-ai", "path": "generate"}),
        ("agent_framework_openai", AGENT_FRAMEWORK, "agent `clerk`", {"by": "agent-framework"}),
    ],
)  # fmt: skip
def test_a_package_that_names_its_steps_has_them_on_the_tape(
    tmp_path, monkeypatch, package, text, says, fields
):
    need(package)
    tree, run, provider = recorded(tmp_path, text, [("said", None)] * 4, monkeypatch)
    assert not [name for headers in provider.headers for name in headers if "refork" in name]
    with tree:
        row = agents.exchanges(tree, run)[0]
    assert row["by"] == says
    assert row["steps"][-1].items() >= fields.items()


def test_a_program_without_such_a_package_is_recorded_without_names(tmp_path, monkeypatch):
    need("openai")
    text = "import openai; openai.OpenAI().chat.completions.create(model='m', messages=[])"
    tree, run, _ = recorded(tmp_path, text, [("said", None)], monkeypatch)
    with tree:
        (row,) = agents.exchanges(tree, run)
        assert "by" not in row
        with pytest.raises(BadInput, match="no state is kept"):
            graph_state(tree, run, 0)


@pytest.fixture
def channel(monkeypatch, tmp_path):
    with (
        Tree.open(tmp_path / "tape.db") as tree,
        listening(Nobody(), ToolCalls(Tape(tree, ["x"], tmp_path))) as (address, _),
    ):
        monkeypatch.setenv(VARIABLE, f"{address}/tools")
        yield address


def test_only_requests_to_the_runs_endpoint_are_marked(channel):
    from refork.agents import step_names

    address = channel
    made = types.SimpleNamespace(Client=type("Client", (), {}), AsyncClient=type("AsyncClient", (), {}))
    made.Client.send = made.AsyncClient.send = lambda self, request: dict(request.headers)
    swap = lambda owner, name, make: setattr(owner, name, make(getattr(owner, name)))  # noqa: E731
    step_names._httpx(made, swap)

    def sent(url):
        request = types.SimpleNamespace(url=url, headers={HEADER: "of the try before"})
        return made.Client().send(request)

    def under():
        with step_names._under({"by": "x", "kind": "agent", "name": "y"}):
            assert steps_now()[0] == [{"by": "x", "kind": "agent", "name": "y"}]
            return [sent(url) for url in (f"{address}/openai/x", "https://api.openai.com/v1", address[:-3])]

    marked, *others = contextvars.copy_context().run(under)
    assert set(marked) == {HEADER}
    assert others == [{}, {}]
    assert contextvars.copy_context().run(sent, f"{address}/openai/x") == {}  # nobody is known


def test_what_is_no_step_is_refused_and_a_number_is_taken_once(channel):
    from refork.agents.program_side import ToolRefused

    told = ToldSteps()
    number = told.put({"steps": [{"name": "a"}], "state": {"x": 1}, "cut": False})["id"]
    assert told.take(number) == AskedBy(({"name": "a"},), {"x": 1})
    assert told.take(number) is told.take(None) is None
    assert told.take(told.put({"steps": [{}], "state": {"x": 1}, "cut": True})["id"]).state is None
    with pytest.raises(ToolRefused, match="another version"):
        ask("step", {"steps": "x"})


def test_a_name_cannot_leave_its_words():
    told = {"steps": [{"by": "x", "name": "a`b\nc"}, {"by": "langgraph", "name": "n" * 500, "path": "n"}]}
    words = step_words(told)
    assert words.endswith(", in agent `a'b c`")
    assert "\n" not in words
    assert len(words) < 140


#: Asks twice under names that it tells itself, and prints what was answered.
TELLS = """
import json, os, urllib.request as web
def post(url, body, **headers):
    request = web.Request(url, json.dumps(body).encode(), {"content-type": "application/json", **headers})
    return json.load(web.urlopen(request))
talk = []
for turn in range(2):
    step = {"by": "langgraph", "name": "node%d" % turn, "path": "x"}
    number = post(os.environ["REFORK_TOOLS"] + "/step", {"steps": [step], "state": None})["id"]
    talk.append({"role": "user", "content": "turn %d" % turn})
    body = {"model": "m", "messages": talk}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    talk.append(post(url, body, **{"x-refork-step": number})["choices"][0]["message"])
print([message["content"] for message in talk if message["role"] == "assistant"])
"""


def test_the_answer_that_lost_a_run_is_told_with_its_node(tmp_path):
    (tmp_path / "agent.py").write_text(TELLS)
    script = [("good", None), ("bad", None)]
    with Tree.open(tmp_path / "tape.db") as tree, fake.serving(script) as (_, to):
        run = agents.record(tree, [sys.executable, "agent.py"], to=to, folder=tmp_path, quiet=True)
        how = agents.ProgramForkSettings(to=to)
        few = agents.WhySettings(draws=8, smallest=0.9, error=0.3, parts=0)
        told = agents.why(tree, run, outcome=Outcome(fails="bad"), settings=how, search=few)
        rows = agents.exchanges(tree, run)
    assert [row["by"] for row in rows] == [f"node `node{turn}` of the graph" for turn in range(2)]
    assert "the answer at step 1 (node `node1` of the graph) lost the run: with it" in told.sentence
    assert told.to_json()["findings"][0]["by"] == "node `node1` of the graph"
    files = agents.write_case(tmp_path / "case", "tape.db", run, told, how, rows)
    (page,) = [file for file in files if file.suffix == ".md"]
    assert "## Step 1 (node `node1` of the graph): lost the run" in page.read_text()
