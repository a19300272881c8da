import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refork.errors import BadInput
from refork_methods.decide import advise, break_even, crossing

AMOUNTS = st.floats(0, 1e6)


def test_break_even_of_known_cases():
    assert break_even(100, price=30) == 0.3  # verify for a reward of 100 at 30
    assert break_even(0.053, 0.159) == pytest.approx(0.75)  # inject a finding
    assert break_even(0, price=1) == math.inf
    assert break_even(10, price=20) == 2  # never
    assert break_even(0, 1) == 1


@given(AMOUNTS, AMOUNTS, AMOUNTS, st.floats(0, 1))
def test_advice_acts_exactly_where_the_net_is_positive(gain, loss, price, chance):
    if gain + loss + price == 0:
        return
    advice = advise(chance, gain, loss, price)
    if abs(advice.net) > 1e-6 * (gain + loss + price):
        assert advice.act == (advice.net > 0)


def test_advice_says_its_numbers_and_leaves_a_tie():
    assert (
        advise(0.9, 100, price=30).reason
        == "the chance of being right, 0.900, is above 0.300; acting nets +60"
    )
    assert not advise(0.3, 100, price=30).act
    assert "any chance" in advise(1.0, 0, price=1).reason


@pytest.mark.parametrize(
    "bad", [(-1, 0, 0), (1, -1, 0), (1, 0, -1), (math.nan, 0, 0), (0, math.inf, 0), (0, 0, 0)]
)
def test_amounts_that_are_none_are_refused(bad):
    with pytest.raises(BadInput):
        break_even(*bad)


@pytest.mark.parametrize("chance", [-0.1, 1.1, math.nan])
def test_a_chance_outside_0_and_1_is_refused(chance):
    with pytest.raises(BadInput, match="chance"):
        advise(chance, 1)


def test_crossing_is_where_two_lines_are_equal():
    assert crossing((0, 0), (-30, 70)) == pytest.approx(0.3)
    assert crossing((0, 1), (1, 2)) is None
    b = crossing((5, 20), (10, 12))
    assert b is not None
    assert 5 + 15 * b == pytest.approx(10 + 2 * b)
