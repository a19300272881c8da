import json

import numpy as np
import pytest
from scipy.special import expit

from refork.errors import BadInput
from refork_methods.decide import calibration_error
from refork_methods.speculate.calibrate import (
    BINS,
    GRID,
    SequentialTemperatureScaling,
    calibrate,
    mean_ece,
    report,
    report_json,
)
from refork_methods.speculate.rounds import Round, Rounds

BLOCK = 4


def rounds_of(count, heat, seed=0):
    """True log-odds, stated ones that are ``heat[k]`` times too large, and which prefixes were kept."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(1.0, 1.2, (count, len(heat)))
    kept = np.cumprod(rng.random(odds.shape) < expit(odds), axis=1).astype(bool)
    return odds * np.array(heat), kept


def test_the_grid():
    assert len(GRID) == 61
    assert GRID[0] == pytest.approx(0.25)
    assert GRID[-1] == pytest.approx(4.0)
    assert np.diff(np.log(GRID)) == pytest.approx(np.full(60, np.log(16) / 60))
    assert 1.0 in GRID.round(12)


def test_it_finds_planted_temperatures():
    """40,000 rounds, fixed seed; the error of each temperature was below 15 % in all of 20 seeds."""
    heat = (2.0, 1.0, 0.5)
    z, kept = rounds_of(40_000, heat)
    found = SequentialTemperatureScaling().fit(z, kept)
    assert found.temperatures == pytest.approx(heat, rel=0.2)
    fresh, outcomes = rounds_of(40_000, heat, seed=1)
    before = mean_ece(report(SequentialTemperatureScaling().apply(fresh), outcomes))
    after = mean_ece(report(found.apply(fresh), outcomes))
    assert after < 0.3 * before


def test_each_position_is_chosen_with_those_before_it():
    """By hand: the temperature of position 2 has the least error of the product, T_1 given."""
    z, kept = rounds_of(3000, (1.5, 1.5))
    found = SequentialTemperatureScaling().fit(z, kept)
    first = expit(z[:, 0] / found.temperatures[0])
    errors = [calibration_error(first * expit(z[:, 1] / t), kept[:, 1].astype(float), BINS) for t in GRID]
    chosen = int(np.argmin(np.abs(GRID - found.temperatures[1])))
    assert errors[chosen] == min(errors)
    assert found.reached == (3000, int(kept[:, 0].sum()))


def test_few_rounds_keep_the_temperature_before():
    z, kept = rounds_of(2000, (2.0,) * BLOCK)
    kept[:, 1:] &= np.arange(2000)[:, None] < 700
    found = SequentialTemperatureScaling().fit(z, kept)
    assert found.reached[2] < 500 <= found.reached[1]
    assert found.temperatures[2] == found.temperatures[3] == found.temperatures[1]
    tiny = SequentialTemperatureScaling().fit(z[:100], kept[:100])
    assert tiny.temperatures == (1.0,) * BLOCK


def test_without_temperatures_it_is_the_plain_product():
    z, _ = rounds_of(5, (1.0, 1.0))
    assert SequentialTemperatureScaling().apply(z) == pytest.approx(np.cumprod(expit(z), axis=1))


def test_unknown_outcomes_do_not_count():
    z, kept = rounds_of(4000, (1.0, 1.0))
    known = np.ones_like(kept)
    known[:2000, 1] = False
    kept[:2000, 1] = False
    clean = SequentialTemperatureScaling().fit(z, kept, known)
    assert clean.reached[1] == int(kept[2000:, 0].sum())
    rows = report(clean.apply(z), kept, known)
    assert rows[1].rounds == 2000
    assert rows[0].rounds == 4000


def test_the_report_by_hand():
    survival = np.array([[0.9], [0.9], [0.3], [0.3]])
    kept = np.array([[1], [1], [1], [0]])
    [row] = report(survival, kept)
    assert (row.position, row.rounds, row.kept) == (1, 4, 0.75)
    assert row.stated == pytest.approx(0.6)
    assert row.ece == pytest.approx((0.1 + 0.2) / 2)
    assert row.brier == pytest.approx((2 * 0.01 + 0.49 + 0.09) / 4)
    assert row.auroc is None, "one rejection is not enough for an area"
    [row] = report(np.repeat(survival, 2, axis=0), np.repeat(kept, 2, axis=0))
    assert row.auroc == pytest.approx((4 + 2 * 0.5) / 6)
    empty = report(survival, kept, np.zeros((4, 1), dtype=bool))
    assert empty[0].ece is None
    assert mean_ece(empty) is None
    assert report_json(empty)[0]["rounds"] == 0


def log_of(count, schedule, drafted=BLOCK):
    z, kept = rounds_of(count, (1.0,) * BLOCK)
    accepted = np.minimum(kept.sum(axis=1), drafted)
    return Rounds.of([Round(tuple(z[n]), drafted, int(accepted[n]), schedule=schedule) for n in range(count)])


def test_rounds_cut_by_the_policy_are_refused():
    with pytest.raises(BadInput, match="20 of 20 rounds were cut by the policy to be calibrated") as caught:
        calibrate(log_of(20, "early_stop", drafted=2))
    assert "early_stop" in str(caught.value)
    with pytest.raises(BadInput, match="were cut"):
        calibrate(log_of(20, "stale_topk", drafted=2))
    calibrate(log_of(20, "early_stop"))
    # Cut for want of room, or at a length that was fixed beforehand: no token decided it.
    for schedule in (None, "fixed"):
        found = calibrate(log_of(4000, schedule, drafted=2)).scaling
        # What is left of positions 3 and 4 are blocks that had failed before: nothing reached them.
        assert found.reached[2:] == (0, 0)
        assert found.temperatures[2] == found.temperatures[1]


def test_fit_on_the_first_part_and_report_on_the_last():
    z, kept = rounds_of(3000, (2.0, 2.0))
    rounds = Rounds.of([Round(tuple(a), 2, int(b)) for a, b in zip(z, kept.sum(axis=1), strict=True)])
    made = calibrate(rounds, 0.25)
    assert made.fitted == 2250
    assert made.before[0].rounds == 750
    assert made.to_json()["ece_after"] < made.to_json()["ece_before"]
    for share in (0.0, 1.0, -1.0):
        with pytest.raises(BadInput, match="leave a part empty"):
            calibrate(rounds, share)


@pytest.mark.parametrize(
    ("logits", "mask", "words"),
    [
        ([[np.nan]], [[1]], "not finite"),
        ([[np.inf]], [[1]], "not finite"),
        ([[0.0]], [[2]], "0 or 1"),
        ([[0.0, 0.0]], [[0, 1]], "longer prefix"),
        ([[0.0, 0.0]], [[1]], "both be"),
        ([0.0], [1], "both be"),
        (np.zeros((0, 2)), np.zeros((0, 2)), "both be"),
    ],
)
def test_outcomes_that_cannot_be(logits, mask, words):
    with pytest.raises(BadInput, match=words):
        SequentialTemperatureScaling().fit(np.array(logits), np.array(mask))


def test_survivals_outside_their_range_are_refused():
    with pytest.raises(BadInput, match=r"\[0, 1\]"):
        report(np.array([[1.5]]), np.array([[1]]))
    with pytest.raises(BadInput, match="NaN"):
        SequentialTemperatureScaling().apply(np.array([[np.nan]]))
    with pytest.raises(BadInput, match="which"):
        report(np.array([[0.5]]), np.array([[1]]), np.ones((2, 1)))


def test_another_block_length_is_refused():
    with pytest.raises(BadInput, match="3 drafts, but 2 positions"):
        SequentialTemperatureScaling((1.0, 2.0), (9, 9)).apply(np.zeros((1, 3)))


def test_it_comes_back_from_its_file(tmp_path):
    found = SequentialTemperatureScaling((0.5, 2.0), (900, 600))
    found.save(tmp_path / "c.json")
    assert SequentialTemperatureScaling.load(tmp_path / "c.json") == found


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "x"},
        {"temperatures": [0.5]},
        {"temperatures": [0.0, 1.0]},
        {"temperatures": "x"},
        {"reached": None},
    ],
)
def test_files_that_are_no_calibration(tmp_path, changes):
    body = SequentialTemperatureScaling((0.5, 2.0), (900, 600)).to_json() | changes
    (tmp_path / "c.json").write_text(json.dumps(body))
    with pytest.raises(BadInput, match="no calibration"):
        SequentialTemperatureScaling.load(tmp_path / "c.json")
