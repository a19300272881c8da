from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from refork.errors import BadInput, CannotDo, Mismatch
from refork.forking import plan_sweep, run_sweep, sweep
from refork.forking.potential import first_passage, pair_up
from refork.growing import grow
from refork.growing.plant import plant_prompt
from refork.judge import MatchJudge, Verdict
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree.node import NewNode
from refork.tree.score import Producer
from refork_methods.cliff.planted import flat_chain, planted_chain, record_trace
from refork_methods.cliff.records import token_rows
from refork_methods.cliff.scan import Nominee, looks, nominate, scan, token_potential
from refork_methods.cliff.table import cliff_table
from refork_methods.cliff.verify import as_published, verify
from support.worlds import TwoTurns


@dataclass(frozen=True)
class Silent:
    """Grades nothing, or only every other trajectory."""

    every: int = 0
    score: str = "success"

    @property
    def producer(self):
        return Producer("silent", "1", {"every": self.every})

    def judge(self, trajectory):
        if self.every and trajectory.leaf.length % self.every == 0:
            return Verdict(float("right" in trajectory.leaf.text))
        return Verdict(None)


def test_potentials_are_the_exact_values(planted, judge):
    # 2,000 draws a boundary, 13 boundaries: 4.5 standard errors each, wrong once in 10,000 seeds.
    chain, policy, end = planted
    found = token_potential(end, policy, 2000, sequential=False, judge=judge)
    value = found.curve.value
    assert len(value) == 13, "12 tokens, V_0 and V_T are there"
    error = np.sqrt(chain.values * (1 - chain.values) / 2000)
    assert np.all(np.abs(value - chain.values) <= 4.5 * error + 1e-12)
    assert value[-1] == 0.0
    assert found.curve.drop.sum() == pytest.approx(value[0])
    assert np.allclose(found.curve.chance, chain.chances, atol=1e-6)


def test_reuse_costs_what_the_theory_says(tree, judge):
    # Continuations: N at the start and N (1 - pi) at every later boundary, on average.
    chain = flat_chain(60, 0.5, 0.5, chance=0.87)
    policy = chain.policy()
    end = record_trace(plant_prompt(tree, policy, "Well?"), policy, chain.text)
    plan = plan_sweep(end, policy, 64, judge=judge)
    expected = 64 * (1 + (1 - chain.chances[:-1]).sum())
    assert plan.continuations == pytest.approx(expected, rel=0.15)
    assert 60 * 64 / plan.continuations >= 5


def test_the_paired_error_is_right(tree, judge):
    # 120 repetitions of one boundary pair: the mean of the squared errors against the true variance. The
    # ratio has a standard error of about 0.13; 0.45 is wrong once in 2,000 seeds.
    chain = flat_chain(4, 0.6, 0.3, at=[1], chance=0.7, low=0.5)
    policy = chain.policy()
    end = record_trace(plant_prompt(tree, policy, "Well?"), policy, chain.text)
    drops, errors = [], []
    for seed in range(120):
        found = sweep(end, policy, 32, at=[1, 2], judge=judge, seed=seed)
        drops.append(found.paired.mean()[0])
        errors.append(found.paired.error()[0])
    truth = np.var(drops, ddof=1)
    assert np.mean(np.square(errors)) / truth == pytest.approx(1.0, abs=0.45)
    assert np.mean(drops) == pytest.approx(0.3, abs=4.5 * (truth / 120) ** 0.5)


def test_draws_that_serve_both_points_are_their_own_partners():
    passage = first_passage(
        np.array([0.5, 0.5]), np.ones(2, dtype=bool), 200, lambda d, n: np.random.default_rng(d).random(n)
    )
    values = np.random.default_rng(1).integers(0, 2, len(passage.start)).astype(float)
    paired = pair_up(passage, np.array([0, 1]), values, 0.0)
    assert paired.count[0] == 200
    both = passage.serving(0) & passage.serving(1)
    assert paired.square[0] <= 200 - both.sum()
    assert paired.total[1] == values[passage.serving(1)].sum()


