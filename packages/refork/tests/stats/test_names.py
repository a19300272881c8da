"""What a figure is called, and what is said of input that cannot be one: users see both."""

from __future__ import annotations

import re

import numpy as np
import pytest

from refork import stats
from refork.errors import BadInput
from refork.stats.means import adjusted_paired_t, adjusted_welch
from refork.stats.results import finite, paired

X, Y = np.array([0.1, 0.7, 0.4, 0.9]), np.array([0.3, 0.6, 0.8, 1.0])
B, C = np.array([0.0, 1, 0, 1]), np.array([1.0, 1, 0, 1])
MIXED = np.array([0.1, 0.3, 0.4, 0.9])
FOUR = np.array([4, 4])
RNG = np.random.default_rng

NAMES = [
    (lambda: stats.wilson(3, 10).method, "Wilson"),
    (lambda: stats.clopper_pearson(3, 10).method, "Clopper-Pearson"),
    (lambda: stats.newcombe((3, 10), (5, 10)).interval.method, "Newcombe"),
    (lambda: stats.newcombe((3, 10), (5, 10)).test.method, "Newcombe interval, inverted"),
    (lambda: stats.newcombe_paired(3, 2, 1, 4).method, "Newcombe paired"),
    (lambda: stats.tango(2, 1, 10).interval.method, "Tango score"),
    (lambda: stats.tango(2, 1, 10).test.method, "McNemar score"),
    (lambda: stats.mcnemar(2, 1).method, "McNemar exact"),
    (lambda: stats.mcnemar(2, 1, mid=True).method, "McNemar mid-p"),
    (lambda: stats.mcnemar(0, 0).method, "McNemar exact"),
    (lambda: stats.fisher((1, 4), (3, 4)).method, "Fisher exact"),
    (lambda: stats.cochran_armitage(np.array([1, 2]), FOUR, np.array([0, 1])).method, "Cochran-Armitage"),
    (lambda: stats.cochran_armitage(np.array([0, 0]), FOUR, np.array([0, 1])).method, "Cochran-Armitage"),
    (lambda: stats.paired_t(X, Y).interval.method, "paired t"),
    (lambda: stats.paired_t(X, Y).test.method, "paired t"),
    (lambda: stats.welch(X, Y).interval.method, "Welch t"),
    (lambda: adjusted_welch(X, Y, 0.9).interval.method, "adjusted Welch t"),
    (lambda: adjusted_paired_t(Y - X, 1.0, 0.9).interval.method, "adjusted paired t"),
    (lambda: stats.mean_interval(X).method, "adjusted t"),
    (lambda: stats.mean_interval(B).method, "Wilson"),
    (lambda: stats.paired_difference(B, C).interval.method, "Tango score"),
    (lambda: stats.paired_difference(X, Y).interval.method, "adjusted paired t"),
    (lambda: stats.unpaired_difference(B, C).interval.method, "Newcombe"),
    (lambda: stats.unpaired_difference(X, Y).interval.method, "adjusted Welch t"),
    (lambda: stats.paired_bootstrap(X, Y, RNG(0), resamples=100).method, "bootstrap bca"),
    (
        lambda: stats.paired_bootstrap(X, Y, RNG(0), resamples=100, method="percentile").method,
        "bootstrap percentile",
    ),
    (lambda: stats.holm(np.array([0.1])).method, "Holm"),
    (lambda: stats.benjamini_hochberg(np.array([0.1])).method, "Benjamini-Hochberg"),
    (lambda: stats.auroc(MIXED, B).method, "DeLong"),
    (lambda: stats.auroc(X, B).method, "Newcombe area"),
    (lambda: stats.wilcoxon(X, Y).method, "Wilcoxon signed-rank"),
    (lambda: stats.clustered_mean(B, [0, 0, 1, 1]).method, "Wilson, clustered"),
    (lambda: stats.clustered_mean(X, [0, 0, 1, 1]).method, "adjusted t, clustered"),
    (lambda: stats.clustered_difference(X, Y, [0, 0, 1, 1]).interval.method, "adjusted paired t, clustered"),
    (lambda: stats.macro_mean([stats.wilson(1, 2)]).method, "mean of estimates"),
]


