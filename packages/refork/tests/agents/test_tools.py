"""Tools on the tape: recorded as they run, given without running, and refused where nothing fits."""

from __future__ import annotations

import asyncio
import http.server
import json
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from agents import provider as fake
from refork import agents
from refork.agents import repeatable
from refork.agents.endpoint import listening
from refork.agents.fork import ProgramArm, ProgramChange, ProgramForkSettings, _Branch, fork_run, tools_of
from refork.agents.program_side import VARIABLE, RecordedToolError, ToolRefused, tool
from refork.agents.replay import FromTape, ReplayDivergence
from refork.agents.simulate import ToolSimulator
from refork.agents.tape import Tape, TapeEvent, Wire
from refork.agents.tool_calls import ToolCalls, before_point, check_replayable, covered, tool_events
from refork.errors import BadInput, CannotDo
from refork.tree import Tree

#: Looks wherever the model says; looking counts on a server outside.
AGENT = """
import json, os, urllib.request as web
from refork.agents.program_side import ToolRefused, tool

@tool
def look(at):
    web.urlopen(os.environ["COUNTER"] + "/" + at).read()
    if at == "wall":
        raise KeyError("no wall")
    return "you see a " + at

talk = [{"role": "user", "content": "hi"}]
while True:
    asked = json.dumps({"model": "m", "messages": talk}).encode()
    request = web.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", asked)
    request.add_header("content-type", "application/json")
    said = json.load(web.urlopen(request))["choices"][0]["message"]
    talk.append(said)
    for call in said.get("tool_calls", []):
        try:
            came = look(**json.loads(call["function"]["arguments"]))
        except (KeyError, ToolRefused) as error:
            came = type(error).__name__ + " " + str(error)
        talk.append({"role": "tool", "tool_call_id": call["id"], "content": came})
    if not said.get("tool_calls"):
        break
print(talk[-2]["content"])
"""


def look(at):
    return "", {"name": "look", "arguments": json.dumps({"at": at})}


END = ("done", None)


@contextmanager
def counting():
    """A server that counts: its address, and the paths that it was asked for."""
    fired = []

    class Counter(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            fired.append(self.path[1:])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Counter)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", fired
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """A run that looked at a door and at a wall, its provider, and what was fired outside."""
    (tmp_path / "agent.py").write_text(AGENT)
    script = [look("door"), look("wall"), END]
    with Tree.open(tmp_path / "tape.db") as tree, fake.serving(script) as (provider, to), counting() as count:
        monkeypatch.setenv("COUNTER", count[0])
        # Patched: its hook brings the program's side alone, a second or more of imports less.
        run = agents.record(
            tree,
            [sys.executable, "agent.py"],
            to=to,
            folder=tmp_path,
            quiet=True,
            settings=agents.RecordSettings(patch=True),
        )
        assert (run.output, count[1]) == ("KeyError 'no wall'\n", ["door", "wall"])
        provider.asked.clear()
        count[1].clear()
        yield tree, run, provider, to, count[1]


def test_a_replay_fires_nothing_and_errors_come_back_as_they_were(recorded):
    tree, run, provider, _, fired = recorded
    first, second = tool_events(tree, run)
    assert (first.name, first.arguments, first.mode, first.after) == ("look", {"at": "door"}, "recorded", 1)
    assert (second.result["error"]["class"], second.after) == ("KeyError", 2)
    # Below the answer that asked for it.
    assert tree.node(tree.node(first.node).parent).kind == "action"
    assert tree.node(first.node).text == 'look({"at": "door"}) -> you see a door'
    told = agents.replay(tree, run, quiet=True)
    assert (told.identical, told.output_equal, told.tools_recorded, told.tools_given) == (True, True, 2, 2)
    assert "2 tool calls from the tape" in told.sentence
    assert (fired, provider.asked) == ([], [])
    assert list(tree.verify()) == []


def test_before_the_point_nothing_is_fired_and_behind_it_the_rule_holds(recorded):
    tree, run, provider, to, fired = recorded
    controls = set()
    for rule, last, modes in (
        ("tape", [], {"refused": 1, "tape": 2}),
        ("live", ["door", "roof", "wall"], {"live": 3}),
    ):
        # Control: the wall as recorded, then done. Changed: the door again, a roof, and done.
        provider.script[:] = [END, look("door"), look("roof"), END]
        how = ProgramForkSettings(to, tools=rule)
        base, other = fork_run(tree, run, 1, ProgramChange("again"), 1, settings=how)
        assert [draw.end for arm in (base, other) for draw in arm.draws] == ["done", "done"]
        # The door before the point was given by the tape in both draws.
        assert sorted(fired) == last
        assert tools_of(tree, (base, other)) == modes
        assert base.record.extra["tools"] == rule
        (path,) = other.leaves()
        assert ("ToolRefused" in path.leaf.text) == (rule == "tape")
        controls.add(base.record.id)
    assert len(controls) == 2  # another rule is another arm