def test_an_ungraded_draw_leaves_with_its_partner():
    passage = first_passage(np.zeros(2), np.ones(2, dtype=bool), 4, lambda d, n: np.full(n, 0.5))
    values = np.array([1.0, np.nan, 1.0, 0.0, 0.0, 0.0, np.nan, 0.0])
    paired = pair_up(passage, np.array([0, 1]), values, None)
    assert paired.count.tolist() == [2, 0]
    assert paired.total[0] == 1.0


def test_the_planted_cliff_is_found_and_proven(planted, judge):
    _, policy, end = planted
    found = token_potential(end, policy, 64, judge=judge, seed=1)
    nominees = nominate(found)
    assert 5 in [n.index for n in nominees]
    cliffs = verify(nominees, policy, 64, judge=judge, seed=1)
    real = [c for c in cliffs if c.real]
    assert [c.nominee.index for c in real] == [5]
    assert real[0].nominee.text == " t6"
    assert real[0].kind == "sampled-off"
    assert real[0].drop <= real[0].possible + 0.2
    assert real[0].chance == pytest.approx(0.2)


def test_deterministic_nominees_vanish_on_a_retest(tree, judge):
    # A flat trace at 0.5 whose tokens have pi = 0.992. Whatever noise nominates them (here all are), with
    # each re-test below 0.05 at most once in 280 (exact) none of 30 survives; 1 seed in 100 shows p < 0.001.
    chain = planted_chain([0.5] * 31 + [0.0], [0.992] * 30 + [0.5])
    policy = chain.policy()
    end = record_trace(plant_prompt(tree, policy, "Well?"), policy, chain.text)
    found = token_potential(end, policy, 64, judge=judge)
    assert not any(n.index < 30 for n in nominate(found)), "ours never tests them"
    points = found.points
    everything = [Nominee(found, t, points[t], points[t + 1]) for t in range(30)]
    cliffs = verify(everything, policy, 64, judge=judge)
    assert {c.kind for c in cliffs} == {"deterministic"}
    assert not any(c.real for c in cliffs)
    assert max(c.possible for c in cliffs) < 0.01


def test_the_published_test_reads_each_side_from_a_scan_of_its_own(tree, judge):
    chain = planted_chain([0.5] * 66 + [0.0], [0.992] * 65 + [0.5])
    policy = chain.policy()
    end = record_trace(plant_prompt(tree, policy, "Well?"), policy, chain.text)
    sides = [token_potential(end, policy, 16, sequential=False, judge=judge, seed=s) for s in (1, 2)]
    full = np.full(66, 64)
    after = replace(sides[1], curve=replace(sides[1].curve, wins=np.arange(-1.0, 65.0), draws=full))
    # Row by row of the paper's table: as many successes before each token, 0 to 64 behind it.
    for wins in (0, 11, 12, 32, 40, 64):
        before = replace(sides[0], curve=replace(sides[0].curve, wins=np.full(66, float(wins)), draws=full))
        found = as_published(before, after, policy)
        assert [c.nominee.index for c in found] == np.flatnonzero(cliff_table()[wins]).tolist()
        assert all(c.kind == "deterministic" and not c.real and c.sampled == 0 for c in found)
        assert [c.after for c in found] == [(c.nominee.index, 64) for c in found]
    few = replace(before, curve=replace(before.curve, draws=np.full(66, 15)))
    assert as_published(few, after, policy) == []
    with pytest.raises(BadInput, match="two scans of one trace"):
        as_published(before, before, policy)


def test_stopping_early_saves_and_still_finds(planted, judge):
    _, policy, end = planted
    short = token_potential(end, policy, 128, judge=judge, seed=2)
    whole = token_potential(end, policy, 128, sequential=False, judge=judge, seed=2)
    assert short.curve.sampled < whole.curve.sampled
    assert 5 in [n.index for n in nominate(short)]
    assert looks(64) == [16, 16, 32]
    assert sum(looks(50)) == 50


def test_the_budget_is_kept_to_the_continuation(planted, judge):
    _, policy, end = planted
    full = token_potential(end, policy, 64, judge=judge, seed=3).curve.sampled
    two = list(scan([end, end], policy, 64, judge=judge, seed=3, budget=full + 10))
    assert [t.complete for t in two] == [True, False]
    assert sum(t.curve.sampled for t in two) <= full + 10
    none = token_potential(end, policy, 64, judge=judge, seed=9, room=5)
    assert not none.complete
    assert none.curve.sampled == 0