@pytest.mark.parametrize(("name", "wanted"), NAMES)
def test_every_figure_says_how_it_was_made(name, wanted):
    assert name() == wanted


#: A level that is not the default is the one that is used and told.
LEVELS = [
    lambda level: stats.wilson(3, 10, level),
    lambda level: stats.clopper_pearson(3, 10, level),
    lambda level: stats.newcombe((3, 10), (5, 10), level).interval,
    lambda level: stats.newcombe_paired(3, 2, 1, 4, level),
    lambda level: stats.tango(2, 1, 10, level).interval,
    lambda level: stats.paired_t(X, Y, level).interval,
    lambda level: stats.welch(X, Y, level).interval,
    lambda level: stats.mean_interval(X, level),
    lambda level: stats.mean_interval(B, level),
    lambda level: stats.paired_difference(B, C, level).interval,
    lambda level: stats.paired_difference(X, Y, level).interval,
    lambda level: stats.unpaired_difference(B, C, level).interval,
    lambda level: stats.unpaired_difference(X, Y, level).interval,
    lambda level: stats.auroc(MIXED, B, level),
    lambda level: stats.auroc(X, B, level),
    lambda level: stats.clustered_mean(B, [0, 0, 1, 1], level),
    lambda level: stats.clustered_mean(X, [0, 0, 1, 1], level),
    lambda level: stats.clustered_difference(X, Y, [0, 0, 1, 1], level).interval,
    lambda level: stats.paired_bootstrap(X, Y, RNG(0), level=level, resamples=200),
]


@pytest.mark.parametrize("made", LEVELS)
def test_the_level_is_used_and_told(made):
    wide, narrow = made(0.95), made(0.5)
    assert (wide.level, narrow.level) == (0.95, 0.5)
    assert narrow.width < wide.width
    for wrong in (0.0, 1.0, 1.5):
        with pytest.raises(BadInput, match="the level is"):
            made(wrong)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: finite([]), "there are no values"),
        (
            lambda: finite([1.0, float("nan"), float("inf")], "scores"),
            "scores hold 2 NaN or infinite entries",
        ),
        (lambda: paired([], [1.0]), "there are no base outcomes"),
        (lambda: paired([1.0], []), "there are no other outcomes"),
        (lambda: paired([1.0, 2.0], [1.0]), "2 base outcomes cannot be paired with 1 others"),
        (lambda: paired([1.0], [1.0]), "one pair cannot show a difference"),
        (lambda: stats.welch(np.zeros(0), X), "there are no base outcomes"),
        (lambda: stats.welch(X, np.zeros(0)), "there are no other outcomes"),
        (lambda: stats.unpaired_difference(np.zeros(0), X), "there are no base outcomes"),
        (lambda: stats.unpaired_difference(X, np.zeros(0)), "there are no other outcomes"),
        (lambda: stats.mean_interval(np.zeros(0)), "there are no outcomes"),
        (lambda: stats.auroc(np.zeros(0), np.zeros(0)), "there are no scores"),
        (lambda: stats.auroc(X, np.zeros(0)), "there are no labels"),
        (lambda: stats.clustered_mean(np.zeros(0), []), "there are no outcomes"),
        (lambda: stats.welch(X[:1], X), "at least two outcomes in each arm"),
        (lambda: adjusted_welch(X, X[:1], 0.9), "at least two outcomes in each arm"),
    ],
)
def test_refusals_name_what_is_wrong(call, message):
    with pytest.raises(BadInput, match=re.escape(message)):
        call()


def test_an_interval_holds_its_ends():
    interval = stats.Interval(0.5, 0.25, 0.75, 0.95, "by hand")
    assert all(value in interval for value in (0.25, 0.5, 0.75))
    assert not any(value in interval for value in (0.24, 0.76))
    assert interval.width == 0.5
    assert stats.Difference(interval, stats.Test(1.0, 0.25, "by hand")).p == 0.25


def test_whoever_checks_no_shapes_may_give_plain_lists_and_tables(unchecked):
    assert finite([[1, 2], [3, 4]]).tolist() == [1.0, 2.0, 3.0, 4.0]
    assert finite(2).tolist() == [2.0]
