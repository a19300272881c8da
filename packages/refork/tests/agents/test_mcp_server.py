"""What coding assistants are told: over stdio by the real client, and that no finding lacks its control."""

from __future__ import annotations

import json
import os
import sys
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from agents import provider as fake
from refork import agents
from refork.agents.findings import AgentFinding, SureRange, WhyTold
from refork.agents.fork import Outcome, ProgramForkSettings
from refork.agents.mcp_server import TOOLS, output_schema, values_on
from refork.cli.agent import app
from refork.errors import BadInput
from refork.forking import compare
from refork.tree import Tree

from .test_why import AGENT

anyio = pytest.importorskip("anyio")
pytest.importorskip("mcp")

SECRET = "plover-7731-hx9"
#: As test_why's, and it says what no page should have; one of its answers makes it wait for ever.
PROGRAM = AGENT.replace('"turn %d" % turn', '"turn %d, my " % turn + os.environ["PLANT_API_KEY"]').replace(
    "print([", "print(os.environ['PLANT_API_KEY'])\nprint(["
) + (
    "if talk[-1]['content'] == 'wait':\n"
    "    import time\n"
    "    open('waits', 'a').write('%d ' % os.getpid())\n"
    "    time.sleep(600)\n"
)


@asynccontextmanager
async def assistant(folder, address):
    """A client's session with the server, as an assistant has it."""
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    command = ["-m", "refork", "agent", "mcp", "--folder", str(folder), "--to", address]
    given = {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "PLANT_API_KEY": SECRET}
    server = StdioServerParameters(command=sys.executable, args=command, env=given, cwd=folder)
    async with stdio_client(server) as streams, ClientSession(*streams) as session:
        await session.initialize()
        yield session


def test_an_assistant_records_explains_forks_and_asks_why(tmp_path):
    (tmp_path / "agent.py").write_text(PROGRAM)
    (tmp_path / "elsewhere").symlink_to(tmp_path.parent)
    script = [("good", None), ("This is bad. Go on.", None), ("good", None)]
    progress, texts = [], []

    async def told_of(done, total, message):
        progress.append((done, message))

    async def talk():
        async with assistant(tmp_path, address) as session:

            async def ask(name, fails=False, **arguments):
                came = await session.call_tool(name, arguments, progress_callback=told_of)
                texts.append(came.content[0].text)
                assert came.is_error == fails, texts[-1]
                assert fails or json.loads(texts[-1]) == came.structured_content
                return came.structured_content

            assert [one.name for one in (await session.list_tools()).tools] == list(TOOLS)
            done = await ask("record", command=[sys.executable, "-IS", "agent.py"])
            assert (done["run"]["exit"], done["run"]["exchanges"]) == (0, 3)
            assert "[redacted:PLANT_API_KEY]" in done["output"]
            (run,) = (await ask("list"))["runs"]
            assert run == done["run"]
            whole = await ask("explain")
            assert [one["answered"] for one in whole["steps"]] == ["good", "This is bad. Go on.", "good"]
            assert whole["values"] == []
            step = await ask("explain", step=1)
            assert [one["role"] for one in step["messages"]] == ["user", "assistant", "user"]
            assert step["answer"]["content"] == "This is bad. Go on."

            # What the user can mend is a result, with what, where and hint.
            refused = await ask("why", fails_=None, fails=True)
            assert "fails_" in refused["what"]
            refused = await ask("fork", fails=True, step=1, change="again")
            assert "contained" in refused["hint"]
            for away in ("../tape.db", "/etc/passwd", "elsewhere/tape.db"):
                refused = await ask("list", fails=True, tape=away)
                assert "outside" in refused["what"], away
            refused = await ask("record", fails=True, command=["true"], folder="..")
            assert "outside" in refused["what"]
            refused = await ask("fork", fails=True, step=0, change="again", rerun_tools=True, draws=100)
            assert ("600 requests" in refused["what"], len(provider.asked)) == (True, 3)

            progress.clear()
            came = await session.call_tool(
                "fork",
                {"step": 1, "change": "again", "rerun_tools": True, "draws": 4, "fails": "bad"},
                progress_callback=told_of,
            )
            finding = came.structured_content["finding"]
            assert (finding["control"]["rate"], finding["changed"]["rate"]) == (0.0, 1.0)
            assert (finding["interval"]["low"] > 0, finding["confirmed"]) == (True, True)
            assert finding["control"]["interval"]["high"] > 0  # 0 of 4 is not never
            for word in ("control", "0% of 4 draws", "at 95%"):
                assert word in finding["says"]
            counts = [done for done, _ in progress]
            assert counts == sorted(set(counts))
            assert len(counts) == 8
            known = (await ask("explain"))["values"]
            assert [(one["step"], one["rate"]) for one in known] == [(2, 0.0)]  # of the control

    with fake.serving(script) as (provider, address):
        anyio.run(talk)
    assert SECRET in json.dumps(provider.asked)  # the program did say it
    assert not any(SECRET in text for text in [*texts, *(message for _, message in progress)])