def test_a_scan_again_draws_nothing(planted, judge, tree):
    _, policy, end = planted
    one = token_potential(end, policy, 64, judge=judge, seed=4)
    size = len(tree)
    two = token_potential(end, policy, 64, judge=judge, seed=4)
    assert len(tree) == size
    assert np.array_equal(one.curve.wins, two.curve.wins)


def test_a_plan_costs_nothing(planted, judge, tree):
    _, policy, end = planted
    size = len(tree)
    plan = plan_sweep(end, policy, 16, judge=judge)
    assert len(tree) == size
    assert run_sweep(plan, judge=judge).sampled <= plan.continuations


def test_ungraded_is_not_wrong(planted):
    _, policy, end = planted
    with pytest.raises(BadInput, match="ungraded is not wrong"):
        token_potential(end, policy, 16, judge=Silent())
    found = token_potential(end, policy, 64, sequential=False, judge=Silent(every=2), seed=1)
    assert (found.curve.draws < 64).any()
    known = found.curve.draws > 0
    assert np.all(found.curve.wins[known] <= found.curve.draws[known])


def test_refusals(planted, judge, tree):
    _, policy, end = planted
    with pytest.raises(BadInput, match="15 draws"):
        token_potential(end, policy, 15, judge=judge)
    with pytest.raises(BadInput, match="nobody can say"):
        token_potential(end, policy, 16)
    with pytest.raises(Mismatch, match="another distribution"):
        token_potential(end, policy, 16, judge=judge, settings=Sampling(temperature=0.7))
    with pytest.raises(BadInput, match="temperature 1"):
        record_trace(plant_prompt(tree, policy, "x"), policy, " t1", Sampling(top_k=2))
    with pytest.raises(BadInput, match="boundary 99"):
        sweep(end, policy, 16, at=[99], judge=judge)
    root = plant_prompt(tree, policy, "Say.")
    bare = tree.append([NewNode(kind="action", parent=root.node.id, text=" t1", finish="stop")])[0]
    with pytest.raises(CannotDo, match="without token ids"):
        token_potential(tree.at(bare), policy, 16, judge=judge)


def test_a_failed_scan_leaves_the_tree_as_it_was(planted, tree):
    _, policy, end = planted
    before = len(tree)
    with pytest.raises(BadInput):
        token_potential(end, policy, 16)
    assert len(tree) == before
    assert not list(tree.producers())


def test_turns_of_a_world_are_scanned_and_their_last_answer_needs_no_ids(tree):
    # Both turns must say " a": 0.36 at the start, 0.6 after one, 0 after a " b".
    distribution = {"": {" a": 0.6, " b": 0.4}, " a": {"": 1.0}, " b": {"": 1.0}}
    policy, world = ScriptedPolicy.from_chain(distribution), TwoTurns()
    group = grow(
        tree, policy, world, world.tasks("train", 1), draws=40, settings=Sampling(max_tokens=3), seed=1
    )[0]
    trajectories = [
        w for w in group.forks[0].leaves() if [s.text for s in w if s.node.kind == "action"] == [" a", " b"]
    ]
    found = token_potential(tree.at(trajectories[0].leaf), policy, 400, sequential=False, world=world)
    # 400 draws: 4.5 standard errors, four values, wrong once in 30,000 seeds.
    assert found.curve.value == pytest.approx([0.36, 0.6, 0.6, 0.0, 0.0], abs=4.5 * 0.5 / 20)
    cliffs = verify(nominate(found), policy, 64, world=world)
    assert [c.nominee.text for c in cliffs if c.real] == [" b"]


def test_a_regex_judge_is_enough(planted):
    _, policy, end = planted
    assert token_potential(end, policy, 16, judge=MatchJudge("right")).curve.outcome == 0.0


def test_graded_outcomes_that_sum_to_a_whole_number_get_no_interval_of_wins(planted, judge):
    _, policy, end = planted
    found = token_potential(end, policy, 16, judge=judge, sequential=False)
    assert all(row["low"] is not None for row in token_rows(found, policy))
    wins = found.curve.wins.copy()
    wins[0], wins[1] = 1.0, 1.5
    graded = replace(found, curve=replace(found.curve, wins=wins))
    assert [row["low"] for row in token_rows(graded, policy)] == [None] * len(wins)
