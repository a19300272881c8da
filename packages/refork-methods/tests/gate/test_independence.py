"""Independence given the outcome: degrees of freedom, degenerate critics, duplicates, error rate."""

import numpy as np
import pytest

from refork.errors import BadInput, CannotDo
from refork_methods.gate.independence import g_squared, independence
from refork_methods.gate.model import Critic, CriticModel, Kernel
from refork_methods.gate.planted import planted_records
from refork_methods.gate.records import Record

NAMES = ("syntax", "lint", "test", "review")
FOUR = CriticModel(
    0.5,
    tuple(
        Critic(name, a, b, 1)
        for name, a, b in zip(NAMES, (0.9, 0.8, 0.85, 0.7), (0.6, 0.5, 0.4, 0.3), strict=True)
    ),
    Kernel(0.5, 0.5),
)


def test_g_squared_is_scipys():
    from scipy.stats import power_divergence

    rng = np.random.default_rng(0)
    table = rng.random((300, 3)) < [0.3, 0.6, 0.8]
    g2, df, expected = g_squared(table)
    cells = np.bincount(table @ np.array([4, 2, 1]), minlength=8)
    assert df == 4
    assert expected.sum() == pytest.approx(300)
    assert g2 == pytest.approx(
        power_divergence(cells, expected, lambda_="log-likelihood").statistic, rel=1e-12
    )
    assert expected[0b101] == pytest.approx(
        300 * table[:, 0].mean() * (1 - table[:, 1].mean()) * table[:, 2].mean()
    )


def test_four_critics_have_11_and_22_degrees_of_freedom():
    report = independence(planted_records(FOUR, 400, steps=1))
    assert [one.df for one in report.strata] == [11, 11]
    assert report.df == 22
    assert report.g2 == pytest.approx(sum(one.g2 for one in report.strata))
    assert report.cases == 400


def test_a_degenerate_critic_is_told_and_taken_out():
    always = CriticModel(0.5, (Critic("syntax", 1.0, 0.6, 1), *FOUR.critics[1:]), FOUR.kernel)
    report = independence(planted_records(always, 400, steps=1))
    right, wrong = report.strata
    assert (right.degenerate, right.df) == (("syntax",), 4)
    assert (wrong.degenerate, wrong.df) == ((), 11)
    assert report.df == 15
    assert any("among right candidates syntax never varies" in words for words in report.warnings)
    pair = next(p for p in report.pairs if (p.first, p.second) == ("syntax", "test"))
    assert pair.v_right is None
    assert pair.v_wrong is not None


def test_low_expected_counts_are_told_and_shuffled():
    report = independence(planted_records(FOUR, 60, steps=1))
    assert all(one.low and one.min_expected < 5 for one in report.strata)
    assert all(0 < one.p_shuffled <= 1 for one in report.strata)
    assert any("expect fewer than 5 cases" in words for words in report.warnings)
    many = independence(planted_records(FOUR, 6000, steps=1), ["lint", "review"])
    assert all(not one.low and one.p_shuffled is None for one in many.strata)


def test_an_undeclared_duplicate_is_flagged():
    report = independence(planted_records(FOUR, 200, steps=1, copies={"again": "test"}))
    assert report.duplicates == (("test", "again"),)
    same = next(pair for pair in report.pairs if pair.same)
    assert (same.v_right, same.v_wrong, same.agreement) == (pytest.approx(1), pytest.approx(1), 1.0)
    assert any(
        "test and again tell the same given the outcome: keep one" in words for words in report.warnings
    )
    assert report.p < 1e-10


def test_a_critic_that_says_the_opposite_is_a_duplicate_too():
    records = [
        Record(r.instance, r.candidate, r.right, {**r.verdicts, "not": not r.verdicts["test"]})
        for r in planted_records(FOUR, 200, steps=1)
    ]
    assert independence(records).duplicates == (("test", "not"),)


def test_two_critics_that_are_good_are_not_duplicates():
    # They agree nearly always, but only because both know the outcome.
    good = CriticModel(0.5, (Critic("a", 0.97, 0.03, 1), Critic("b", 0.97, 0.03, 1)), FOUR.kernel)
    report = independence(planted_records(good, 1000, steps=1, seed=1))
    assert report.pairs[0].agreement > 0.9
    assert report.duplicates == ()


def test_unknown_verdicts_and_outcomes_are_left_out_and_counted():
    records = [
        *planted_records(FOUR, 100, steps=1, failed=0.1),
        Record("x", "0", None, dict.fromkeys(NAMES, True)),
    ]
    report = independence(records)
    assert report.cases + report.incomplete == 100
    assert report.incomplete > 10


def test_the_error_rate_of_the_pooled_test():
    # 200 data sets of independent critics at the 5 % level. A right test leaves these bounds once in a
    # thousand runs; the seeds are fixed.
    from scipy.stats import binom

    rates = [(0.6, 0.5), (0.5, 0.4), (0.7, 0.35)]
    even = CriticModel(0.5, tuple(Critic(f"c{n}", a, b, 1) for n, (a, b) in enumerate(rates)), FOUR.kernel)
    reports = [independence(planted_records(even, 300, steps=1, seed=n)) for n in range(200)]
    assert not any(one.low for report in reports for one in report.strata)
    low, high = binom.ppf([0.0005, 0.9995], 200, 0.05)
    assert low <= sum(report.p < 0.05 for report in reports) <= high


def test_what_is_refused():
    many = [Record("a", "0", True, {f"c{n}": True for n in range(13)})]
    with pytest.raises(CannotDo, match="13 critics have 8,192 cells"):
        independence(many)
    with pytest.raises(BadInput, match="1 critics cannot depend"):
        independence(planted_records(FOUR, 10), ["test"])
    with pytest.raises(BadInput, match="no candidate has an outcome and a verdict of every critic"):
        independence(planted_records(FOUR, 10), ["test", "other"])
