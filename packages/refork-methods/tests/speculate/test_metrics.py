import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refork_methods.speculate.loss import (
    DraftMetrics,
    accept_rates,
    confidence_cumprod_bias,
    kept_rates,
    tau_prob,
)

ALL = np.ones((3, 4), dtype=bool)


@pytest.mark.parametrize(("first", "last", "tau"), [(0.72, 0.63, 3.13), (0.53, 0.74, 2.29)])
def test_the_papers_chat_endpoints(first, last, tau):
    """Conditional acceptance that runs linearly from position 1 to 7."""
    accept = np.linspace(first, last, 7)[None]
    assert tau_prob(accept, np.ones((1, 7), dtype=bool)) == pytest.approx(tau, abs=0.005)


def test_positions_that_are_not_learned_add_nothing():
    accept = np.array([[0.5, 0.9], [0.8, 0.4]])
    learned = np.array([[True, False], [True, True]])
    assert tau_prob(accept, learned) == pytest.approx(1 + (0.5 + 0.8 + 0.32) / 2)
    assert accept_rates(accept, learned) == (pytest.approx(0.65), pytest.approx(0.4))
    assert accept_rates(accept, np.zeros_like(learned)) == (None, None)


@given(st.integers(0, 10_000))
def test_tau_is_one_plus_survivals(seed):
    rng = np.random.default_rng(seed)
    accept = rng.random((5, 6))
    wanted = np.mean([1 + sum(np.prod(row[: k + 1]) for k in range(6)) for row in accept])
    assert tau_prob(accept, np.ones((5, 6), dtype=bool)) == pytest.approx(wanted)


def test_kept_rates_are_those_of_blocks_that_get_there():
    agree = np.array([[1, 1, 1], [1, 0, 1], [0, 1, 1], [1, 1, 0]], dtype=float)
    learned = np.ones((4, 3), dtype=bool)
    assert kept_rates(agree, learned) == (0.75, pytest.approx(2 / 3), 0.5)
    # A block that is cut says nothing of what would have come; nobody gets behind a sure refusal.
    learned[0, 2] = False
    assert kept_rates(agree, learned) == (0.75, pytest.approx(2 / 3), 0.0)
    assert kept_rates(agree[2:3], learned[2:3]) == (0.0, None, None)


@given(st.integers(0, 10_000))
def test_kept_rates_multiply_to_the_mean_survival(seed):
    chances = np.random.default_rng(seed).random((5, 6))
    rates = kept_rates(chances, np.ones((5, 6), dtype=bool))
    assert np.cumprod(rates) == pytest.approx(np.cumprod(chances, axis=1).mean(axis=0))


def test_bias_has_a_sign():
    accept = np.full((3, 4), 0.5)
    assert confidence_cumprod_bias(accept, accept, ALL) == 0.0
    assert confidence_cumprod_bias(np.full((3, 4), 0.6), accept, ALL) > 0
    assert confidence_cumprod_bias(np.full((3, 4), 0.4), accept, ALL) < 0


def test_nothing_is_none_and_not_zero():
    none = np.zeros((0, 4))
    assert tau_prob(none, none.astype(bool)) is None
    assert confidence_cumprod_bias(none, none, none.astype(bool)) is None


def test_log_names():
    told = DraftMetrics(2, 1.0, 0.5, None, 0.55, 2.0, (0.5, None), None).to_json()
    assert told["conf"] is None
    assert told["accept_rate"] == [0.5, None]
    assert told["kept_drawn"] is None
    told = DraftMetrics(2, 1.0, 0.5, None, 0.55, 2.0, (0.5, None), None, (0.5, None), (1.0, 0.5)).to_json()
    assert (told["kept_drawn"], told["kept_greedy"]) == ([0.5, None], [1.0, 0.5])
