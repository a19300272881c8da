from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from refork.errors import BadInput, InternalError
from refork.stats import auroc
from refork_methods.probe.area import area, mean_area, weighted_auroc
from refork_methods.probe.cases import make_cases


def cases_of(labels, position="last_prompt", tokens=None):
    n, k = labels.shape
    return make_cases(labels.ravel(), np.repeat(np.arange(n), k).tolist(), tokens, position)


def oracle(prompts=300, rollouts=20, a=0.2, seed=0):
    rng = np.random.default_rng(seed)
    q = rng.beta(a, a, prompts)
    return np.repeat(q, rollouts), (rng.random((prompts, rollouts)) < q[:, None]).astype(np.int64)


def test_weighted_auroc_is_the_usual_one_with_copies():
    rng = np.random.default_rng(0)
    scores, up, down = np.round(rng.random(30), 1), rng.integers(0, 3, (2, 30)), rng.integers(0, 3, (2, 30))
    found = weighted_auroc(scores, up.astype(float), down.astype(float))
    for row in range(2):
        x = np.concatenate([np.repeat(scores, up[row]), np.repeat(scores, down[row])])
        y = np.concatenate([np.ones(up[row].sum()), np.zeros(down[row].sum())])
        assert found[row] == pytest.approx(roc_auc_score(y, x), abs=1e-12)


def test_the_area_is_scikit_learns_and_the_packages_own():
    scores, y = oracle()
    found = area(scores, cases_of(y)).area
    assert found.auroc.estimate == pytest.approx(roc_auc_score(y.ravel(), scores), abs=1e-12)
    assert found.auroc.estimate == pytest.approx(auroc(scores, y.ravel()).estimate, abs=1e-12)
    assert found.auroc.low < found.auroc.estimate < found.auroc.high


def test_an_area_never_stands_alone():
    scores, y = oracle(rollouts=1)
    alone = area(scores, cases_of(y)).area
    assert alone.ceiling is None
    assert "one rollout" in str(alone)
    assert alone.leak is None
    for broken in ({"no_ceiling": None}, {"excess": 0.0}, {"excess": 0.0, "excess_se": 0.1}):
        with pytest.raises(InternalError):
            replace(alone, **broken)
    scores, y = oracle()
    known = area(scores, cases_of(y)).area
    assert "of at most 0.9" in str(known)
    assert known.to_json()["ceiling"]["estimate"] == known.ceiling.estimate
    with pytest.raises(InternalError):
        replace(known, ceiling=None)


@pytest.mark.parametrize("a", [0.2, 1.0])
def test_a_perfect_reader_of_the_prompt_is_no_leak(a):
    """At most 6 alarms in 60 runs: the rate is at most 5 %, which gives 7 or more in 4 % of such tests."""
    alarms = 0
    for seed in range(60):
        scores, y = oracle(rollouts=12, a=a, seed=seed)
        alarms += bool(area(scores, cases_of(y), resamples=60).area.leak)
    assert alarms <= 6


def test_a_reader_of_the_outcome_is_a_leak():
    scores, y = oracle()
    found = area(scores + 0.2 * y.ravel(), cases_of(y)).area
    assert found.leak
    assert "LEAK" in str(found)
    assert found.to_json()["leak"] is True


def test_rows_of_a_prompt_are_resampled_together():
    """Copies of one rollout add no information, so the interval must not shrink with them."""
    scores, y = oracle(rollouts=1)
    once = area(scores, cases_of(y)).area.auroc
    many = area(np.repeat(scores, 10), cases_of(np.repeat(y, 10, axis=1))).area.auroc
    assert many.width == pytest.approx(once.width, rel=0.05)


def test_a_mean_of_groups_has_the_mean_of_their_ceilings():
    parts = []
    for seed in range(3):
        scores, y = oracle(seed=seed)
        parts.append(area(scores, cases_of(y), seed=seed))
    found = mean_area(parts)
    assert found.auroc.estimate == pytest.approx(np.mean([p.area.auroc.estimate for p in parts]))
    assert found.ceiling.estimate == pytest.approx(np.mean([p.area.ceiling.estimate for p in parts]))
    assert found.auroc.width < parts[0].area.auroc.width
    scores, y = oracle(rollouts=1)
    assert mean_area([*parts, area(scores, cases_of(y))]).ceiling is None


def test_at_the_first_thinking_token_a_unit_is_prompt_and_token():
    """The token decides: a reader of it may be perfect, and its ceiling says so; the prompt's does not."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, (100, 12))
    tokens = np.where(y.ravel() == 1, "no", "yes").tolist()
    seeing = area(y.ravel().astype(float), cases_of(y, "first_thinking", tokens)).area
    assert seeing.ceiling.estimate == pytest.approx(1.0, abs=1e-3)
    assert not seeing.leak
    assert area(y.ravel().astype(float), cases_of(y)).area.leak
    blind = area(y.ravel().astype(float), cases_of(y, "first_thinking")).area
    assert "were not given" in blind.no_ceiling


def test_scores_that_cannot_be_judged():
    scores, y = oracle()
    with pytest.raises(BadInput, match="finite"):
        area(np.full_like(scores, np.nan), cases_of(y))
    with pytest.raises(BadInput, match="finite"):
        area(scores[1:], cases_of(y))
    rare = cases_of(y)
    some = np.zeros(len(rare), dtype=bool)
    some[np.flatnonzero(rare.labels == 1)[:4]] = True
    some[np.flatnonzero(rare.labels == 0)[:9]] = True
    with pytest.raises(BadInput, match="4 refusals"):
        area(scores[some], rare.part(some))
