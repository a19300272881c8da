import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refork.errors import BadInput
from refork_methods.decide import area_under_frontier, frontier


def test_dominated_options_are_off_the_frontier():
    quality = np.array([0.5, 0.6, 0.6, 0.9, 0.4])
    cost = np.array([1.0, 2.0, 3.0, 9.0, 1.0])
    assert frontier(quality, cost).tolist() == [True, True, False, True, False]
    # With latency as a second cost the third is back: nothing as good is as quick.
    assert frontier(quality, cost, np.array([1.0, 5, 1, 9, 1])).tolist() == [True, True, True, True, False]


def test_equal_options_are_both_on_it():
    assert frontier(np.ones(2), np.ones(2)).all()


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12))
def test_every_option_off_the_frontier_is_beaten_by_one_on_it(rows):
    q, c = (np.array(column, float) for column in zip(*rows, strict=True))
    on = frontier(q, c)
    assert on.any()
    for i in np.flatnonzero(~on):
        assert any(
            q[j] >= q[i] and c[j] <= c[i] and (q[j], -c[j]) != (q[i], -c[i]) for j in np.flatnonzero(on)
        )


def test_area_mixes_options_and_ignores_points_under_the_hull():
    # From .2 at cost 0 straight to 1 at cost 10; the point (5, .5) lies under that line.
    quality, cost = np.array([0.2, 0.5, 1.0, 0.3]), np.array([0.0, 5.0, 10.0, 2.0])
    assert area_under_frontier(quality, cost, 0.0, 10.0) == pytest.approx(0.6)
    assert area_under_frontier(quality, cost, 10.0, 20.0) == pytest.approx(1.0)
    assert area_under_frontier(np.array([0.7, 0.1]), np.array([0.0, 3.0]), 0.0, 4.0) == pytest.approx(0.7)


def test_budgets_that_buy_nothing_are_refused():
    with pytest.raises(BadInput, match="no option costs"):
        area_under_frontier(np.ones(1), np.ones(1), 0.0, 2.0)
    with pytest.raises(BadInput, match="no range"):
        area_under_frontier(np.ones(1), np.ones(1), 2.0, 2.0)
    with pytest.raises(BadInput, match="at least one cost"):
        frontier(np.ones(1))
    with pytest.raises(BadInput, match="NaN"):
        frontier(np.ones(1), np.array([np.nan]))
    with pytest.raises(BadInput):
        frontier(np.ones(2), np.ones(1))
