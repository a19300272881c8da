"""``refork agent``: a program recorded, listed and replayed from the command line."""

from __future__ import annotations

import json
import sys

import pytest
from typer.testing import CliRunner

from agents import provider as fake
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


def test_what_cannot_be_recorded_or_found(tmp_path):
    tape = tmp_path / "tape.db"
    assert isinstance(ran("record", "--out", tape).exception, BadInput)
    assert "no run is on this tape" in ran("list", tape).stdout
    quiet = ran("record", "--out", tape, "--json", "--", sys.executable, "-c", "pass")
    assert isinstance(quiet.exception, CannotDo)
    missing = ran("replay", tape, "--rerun-tools", "--run", "zz")
    assert "no run begins with 'zz'" in str(missing.exception)
