from __future__ import annotations

import json
from importlib.metadata import EntryPoint

import pytest
from typer.testing import CliRunner

from refork import registry
from refork.cli.world import app


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_list():
    rows = json.loads(run("list", "--json"))
    assert [row["name"] for row in rows] == list(registry.names("worlds"))
    shown = run("list")
    # Every shipped opener's docstring begins with its form and says what the world is.
    assert all(row["spec"].startswith(row["name"]) and row["what"] and not row["lacks"] for row in rows)
    assert all(row["spec"] in shown for row in rows)
    assert next(row["spec"] for row in rows if row["name"] == "maze") == "maze:W,K,L"


def test_list_shows_worlds_of_others_and_what_they_lack(monkeypatch):
    real = registry.entry_points

    def points(group):
        more = (
            [("chess", "json:loads"), ("gone", "no_such_package:World")] if group == "refork.worlds" else []
        )
        return [*real(group=group), *(EntryPoint(name, target, group) for name, target in more)]

    monkeypatch.setattr(registry, "entry_points", points)
    registry.registered.cache_clear()
    try:
        rows = {row["name"]: row for row in json.loads(run("list", "--json"))}
        assert "no_such_package" in rows["gone"]["lacks"]
        assert "cannot be loaded" in run("list")
        assert rows["chess"]["what"].startswith("Deserialize")
    finally:
        monkeypatch.undo()
        registry.registered.cache_clear()


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
    result = CliRunner().invoke(app, ["show", "lock", "--split", "test"])
    assert result.exit_code == 2
    assert "'test' is not one of 'train'" in result.output


@pytest.mark.parametrize("verb", ["list", "show", "play"])
def test_help_has_an_example(verb):
    assert "Example: refork world" in " ".join(run(verb, "--help").split())
