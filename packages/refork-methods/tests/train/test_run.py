"""Runs by recipe, and the command line in front of them."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from refork.errors import BadInput, Mismatch
from refork.growing import Independent, RandomNode
from refork.growing.selector import selector_named
from refork.policies.local import LocalPolicy
from refork.runs.recipe import resolve
from refork.tree.tree import Tree
from refork_methods.train.commands import app
from refork_methods.train.finetune import DpoRecipe, SftRecipe, run_dpo, run_sft
from refork_methods.train.run import (
    PolicyRecipe,
    local_policy,
    plan_policy,
    run_policy,
)
from refork_methods.train.sources import json_lines, read_conversations, read_pairs

WORLD = "lock"


def run(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, result.stdout


def recipe(tiny, **changes):
    given = {
        "world": WORLD, "policy": f"hf:{tiny}", "updates": 2, "per_update": 2, "leaves": 4,
        "tasks": {"split": "train", "count": 4}, "sampling": {"max_tokens": 4},
        "evaluation": {"count": 2, "draws": 1, "every": 1}, "credit": "implicit", "objective": "grpo",
    }  # fmt: skip
    return PolicyRecipe.model_validate(given | changes)


@pytest.fixture(scope="module")
def other(tiny, tmp_path_factory):
    """The organism with slightly moved weights: a reference."""
    folder = tmp_path_factory.mktemp("reference") / "model"
    policy = LocalPolicy.load(tiny)
    for part in policy.model.parameters():
        part.data.mul_(1.01)
    policy.model.save_pretrained(folder)
    policy.codec.tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def trained(tiny, other, tmp_path_factory):
    """A run on a world too hard for the organism, so its credit comes from a fixed pair of models."""
    folder = tmp_path_factory.mktemp("run")
    chosen = recipe(tiny, credit_pair=[f"hf:{tiny}", f"hf:{other}"], credit_options={"outcome_weight": 0.0})
    return folder, chosen, run_policy(chosen, folder)


def test_a_run_leaves_all_that_its_page_promises(trained, tiny):
    folder, _, summary = trained
    assert {p.name for p in folder.iterdir()} >= {
        "tree.db", "checkpoints", "metrics.jsonl", "policy", "summary.json", "recipe.json",
    }  # fmt: skip
    assert json.loads((folder / "summary.json").read_text()) == summary
    assert summary["updates"] == 2
    assert [row["update"] for row in summary["held_out"]] == [0, 1, 2]
    assert LocalPolicy.load(str(folder / "policy")).card.weights == summary["weights"]
    assert summary["weights"] != LocalPolicy.load(tiny).card.weights
    rows = json_lines(folder / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2]
    assert rows[1]["spent"] == summary["tokens"]


def test_the_same_run_again_changes_nothing(trained):
    folder, chosen, summary = trained
    again = run_policy(chosen, folder)
    assert again == summary | {"resumed": True}
    with pytest.raises(Mismatch, match="seed"):
        run_policy(chosen.model_copy(update={"seed": 1}), folder)


def test_a_measurement_that_a_killed_run_had_left_is_made_up_for(trained, tmp_path):
    folder, chosen, summary = trained
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    rows = json.loads((copy / "evaluation.json").read_text())
    (copy / "evaluation.json").write_text(json.dumps(rows[:-1]))
    assert run_policy(chosen, copy) == summary | {"resumed": True}


def test_a_run_can_be_checked(trained):
    folder, _, _ = trained
    words = ["check", "--tree", folder / "tree.db", "--policy", f"hf:{folder / 'policy'}"]
    code, out = run(*words, "--json")
    found = json.loads(out)
    assert found["largest"] < 1e-4
    assert (code, found["problems"]) == (0, [])
    code, out = run(
        "check", "--tree", folder / "tree.db", "--policy", f"hf:{folder / 'policy'}", "--tolerance", 0
    )
    assert code == 1
    assert "expected" in out


def test_lora_trains_an_adapter(tiny, tmp_path):
    run_policy(recipe(tiny, lora={"rank": 2}, credit="grpo", updates=1), tmp_path)
    assert (tmp_path / "policy" / "adapter_model.safetensors").exists()


def test_plans_name_everything_without_a_model(tiny):
    plan = plan_policy(recipe("/nowhere", credit="g2po", selector="uucb"))
    assert plan["rollouts per update"] == 8
    assert plan["selector"].startswith("uucb(")
    assert (
        plan_policy(recipe("/nowhere", credit="grpo", budget=100))["rollouts per update"]
        == "as the budget allows"
    )


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"credit": "ppo"}, "there is no credit"),
        ({"selector": "best"}, "there is no selector"),
        ({"selector_options": {"depth": 1}}, "no option 'depth'"),
        ({"objective": "ppo"}, "unknown objective"),
        ({"objective": "dr-grpo"}, "longest"),
        ({"credit": "grpo", "credit_pair": ["hf:a", "hf:b"]}, "takes no pair"),
    ],
)
def test_wrong_names_are_refused_before_a_model_is_loaded(changes, what):
    with pytest.raises(BadInput, match=what):
        plan_policy(recipe("/nowhere", **changes))


def test_one_nested_key_leaves_the_others():
    chosen = resolve(
        PolicyRecipe, None, ["tasks.count=2", "rate.peak=0.1"], environment={}, world="w", policy="p"
    )
    assert (chosen.tasks.split, chosen.tasks.count, chosen.rate.shape) == ("train", 2, "constant")
    tuned = resolve(SftRecipe, None, ["rate.peak=0.1"], environment={}, policy="p", tree="t")
    assert (tuned.rate.peak, tuned.rate.shape, tuned.rate.warmup) == (0.1, "cosine", 10)


def test_selectors_by_name():
    assert selector_named("independent") == Independent()
    assert selector_named("random", 3, roots=5) == RandomNode(3, 5, 1)
    with pytest.raises(BadInput, match="cannot be trained"):
        local_policy("scripted:coin")


# -- fine-tuning ------------------------------------------------------------------------------


@pytest.fixture
def talks(tmp_path):
    file = tmp_path / "talks.jsonl"
    rows = [
        {"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": a}]}
        for q, a in (("one two", "ten"), ("two three", "nine"))
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_sft_learns_conversations_and_resumes(tiny, talks, tmp_path):
    words = ["sft", "--policy", f"hf:{tiny}", "--data", talks, "--set", "steps=25", "--set", "rows=2",
             "--set", "rate.peak=0.01", "--out", tmp_path / "run", "--json"]  # fmt: skip
    code, out = run(*words)
    first = json.loads(out)
    assert code == 0
    assert first["loss_last"] < 0.2 * first["loss_first"]
    policy = LocalPolicy.load(str(tmp_path / "run" / "policy"))
    asked = policy.render([], [], [{"role": "user", "content": "one two"}]).tokens
    from refork.policies.base import Request, Sampling, sample_all
    from refork.sampling.noise import NoiseKey

    (said,) = sample_all(policy, [Request(asked, NoiseKey(0, 0, 0))], Sampling(temperature=0, max_tokens=4))
    assert said.text == "ten"
    code, out = run(*words)
    assert json.loads(out) == first | {"resumed": True}


def test_pairs_of_a_tree_and_of_a_file_train_alike(tiny, tmp_path, counting):
    from refork.forking import fork
    from refork.growing import plant_prompt
    from refork.judge import MatchJudge
    from refork.policies.base import Sampling

    counting.model.model.norm.weight.data.mul_(0.3)
    counting.refresh()
    with Tree.open(tmp_path / "tree.db") as tree:
        start = plant_prompt(tree, counting, "one two")
        fork(start, counting, 12, settings=Sampling(max_tokens=4), judge=MatchJudge("three|two|six"))
    code, out = run("export", "--tree", tmp_path / "tree.db", "--format", "trl-dpo", "--policy", f"hf:{tiny}",
                    "--out", tmp_path / "pairs.parquet", "--json")  # fmt: skip
    assert (code, json.loads(out)["rows"]) == (0, 1)
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(tmp_path / "pairs.parquet").to_pylist()
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shape = {"policy": f"hf:{tiny}", "steps": 3, "rows": 1}
    one = run_dpo(DpoRecipe(tree=str(tmp_path / "tree.db"), **shape), tmp_path / "one")
    two = run_dpo(DpoRecipe(data=str(tmp_path / "pairs.jsonl"), **shape), tmp_path / "two")
    assert one["weights"] == two["weights"]
    assert one["pairs"] == 1
    learned = run_sft(
        SftRecipe(tree=str(tmp_path / "tree.db"), policy=f"hf:{tiny}", steps=2), tmp_path / "sft"
    )
    assert learned["examples"] >= 1


def test_a_dry_run_loads_nothing(tmp_path):
    rest = ["--policy", "hf:/nowhere", "--out", tmp_path / "x", "--dry-run"]
    code, out = run("policy", "--world", WORLD, *rest)
    assert code == 0
    assert "tokens at most" in out
    tree = tmp_path / "t.db"
    Tree.open(tree).close()
    for verb in ("sft", "dpo"):
        code, _ = run(verb, "--tree", tree, *rest)
        assert code == 0
    assert not (tmp_path / "x").exists()


def test_bad_sources_are_refused(tmp_path):
    with pytest.raises(BadInput, match="one of them"):
        resolve(SftRecipe, policy="hf:x", environment={})
    file = tmp_path / "data.jsonl"
    with pytest.raises(BadInput, match="cannot be read"):
        json_lines(file)
    for text, what in (
        ("", "empty"),
        ("{", "one JSON document"),
        ("{x", "not JSON"),
        ("[1]", "not a JSON object"),
    ):
        file.write_text(text)
        with pytest.raises(BadInput, match=what):
            json_lines(file)
    file.write_text('{"messages": []}\n{"messages": [1]}\n')
    with pytest.raises(BadInput, match="jsonl:2"):
        read_conversations(file)
    file.write_text('\n\n{"messages": []}\n{"messages": [1]}\n')
    with pytest.raises(BadInput, match="jsonl:4"):
        read_conversations(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match="UTF-8"):
        read_conversations(file)
    said = [{"role": "user", "content": "a\u2028b"}]
    file.write_text(json.dumps({"messages": said}, ensure_ascii=False) + "\n", encoding="utf-8")
    assert read_conversations(file) == [said]
    file.write_text('{"prompt": "a", "chosen": "b", "rejected": "c"}\n')
    with pytest.raises(BadInput, match="prompt_ids is not a list"):
        read_pairs(file)
