from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import beta as beta_law

from refork.errors import BadInput
from refork.growing.selector import Candidates, Surprisal
from refork.growing.uucb import (
    UUCB,
    coverage,
    coverage_gain,
    exploration,
    mixed_gain,
    mixedness,
    uucb_objective,
    win_rate,
)


def known(n=4, **changes):
    fields = {
        "node": tuple("abcdefgh"[:n]),
        "token": np.full(n, -1),
        "depth": np.arange(n),
        "children": np.array([2, 1, 1, 3, 1, 1, 1, 1][:n]),
        "leaves": np.array([6, 3, 2, 3, 1, 1, 1, 1][:n]),
        "wins": np.array([2.0, 0, 2, 1, 0, 0, 0, 0][:n]),
        "entropy": np.array([0.1, 1.0, 0.5, np.nan, 0, 0, 0, 0][:n]),
        "cost": np.array([20.0, 15, 10, 5, 5, 5, 5, 5][:n]),
        "unseen": np.array([0.5, 0.9, 0.2, 0.0, 0, 0, 0, 0][:n]),
        "drawn": 6,
        "note": "exact",
    }
    return Candidates(**(fields | changes))


LAWS = st.lists(st.floats(0.01, 1), min_size=2, max_size=6).map(lambda w: np.array(w) / sum(w))


@given(LAWS, st.integers(0, 20))
def test_coverage_gains_are_differences_of_coverage(law, n):
    assert coverage_gain(law, n) == pytest.approx(coverage(law, n + 1) - coverage(law, n), abs=1e-9)


@given(LAWS)
def test_gini_and_shannon_are_coverage(law):
    assert coverage_gain(law, 0) == pytest.approx(1)
    assert coverage_gain(law, 1) == pytest.approx(1 - (law**2).sum(), abs=1e-9)
    # sum over n of q (1-q)^n / n is -q ln q: the series is cut where the rest is below 1e-10.
    last = int(np.ceil(np.log(1e-12) / np.log(1 - law.min()))) + 1
    n = np.arange(1, last + 1)
    series = (law[:, None] * (1 - law[:, None]) ** n / n).sum()
    assert series == pytest.approx(-(law * np.log(law)).sum(), abs=1e-9)


@pytest.mark.parametrize(("n", "leaves", "wins"), [(1, 0, 0), (1, 3, 1), (2, 5, 5), (6, 4, 0)])
def test_mixed_gain_is_the_posterior_mean_of_the_gain(n, leaves, wins):
    def gain(p):
        return p**n * (1 - p) + (1 - p) ** n * p

    distribution = beta_law(wins + 0.5, leaves - wins + 0.5)
    exact, _ = quad(lambda p: gain(p) * distribution.pdf(p), 0, 1, limit=200, points=[1e-6, 1 - 1e-6])
    assert mixed_gain([n], [leaves], [wins])[0] == pytest.approx(exact, abs=1e-6)
    assert mixed_gain([0], [leaves], [wins])[0] == 0


@given(st.floats(0, 1), st.integers(1, 30))
def test_the_mixed_chance_is_concave_from_one_draw_on(p, n):
    def mixed(m):
        return 1 - p**m - (1 - p) ** m

    gain = p**n * (1 - p) + (1 - p) ** n * p
    assert mixed(n + 1) - mixed(n) == pytest.approx(gain, abs=1e-9)
    assert mixed(n + 2) - mixed(n + 1) <= gain + 1e-12


@given(st.data())
def test_the_objective_is_monotone_with_diminishing_returns(data):
    size = data.draw(st.integers(1, 5))
    numbers = [st.lists(s, min_size=size, max_size=size) for s in (st.integers(0, 6), st.floats(0, 1))]
    children, counts = data.draw(numbers[0]), data.draw(numbers[0])
    value, heights = data.draw(numbers[1]), data.draw(numbers[1])
    more = data.draw(numbers[0])
    u = data.draw(st.integers(0, size - 1))
    one = np.eye(size, dtype=int)[u]

    def f(c):
        return uucb_objective(c, children, value, heights, 9)

    small, large = np.array(counts), np.array(counts) + np.array(more)
    gain_small, gain_large = f(small + one) - f(small), f(large + one) - f(large)
    assert gain_small >= -1e-12
    assert gain_large <= gain_small + 1e-9


def test_the_score_is_the_marginal_gain_of_the_objective():
    points = known()
    terms = UUCB(c=0.7, entropy_coef=0.4, scale=2.0).terms(points)
    heights = np.nan_to_num(points.entropy) / 2
    value = win_rate(points.leaves, points.wins)
    for u in range(4):
        one = np.eye(4, dtype=int)[u]
        gain = uucb_objective(one, points.children, value, heights, 6, 0.7, 0.4)
        assert terms["score"][u] == pytest.approx(gain, abs=1e-12)
    assert terms["score"] == pytest.approx(terms["value"] + terms["exploration"] + terms["entropy"])
    assert terms["exploration"] == pytest.approx(0.7 * exploration(points.children, 6))


