"""Training a conductor: world and trainer together, resumable; and a plan's form is what the world reads."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from refork.errors import Mismatch
from refork.policies.local import LocalPolicy
from refork.tree.tree import Tree
from refork.worlds.dice import Dice
from refork_methods.route.conduct.coins import SeededCoins
from refork_methods.route.conduct.evaluate import Written, evaluate
from refork_methods.route.conduct.plan import Plan
from refork_methods.route.conduct.training import (
    ConductRecipe,
    pool_named,
    queries_named,
    run_conduct,
    world_of,
)
from refork_methods.route.conduct.world import Query
from refork_methods.train.sft import SftSettings
from refork_testbed.models.recipes import conductor
from refork_testbed.models.supervised import supervise
from refork_testbed.worlds.expressions import SKILLS, expressions


@pytest.fixture(scope="module")
def beginner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A conductor after a few lessons, which writes few plans that run."""
    folder = tmp_path_factory.mktemp("conductor")
    recipe = replace(conductor.RECIPE, training=SftSettings(steps=30, rows=16, learning_rate=8e-3))
    with pytest.MonkeyPatch.context() as patch, torch.random.fork_rng(devices=[]):
        patch.setattr(conductor, "DIALOGUES", 300)
        torch.manual_seed(0)
        supervise(recipe, folder, lambda *a, **k: None)
    return folder


def small(beginner: Path, **changes: object) -> ConductRecipe:
    settings = {
        "conductor": f"hf:{beginner}",
        "updates": 2,
        "per_update": 4,
        "plans": 4,
        "evaluation": {"count": 12},
    }
    return ConductRecipe.model_validate(settings | changes)


def test_most_demonstrated_plans_can_run() -> None:
    world, dice = world_of(ConductRecipe()), Dice("test")
    written = [
        Written(world.task(Query(e.text, e.text)), conductor.random_plan(e, list(SKILLS), dice), 0)
        for e in expressions("train", 200)
    ]
    found = evaluate(world, written)
    assert found.run.estimate > 0.95
    assert found.accuracy is not None
    assert 0.2 < found.accuracy.estimate < 0.6
    assert Plan.parse(written[0].text).problems(world.pool) == []


def test_a_run_trains_measures_and_resumes(beginner: Path, tmp_path: Path) -> None:
    recipe = small(beginner)
    summary = run_conduct(recipe, tmp_path / "run")
    assert summary["updates"] == 2
    assert not summary["resumed"]
    assert summary["before"]["plans"] == summary["after"]["plans"] == 12
    assert summary["after"]["expected"] is not None
    trained = LocalPolicy.load(str(tmp_path / "run" / "policy"))
    assert trained.card.weights != LocalPolicy.load(str(beginner)).card.weights
    again = run_conduct(recipe, tmp_path / "run")
    assert again["resumed"]
    for told in (again, summary):
        told["after"].pop("seconds")
    assert again["after"] == summary["after"]
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["digest"] == again["digest"]
    with Tree.open(tmp_path / "run" / "tree.db", "r") as tree:
        assert len(list(tree.tasks())) == 8
    with pytest.raises(Mismatch, match="per_call"):
        run_conduct(small(beginner, per_call=0.05), tmp_path / "run")


def test_groups_of_equal_rewards_change_nothing(beginner: Path, tmp_path: Path) -> None:
    # One token is never a plan, so every reward is 0.
    summary = run_conduct(small(beginner, max_tokens=1, evaluation={"count": 0}), tmp_path / "run")
    assert summary["updates"] == 2
    trained = LocalPolicy.load(str(tmp_path / "run" / "policy"))
    assert trained.card.weights == LocalPolicy.load(str(beginner)).card.weights


def test_sub_pools_and_rounds_are_trained_on_too(beginner: Path, tmp_path: Path) -> None:
    recipe = small(beginner, sub_pools=(3,), rounds=2, updates=1, evaluation={"count": 0}, max_tokens=20)
    summary = run_conduct(recipe, tmp_path / "run")
    assert summary["after"] is None
    with Tree.open(tmp_path / "run" / "tree.db", "r") as tree:
        first = [task.text.splitlines()[0].split(",") for task in tree.tasks()]
    assert all(len(names) == 4 and names[-1] == "self" for names in first)


def test_names_stand_for_things(tmp_path: Path) -> None:
    assert pool_named("expressions", SeededCoins(1)).names == tuple(SKILLS)
    assert queries_named("expressions").name == "expressions"
    file = tmp_path / "q.jsonl"
    file.write_text('{"query": "a", "answer": "b"}\n')
    assert queries_named(str(file)).name == "q"
