"""A pool as one of the models of ``refork serve``: who answers, and what its file says of serving it."""

import json
from pathlib import Path

import pytest

from refork.errors import BadInput
from refork_methods.route.commands import pool_for

POOL = """
[[worker]]
name = "zero"
policy = "scripted:specialist@0"
[[worker]]
name = "one"
policy = "scripted:specialist@1"
[serve]
"""


@pytest.fixture
def served(tmp_path):
    def serve(serving="", head=None, worker=None):
        file = tmp_path / "pool.toml"
        file.write_text(POOL + serving)
        return pool_for(f"team={file}", head and Path(head), None, worker)

    return serve


def test_one_name_answers_and_every_decision_is_kept(served, tmp_path):
    opened = served('log = "calls.jsonl"', worker="one")
    assert opened.name == "team"
    assert opened.model.reply([{"role": "user", "content": "hello"}]).message["role"] == "assistant"
    kept = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    assert [line["body"]["decision"]["chosen"] for line in kept if line["kind"] == "decision"] == ["one"]


def test_a_conductor_is_served_in_place_of_a_head(served):
    from refork_methods.route.conduct.conductor import Conductor

    model = served('conductor = "scripted:specialist@0"').model
    assert isinstance(model, Conductor)
    assert model.pool.names == ("zero", "one")


@pytest.mark.parametrize(
    ("serving", "more", "says"),
    [
        ("", {}, "who picks"),
        ("", {"worker": "one", "head": "x"}, "who picks"),
        ('conductor = "scripted:echo"', {"worker": "one"}, "who picks"),
        ('conductor = "scripted:echo"\nlog = "calls.jsonl"', {}, "no decisions to log"),
        ("", {"worker": "nobody"}, "nobody"),
        ("", {"head": "x"}, "card.json"),
        ('name = "pool"', {"worker": "one"}, "serve.name: Extra"),
        ("log = 1", {"worker": "one"}, "serve.log"),
    ],
)
def test_what_cannot_be_served_is_said(served, serving, more, says):
    with pytest.raises(BadInput, match=says):
        served(serving, **more)
