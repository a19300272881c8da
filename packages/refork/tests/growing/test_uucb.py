from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from refork.errors import BadInput
from refork.growing.selector import Candidates, Surprisal
from refork.growing.uucb import UUCB, _greedy, mixedness, win_rate


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


def test_the_score_is_the_sum_of_its_weighted_terms():
    points = known()
    terms = UUCB(c=0.7, entropy_coef=0.4, scale=2.0).terms(points)
    assert terms["value"] == pytest.approx(win_rate(points.leaves, points.wins))
    assert terms["exploration"] == pytest.approx(0.7 * np.sqrt(np.log(7) / (1 + points.children)))
    assert terms["entropy"] == pytest.approx(0.4 * np.array([0.05, 0.5, 0.25, 0.0]))
    assert terms["score"] == pytest.approx(terms["value"] + terms["exploration"] + terms["entropy"])


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
    assert UUCB(entropy="unseen").terms(known())["entropy"] == pytest.approx(known().unseen)
    assert UUCB().terms(known())["entropy"] == pytest.approx([0.1, 1, 0.5, 0])


def test_choices_carry_their_terms_apart():
    [choice] = UUCB().select(known(), 5, 1)
    assert choice.index == 2
    assert set(choice.terms) == {"value", "exploration", "entropy", "cost", "score"}


def test_a_round_of_several_counts_its_own_choices():
    lone = known(1, entropy=np.array([1.0]))
    assert [c.index for c in UUCB(at_once=3).select(lone, 9, 1)] == [0, 0, 0]
    even = known(3, children=np.ones(3, dtype=int), leaves=np.ones(3, dtype=int), wins=np.zeros(3),
                 entropy=np.ones(3))  # fmt: skip
    assert sorted(c.index for c in UUCB(at_once=3).select(even, 9, 1)) == [0, 1, 2]
    assert len(UUCB(at_once=3).select(even, 2, 1)) == 2


def test_greedy_keeps_its_guarantee_and_binds_its_number():
    """Overlapping coverage: lazy evaluation must ask again for what an earlier choice has covered."""
    worst = 1.0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        weights = rng.random(12)
        covers = [frozenset(np.flatnonzero(rng.random(12) < 0.35).tolist()) for _ in range(6)]

        def value(items, weights=weights, covers=covers):
            return float(sum(weights[e] for e in frozenset().union(*(covers[i] for i in items))))

        found, best = _greedy(value, 6, 4), max(value(c) for c in combinations(range(6), 4))
        assert len(set(found)) == 4
        worst = min(worst, value(found) / best)
    assert worst >= 1 - 1 / np.e
    assert _greedy(lambda items: float(len(items)), 5, 3) == [0, 1, 2]


def test_ties_are_broken_by_the_seed_alone():
    even = known(8, children=np.ones(8, dtype=int), leaves=np.ones(8, dtype=int), wins=np.zeros(8),
                 entropy=np.ones(8), unseen=np.ones(8))  # fmt: skip
    chosen = {seed: UUCB(seed=seed).select(even, 5, 1)[0].index for seed in range(20)}
    assert len(set(chosen.values())) > 3
    assert all(UUCB(seed=s).select(even, 5, 1)[0].index == i for s, i in chosen.items())


@pytest.mark.parametrize(
    "bad", [{"c": -1.0}, {"entropy_coef": -0.1}, {"c": float("nan")}, {"value": "x"}, {"entropy": "x"},
            {"roots": 0}, {"scale": 0.0}],
)  # fmt: skip
def test_settings_that_are_refused(bad):
    with pytest.raises(BadInput):
        UUCB(**bad)


def test_missing_records_are_refused():
    with pytest.raises(BadInput, match="entropy of the next token"):
        UUCB().terms(known(entropy=np.full(4, np.nan)))
    with pytest.raises(BadInput, match="log-probs"):
        UUCB(entropy="unseen").terms(known(unseen=None))
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