def test_why_comes_with_the_control_and_a_case_file(tmp_path):
    (tmp_path / "agent.py").write_text(AGENT.replace("range(3)", "range(1)"))

    async def talk():
        async with assistant(tmp_path, address) as session:
            await session.call_tool("record", {"command": [sys.executable, "-IS", "agent.py"]})
            asked = {"rerun_tools": True, "draws": 8, "fails": "bad"}
            first = (await session.call_tool("why", asked)).structured_content
            asked_of_models = len(provider.asked)
            again = (await session.call_tool("why", asked)).structured_content
            assert (again["requests"], len(provider.asked)) == (0, asked_of_models)
            assert again["says"] == first["says"]
            return first, (await session.call_tool("explain", {})).structured_content["values"]

    with fake.serving([("bad", None)]) as (provider, address):
        why, values = anyio.run(talk)
    (finding,) = why["findings"]
    assert (why["verdict"], finding["step"], finding["confirmed"]) == ("answer", 0, True)
    assert "control the recorded answer kept 0% of 8 draws" in finding["says"]
    assert why["requests"] == len(provider.asked) - 1
    assert (tmp_path / why["case_files"][0]).read_text().count("lost the run") == 2
    # What the search drew and what the test drew, together; the tape's end is known without asking.
    assert [(one["step"], one["rate"]) for one in values] == [(0, 1.0), (1, 0.0)]


@pytest.mark.parametrize("leaves", [False, True])
def test_a_call_that_is_cancelled_ends_its_programs_and_keeps_no_draw(tmp_path, leaves):
    """Cancelled by the client, or by the client's end."""
    (tmp_path / "agent.py").write_text(PROGRAM)
    waits = tmp_path / "waits"

    async def begun():
        while not waits.exists() or not waits.read_text().endswith(" "):
            await anyio.sleep(0.02)

    async def talk():
        async with anyio.create_task_group() as group, assistant(tmp_path, address) as session:
            await session.call_tool("record", {"command": [sys.executable, "-IS", "agent.py"]})
            provider.script += [("wait", None)] * 99
            asked = {"step": 2, "change": "again", "rerun_tools": True, "jobs": 2}
            if leaves:
                group.start_soon(fails, session.call_tool, "fork", asked)
                await begun()
                return
            async with anyio.create_task_group() as inner:
                inner.start_soon(session.call_tool, "fork", asked)
                await begun()
                inner.cancel_scope.cancel()
            # What shares the folder waits until the cancelled call has ended.
            came = await session.call_tool("fork", asked | {"step": 9})
            assert came.structured_content["what"].endswith("has no exchange 9")

    async def fails(call, *given):
        with pytest.raises(Exception, match="closed"):
            await call(*given)

    with fake.serving() as (provider, address):
        anyio.run(talk)
    processes = [int(one) for one in waits.read_text().split()]
    assert processes
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)
    with Tree.open(tmp_path / "tape.db", "r") as tree:
        kept = [draw for fork in tree.forks() for draw in tree.draws(fork.id)]
        # The control's draw asks nobody and may have ended; no draw of the changed arm is one.
        assert [draw for draw in kept if tree.fork_record(draw.fork).change is not None] == []


@pytest.fixture(scope="module")
def effect(tmp_path_factory):
    """An effect of a real fork, and its tree."""
    folder = tmp_path_factory.mktemp("effect")
    (folder / "agent.py").write_text(AGENT)
    with Tree.open(folder / "tape.db") as tree, fake.serving([("bad", None)]) as (_, address):
        run = agents.record(tree, [sys.executable, "-IS", "agent.py"], to=address, folder=folder, quiet=True)
        arms = agents.fork_run(
            tree, run, 0, agents.ProgramChange("again"), 2, outcome=Outcome(fails="bad"),
            settings=ProgramForkSettings(to=address),
        )  # fmt: skip
        yield compare(*arms), tree, run


