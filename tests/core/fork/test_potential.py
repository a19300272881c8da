from __future__ import annotations

import numpy as np
import pytest

from ramify.core.errors import BadInput, CannotDo
from ramify.core.fork import fork, potential_scores, sweep
from ramify.core.fork.potential import first_passage
from ramify.core.policy.noise import NoiseKey, stream_of, uniforms
from ramify.core.policy.scripted import ScriptedPolicy
from support.chain import PLAIN, TABLE

EXACT = {(): 0.55, (" think",): 0.9, (" guess",): 0.2}


def trace(tree, start, policy, judge, text):
    base = fork(start, policy, 60, settings=PLAIN, judge=judge)
    return tree.at(next(w.leaf for w in base.leaves() if w.leaf.text == text))


def noise(draw, length):
    return uniforms([NoiseKey(3, stream_of("test"), draw)], length)[0]


def test_every_point_is_served_by_at_least_the_draws_asked_for():
    follow = np.array([0.9, 0.5, 0.99, 0.2, 1.0])
    passage = first_passage(follow, np.ones(5, dtype=bool), 64, noise)
    assert all(passage.serving(b).sum() == 64 for b in range(5))
    assert (passage.leave >= passage.start).all()


def test_a_trace_that_is_never_followed_costs_all_draws_everywhere():
    passage = first_passage(np.zeros(4), np.ones(4, dtype=bool), 10, noise)
    assert len(passage.start) == 40
    assert (passage.leave == passage.start).all()


def test_a_certain_trace_costs_no_continuation():
    passage = first_passage(np.ones(6), np.ones(6, dtype=bool), 16, noise)
    assert len(passage.start) == 16
    assert (passage.leave == 6).all()


def test_unwanted_points_are_passed_but_not_topped_up():
    wanted = np.array([True, False, False, True])
    passage = first_passage(np.full(4, 0.5), wanted, 32, noise)
    assert passage.serving(3).sum() == 32
    assert passage.serving(1).sum() < 32
    assert set(passage.start.tolist()) <= {0, 3}


def test_departures_have_the_law_of_the_trace():
    # 20,000 draws, three geometric shares: 4.5 standard errors, wrong once in 100,000 seeds.
    follow = np.array([0.8, 0.6, 0.3])
    passage = first_passage(follow, np.array([True, False, False]), 20_000, noise)
    share = np.bincount(passage.leave, minlength=4) / 20_000
    expected = np.array([0.2, 0.8 * 0.4, 0.48 * 0.7, 0.48 * 0.3])
    assert np.all(abs(share - expected) < 4.5 * np.sqrt(expected * (1 - expected) / 20_000))


@pytest.mark.parametrize("reuse", [True, False])
def test_values_are_unbiased(tree, start, policy, judge, reuse):
    # 3,000 draws a point: 4.5 standard errors, wrong once in 50,000 seeds.
    end = trace(tree, start, policy, judge, " guess wrong")
    result = sweep(end, policy, 3000, reuse=reuse, judge=judge)
    exact = [0.55, 0.2, 0.0]
    for value, true, count in zip(result.value, exact, result.count, strict=True):
        assert count >= 3000
        assert value == pytest.approx(true, abs=4.5 * max(true * (1 - true) / 3000, 1e-12) ** 0.5 + 1e-12)
    assert result.outcome == 0.0


def test_reuse_saves_continuations(tree, start, policy, judge):
    end = trace(tree, start, policy, judge, " guess wrong")
    with_reuse = sweep(end, policy, 64, judge=judge)
    without = sweep(end, policy, 64, reuse=False, judge=judge)
    assert without.sampled == without.served == 3 * 64
    assert with_reuse.served >= 3 * 64
    assert with_reuse.sampled < 0.7 * without.sampled


def test_the_steepest_fall_is_found(tree, start, policy, judge):
    result = sweep(trace(tree, start, policy, judge, " guess wrong"), policy, 200, judge=judge)
    assert result.steepest() == 0, "0.55 -> 0.20 is the largest fall"


def test_a_sweep_again_draws_nothing(tree, start, policy, judge):
    end = trace(tree, start, policy, judge, " think right")
    one = sweep(end, policy, 50, judge=judge)
    two = sweep(end, policy, 50, judge=judge)
    assert two.tokens == 0
    assert np.array_equal(one.value, two.value)