def test_a_model_answers_what_the_tape_does_not_have_and_the_effect_says_so(recorded):
    tree, run, provider, to, fired = recorded
    said, asked = [END, look("door"), look("roof"), END] * 2, []

    def answers(request):
        if request["model"] != "sim":
            return said.pop(0)
        asked.append(request["messages"])
        return "you see a roof of straw", None

    provider.script = answers
    how = ProgramForkSettings(to, tools="simulate", simulator="sim")
    points = agents.ProgramPoints(tree, run, settings=how)
    arms = {points.arm(1, keeps=True): 2, points.arm(1, ProgramChange("again"), keeps=True): 2}
    base, other = points.draw(arms)
    assert (fired, tools_of(tree, (base, other))) == ([], {"simulated": 2, "tape": 4})
    assert all("you see a roof of straw" in path.leaf.text for path in other.leaves())
    # It saw the recorded calls with their results, and then the new one; it is one of the requests.
    (first, second), _ = asked
    assert "the tool look" in first["content"]
    assert second["content"].startswith('call: {"at": "door"}\nresult: you see a door\n')
    assert second["content"].endswith('call: {"at": "roof"}\nresult:')
    assert points.calls == 10
    effect = agents.compare_arms(base, other)
    assert (effect.base_simulated, effect.other_simulated) == (0.0, 0.5)
    assert "the changed arm alone was answered by a simulator" in effect.sentence
    with pytest.raises(BadInput, match="goes with the rule"):
        ProgramForkSettings(to, tools="simulate")


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ('{"price": 3, "seat": "a"}', {"price": 3, "seat": "a"}),
        ('```json\n{"price": 3, "seat": null}\n```', {"price": 3, "seat": None}),
        ('{"price": 3}', None),
        ("three", None),
        ("[3]", None),
    ],
)
def test_what_is_simulated_has_the_form_of_what_was_recorded(answer, result):
    call = {"name": "book", "arguments": {"to": "Rome"}}
    with fake.serving([(answer, None)]) as (provider, address), ToolSimulator("sim", address) as simulator:
        assert simulator.result(call, [({"to": "Bonn"}, {"price": 9, "seat": "c"})]) == result
        # Of more calls than it is shown the latest are, in their order.
        many = [({"to": number}, "x" * 3_000) for number in range(20)]
        provider.script = lambda asked: (asked["messages"][1]["content"], None)
        shown = simulator.result(call, many)
        assert [line[8:-1].split()[-1] for line in shown.splitlines() if line.startswith("call")] == [
            *map(str, range(13, 20)),
            '"Rome"',
        ]
        provider.asked[1:] = []
        # Without a recorded result there is no form to go by, and nobody is asked.
        assert simulator.result(call, []) is None
        assert len(provider.asked) == 1


def test_a_call_that_is_not_on_the_tape_ends_a_draw_before_anybody_is_asked(recorded):
    tree, run, provider, to, fired = recorded
    source = Path(run.folder, "agent.py")
    source.write_text(
        AGENT.replace("    web.url", '    at += "!"\n    web.url').replace("(at)", "(at, why=1)")
    )
    how = ProgramForkSettings(to, tools="live")
    base, _ = fork_run(tree, run, 1, ProgramChange("again"), 1, settings=how)
    (draw,) = base.draws
    assert (draw.end, fired, provider.asked) == ("error", [], [])
    assert "it left the tape before the point" in draw.error
    assert 'the tape has it with {"at": "door"}, the program {"at": "door", "why": 1}' in draw.error


# -- the program's side, in this process ----------------------------------------------------------


class Nobody:
    """Answers no model."""

    async def answer(self, wire, headers, reply):
        raise AssertionError

    async def close(self):
        pass


@contextmanager
def a_run(monkeypatch, tools):
    with listening(Nobody(), tools) as (address, endpoint):
        monkeypatch.setenv(VARIABLE, f"{address}/tools")
        yield endpoint
    monkeypatch.delenv(VARIABLE)


