"""What is known of a drafter before its first round."""

import numpy as np
import pytest

from refork_methods.speculate.config import HeldOut


def test_each_law_has_its_own_and_lends_it_where_the_other_was_not_measured():
    both = HeldOut((0.5, 0.4), (0.9, 0.8))
    assert (both.of(False), both.of(True)) == ((0.5, 0.4), (0.9, 0.8))
    assert HeldOut((0.5,)).of(True) == HeldOut(greedy=(0.5,)).of(False) == (0.5,)
    assert both.known
    assert not HeldOut().known
    assert HeldOut().of(True) is None


def test_read_of_the_figures_of_a_training():
    told = {"accept_rate": [0.7, 0.6], "kept_drawn": [0.5, 0.4], "kept_greedy": [0.9, 0.8]}
    assert HeldOut.read(told, 2) == HeldOut((0.5, 0.4), (0.9, 0.8))
    assert HeldOut.read({**told, "kept_drawn": None, "kept_greedy": None}, 2) == HeldOut((0.7, 0.6))
    # Nothing was drawn with chance: the rate of both is that of greedy answers, and lent, not owned.
    assert HeldOut.read({**told, "kept_drawn": None}, 2) == HeldOut(greedy=(0.9, 0.8))


def test_a_drafter_from_before_the_laws_were_told_apart():
    assert HeldOut.read({"accept_rate": [0.7, 0.6]}, 2) == HeldOut((0.7, 0.6))


@pytest.mark.parametrize("rates", [None, "ab", [0.5], [None, 0.5], [0.5, 1.5], [0.5, "x"], [0.5, np.nan]])
def test_rates_that_are_not_all_there_are_not_known(rates):
    assert HeldOut.read({"accept_rate": rates, "kept_greedy": rates}, 2) == HeldOut()


def test_a_position_that_no_block_got_to_is_as_good_as_the_one_before():
    assert HeldOut.read({"accept_rate": [0.5, 0.25, None, None]}, 4) == HeldOut((0.5, 0.25, 0.25, 0.25))


@pytest.mark.parametrize("told", [None, 3, [], {}])
def test_no_figures(told):
    assert HeldOut.read(told, 2) == HeldOut()
