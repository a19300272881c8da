import json

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from refork.errors import BadInput
from refork.policies.local import LocalPolicy
from refork.policies.open import open_policy, spell
from refork_testbed.models import build, describe, find, names, path, registry, tiny_model_for
from refork_testbed.models.commands import app
from refork_testbed.models.registry import recipe_digest

RUN = CliRunner()


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return build("test-tiny", tmp_path_factory.mktemp("organisms") / "tiny")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("REFORK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_what_a_build_holds(built):
    found = {file.name for file in built.iterdir()}
    assert found >= {
        "config.json", "model.safetensors", "tokenizer.json", "README.md", "train_log.jsonl", "digest.json",
    }  # fmt: skip
    assert sum(file.stat().st_size for file in built.iterdir()) < 3_000_000
    log = [json.loads(line) for line in (built / "train_log.jsonl").read_text().splitlines()]
    assert len(log) == find("test-tiny").training.steps
    assert log[-1]["loss"] < 0.1 < log[0]["loss"]
    digest = json.loads((built / "digest.json").read_text())
    assert digest["recipe"] == recipe_digest(find("test-tiny"))
    assert digest["weights"] in (built / "README.md").read_text()


def test_plain_transformers_can_use_it(built):
    model = AutoModelForCausalLM.from_pretrained(built)
    tokenizer = AutoTokenizer.from_pretrained(built)
    talk = [{"role": "user", "content": "three four"}]
    text = tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
    start = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
    said = model.generate(start, attention_mask=torch.ones_like(start), do_sample=False, max_new_tokens=8)[
        0, start.shape[1] :
    ]
    assert tokenizer.decode(said) == "then comes five<|end|>"


def test_the_same_recipe_gives_the_same_weights(built, tmp_path):
    again = build("test-tiny", tmp_path / "again")
    for name in ("model.safetensors", "tokenizer.json", "train_log.jsonl"):
        assert (again / name).read_bytes() == (built / name).read_bytes()


def test_a_second_call_returns_at_once(home):
    told = []

    def progress(stage, done, total, *, tokens=None, waiting=None):
        told.append((stage, done, total))

    first = build("test-tiny", progress=progress)
    assert first == path("test-tiny")
    assert first.parent == home / "organisms"
    steps = find("test-tiny").training.steps
    assert told == [("training test-tiny", i, steps) for i in range(steps + 1)]
    told.clear()
    assert build("test-tiny", progress=progress) == first
    assert spell("organism:test-tiny", progress) == f"hf:{first}"
    assert spell("organism:test-tiny+dtype=float64", progress) == f"hf:{first}+dtype=float64"
    assert told == []
    assert open_policy("organism:test-tiny").card.weights == LocalPolicy.load(str(first)).card.weights
    with pytest.raises(BadInput, match="no organism 'none'"):
        open_policy("organism:none")


def test_an_interrupted_build_leaves_nothing(home):
    def stop(stage, done, total, *, tokens=None, waiting=None):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build("test-tiny", progress=stop)
    assert list((home / "organisms").iterdir()) == []


def test_a_damaged_build_is_not_taken_for_one(tmp_path):
    place = build("test-tiny", tmp_path / "one")
    (place / "model.safetensors").write_bytes(b"short")
    with pytest.raises(BadInput, match="something else"):
        build("test-tiny", place)


def test_the_global_generator_and_threads_are_left_alone():
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    build("test-tiny")
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


def test_names_and_worlds():
    assert set(names()) >= {"arithmetic", "household", "household-novice", "maze-walker", "test-tiny"}
    assert set(names()) >= {"toolbase", "toolrl", "refuser-p", "refuser-d", "refuser-c"}
    assert tiny_model_for("refusal:D?early=0.05") == "refuser-d"
    assert tiny_model_for("toolcall:4") == "toolbase"
    assert tiny_model_for("household:2") == "household"
    assert tiny_model_for("household:2?slip=0.1") == "household"
    assert tiny_model_for("reasoning-gym:chain_sum") == "arithmetic"
    with pytest.raises(BadInput, match="lock"):
        tiny_model_for("lock")
    with pytest.raises(BadInput, match="no organism"):
        find("dragon")


def test_what_is_trained_from_another_has_that_ones_digest_in_its_own(monkeypatch):
    child, parent = find("toolrl"), find("toolbase")
    assert child.parent == "toolbase"
    assert child.world == parent.world
    before, other = recipe_digest(child), recipe_digest(find("test-tiny"))
    real = registry.recipe_digest
    monkeypatch.setattr(registry, "recipe_digest", lambda r: "new" if r is parent else real(r))
    assert real(child) != before
    assert real(find("test-tiny")) == other


def test_reinforcement_is_repeatable_and_logs_its_rewards(built, tmp_path):
    from dataclasses import replace

    from refork_methods.train.loop import TreeTraining
    from refork_testbed.models.reinforced import reinforce

    # test-tiny says nothing that this world rewards, so the goal of 0 is reached by the first update.
    recipe = replace(
        find("toolrl"), parent="test-tiny", until=0.0, world="lock",
        training=TreeTraining(updates=2, tasks=2, leaves=2),
    )  # fmt: skip
    made = [reinforce(recipe, built, tmp_path / name) for name in ("one", "two")]
    assert made[0].log == made[1].log
    assert len(made[0].log) == 1
    assert made[0].log[0]["success"] == 0.0
    assert "seconds" not in made[0].log[0]
    one, two = ((tmp_path / n / "model.safetensors").read_bytes() for n in ("one", "two"))
    assert one == two
    with pytest.raises(BadInput, match="after 2 updates"):
        reinforce(replace(recipe, until=0.5), built, tmp_path / "three")


def test_the_command_line(home):
    assert RUN.invoke(app, ["path", "test-tiny"]).stdout.strip() == str(path("test-tiny"))
    listed = json.loads(RUN.invoke(app, ["list", "--json"]).stdout)
    assert [row["built"] for row in listed if row["name"] == "test-tiny"] == [False]
    assert RUN.invoke(app, ["build", "test-tiny"]).stdout.strip().endswith(str(path("test-tiny")))
    assert [row["built"] for row in describe() if row["name"] == "test-tiny"] == [True]
    assert "test-tiny" in RUN.invoke(app, ["list"]).stdout