def test_values():
    assert win_rate([0, 1], [0, 1]).tolist() == [0.5, 0.75]
    assert mixedness([0, 1], [0, 1]).tolist() == [1.0, 0.75]
    mixed = UUCB(value="mixed").terms(known())["value"]
    assert mixed == pytest.approx(mixedness(known().leaves, known().wins))


class Critic:
    name = "critic"

    def __init__(self, values):
        self._values = values

    def values(self, candidates):
        return np.array(self._values)


def test_a_source_of_values():
    given = UUCB(value=Critic([0.1, 0.2, np.nan, 1.0])).terms(known())["value"]
    assert given == pytest.approx([0.1, 0.2, win_rate([2], [2])[0], 1.0])
    assert "critic" in UUCB(value=Critic([])).name
    with pytest.raises(BadInput, match=r"\[0, 1\]"):
        UUCB(value=Critic([2.0, 0, 0, 0])).terms(known())


def test_entropy_variants():
    distributions = tuple(
        np.array(distribution) for distribution in ([0.5, 0.5], [0.9, 0.1], [1.0], [0.25] * 4)
    )
    exact = UUCB(entropy="coverage").terms(known(distributions=distributions))["entropy"]
    assert exact == pytest.approx(
        [
            coverage_gain(distribution, n)
            for distribution, n in zip(distributions, known().children, strict=True)
        ]
    )
    assert UUCB(entropy="unseen").terms(known())["entropy"] == pytest.approx(known().unseen)
    assert UUCB().terms(known())["entropy"] == pytest.approx([0.1, 1, 0.5, 0])


def test_choices_carry_their_terms_apart():
    [choice] = UUCB().select(known(), 5, 1)
    assert choice.index == 2
    assert set(choice.terms) == {"value", "exploration", "entropy", "cost", "score"}
    [exact] = UUCB(score="mixed_gain").select(known(), 5, 1)
    assert set(exact.terms) == {"mixed_gain", "cost", "score"}


def test_a_round_of_several_counts_its_own_choices():
    lone = known(1, entropy=np.array([1.0]))
    assert [c.index for c in UUCB(at_once=3).select(lone, 9, 1)] == [0, 0, 0]
    even = known(3, children=np.ones(3, dtype=int), leaves=np.ones(3, dtype=int), wins=np.zeros(3),
                 entropy=np.ones(3))  # fmt: skip
    assert sorted(c.index for c in UUCB(at_once=3).select(even, 9, 1)) == [0, 1, 2]
    assert len(UUCB(at_once=3).select(even, 2, 1)) == 2


def test_gain_per_token_prefers_cheap_points():
    flat = known(entropy=np.ones(4), children=np.ones(4, dtype=int), leaves=np.ones(4, dtype=int),
                 wins=np.zeros(4))  # fmt: skip
    assert UUCB(per_token=True).select(flat, 5, 1)[0].index == 3
    picked = UUCB(per_token=True, at_once=2).select(flat, 5, 1)
    assert picked[0].index == 3


def test_ties_are_broken_by_the_seed_alone():
    even = known(8, children=np.ones(8, dtype=int), leaves=np.ones(8, dtype=int), wins=np.zeros(8),
                 entropy=np.ones(8), unseen=np.ones(8))  # fmt: skip
    chosen = {seed: UUCB(seed=seed).select(even, 5, 1)[0].index for seed in range(20)}
    assert len(set(chosen.values())) > 3
    assert all(UUCB(seed=s).select(even, 5, 1)[0].index == i for s, i in chosen.items())


@pytest.mark.parametrize(
    "bad", [{"c": -1.0}, {"entropy_coef": -0.1}, {"c": float("nan")}, {"value": "x"}, {"entropy": "x"},
            {"score": "x"}, {"roots": 0}, {"scale": 0.0}],
)  # fmt: skip
def test_settings_that_are_refused(bad):
    with pytest.raises(BadInput):
        UUCB(**bad)


def test_missing_records_are_refused():
    with pytest.raises(BadInput, match="entropy of the next token"):
        UUCB().terms(known(entropy=np.full(4, np.nan)))
    with pytest.raises(BadInput, match="log-probs"):
        UUCB(entropy="unseen").terms(known(unseen=None))
    with pytest.raises(BadInput, match="exact distribution"):
        UUCB(entropy="coverage").terms(known())
    with pytest.raises(BadInput, match="over how many tokens"):
        UUCB().terms(known(note=None))
    assert UUCB(entropy_coef=0).terms(known(entropy=np.full(4, np.nan), note=None))["entropy"].sum() == 0


def test_surprisal_forks_the_least_likely_tokens():
    points = known(4, surprisal=np.array([0.1, 2.0, 1.0, 3.0]), children=np.array([1, 1, 1, 2]))
    chooser = Surprisal(roots=1, top=2, draws=3, rounds=1)
    assert [(c.index, c.draws) for c in chooser.select(points, 9, 1)] == [(1, 3), (2, 3)]
    assert chooser.select(points, 9, 2) == []
    with pytest.raises(BadInput, match="log-probs"):
        chooser.select(known(), 9, 1)
