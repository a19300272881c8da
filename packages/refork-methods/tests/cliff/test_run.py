from __future__ import annotations

import json

import pytest

from refork.errors import BadInput, CannotDo, Mismatch
from refork.forking import fork
from refork.growing.plant import plant_prompt
from refork.judge import MatchJudge
from refork.policies.base import Sampling
from refork.runs.recipe import open_folder
from refork.tree.node import NewNode
from refork.tree.score import Producer, Score
from refork.tree.tree import Tree
from refork_methods.cliff.intervene import random_positions
from refork_methods.cliff.pairs import read_pairs
from refork_methods.cliff.planted import flat_chain
from refork_methods.cliff.run import (
    CliffRecipe,
    kinds_of,
    load_recipe,
    open_run,
    run_pairs,
    run_scan,
    run_train,
    run_unproven,
    run_verify,
    scanned_traces,
    spent,
    summary,
)
from refork_methods.cliff.select import choose_traces

CHAIN = flat_chain(8, 0.7, 0.1, at=[3], chance=0.85, low=0.3)


@pytest.fixture
def run(tree, tmp_path):
    policy = CHAIN.policy()
    start = plant_prompt(tree, policy, "Well?")
    fork(start, policy, 12, settings=Sampling(max_tokens=12), judge=MatchJudge("right"))
    recipe = CliffRecipe(tree="mem", policy="scripted", success_regex="right", draws=32, retest=32)
    open_folder(tmp_path, recipe)
    return open_run(tmp_path, recipe, tree, policy)


def test_the_whole_way(run, tree):
    told = run_scan(run)
    assert told["traces"] == told["traces_chosen"] >= 2
    rows = [json.loads(line) for line in (run.folder / "tokens.jsonl").read_text().splitlines()]
    assert len(rows) == told["tokens"]
    assert {"k", "n", "low", "high", "pi", "entropy", "rank", "max_possible_drop"} <= set(rows[0])
    assert told["survived"] is None, "never tested is not none found"
    done = run_verify(run)
    assert done["tested"] == told["nominated"] > 0
    assert done["survived"] >= 1
    assert all(row["pi"] <= 0.9 for row in done["cliffs"] if row["real"])
    pairs = run_pairs(run, k=2)
    assert pairs["pairs"] == len(read_pairs(run.folder / "pairs.jsonl")) > 0
    assert run_verify(run)["rollouts"] == done["rollouts"] + pairs["rollouts"], "pairs cost draws, too"
    again = run_pairs(run, k=2)
    assert (again, summary(run)["rollouts"]) == (pairs, done["rollouts"] + pairs["rollouts"])