@pytest.fixture
def through(tmp_path, monkeypatch):
    """Runs a function twice, recorded and with the tape alone: what it gave, and the calls."""

    def both(function):
        with Tree.open(tmp_path / "tape.db") as tree:
            tape = Tape(tree, ["program"], tmp_path)
            with a_run(monkeypatch, ToolCalls(tape)) as endpoint:
                first = function()
            assert endpoint.requests == 0  # of models
            events = tool_events(tree, tape.run)
            source = FromTape([])
            with a_run(monkeypatch, ToolCalls(None, events, source=source)):
                return first, function(), events

    return both


def test_without_a_run_a_tool_is_the_function(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert tool(lambda at: {1, at})(2) == {1, 2}
    with pytest.raises(TypeError, match="generator"):

        @tool
        def counts():
            yield 1


def test_functions_coroutines_and_what_is_within_a_tool(through):
    ran = []

    @tool
    def inner(x):
        ran.append(x)
        return [x, {"half": x / 2}]

    @tool(name="outside")
    async def outer(x, *, y=3):
        await asyncio.sleep(0)
        return inner(x + y)

    def program():
        return asyncio.run(outer(1)), inner(x=7)

    first, second, events = through(program)
    assert first == second == ([4, {"half": 2.0}], [7, {"half": 3.5}])
    assert ran == [4, 7]  # once
    # A tool within a tool is a part of its call.
    assert [(event.name, event.arguments) for event in events] == [
        ("outside", {"x": 1, "y": 3}),
        ("inner", {"x": 7}),
    ]


def test_equal_calls_at_the_same_time_get_the_result_of_their_own_line_of_work(through, monkeypatch):
    names, counted = iter(["one", "two", "two", "one"]), []
    monkeypatch.setattr(repeatable, "line_name", lambda: next(names))

    @tool
    def count():
        counted.append(0)
        return len(counted)

    first, second, events = through(lambda: [count(), count()])
    assert [event.line for event in events] == ["one", "two"]
    assert (first, second) == ([1, 2], [2, 1])


class Odd(Exception):
    """Wants other arguments than it holds."""

    def __init__(self, code, text):
        super().__init__(f"{code}: {text}")


def test_errors_are_results(through):
    @tool
    def fails(how):
        raise {"value": ValueError("no", 3), "odd": Odd(3, "no")}[how]

    def program():
        found = []
        for how in ("value", "odd"):
            try:
                fails(how)
            except Exception as error:
                found.append((type(error), error.args))
        return found

    first, second, _ = through(program)
    assert first == [(ValueError, ("no", 3)), (Odd, ("3: no",))]
    assert second == [(ValueError, ("no", 3)), (RecordedToolError, ("Odd: 3: no",))]


def test_what_cannot_be_kept_is_said_and_refuses_the_replay(tmp_path, monkeypatch):
    @tool
    def pair():
        return (1, 2)

    with Tree.open(tmp_path / "tape.db") as tree:
        tape = Tape(tree, ["program"], tmp_path)
        with a_run(monkeypatch, ToolCalls(tape)):
            assert pair() == (1, 2)  # not a list
        (event,) = tool_events(tree, tape.run)
        assert (event.replayable, event.result["unkept"]) == (False, "a tuple is not JSON")
        with pytest.raises(CannotDo, match="what the tool pair returned is not on the tape: a tuple"):
            check_replayable(tape.run, [event])
        with (
            a_run(monkeypatch, ToolCalls(None, [event], source=FromTape([]))),
            pytest.raises(ToolRefused, match="could not be kept"),
        ):
            pair()


def test_where_nobody_can_be_asked_nothing_runs(monkeypatch):
    ran = []
    monkeypatch.setenv(VARIABLE, "http://127.0.0.1:9/secret/tools")
    with pytest.raises(ToolRefused, match="cannot be reached"):
        tool(ran.append)(1)
    assert ran == []


def test_a_call_that_never_came_back_is_on_the_tape(tmp_path):
    with Tree.open(tmp_path / "tape.db") as tree:
        tape = Tape(tree, ["program"], tmp_path)
        tools = ToolCalls(tape)
        call = {"version": 1, "name": "look", "arguments": {}, "by": "decorator"}
        assert asyncio.run(tools.answer("call", call)) == {"do": "run", "id": 1}
        asyncio.run(tools.close())
        (event,) = tool_events(tree, tape.run)
        assert (event.replayable, event.result["unkept"]) == (False, "it never came back")


def test_secrets_of_the_environment_are_not_on_the_tape(through, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "zq81-very-private")

    @tool
    def ask(api_key, what):
        return f"{what} with {api_key}"

    first, second, _ = through(lambda: ask("zq81-very-private", "a question"))
    assert (first, second) == ("a question with zq81-very-private", "a question with [redacted:MY_API_KEY]")
    data = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"zq81" not in data


# -- what answers ---------------------------------------------------------------------------------


def shown(name="look", **arguments):
    return {"version": 1, "name": name, "arguments": arguments, "by": "decorator"}


def said(tools, *calls):
    """What is answered to calls one after the other: the result, or the word for it."""

    async def all_of_them():
        return [await tools.answer("call", call) for call in calls]

    return [one["result"]["json"] if one["do"] == "give" else one["do"] for one in asyncio.run(all_of_them())]


@pytest.fixture
def looks(tmp_path):
    """Recorded calls: at the door (twice), at the wall, at the door once more."""
    with Tree.open(tmp_path / "tape.db") as tree:
        tape = Tape(tree, ["program"], tmp_path)

        async def recording():
            tools = ToolCalls(tape)
            for number, at in enumerate(["door", "door", "wall", "door"]):
                answer = await tools.answer("call", shown(at=at))
                await tools.answer("result", {"id": answer["id"], "result": {"json": number}})

        asyncio.run(recording())
        yield tool_events(tree, tape.run)


def test_equal_calls_are_given_in_recorded_order_and_another_ends_it(looks):
    source = FromTape([])
    tools = ToolCalls(None, looks, source=source)
    door = shown(at="door")
    assert said(tools, door, shown(at="wall"), door, door, door, shown(at="wall")) == [
        0, 2, 1, 3, "refuse", "refuse",
    ]  # fmt: skip
    # The first that does not fit is what is told; all behind it is refused.
    assert "look with" not in str(source.divergence)
    assert "once more than when it was recorded" in str(source.divergence)
    assert said(ToolCalls(None, looks, source=source), door) == ["refuse"]


def test_behind_the_point_the_tape_gives_equal_calls_again_and_the_rest_of_before_first(looks):
    at = TapeEvent(0, "", 0, Wire("POST", "openai/chat/completions", "", b"", began=looks[2].began))
    before = before_point(at)
    assert list(map(before, looks)) == [True, True, True, True]  # all had ended when it had
    later = TapeEvent(-1, "", 0, Wire("POST", "openai/chat/completions", "", b"", began=looks[2].began))
    before = before_point(later)
    assert list(map(before, looks)) == [True, True, False, False]

    def tools(rule):
        return ToolCalls(None, looks, source=FromTape([]), rule=rule, reached=lambda: True, before=before)

    door, wall, roof = (shown(at=at) for at in ("door", "wall", "roof"))
    assert said(tools("tape"), door, door, door, door, wall, wall, roof) == [0, 1, 3, 3, 2, 2, "refuse"]
    # What another conversation still owes of before the point is the tape's under every rule.
    assert said(tools("live"), door, door, door, wall) == [0, 1, "run", "run"]


def test_covered_where_every_tool_that_a_model_asked_for_was_seen(recorded):
    tree, run, *_ = recorded
    assert covered(tree, run)
    with Tree.open(Path(run.folder, "other.db")) as other:
        tape = Tape(other, ["program"], Path(run.folder))
        whole = json.dumps(fake.chat(*look("door"))[0]).encode()
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
        kind = {"content-type": "application/json"}
        tape.add(Wire("POST", "openai/chat/completions", "", body, 200, kind, (whole,)))
        assert not covered(other, tape.run)


def test_what_left_the_tape_does_not_come_back_at_the_point():
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
    wire, sent = Wire("POST", "openai/chat/completions", "", body, 200), []

    class Reply:
        async def whole(self, status, headers, told):
            sent.append(status)

    arm = ProgramArm(None, 0, ProgramChange("again"), keeps=True)
    way = _Branch([TapeEvent(0, "", 0, wire)], arm, None, None)
    way.before.divergence = ReplayDivergence(0, "the tool look", None, "", None, None, "it is not there")
    asyncio.run(way.answer(wire, {}, Reply()))
    assert (sent, way.reached) == ([400], False)
    assert "it left the tape before the point" in way.error
