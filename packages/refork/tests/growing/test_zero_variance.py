from __future__ import annotations

import json

import numpy as np
import pytest

from refork.errors import BadInput
from refork.growing.mass import (
    check_filter,
    gradient_mass,
    group_advantages,
    group_kind,
    informative,
    is_constant,
)
from refork.growing.report import RecordedGroup, groups_from_jsonl, zero_variance_report
from refork.growing.zero_variance import (
    BetaDistribution,
    budget_curve,
    collapse_probability,
    fit_beta,
    mixed_estimate,
    mixed_probability,
    required_group_size,
)


@pytest.mark.parametrize("size", [2, 5, 16])
def test_masses_of_plus_minus_one_groups_have_their_closed_forms(size):
    for k in range(size + 1):
        mass = gradient_mass([1.0] * k + [-1.0] * (size - k))
        assert mass.squared == pytest.approx(size if 0 < k < size else 0, abs=1e-9)
        assert mass.absolute == pytest.approx(2 * (k * (size - k)) ** 0.5, abs=1e-9)
        assert mass.centred == pytest.approx(4 * k * (size - k) / size, abs=1e-9)


@pytest.mark.parametrize("value", [0.0, 1.0, -1.0, 0.1, 0.3, 1e-12, 7.7, 1e9])
def test_equal_rewards_give_zeros_bit_for_bit(value):
    for size in range(2, 12):
        rewards = np.full(size, value)
        for norm in ("std", "mean"):
            assert group_advantages(rewards, norm).tobytes() == np.zeros(size).tobytes()
        assert gradient_mass(rewards) == gradient_mass([0.0, 0.0])


def test_a_mean_range_filter_would_keep_this_constant_group():
    """Public bug: 'keep if 0 < mean < 1' takes equal partial rewards for a mixed group."""
    groups = [[0.5] * 4, [0.0, 1.0, 0.0, 1.0], [1.0] * 4]
    assert [0 < np.mean(g) < 1 for g in groups] == [True, True, False]
    assert informative(groups).tolist() == [False, True, False]


def test_a_leave_one_out_mask_would_drop_the_lone_failure():
    """Public bug: a rollout whose peers agree is masked: the one that differs goes, the rest is even."""
    rewards = np.array([1.0, 1.0, 1.0, 0.0])
    mask = [np.delete(rewards, i).std() > 0 for i in range(4)]
    assert mask == [True, True, True, False]
    assert group_advantages(rewards[mask]).tolist() == [0, 0, 0]
    assert informative([rewards]).tolist() == [True]
    with pytest.raises(BadInput, match="keeps 3 of 4 rollouts of one group"):
        check_filter([rewards], [mask])


def test_a_standard_deviation_of_zero_is_not_zero_in_doubles():
    """Public bug: 'std == 0' misses constant groups, because their mean is rounded."""
    rewards = [0.1] * 3
    assert np.std(rewards) > 0
    assert is_constant(rewards)
    assert not is_constant([0.1, 0.1 + 1e-6])
    assert is_constant([0.1 + 0.2, 0.3])
    assert not is_constant([0.0, 1e-30])


def test_filters_are_whole_groups_or_none():
    groups = [[0, 1], [1, 1]]
    check_filter(groups, [[True, True], [False, False]])
    with pytest.raises(BadInput, match="mixed group is dropped"):
        check_filter(groups, [[False, False], [False, False]])
    with pytest.raises(BadInput, match="constant group is kept"):
        check_filter(groups, [[True, True], [True, True]])


def test_rejected_groups():
    for bad, what in (
        ([1.0], "group of 1"),
        ([], "group of 0"),
        ([1, np.nan], "NaN"),
        ([-1, 0, 1], "scales"),
    ):
        with pytest.raises(BadInput, match=what):
            group_advantages(bad)
    assert group_advantages([-1, 0, 1], graded=True).sum() == pytest.approx(0)
    with pytest.raises(BadInput, match="norm"):
        group_advantages([0, 1], "median")


def test_kinds():
    assert [group_kind(g) for g in ([0, 0], [1, 1], [0, 1], [-1, -1], [0.5, 0.5])] == [
        "all-fail", "all-pass", "mixed", "all-fail", "all-fail",
    ]  # fmt: skip
    assert group_kind([0.5, 0.5], passing=0.5) == "all-pass"


def test_collapse_against_simulation():
    rng = np.random.default_rng(3)
    for p, n in ((0.1, 4), (0.5, 2), (0.9, 8)):
        wins = rng.binomial(n, p, 40_000)
        share = np.mean((wins == 0) | (wins == n))
        exact = float(collapse_probability(p, n))
        # Binomial(40,000, exact), three tests of a fixed seed: beyond 4.5 errors once in 50,000 seeds.
        assert abs(share - exact) < 4.5 * (exact * (1 - exact) / 40_000) ** 0.5
        assert float(mixed_probability(p, n)) == pytest.approx(1 - exact, abs=1e-12)


