"""Trees on the lock world with a real policy: the same choices as the simulation, resumable, exact."""

from __future__ import annotations

import importlib.util
import sys
from itertools import product

import numpy as np
import pytest

from refork.errors import BadInput, CannotDo
from refork.growing import EVERY, UUCB, Independent, RandomNode, Surprisal, grow_trees
from refork.growing.growing import Budget, settings_for
from refork.growing.selector import Needs
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
