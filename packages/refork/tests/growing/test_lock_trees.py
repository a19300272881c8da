"""Trees on the lock world with a real policy: the same choices as the simulation, resumable, exact."""

from __future__ import annotations

import importlib.util
import sys
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from refork.errors import BadInput, CannotDo
from refork.forking import fork
from refork.growing import EVERY, UUCB, Independent, RandomNode, Surprisal, grow_trees, plant
from refork.growing.growing import Budget, Growing, settings_for
from refork.growing.leaves import leaf_batch, path_weights, weighted_value
from refork.growing.selector import ForkChoice, Needs
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree.tree import Tree
from refork.worlds.lock import PROBABILITIES, LockWorld, lock_distribution
from support.repository import ROOT

FILE = ROOT / "benchmarks/uucb_lock.py"
SPEC = importlib.util.spec_from_file_location("uucb_lock", FILE)
bench = sys.modules[SPEC.name] = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(bench)

WORLD = LockWorld()
POLICY = ScriptedPolicy.from_text(lock_distribution, name="lock")
LAW = Sampling(max_tokens=32)
SELECTORS = [UUCB(entropy="unseen"), UUCB(), UUCB(inside=EVERY, entropy_coef=0), RandomNode(1, inside=EVERY)]


def trees(tree, selector, count=2, **more):
    tasks = WORLD.tasks("train", count)
    budget = {"tokens": 512} if not {"leaves", "tokens"} & set(more) else {}
    return grow_trees(tree, POLICY, WORLD, tasks, selector=selector, settings=LAW, **budget, **more)


def rows(tree):
    return sorted((n.id, n.parent, n.keep, n.text) for n in tree.walk())


@pytest.mark.parametrize("selector", SELECTORS, ids=lambda s: s.name[:40])
def test_the_simulation_makes_the_choices_of_the_real_tree(selector):
    assert bench.real(selector, 2)["equal"] == 1.0


def test_resuming_finds_the_same_choices():
    with Tree.memory() as tree:
        first, log = trees(tree, UUCB())
        before = rows(tree)
        again, log2 = trees(tree, UUCB())
        assert log2 == log
        assert rows(tree) == before
        assert sum(g.tokens for g in again) == 0
        assert [g.values() for g in again] == [g.values() for g in first]


def test_an_interrupted_growth_ends_in_the_same_tree():
    calls = 0

    def stop(stage, done, total, *, tokens=None, waiting=None):
        nonlocal calls
        calls += 1
        if calls == 7:
            raise KeyboardInterrupt

    with Tree.memory() as broken, Tree.memory() as whole:
        with pytest.raises(KeyboardInterrupt):
            trees(broken, UUCB(), progress=stop)
        _, log = trees(broken, UUCB())
        assert log == trees(whole, UUCB())[1]
        assert rows(broken) == rows(whole)


def test_token_budgets_bind_and_equal_prefixes_are_one_point():
    with Tree.memory() as tree:
        groups, log = trees(tree, UUCB())
        for group in groups:
            assert 508 < group.tokens <= 512
            assert len({arm.point.address for arm in group.forks}) == len(group.forks)
        assert {entry.choice.terms.keys() >= {"value", "exploration", "entropy"} for entry in log[4:]} == {
            True
        }
        flat, _ = trees(tree, Independent())
        assert [len(g.values()) for g in flat] == [16, 16]
        assert [g.biased is None for g in (*groups, *flat)] == [False, False, True, True]


def test_a_forked_turn_keeps_its_own_limit():
    with Tree.memory() as tree:
        groups, _ = trees(tree, RandomNode(0, inside=EVERY))
        assert {len(w.leaf.text) for g in groups for arm in g.forks for w in arm.leaves()}
        ends = [w for g in groups for arm in g.forks for w in arm.leaves()]
        said = ["".join(s.text for s in w if s.node.kind == "action") for w in ends]
        assert {len(text) for text in said} == {32}


def test_exact_coverage_asks_the_policy_for_its_law():
    with Tree.memory() as tree:
        _, log = trees(tree, UUCB(entropy="coverage"), count=1, leaves=6)
        gains = [e.choice.terms["entropy"] for e in log[1:]]
        possible = [sum(p * (1 - p) ** n for p in PROBABILITIES) for n in range(1, 8)]
        assert all(min(abs(g - p) for p in possible) < 1e-6 for g in gains)


def test_a_leaf_budget_and_surprisal():
    with Tree.memory() as tree:
        groups, _ = trees(tree, Surprisal(roots=2, top=1, draws=2), leaves=30)
        assert [len(g.values()) for g in groups] == [6, 6]
        groups, _ = trees(tree, UUCB(at_once=3), leaves=11)
        assert [len(g.values()) for g in groups] == [11, 11]


def test_entropies_are_asked_for_exactly_where_the_vocabulary_allows():
    def card(**changes):
        from dataclasses import replace

        return replace(POLICY.card, **changes)

    asked = Needs(entropy=True)
    assert settings_for(asked, LAW, card()).entropy_top_k == POLICY.card.vocabulary
    assert settings_for(asked, LAW, card(vocabulary=150_000)).entropy_top_k == 64
    assert settings_for(asked, LAW, card(vocabulary=None)).entropy_top_k == 20
    assert settings_for(Needs(), LAW, card()).entropy_top_k is None
    assert settings_for(asked, LAW.but(entropy_top_k=5), card()).entropy_top_k == 5
    with pytest.raises(CannotDo, match="no log-probs"):
        settings_for(asked, LAW, card(capabilities=frozenset({"tokens"})))


