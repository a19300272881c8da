from __future__ import annotations

import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.probe.separability import (
    norm_fisher,
    null_level,
    permutations_of,
    resample_trace,
    separability_curve,
    standardised,
)


def shaped(profile, prompts=240, width=8, seed=0, rollouts=1):
    """States whose classes lie apart by the profile at each position."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, prompts)
    direction = rng.normal(size=width)
    x = rng.normal(size=(prompts, len(profile), width))
    x += (2 * y - 1)[:, None, None] * np.asarray(profile)[None, :, None] * direction
    return np.repeat(x, rollouts, axis=0), np.repeat(y, rollouts)


@pytest.mark.parametrize(("refused", "complied", "level"), [(50, 150, 0.0133), (20, 380, 0.0263)])
def test_the_null_level_of_norm_fisher(refused, complied, level):
    assert null_level(refused, complied) == pytest.approx(level, abs=5e-5)
    rng = np.random.default_rng(0)
    y = np.repeat([1, 0], [refused, complied])
    values = [norm_fisher(standardised(rng.normal(size=(len(y), 20))), y[None])[0] for _ in range(300)]
    assert np.mean(values) == pytest.approx(level, rel=0.06)


def test_norm_fisher_is_its_definition():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(40, 5)), rng.integers(0, 2, 40)
    z = standardised(x)
    a, b = z[y == 1], z[y == 0]
    top = ((a.mean(axis=0) - b.mean(axis=0)) ** 2).sum()
    bottom = sum(((part - part.mean(axis=0)) ** 2).sum(axis=1).mean() for part in (a, b))
    assert norm_fisher(z, y[None])[0] == pytest.approx(top / bottom, abs=1e-12)


def test_constant_states_lie_at_no_distance():
    z = standardised(np.full((6, 3), 2.0))
    assert norm_fisher(z, np.array([[0, 1, 0, 1, 0, 1]]))[0] == 0.0


def test_a_planted_valley_is_reported_with_its_depth():
    profile = np.interp(np.arange(40), [0, 20, 39], [0.8, 0.05, 0.5])
    x, y = shaped(profile)
    found = separability_curve(x, y, permutations=60)
    assert found.valley.real
    assert 12 <= found.valley.bottom <= 28
    assert 0.1 < found.valley.recovery < 0.9
    assert found.null_mean.mean() == pytest.approx(found.null_level, rel=0.1)
    assert found.to_json()["valley"]["real"]


def test_a_curve_that_only_falls_has_no_valley():
    x, y = shaped(np.linspace(0.8, 0.0, 40))
    found = separability_curve(x, y, permutations=40)
    assert found.valley is None or not found.valley.real


def test_noise_has_no_valley_and_stays_in_its_band():
    """Of 40 seeds at most 4 show a valley: at 2.5 % each, 5 or more would come in 0.3 % of tests."""
    valleys, outside = 0, []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        x, y = rng.normal(size=(120, 30, 4)), rng.integers(0, 2, 120)
        found = separability_curve(x, y, permutations=60, seed=seed)
        valleys += bool(found.valley and found.valley.real)
        outside.append(np.mean((found.above < found.low) | (found.above > found.high)))
    assert valleys <= 4
    assert np.mean(outside) == pytest.approx(0.065, abs=0.04)


def test_the_null_keeps_rollouts_of_a_prompt_alike():
    """Ten copies of every prompt: a null that split them would be ten times too narrow."""
    x, y = shaped(np.zeros(6), prompts=60)
    once = separability_curve(x, y, permutations=200)
    copies, labels = np.repeat(x, 10, axis=0), np.repeat(y, 10)
    owners = np.repeat(np.arange(60), 10).tolist()
    grouped = separability_curve(copies, labels, prompts=owners, permutations=200)
    apart = separability_curve(copies, labels, permutations=200)
    assert grouped.null_mean.mean() == pytest.approx(once.null_mean.mean(), rel=0.1)
    assert apart.null_mean.mean() < 0.2 * once.null_mean.mean()


def test_blocks_change_places_only_with_blocks_of_their_size():
    labels = np.array([1, 1, 0, 0, 1, 0, 1])
    owners = np.array([0, 0, 1, 1, 2, 3, 4])
    found = permutations_of(labels, owners, 50, np.random.default_rng(0))
    assert {tuple(row[:2]) for row in found} == {(1, 1), (0, 0)}
    assert (found.sum(axis=1) == labels.sum()).all()
    with pytest.raises(BadInput, match="cannot be shuffled"):
        permutations_of(
            np.array([0, 1, 0, 1, 1, 1]), np.array([0, 0, 0, 1, 1, 2]), 5, np.random.default_rng(0)
        )


@pytest.mark.parametrize("length", [1, 7, 100, 733])
def test_hopping_takes_tokens_and_pooling_means(length):
    trace = np.arange(length, dtype=float)[:, None]
    hops = resample_trace(trace)[:, 0]
    assert hops.tolist() == [np.floor(i * (length - 1) / 99 + 1e-9) for i in range(100)]
    pools = resample_trace(trace, "pooling")[:, 0]
    assert len(pools) == 100
    assert (np.diff(pools) >= 0).all()
    if length % 100 == 0:
        assert pools.mean() == pytest.approx(trace.mean())


def test_traces_that_cannot_be_read():
    with pytest.raises(BadInput, match="no states"):
        resample_trace(np.zeros((0, 4)))
    with pytest.raises(BadInput, match="unknown way"):
        resample_trace(np.zeros((3, 4)), "skipping")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"permutations": 5}, "permutations"),
        ({"prompts": [1, 2]}, "prompts"),
        ({"y": np.array([1] * 4 + [0] * 36)}, "4 refusals"),
        ({"y": np.full(40, 2)}, "labels"),
        ({"states": np.zeros((40, 3))}, "shape"),
        ({"states": np.full((40, 2, 2), np.nan)}, "NaN"),
    ],
)
def test_what_no_curve_can_be_drawn_of(change, told):
    x, y = shaped([0.0, 0.0], prompts=40)
    given = {"states": x, "y": y} | change
    with pytest.raises(BadInput, match=told):
        separability_curve(given.pop("states"), given.pop("y"), **given)


def test_same_seed_same_curve():
    x, y = shaped([0.5, 0.2, 0.4])
    one, two = (separability_curve(x, y, permutations=30, seed=3) for _ in range(2))
    np.testing.assert_array_equal(one.low, two.low)
    assert one.valley == two.valley
