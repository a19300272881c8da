"""``refork agent``: a program recorded, listed and replayed from the command line."""

from __future__ import annotations

import json
import sys

import pytest
from typer.testing import CliRunner

from agents import provider as fake
from agents.containing import contained_or_skip
from refork.cli.agent import app
from refork.errors import BadInput, CannotDo

#: Without a provider's package: a second or more of imports less.
AGENT = """
import json, os, sys, urllib.request as web
asked = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
request = web.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(asked).encode())
request.add_header("content-type", "application/json")
said = json.load(web.urlopen(request))["choices"][0]["message"]["content"]
print(said)
sys.exit(4 if said == "answer 1" else 0)
"""


def ran(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture
def program(tmp_path):
    (tmp_path / "my_agent.py").write_text(AGENT)
    return ["--", sys.executable, "my_agent.py"]


def test_recorded_listed_and_replayed(tmp_path, program):
    tape, folder = tmp_path / "tape.db", ["--folder", tmp_path]
    with fake.serving() as (provider, address):
        done = ran("record", "--out", tape, "--to", address, *folder, "--json", *program)
        assert done.exit_code == 4  # the program's own
        told = json.loads(done.stdout)
        assert (told["exit"], told["exchanges"], told["conversations"]) == (4, 1, 1)
        assert ran("record", "--out", tape, "--to", address, *folder, *program).exit_code == 0
        listed = ran("list", tape)
        assert listed.stdout.count("my_agent.py") == 2
        first, last = json.loads(ran("list", tape, "--json").stdout)
        assert (first["run"], first["exit"], last["exit"]) == (told["run"], 4, 0)
        shown = ran("show", tape)
        assert [word in shown.stdout for word in ("step", "hi", "answer 2")] == [True, True, True]
        (row,) = json.loads(ran("show", tape, "--run", told["run"], "--json").stdout)["exchanges"]
        assert (row["step"], row["asked"], row["said"], row["calls"], row["error"]) == (
            0,
            "hi",
            "answer 1",
            [],
            None,
        )
        # What cannot be undone is not done unasked.
        refused = ran("replay", tape)
        assert isinstance(refused.exception, BadInput)
        assert "--rerun-tools" in refused.exception.hint
        again = ran("replay", tape, "--rerun-tools", "--run", first["run"][:6], "--json")
        assert again.exit_code == 0, again.output
        assert f"runs in {tmp_path}" in again.stderr
        assert json.loads(again.stdout)["identical"] is True
        assert len(provider.asked) == 2
        (tmp_path / "my_agent.py").write_text(AGENT.replace('"hi"', '"hello"'))
        other = ran("replay", tape, "--rerun-tools", "--json")
        assert other.exit_code == 1
        told = json.loads(other.stdout)
        assert told["divergence"]["where"] == "$.messages[0].content"
        assert told["changed"] == ["my_agent.py"]
        assert len(provider.asked) == 2


def test_forked_with_a_control_and_an_effect(tmp_path, program):
    tape = tmp_path / "tape.db"
    with fake.serving() as (provider, address):
        assert ran("record", "--out", tape, "--to", address, "--folder", tmp_path, *program).exit_code == 4
        asked = ["fork", tape, "--step", 0, "--change", "answer:found it", "--draws", 6, "--to", address]
        assert "--rerun-tools" in ran(*asked).exception.hint
        told = ran(*asked, "--rerun-tools", "--jobs", 2, "--succeeds", "found", "--json")
        assert told.exit_code == 0, told.output
        effect = json.loads(told.stdout)
        assert (effect["base"]["rate"], effect["other"]["rate"], effect["paired"]) == (0.0, 1.0, False)
        assert effect["low"] > 0
        assert len(provider.asked) == 1  # when it was recorded
        shown = ran(*asked, "--rerun-tools", "--succeeds", "found")
        assert "found it" in shown.stdout
        refused = ran("fork", tape, "--step", 7, "--change", "again", "--rerun-tools")
        assert "no exchange 7" in str(refused.exception)


def test_contained_programs_begin_in_the_recorded_folder(tmp_path, program):
    contained_or_skip()
    tape, log = tmp_path / "tape.db", tmp_path / "log.txt"
    tool = (
        "open('log.txt', 'a').write('ran')\nif len(open('log.txt').read()) > 3:\n    sys.exit(9)\nsys.exit(4"
    )
    (tmp_path / "my_agent.py").write_text(AGENT.replace("sys.exit(4", tool))
    with fake.serving() as (_, address):
        asked = ["record", "--out", tape, "--to", address, "--folder", tmp_path, "--snapshots", *program]
        done = ran(*asked)
        assert done.exit_code == 4
        assert "kept of the folder: 1 files" in done.stderr
        assert "--contained" in ran("replay", tape).exception.hint
        assert ran("replay", tape, "--contained").exit_code == 0
        assert "1 paths are others now" in ran("replay", tape, "--contained").stderr
        drawn = ["--step", 0, "--change", "answer:no", "--draws", 3, "--to", address, "--contained", "--json"]
        effect = json.loads(ran("fork", tape, *drawn).stdout)
        assert (effect["base"]["rate"], effect["other"]["rate"]) == (0.0, 1.0)
        assert log.read_text() == "ran"
        assert ran("replay", tape, "--rerun-tools").exit_code == 1
        assert log.read_text() == "ranran"


#: Has a tool of its own that the model asks for once.
WITH_A_TOOL = """
import json, os, urllib.request as web
from refork import agents

@agents.tool
def look(at):
    open("ran", "a").write(at)
    return "you see a " + at

talk = [{"role": "user", "content": "hi"}]
for turn in range(2):
    asked = json.dumps({"model": "m", "messages": talk}).encode()
    request = web.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", asked)
    request.add_header("content-type", "application/json")
    talk.append(json.load(web.urlopen(request))["choices"][0]["message"])
    for call in talk[-1].get("tool_calls", []):
        came = look(**json.loads(call["function"]["arguments"]))
        talk.append({"role": "tool", "tool_call_id": call["id"], "content": came})
print(talk[-1]["content"])
"""


def test_with_all_tools_on_the_tape_nothing_needs_to_be_allowed(tmp_path):
    (tmp_path / "my_agent.py").write_text(WITH_A_TOOL)
    tape, ran_there = tmp_path / "tape.db", tmp_path / "ran"
    with fake.serving([("", fake.CALL)]) as (provider, address):
        asked = ["record", "--out", tape, "--to", address, "--folder", tmp_path, "--json"]
        done = ran(*asked, "--", sys.executable, "my_agent.py")
        told = json.loads(done.stdout)
        assert (told["exit"], told["exchanges"], told["tool_calls"], told["unkept"]) == (0, 2, 1, [])
        shown = ran("show", tape)
        assert shown.stdout.index("answer 2") > shown.stdout.index("you see a door") > 0
        (call,) = json.loads(ran("show", tape, "--json").stdout)["tools"]
        assert (call["name"], call["after"], call["mode"]) == ("look", 1, "recorded")
        again = ran("replay", tape, "--json")
        assert (again.exit_code, json.loads(again.stdout)["tools_given"]) == (0, 1)
        refused = ran("fork", tape, "--step", 0, "--change", "again", "--tools", "sandbox")
        assert "tape, live or simulate" in refused.exception.hint
        change = ["--step", 1, "--change", "answer:left", "--succeeds", "left", "--draws", 2, "--json"]
        forked = ran("fork", tape, *change, "--to", address)
        assert forked.exit_code == 0, forked.exception
        effect = json.loads(forked.stdout)
        assert effect["tools"] == {"rule": "tape", "calls": {}}  # none behind the point
        assert (effect["base"]["rate"], effect["other"]["rate"]) == (0.0, 1.0)
    assert ran_there.read_text() == "door"  # when it was recorded, and never again
    assert len(provider.asked) == 2


def test_what_cannot_be_recorded_or_found(tmp_path):
    tape = tmp_path / "tape.db"
    assert isinstance(ran("record", "--out", tape).exception, BadInput)
    assert "no run is on this tape" in ran("list", tape).stdout
    quiet = ran("record", "--out", tape, "--json", "--", sys.executable, "-c", "pass")
    assert isinstance(quiet.exception, CannotDo)
    missing = ran("replay", tape, "--rerun-tools", "--run", "zz")
    assert "no run begins with 'zz'" in str(missing.exception)
