"""Curves of values along a trace: figures by hand, sums and files."""

from __future__ import annotations

import json

import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.cliff.curve import Curve, reuse_factor
from refork_methods.cliff.detect import screen
from support.curves import curve


def test_the_paired_error_counts_discordant_pairs():
    one = curve([32, 20], [64, 64], [0.5, 0.5], pairs=([64, 64], [12, 20], [18, 20]))
    b, c, n = 15, 3, 64
    assert one.paired_error()[0] == pytest.approx(np.sqrt(b + c - (b - c) ** 2 / n) / n)
    assert one.paired_drop()[0] == pytest.approx(12 / 64)


def test_both_ends_are_valued():
    found = curve([32, 32], [64, 64], [0.1, 0.1], outcome=0.0)
    assert found.value.tolist() == [0.5, 0.5, 0.0]
    assert found.drop.sum() == pytest.approx(0.5)
    assert 1 in screen(found, rule="paper"), "the last token can be a cliff"


def test_ungraded_ends_are_not_wrong():
    found = curve([32, 32], [64, 64], [0.1, 0.1], outcome=None)
    assert np.isnan(found.value[-1])
    assert screen(found, rule="paper").tolist() == []


def test_curves_add_up():
    one = curve([32, 20], [64, 64], [0.5, 0.5])
    both = one + one
    assert both.draws.tolist() == [128, 128]
    assert np.array_equal(both.value, one.value)
    assert reuse_factor([one, one]) == pytest.approx(2.0)
    assert Curve.from_json(one.to_json()).to_json() == one.to_json()
    with pytest.raises(BadInput, match="different traces"):
        one + curve([1], [2], [0.5])


def test_what_was_not_drawn_or_paired_is_not_known():
    one = curve([0.0, 1.0, 3.0], [0, 1, 4], [0.5] * 3, 1.0, ([0, 1, 2], [0, 1, 1], [0, 1, 1]))
    np.testing.assert_array_equal(one.value, [np.nan, 1.0, 0.75, 1.0])
    np.testing.assert_array_equal(one.drop, [np.nan, 0.25, -0.25])
    np.testing.assert_array_equal(one.paired_drop(), [np.nan, 1.0, 0.5])
    np.testing.assert_array_equal(one.paired_error(), [np.nan, np.nan, np.sqrt(0.5) / 2])
    np.testing.assert_allclose(one.unpaired_error(), [np.nan, np.sqrt(0.1875 / 4), np.sqrt(0.1875 / 4)])
    assert len(one) == 3
    rounded = curve([1.0], [9], [0.5], 1.0, ([9], [0.3], [0.00999]))
    assert rounded.paired_error().tolist() == [0.0], "rounding makes no variance below 0"


def test_an_outcome_is_one_draw_and_none_is_none():
    for outcome, error in ((0.5, np.sqrt(0.25 / 4 + 0.25)), (1.0, np.sqrt(0.25 / 4)), (None, np.nan)):
        one = curve([2.0], [4], [0.5], outcome)
        np.testing.assert_allclose(one.unpaired_error(), [error])
        assert one.value[-1:].tolist() == pytest.approx([np.nan if outcome is None else outcome], nan_ok=True)


def figures(first):
    """A curve whose fields all differ."""
    wins, draws, pairs, drop, square = (np.array([first + i, first + 10 + i]) for i in (0, 1, 3, 4, 5))
    return Curve(
        wins / 2,
        draws,
        1.0,
        np.array([0.25, np.nan]),
        pairs,
        drop / 4,
        square / 8,
        first,
        first + 1,
        first + 2,
    )


def test_curves_as_json_and_back():
    one = figures(3)
    data = json.loads(json.dumps(one.to_json()))
    assert data == {
        "wins": [1.5, 6.5], "draws": [4, 14], "outcome": 1.0, "chance": [0.25, None], "pairs": [6, 16],
        "pair_drop": [1.75, 4.25], "pair_square": [1.0, 2.25], "sampled": 3, "served": 4, "tokens": 5,
    }  # fmt: skip
    back = Curve.from_json(data)
    assert (back.draws.dtype, back.pairs.dtype, back.chance.dtype) == (np.int64, np.int64, np.float64)
    whole = Curve.from_json(data | {"wins": [1, 6]})
    assert whole.wins.dtype == np.float64
    np.testing.assert_array_equal(back.chance, [0.25, np.nan])
    assert back.to_json() == one.to_json()


def test_every_count_adds_up_and_only_of_one_trace():
    one, two = figures(3), figures(5)
    both = (one + two).to_json()
    same = {"outcome", "chance"}
    for name, value in both.items():
        mine, theirs = one.to_json()[name], two.to_json()[name]
        assert value == (mine if name in same else (np.array(mine) + np.array(theirs)).tolist())
    assert reuse_factor([one, two]) == (4 + 6) / (3 + 5)
    for other in (curve([1.0], [2], [0.5], 1.0), curve([1.0, 1.0], [2, 2], [0.5, 0.5], 0.0)):
        with pytest.raises(BadInput, match="different traces"):
            one + other
    for none in ([], [curve([1.0], [2], [0.5])]):
        for item in none:
            object.__setattr__(item, "sampled", 0)
        with pytest.raises(BadInput, match="no continuation"):
            reuse_factor(none)


@pytest.mark.parametrize("name", ["wins", "draws", "chance", "pairs", "pair_drop", "pair_square"])
def test_arrays_of_another_length_are_refused(name):
    data = figures(3).to_json()
    with pytest.raises(BadInput, match="differ in length"):
        Curve.from_json(data | {name: [1]})