def test_more_draws_later_stay_exact(tree, start, policy, judge):
    end = trace(tree, start, policy, judge, " think right")
    sweep(end, policy, 20, judge=judge)
    larger = sweep(end, policy, 400, judge=judge)
    assert larger.value[0] == pytest.approx(0.55, abs=0.12)
    assert larger.value[1] == pytest.approx(0.9, abs=0.08)


def test_a_resampled_departure_never_repeats_the_trace(tree, start, policy, judge):
    end = trace(tree, start, policy, judge, " guess wrong")
    sweep(end, policy, 64, judge=judge)
    token = end.node.tokens
    for node in tree.walk(start.node.id):
        if "excluded_first" in node.extra:
            kept = node.keep if node.parent == end.node.id else 0
            assert node.tokens[0] != token[kept or 0]


def test_scores_are_per_token(tree, start, policy, judge):
    end = trace(tree, start, policy, judge, " guess wrong")
    result = sweep(end, policy, 64, judge=judge)
    producer, scores = potential_scores(result, policy, 0, 64)
    tree.add_producer(producer)
    tree.add_scores(scores)
    stored = list(tree.scores(node=end.node.id, name="potential"))
    assert stored[0].value.shape == (end.node.length,)


def test_refusals(tree, start, policy, judge):
    end = trace(tree, start, policy, judge, " guess wrong")
    with pytest.raises(BadInput, match="'token' or 'turn'"):
        sweep(end, policy, 4, every="word", judge=judge)
    with pytest.raises(BadInput, match="at least 1"):
        sweep(end, policy, 0, judge=judge)
    with pytest.raises(BadInput, match="no sampled action"):
        sweep(start, policy, 4, judge=judge)
    with pytest.raises(CannotDo, match="reuse=False"):
        sweep(end, policy, 4, settings=PLAIN.but(temperature=0.5), judge=judge)


def test_a_longer_chain_is_unbiased_with_filters(tree, judge):
    # A six-token chain under top-p and temperature, against exact values by recursion.
    table = {
        "": {" a": 0.7, " b": 0.3},
        " a": {" a2": 0.6, " b": 0.25, " c": 0.15},
        " a2": {" right": 0.5, " wrong": 0.5},
        " b": {" right": 0.1, " wrong": 0.9},
        " c": {" right": 0.95, " wrong": 0.05},
        " right": {"": 1.0},
        " wrong": {"": 1.0},
    }
    policy = ScriptedPolicy.from_chain(table)
    law = PLAIN.but(temperature=1.3, top_p=0.95)

    def chances(state):
        names, p = zip(*table[state].items(), strict=True)
        q = np.array(p) ** (1 / 1.3)
        q /= q.sum()
        order = np.argsort(-q)
        keep = order[: int(np.searchsorted(np.cumsum(q[order]), 0.95) + 1)]
        r = np.zeros(len(q))
        r[keep] = q[keep] / q[keep].sum()
        return dict(zip(names, r, strict=True))

    def value(state):
        if state in (" right", " wrong"):
            return float(state == " right")
        return sum(p * value(s) for s, p in chances(state).items())

    from ramify.core.grow.plant import plant_prompt

    begin = plant_prompt(tree, policy, "Well?")
    base = fork(begin, policy, 80, settings=law, judge=judge)
    leaf = next(w.leaf for w in base.leaves() if w.leaf.text == " a a2 wrong")
    result = sweep(tree.at(leaf), policy, 4000, judge=judge)
    exact = [value(""), value(" a"), value(" a2"), 0.0]
    # 4,000 draws a point, four points: 4.5 standard errors, wrong once in 30,000 seeds.
    assert result.value == pytest.approx(np.array(exact), abs=4.5 * 0.5 / 4000**0.5)


def test_table_is_a_law():
    assert all(sum(law.values()) == pytest.approx(1) for law in TABLE.values())


def test_what_nobody_graded_gets_no_score(tree, start, policy, judge):
    end = trace(tree, start, policy, judge, " guess wrong")
    blind = sweep(tree.at(fork(start, policy, 1, settings=PLAIN, seed=9).leaves()[0].leaf), policy, 4)
    assert np.isnan(blind.value).any()
    _, scores = potential_scores(blind, policy, 0, 4)
    assert scores == []
    assert potential_scores(sweep(end, policy, 8, judge=judge), policy, 0, 8)[1]
