from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from refork.app.cli.world import app
from refork.core.errors import BadInput
from refork.core.world.open import KNOWN


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_list():
    assert all(spec in run("list") for spec in KNOWN)
    assert [row["spec"] for row in json.loads(run("list", "--json"))] == list(KNOWN)


def test_show():
    text = run("show", "household:1", "--task", "2", "--split", "held-out")
    assert "household:1  version 1, 30 turns at most, deterministic" in text
    assert "(held-out)" in text
    data = json.loads(run("show", "maze:2,1,1", "--json"))
    assert data["task"]["world"] == data["world"] == "maze:2,1,1"
    assert data["first"] == "source ; exits out"
    assert "open lock" in run("show", "lock")


def test_play_prints_the_transcript_and_stops_at_the_end():
    text = run("play", "lock", "--actions", "....a; again")
    assert text.splitlines()[1:] == ["> ....a", "the lock stays shut", "reward 0"]
    text = run("play", "household:1?slip=0.5", "--actions", "go north;jump", "--chance", "3")
    assert text.count("> ") == 2
    assert "nothing happens" in text
    assert "reward" not in text


def test_play_as_json():
    data = json.loads(run("play", "maze:2,1,1", "--actions", "go out;go back", "--json"))
    assert [turn["action"] for turn in data["turns"]] == ["go out", "go back"]
    assert data["turns"][1]["info"] == {"invalid": True}
    assert data["first"]["done"] is False


def test_a_wrong_split_is_refused():
    with pytest.raises(BadInput, match="train or held-out"):
        run("show", "lock", "--split", "test")


@pytest.mark.parametrize("verb", ["list", "show", "play"])
def test_help_has_an_example(verb):
    assert "Example: refork world" in " ".join(run(verb, "--help").split())