def test_a_finding_cannot_be_made_without_interval_and_control(effect):
    made = AgentFinding.of(effect[0], 0, "the recorded answer", "again")
    body = made.model_dump(exclude={"says"})
    assert AgentFinding(**body) == made
    for name in ("interval", "control", "changed", "p", "difference"):
        with pytest.raises(ValidationError):
            AgentFinding(**{key: value for key, value in body.items() if key != name})
        with pytest.raises(ValidationError):
            AgentFinding(**body | {name: None})
    with pytest.raises(ValidationError):
        AgentFinding(**body | {"says": "the answer at step 0 is to blame"})  # only the figures put it so
    for wrong in (
        {"interval": {"low": float("-inf"), "high": 1.0, "level": 0.95}},
        {"interval": {"low": 0.5, "high": 0.4, "level": 0.95}},
        {"interval": {"low": -1.0, "high": 0.5, "level": 0.95}},  # the difference is not in it
        {"interval": {"low": 0.0, "high": 1.0, "level": 1.0}},
        {"difference": 0.5},
        {"control": body["control"] | {"draws": 1}},
        {"control": body["control"] | {"what": ""}},
    ):
        with pytest.raises(ValidationError):
            AgentFinding(**body | wrong)


def test_an_answer_is_blamed_by_a_finding_that_is_confirmed_alone(effect):
    hidden = AgentFinding.of(effect[0], 0, "the recorded answer", "again", confirmed=False)
    assert "not confirmed" in hidden.says
    rest = {
        "run": "r", "says": "", "rescue": None, "rescue_part": None, "values": [], "ruled_out": [],
        "requests": 1, "runs": 1, "case_files": [],
    }  # fmt: skip
    for findings in ([], [hidden]):
        with pytest.raises(ValidationError):
            WhyTold(verdict="answer", findings=findings, **rest)
    with pytest.raises(ValidationError):
        WhyTold(verdict="none", findings=[hidden.model_copy(update={"confirmed": True})], **rest)
    assert WhyTold(verdict="none", findings=[hidden], **rest).findings == [hidden]


def test_wherever_a_schema_has_a_difference_it_requires_interval_and_control():
    def objects(value):
        if isinstance(value, dict):
            yield value
        for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            yield from objects(one)

    found = [
        one for tool in TOOLS.values() for one in objects(output_schema(tool))
        if "difference" in one.get("properties", {})
    ]  # fmt: skip
    assert len(found) == 2  # fork's and why's
    for one in found:
        assert {"interval", "control", "changed", "says"} <= set(one["required"])
    # A rate has its interval, too.
    rates = [one for tool in TOOLS.values() for one in objects(output_schema(tool))]
    rates = [one for one in rates if "rate" in one.get("properties", {})]
    assert rates
    assert all("interval" in one["required"] for one in rates)


def test_values_are_of_the_arms_that_changed_nothing(effect):
    _, tree, run = effect
    (value,) = values_on(tree, run, 3)  # of the control alone, which kept the answer at step 0
    assert (value.step, value.rate, value.draws, value.fails) == (1, 0.0, 2, "bad")
    assert value.interval.high > 0.5  # two draws show little
    assert values_on(tree, replace(run, id="another"), 3) == []
    assert isinstance(value.interval, SureRange)


def test_the_skill_is_written_where_assistants_look(tmp_path):
    def ran(*arguments):
        return CliRunner().invoke(app, ["skill", "--out", *map(str, arguments)])

    assert ran(tmp_path / "skills").exit_code == 0
    file = tmp_path / "skills" / "refork" / "SKILL.md"
    head, body = file.read_text().removeprefix("---\n").split("\n---\n", 1)
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    # What readers of skills ask for: the folder's name, and a description of at most 1024 letters.
    assert (fields["name"], len(fields["description"]) <= 1024) == ("refork", True)
    for name in TOOLS:
        assert f"`{name}`" in body
    assert ran(tmp_path / "skills").exit_code == 0
    file.write_text("mine")
    assert isinstance(ran(tmp_path / "skills").exception, BadInput)
    assert file.read_text() == "mine"
