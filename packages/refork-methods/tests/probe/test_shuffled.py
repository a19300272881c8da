from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.probe import FirstTokenProbe
from refork_methods.probe.area import area, auroc_error
from refork_methods.probe.cases import make_cases
from refork_methods.probe.folds import fold_of, out_of_fold
from refork_methods.probe.shuffled import Null, refit_scores, shuffled_labels


def noise(prompts=40, rollouts=3, width=6, seed=0):
    """States that say nothing, one per prompt, with labels and owners of the rows."""
    rng = np.random.default_rng(seed)
    q = rng.beta(0.5, 0.5, prompts)
    y = (rng.random((prompts, rollouts)) < q[:, None]).astype(np.int64).ravel()
    return (
        np.repeat(rng.normal(size=(prompts, width)), rollouts, axis=0),
        y,
        np.repeat(np.arange(prompts), rollouts),
    )


@pytest.mark.parametrize("seed", range(3))
def test_without_a_signal_the_interval_covers_one_half_in_exactly_95_of_100(seed):
    """The labels and 39 shuffles of them are equally likely: of 40 intervals 38 cover one half."""
    x, y, owners = noise(seed=seed)
    folds = fold_of(y, owners)
    drawn = Null.of(lambda labels: refit_scores(x, folds, "raw", 42, labels), y, owners, folds, 39, seed)
    labels = np.concatenate([y[None], drawn.labels])
    scores = refit_scores(x, folds, "raw", 42, labels)
    covered = fixed = 0
    for i in range(40):
        others = np.arange(40) != i
        cases = make_cases(labels[i], owners.tolist(), None, "last_prompt")
        found = area(scores[i], cases, null=Null(labels[others], scores[others]), resamples=2).area.auroc
        covered += found.low <= 0.5 <= found.high
        estimate, error = auroc_error(scores[i], labels[i], owners)
        assert found.estimate == pytest.approx(estimate)
        fixed += abs(estimate - 0.5) <= 1.96 * error
    assert covered == 38
    assert fixed < 38


@pytest.mark.parametrize("recipe", ["raw", "pca"])
@pytest.mark.parametrize("width", [6, 60])
def test_refits_are_the_probe_itself(recipe, width):
    x, y, owners = noise(width=width)
    folds = fold_of(y, owners)
    labels = np.stack([y, 1 - y])
    found = refit_scores(x, folds, recipe, 42, labels)
    wanted = np.stack([out_of_fold(x, one, folds, recipe) for one in labels])
    # scikit-learn's own solver stops at a gradient of 1e-4.
    assert np.abs(found - wanted).max() < 0.02 * np.abs(wanted).max()


def test_constant_states_say_one_half_and_nothing_else():
    _, y, owners = noise()
    found = (
        FirstTokenProbe().fit(np.ones((len(y), 4)), y, prompts=owners.tolist()).area(shuffles=39, resamples=9)
    )
    assert (found.auroc.low, found.auroc.estimate, found.auroc.high) == (0.5, 0.5, 0.5)


def test_prompts_exchange_whole_runs_of_labels_within_their_stratum():
    labels = np.arange(24)
    prompts = np.repeat(np.arange(8), 3)
    strata = np.repeat([0, 1], 12)
    found = shuffled_labels(labels, prompts, strata, 50, np.random.default_rng(0))
    runs = found.reshape(50, 8, 3)
    assert (np.diff(runs, axis=2) == 1).all()
    assert (np.sort(found, axis=1) == labels).all()
    assert (found[:, :12] < 12).all()
    assert len({tuple(row) for row in found.tolist()}) > 20


def test_runs_of_other_lengths_are_repeated_or_cut():
    labels, prompts = np.array([1, 0, 0, 5, 6]), np.array([0, 0, 0, 1, 1])
    found = shuffled_labels(labels, prompts, np.zeros(5, dtype=int), 60, np.random.default_rng(1))
    seen = Counter(map(tuple, found.tolist()))
    assert set(seen) == {(1, 0, 0, 5, 6), (5, 6, 5, 1, 0)}
    # Fewer than 15 of 60 fair coins one way happens in 2 of 100,000 seeds.
    assert min(seen.values()) >= 15


def test_fewer_shuffles_than_an_end_needs_are_refused():
    x, y, owners = noise()
    with pytest.raises(BadInput, match="38 shuffles"):
        FirstTokenProbe().fit(x, y, prompts=owners.tolist()).area(shuffles=38)


def test_the_error_of_fixed_scores_is_that_of_resampled_prompts():
    x, y, owners = noise(prompts=200)
    scores = x[:, 0] + 0.5 * y
    cases = make_cases(y, owners.tolist(), None, "last_prompt")
    booted = area(scores, cases, resamples=2000)
    # The standard deviation of 2,000 resamples is known to 1.6 %.
    assert booted.error == pytest.approx(booted.aurocs.std(ddof=1), rel=0.08)