def test_pairs_of_the_published_recipe_stand_beside_the_proven_ones(run):
    run_scan(run)
    run_verify(run, effects=False)
    proven, cost = run_pairs(run, k=2), spent(run.folder)
    told = run_unproven(run, k=2)
    assert told["pairs"] == len(read_pairs(run.folder / "unproven.jsonl")) > 0
    assert told["traces_left_out"] == 0
    assert spent(run.folder) == cost + told["rollouts"]
    assert run_unproven(run, k=2) == told
    assert run_pairs(run, k=2) == proven
    # What the budget leaves is scans first: of two traces, or of none, and no other token is tried.
    scans = told["rollouts"] - 32 * sum(m["mass"] is not None for m in told["cliff_mass"])
    less = run_unproven(run, k=2, budget=cost + scans // 3)
    assert less["traces_left_out"] > 0
    assert less["rollouts"] <= scans // 3
    with pytest.raises(CannotDo, match="no weights"):
        run_train(run.folder, run.policy, "deterministic", unproven=True)


def test_pairs_are_made_of_the_cliffs_that_were_tested(run, tree):
    scanned = run_scan(run)
    budget = scanned["rollouts"] + 2 * 32 * 2
    done = run_verify(run, budget=budget)
    assert done["nominated"] > done["tested"] == 2
    size = len(tree)
    pairs = run_pairs(run, k=2, budget=budget)
    assert pairs["cliffs"] == 0 < pairs["left_out"] == done["survived"]
    assert len(tree) == size, "nothing is drawn beyond the budget"
    assert summary(run)["rollouts"] <= budget


def test_pairs_without_a_test_before_test_first(run):
    run_scan(run)
    pairs = run_pairs(run, k=2)
    assert pairs["cliffs"] == summary(run)["survived"] > 0


@pytest.mark.parametrize("change", [{"delta0": 0.4}, {"success_regex": "wrong"}])
def test_another_recipe_scans_the_same_tree_under_a_name_of_its_own(run, tree, tmp_path, change):
    run_scan(run, limit=2)
    recipe = run.recipe.model_copy(update=change)
    other = open_run(tmp_path / "other", recipe, tree, run.policy)
    open_folder(other.folder, recipe)
    assert run_scan(other, limit=2)["traces"] == 2


@pytest.mark.parametrize(("spare", "measured"), [(0, True), (-1, False)])
def test_effects_are_measured_where_the_budget_has_room_for_both_sides(run, monkeypatch, spare, measured):
    scanned = run_scan(run)
    real = [n for n in run_verify(run, effects=False)["cliffs"] if n["real"]]
    assert len(real) >= 2
    monkeypatch.setattr("refork_methods.cliff.run.random_positions", controls := Recorder(random_positions))
    budget = scanned["rollouts"] + 64 * (scanned["nominated"] + 2 * len(real)) + spare
    done = run_verify(run, budget=budget)
    assert (done["effects"] is not None) == measured
    assert done["rollouts"] <= budget
    for cliffs, found in controls.calls:
        assert len(found) <= len(cliffs) == len(real)


@pytest.mark.parametrize("spare", [0, -1])
def test_tests_after_pairs_keep_to_what_the_pairs_left_of_the_budget(run, spare):
    scanned = run_scan(run)
    run_verify(run, effects=False)
    pairs = run_pairs(run, k=2)
    budget = scanned["rollouts"] + pairs["rollouts"] + 64 * scanned["nominated"] + spare
    done = run_verify(run, budget=budget, effects=False)
    assert done["tested"] == scanned["nominated"] + spare
    assert done["rollouts"] <= budget


class Recorder:
    def __init__(self, call):
        self.call, self.calls = call, []

    def __call__(self, cliffs, traces, **more):
        found = self.call(cliffs, traces, **more)
        self.calls.append((cliffs, found))
        return found


def test_a_tree_of_several_worlds_needs_one_that_grades(run, tree, tmp_path):
    plain = run.recipe.model_copy(update={"success_regex": None})
    tree.append([NewNode(kind="task", key=name, text="", extra={"world": name}) for name in ("lock", "maze")])
    with pytest.raises(BadInput, match="several worlds"):
        open_run(tmp_path, plain, tree, run.policy)
    assert open_run(tmp_path, plain.model_copy(update={"world": "lock"}), tree, run.policy).world is not None


def test_scans_resume_and_draw_nothing_twice(run, tree):
    first = run_scan(run, limit=1)
    assert first["traces"] == 1
    size = len(tree)
    run_scan(run, limit=1)
    assert len(tree) == size
    assert run_scan(run)["traces"] == first["traces_chosen"] + len(scanned_traces(run)) - 1


def test_potentials_are_on_the_tree_for_a_trainer(run, tree):
    run_scan(run, limit=2)
    for trace in scanned_traces(run):
        (known,) = tree.scores(node=trace.end.node, name="potential")
        assert known.value == pytest.approx(trace.curve.value[:-1])


def test_the_budget_stops_a_run_and_a_larger_one_goes_on(run):
    small = run_scan(run, budget=60)
    assert small["budget_reached"]
    assert small["rollouts"] <= 60
    more = run_scan(run, budget=100_000)
    assert not more["budget_reached"]
    assert more["traces"] > small["traces"]


def test_a_damaged_last_line_is_done_again(run):
    run_scan(run, limit=2)
    file = run.folder / "traces.jsonl"
    file.write_text(file.read_text()[:-40])
    assert len(scanned_traces(run)) == 1
    assert run_scan(run, limit=2)["traces"] == 2


def test_forks_inside_rollouts_are_no_traces(run, tree):
    before = [p.address for p in choose_traces(tree, "all")]
    run_scan(run, limit=1)
    assert [p.address for p in choose_traces(tree, "all")] == before


def test_traces_are_chosen_by_the_judge_or_the_world_whoever_grades_later(run, tree):
    ends = [p.node.id for p in choose_traces(tree, "all")]
    by_world = dict(zip(ends, [0.0, 1.0] * len(ends), strict=False))
    for name, given in (("world:w", by_world), ("somebody else", dict.fromkeys(ends, 1.0))):
        producer = tree.add_producer(Producer(name))
        tree.add_scores([Score(leaf, "success", value, producer) for leaf, value in given.items()])
    wrong = {p.node.id for p in choose_traces(tree, "wrong")}
    assert wrong == {leaf for leaf, value in by_world.items() if value == 0.0}
    right = tree.score_map("success", ends, run.judge.producer.id)
    assert {p.node.id for p in choose_traces(tree, "right", judge=run.judge)} == {
        k for k in right if right[k]
    }
    other = MatchJudge(".")
    assert len(choose_traces(tree, "right", judge=other)) == len(ends), (
        "a judge is asked what it has not said"
    )
    tree.add_producer(other.producer)
    tree.add_scores([Score(ends[0], "success", 0.0, other.producer.id)])
    assert [p.node.id for p in choose_traces(tree, "wrong", judge=other)] == ends[:1]
    assert {p.node.id for p in choose_traces(tree, "wrong", judge=MatchJudge(".", "style"))} == wrong


def test_refusals(run, tree, tmp_path):
    with pytest.raises(BadInput, match="no trace was scanned"):
        run_verify(run)
    with pytest.raises(BadInput, match="no trace was scanned"):
        run_pairs(run)
    with pytest.raises(BadInput, match="unknown choice"):
        choose_traces(tree, "odd")
    with pytest.raises(BadInput, match="holds no run"):
        load_recipe(tmp_path / "elsewhere")
    # A folder that holds nothing else is one whose run was refused before it began.
    (tmp_path / "traces.jsonl").write_text("")
    with pytest.raises(Mismatch, match="another recipe"):
        open_folder(tmp_path, run.recipe.model_copy(update={"draws": 48}))
    with pytest.raises(BadInput, match="nobody can say"):
        open_run(tmp_path, run.recipe.model_copy(update={"success_regex": None}), tree, run.policy)
    with Tree.memory() as empty, pytest.raises(BadInput, match="empty"):
        open_run(tmp_path, run.recipe, empty, run.policy)
    assert load_recipe(run.folder) == run.recipe
    assert kinds_of("all") is None
    assert kinds_of("uncertain+sampled-off") == ("uncertain", "sampled-off")
    with pytest.raises(BadInput, match="unknown set"):
        kinds_of("some")
    assert summary(run)["traces"] == 0
