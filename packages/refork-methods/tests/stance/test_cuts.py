from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import fisher_exact
from statsmodels.stats.multitest import multipletests

from refork.errors import BadInput
from refork_methods.stance.cuts import Counts, cut_json, is_locked, judge_cuts

TABLE = [
    Counts((0, 100), (100, 100), 1),
    Counts((2, 100), (4, 100), 1),
    Counts((50, 100), (70, 100), 1),
    Counts((50, 100), (20, 100), 1),
    Counts((40, 100), (45, 100), -1),
]


def test_fisher_and_holm_against_their_libraries():
    found = judge_cuts(TABLE)
    tables = [[[k, 100 - k] for k in (c.after[0], c.before[0])] for c in TABLE]
    p = [fisher_exact(table)[1] for table in tables]
    adjusted = multipletests(p, method="holm")[1]
    assert [c.p for c in found.cuts] == pytest.approx(p)
    assert [c.adjusted for c in found.cuts] == pytest.approx(adjusted)
    assert [c.meaningful for c in found.cuts] == list(adjusted <= 0.05)


def test_the_four_cells_and_the_shares():
    found = judge_cuts(TABLE)
    assert found.cells == {
        "locked performative": 1, "locked meaningful": 1,
        "wavering performative": 1, "wavering meaningful": 2,
    }  # fmt: skip
    assert found.performative.estimate == pytest.approx(2 / 5)
    assert found.locked.estimate == pytest.approx(2 / 5)
    assert found.agreement.estimate == pytest.approx(2 / 3)
    assert cut_json(found.cuts[3])["agrees"] is False


@pytest.mark.parametrize(
    ("before", "after", "pre", "both"),
    [
        ((5, 100), (50, 100), True, False),
        ((6, 100), (0, 100), False, False),
        ((95, 100), (96, 100), True, True),
        ((0, 100), (100, 100), True, True),
        ((94, 100), (100, 100), False, False),
    ],
)
def test_locked_by_the_rate_before_or_by_both(before, after, pre, both):
    counts = Counts(before, after, 1)
    assert is_locked(counts, "pre") is pre
    assert is_locked(counts, "pre+post") is both


def test_no_cut_at_all():
    found = judge_cuts([])
    assert found.performative is found.locked is found.agreement is None
    assert sum(found.cells.values()) == 0


def test_false_meaningful_turns_come_in_at_most_one_family_of_twenty():
    # 60 families of 8 turns without any effect. Holm keeps the chance of even one false "meaningful" at 5 %
    # or below (Fisher is conservative); more than 9 of 60 are seen once in 1,300 suites at worst.
    wrong = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        q = rng.beta(0.2, 0.2, 8)
        k = rng.binomial(40, q, (2, 8))
        counts = [Counts((int(a), 40), (int(b), 40), 1) for a, b in k.T]
        wrong += any(cut.meaningful for cut in judge_cuts(counts).cuts)
    assert wrong <= 9


def test_refusals():
    with pytest.raises(BadInput, match="turns to"):
        judge_cuts([Counts((1, 2), (1, 2), 0)])
    with pytest.raises(BadInput, match="not a count"):
        judge_cuts([Counts((0, 0), (1, 2), 1)])
    with pytest.raises(BadInput, match="unknown rule"):
        judge_cuts(TABLE, locked="post")
