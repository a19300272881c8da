"""``refork route serve`` up to the socket: who is served, and who picks."""

import json

import pytest

from refork.errors import BadInput
from refork_methods.route.commands import serve_command

POOL = """
[[worker]]
name = "zero"
policy = "scripted:specialist@0"
[[worker]]
name = "one"
policy = "scripted:specialist@1"
"""


@pytest.fixture
def served(tmp_path, monkeypatch):
    """Calls the verb; gives what it would serve."""
    found = {}

    def serve(models, settings, *, ready):
        found.update(models, settings=settings)

    monkeypatch.setattr("refork.serve.serve", serve)
    (tmp_path / "pool.toml").write_text(POOL)
    plain = {
        "head": None, "backbone": None, "worker": None, "name": "refork", "host": "127.0.0.1", "port": 8000,
        "lanes": 1, "retries": 1, "conductor": None, "log": tmp_path / "calls.jsonl", "key": None,
    }  # fmt: skip

    def run(**more):
        serve_command(tmp_path / "pool.toml", **{**plain, **more})
        return found

    return run


def test_one_name_answers_and_every_decision_is_kept(served, tmp_path):
    found = served(worker="one", name="pool", key="secret")
    assert found["settings"].keys == {"secret"}
    assert found["pool"].reply([{"role": "user", "content": "hello"}]).message["role"] == "assistant"
    kept = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    assert [line["body"]["decision"]["chosen"] for line in kept if line["kind"] == "decision"] == ["one"]


def test_a_conductor_is_served_in_place_of_a_head(served):
    from refork_methods.route.conduct.conductor import Conductor

    model = served(conductor="scripted:specialist@0", log=None)["refork"]
    assert isinstance(model, Conductor)
    assert model.pool.names == ("zero", "one")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({}, "who picks"),
        ({"worker": "one", "head": "x"}, "who picks"),
        ({"worker": "one", "conductor": "scripted:echo"}, "who picks"),
        ({"conductor": "scripted:echo"}, "no decisions to log"),
        ({"worker": "nobody"}, "nobody"),
        ({"head": "x"}, "hidden state"),
    ],
)
def test_what_cannot_be_served_is_said(served, more, says):
    from pathlib import Path

    given = {key: Path(value) if key == "head" else value for key, value in more.items()}
    with pytest.raises(BadInput, match=says):
        served(**given)
