"""``refork simulate train``: all three stages on one tiny model, a plan without one, and its refusals."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from refork.errors import BadInput
from refork.policies.local import LocalPolicy
from refork_methods.simulate.commands import app
from refork_methods.simulate.prompt import pick
from refork_methods.simulate.refusals import refuse_trained_on, trained_on
from refork_methods.simulate.simulating import open_simulator
from support.drawers import tiny, trajectory


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("train")
    policy = tiny()
    policy.model.save_pretrained(folder / "model")
    policy.codec.tokenizer.save_pretrained(folder / "model")
    (folder / "data").mkdir()
    for name, numbers in (("train", range(8)), ("test", range(8, 10))):
        lines = [json.dumps(trajectory(n, split=None).to_json()) + "\n" for n in numbers]
        (folder / "data" / f"{name}.jsonl").write_text("".join(lines))
    return folder


def train(place, stage, out, *more):
    policy = f"hf:{place / 'model'}"
    words = ["train", "--stage", stage, "--data", str(place / "data"), "--policy", policy]
    words += ["--out", str(place / out), "--set", "max_tokens=12", "--json", *more]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_stages_train_save_and_resume(place):
    few = ("--set", "steps=2", "--set", "rows=4")
    cpt = train(place, "cpt", "cpt", *few)
    assert cpt["steps"] == 2
    assert cpt["held_out_after"]["loss"] < cpt["held_out_before"]["loss"]
    assert train(place, "cpt", "cpt", *few) == cpt | {"resumed": True}
    assert LocalPolicy.load(str(place / "cpt" / "policy")).card.weights == cpt["weights"]
    sft = train(place, "sft", "sft", *few, "--lora", "--set", "per_trajectory=1", "--set", "merge=true")
    assert sft["turns"] == {"tools": 8}
    assert not (place / "sft" / "policy" / "adapter_config.json").exists()
    assert LocalPolicy.load(str(place / "sft" / "policy")).card.weights == sft["weights"]
    record = json.loads((place / "cpt" / "training.json").read_text())
    assert record["data"]["sources"] == []
    assert record["data"]["tasks"] == {"drawers": [f"drawers-{n}" for n in range(8)]}


def test_a_later_stage_remembers_what_earlier_ones_learned(place):
    other = place / "other.jsonl"
    other.write_text(json.dumps(trajectory(20, source="elsewhere").to_json()) + "\n")
    few = ("--set", "steps=1", "--set", "rows=1", "--set", "check=0")
    train(place, "cpt", "first", *few)
    train(place, "cpt", "second", *few, "--data", str(other), "--policy", f"hf:{place / 'first' / 'policy'}")
    learned = trained_on(place / "second" / "policy")
    assert learned.has(trajectory(20, source="elsewhere")) is not None
    assert learned.has(trajectory(3)) is not None
    assert learned.has(trajectory(8)) is None
    nameless = replace(trajectory(8), extra={})
    assert learned.has(nameless) == "'drawers'"
    with pytest.raises(BadInput, match="shows memory"):
        refuse_trained_on(place / "second", pick([trajectory(8), trajectory(3)], 0))


def test_rl_with_an_adapter_and_a_plan(place):
    small = ("--set", "updates=1", "--set", "per_update=2", "--set", "group=2", "--lora")
    plan = train(place, "rl", "none", "--dry-run", *small)
    assert plan["answers at most"] == 4
    assert plan["targets"] == 8
    assert not (place / "none").exists()
    told = train(place, "rl", "rl", *small)
    assert told["updates"] == 1
    assert "+adapter=" in told["policy"]
    assert (place / "rl" / "policy" / "adapter_config.json").exists()
    opened, folder = open_simulator(str(place / "rl"))
    assert opened.model.card.weights == told["weights"]
    assert folder == place / "rl"


def test_refusals(place):
    with pytest.raises(BadInput, match="judge is the simulator"):
        train(place, "rl", "x", "--judge", f"hf:{place / 'model'}")
    with pytest.raises(BadInput, match="no threshold or class"):
        train(place, "cpt", "y", "--set", "shares.chatter=1", "--dry-run")
    with pytest.raises(BadInput, match="nothing to train on"):  # the untrained teacher says nothing readable
        train(place, "sft", "w", "--set", "teacher=self", "--set", "draws=1")
    assert len((place / "w" / "candidates.jsonl").read_text().splitlines()) == 16
    reasoned = trajectory(3).to_json()
    reasoned["turns"][0]["action"] = "<think>hm</think>look a"
    (place / "bad.jsonl").write_text(json.dumps(reasoned) + "\n")
    with pytest.raises(BadInput, match="reasoning"):
        train(place, "cpt", "z", "--data", str(place / "bad.jsonl"), "--dry-run")