def test_mixed_is_at_most_linear_in_the_budget():
    for q in (0.3, 0.9):
        for h in (1, 3, 10):
            for n in (1, 2, 16, 1000):
                assert float(mixed_probability(q**h, n)) <= min(1.0, n * q**h) + 1e-15
    assert float(mixed_probability(1e-12, 10)) == pytest.approx(1e-11, rel=1e-6)


def test_required_size_is_the_smallest():
    for p in (0.001, 0.02, 0.5, 0.99):
        for target in (0.1, 0.5, 0.9):
            n = required_group_size(p, target)
            assert mixed_probability(p, n) >= target
            assert n == 2 or mixed_probability(p, n - 1) < target
    assert required_group_size(0.0, 0.5) is None
    assert required_group_size(1.0, 0.5) is None
    for bad in ((1.5, 0.5), (0.5, 1.0), (float("nan"), 0.5)):
        with pytest.raises(BadInput):
            required_group_size(*bad)


def test_the_plateau_over_prompts():
    """Prompts of Beta(0.15, 0.45): known means at 4, 8, 16, 32, 64 rollouts."""
    law = BetaDistribution(0.15, 0.45)
    found = [law.mixed(n) for n in (4, 8, 16, 32, 64)]
    assert found == pytest.approx([0.256, 0.351, 0.432, 0.500, 0.558], abs=1e-3)
    assert law.mixed(law.required(0.5)) >= 0.5 > law.mixed(law.required(0.5) - 1)


def test_the_estimate_of_smaller_groups_is_unbiased():
    """Exactly: its expectation over all outcomes of 6 draws is the distribution's value."""
    from scipy.stats import binom

    for p in (0.1, 0.5, 0.8):
        for n in (2, 3, 6):
            mean = sum(binom.pmf(k, 6, p) * mixed_estimate(k, 6, n) for k in range(7))
            assert mean == pytest.approx(float(mixed_probability(p, n)), abs=1e-12)
    with pytest.raises(BadInput):
        mixed_estimate(1, 4, 5)


def test_a_fitted_law_and_its_curve():
    rng = np.random.default_rng(1)
    won = rng.binomial(16, rng.beta(0.15, 0.45, 3000))
    law = fit_beta(won, np.full(3000, 16))
    # Fixed seed; the estimator's error at 3,000 prompts is about 0.006 in a and 0.02 in b.
    assert law.a == pytest.approx(0.15, abs=0.02)
    assert law.b == pytest.approx(0.45, abs=0.07)
    curve = budget_curve(won, np.full(3000, 16), [4, 16, 64])
    assert [p.extrapolated for p in curve] == [False, False, True]
    assert curve[2].low is None
    assert [p.mixed for p in curve] == pytest.approx([0.256, 0.432, 0.558], abs=0.03)


def rows(path, *lines):
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return path


def test_the_report_of_a_file(tmp_path):
    lines = [{"group": "a", "reward": 1}, {"group": "a", "reward": 0}, {"group": "a", "reward": None}]
    lines += [{"group": "b", "rewards": [0, 0, 0, 0], "difficulty": "hard"}]
    lines += [{"group": "c", "rewards": [1, 1], "difficulty": "easy"}]
    report = zero_variance_report(groups_from_jsonl(rows(tmp_path / "r.jsonl", *lines)))
    assert (report["all_fail"], report["all_pass"], report["mixed"]) == (1, 1, 1)
    assert report["rollouts"] == 8
    assert report["by_difficulty"]["hard"]["all_fail"] == 1
    assert report["gradient_mass"]["squared"] == pytest.approx(2 / 8)
    assert report["curve"][0]["mixed"] == pytest.approx(1 / 3)
    assert [p["kind"] for p in report["prompts"]] == ["mixed", "all-fail", "all-pass"]


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        ([{"group": "a", "reward": 1}], "group of 1"),
        ([{"group": "a", "rewards": [1, float("nan")]}], "NaN"),
        ([{"group": "a", "rewards": [1, -1, 0]}], "scales"),
        ([{"group": "a", "reward": 1, "scorer": "x"}, {"group": "a", "reward": 1, "scorer": "y"}], "scorers"),
        ([{"reward": 1}], "not a rollout record"),
        ([], "no groups"),
    ],
)
def test_files_that_are_refused(tmp_path, lines, what):
    with pytest.raises(BadInput, match=what):
        zero_variance_report(groups_from_jsonl(rows(tmp_path / "r.jsonl", *lines)))


def test_one_prompt_has_no_curve():
    assert zero_variance_report([RecordedGroup("a", (0.0, 1.0), (0.0, 1.0))])["curve"] is None