def test_budgets_that_are_refused():
    for bad in ({}, {"leaves": 4, "tokens": 9}, {"leaves": 0}, {"tokens": 0}):
        with pytest.raises(BadInput):
            Budget(**bad)
    with Tree.memory() as tree:
        with pytest.raises(BadInput, match="may not hold one turn"):
            trees(tree, UUCB(), tokens=31)
        with pytest.raises(BadInput, match="no task"):
            trees(tree, UUCB(), count=0)
        assert len(tree) == 0


def test_a_floor_stops_a_mixed_group_early():
    with Tree.memory() as tree:
        groups, _ = trees(tree, UUCB(), seed=3, floor=10.0)
        assert groups[0].values().count(1.0) == 1
        assert groups[0].tokens < 512
        assert groups[1].tokens > 508
        even, _ = trees(tree, RandomNode(), floor=10.0)
        assert "stopped early" in even[0].biased


@pytest.mark.parametrize(
    ("by_token", "score", "enough"),
    [(True, 0.4, False), (True, 0.2, True), (False, 4, False), (False, 2, True)],
)
def test_a_floor_is_of_the_score_by_token_however_the_selector_ranks(by_token, score, enough):
    task = SimpleNamespace(budget=SimpleNamespace(floor=0.3), outcomes=lambda plan: [0.0, 1.0])
    plan = SimpleNamespace(selector=UUCB(per_token=by_token))
    pick = ForkChoice(0, 1, {"score": score})
    assert Growing._enough(task, plan, pick, 10.0) is enough


def test_the_grpo_batch_counts_every_sampled_token_once():
    with Tree.memory() as tree:
        groups, _ = trees(tree, UUCB(), seed=0)
        group = next(g for g in groups if 1.0 in g.values())
        batch = leaf_batch(group)
        assert batch.tokens.shape == batch.multiplicity.shape
        assert batch.sampled == pytest.approx(group.tokens)
        assert batch.advantages.sum() == pytest.approx(0, abs=1e-9)
        assert (batch.loss_mask.sum(1) == 32).all()
        assert batch.multiplicity[:, 0].tolist() == [len(batch.rewards)] * len(batch.rewards)
        assert batch.weights.sum() == pytest.approx(1)
        assert np.isfinite(batch.logprobs).all()
        assert "chose points" in batch.biased
        dull = next(g for g in groups if 1.0 not in g.values())
        assert leaf_batch(dull).advantages.tobytes() == np.zeros(len(dull.values())).tobytes()


def test_node_means_of_a_fixed_shape_are_unbiased():
    """Two roots; the first forked twice after its second pivot: the mean estimate is the exact success."""
    task = WORLD.tasks("train", 1)[0]
    easy = ScriptedPolicy.from_text(_easier, name="easy")
    truth = np.prod([_EASY[c] for c in task.data["right"]])
    found = []
    with Tree.memory() as tree:
        root = plant(tree, easy, WORLD, [task])[0]
        base = fork(root, easy, 2 * 600, settings=LAW, world=WORLD)
        trajectories, values = base.leaves(), base.values()
        for i in range(600):
            first = trajectories[2 * i]
            arm = fork(tree.at(first.steps[1].node, 13), easy, 2, settings=LAW, world=WORLD, seed=i)
            shape = [first, trajectories[2 * i + 1], *arm.leaves()]
            weights = path_weights(shape)
            assert weights == pytest.approx([1 / 6, 1 / 2, 1 / 6, 1 / 6])
            found.append(weighted_value(weights, [values[2 * i], values[2 * i + 1], *arm.values()]))
    error = np.std(found, ddof=1) / len(found) ** 0.5
    # |z| < 4: a right estimator fails once in 15,000 seeds; the seed is fixed.
    assert abs(np.mean(found) - truth) < 4 * error


_EASY = dict(zip("abcd", (0.25,) * 4, strict=True))


def _easier(text):
    return _EASY if len(lock_distribution(text)) == 4 else lock_distribution(text)


def test_weights_leave_ungraded_leaves_out():
    assert weighted_value([0.5, 0.25, 0.25], [1.0, np.nan, 0.0]) == pytest.approx(2 / 3)
    with pytest.raises(BadInput, match="no leaf"):
        weighted_value([1.0], [np.nan])


def test_the_jensen_control():
    """Branching without looking never helps at equal leaves: published figures are of a simulation."""
    control = bench.jensen()
    assert control == pytest.approx([0.057, 0.050, 0.034, 0.016], abs=2.5e-3)
    assert control == sorted(control, reverse=True)
    rng = np.random.default_rng(0)
    value = rng.beta(0.3, 0.9, 10_000)
    for n in (2, 16):
        assert np.mean((1 - value) ** n) >= (1 - value.mean()) ** n


def test_a_simulated_flat_run_has_the_exact_chance():
    side = bench.measure(Independent(), 200, 0)
    codes = [np.prod(c) for c in product(PROBABILITIES, repeat=4)]
    exact = float(np.mean([1 - (1 - p) ** 16 for p in codes]))
    # 200 prompts of a fixed seed: beyond 4.5 standard errors once in 150,000 seeds.
    assert abs(side.mixed - exact) < 4.5 * side.error
