from __future__ import annotations

import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.cliff.candidates import cliff_mass, falls
from refork_methods.cliff.kinds import SURE, cliff_kind, token_rank, top_entropy


def test_the_bound_is_the_entropy_of_a_99_to_1_coin():
    assert pytest.approx(0.0560, abs=5e-5) == SURE
    assert top_entropy(np.log([0.99, 0.01])).nats == pytest.approx(SURE)


def test_entropy_of_the_top_tokens_is_a_lower_bound_and_says_so():
    distribution = np.log(np.full(40, 1 / 40))
    some, whole = top_entropy(distribution, 20), top_entropy(distribution, None)
    assert some.lower_bound
    assert some.nats == pytest.approx(20 / 40 * np.log(40))
    assert not whole.lower_bound
    assert whole.nats == pytest.approx(np.log(40))


def test_a_partial_law_is_refused_as_full_entropy():
    with pytest.raises(BadInput, match="lower bound"):
        top_entropy(np.log([0.5, 0.2]), full=True)
    assert top_entropy(np.log([0.5, 0.5]), full=True).nats == pytest.approx(np.log(2))


def test_entropy_of_twenty_tokens_unless_told_otherwise():
    distribution = np.log(np.arange(1, 31) / 465)  # in no order of likelihood
    mine = np.sort(np.exp(distribution))[::-1]
    for top in (20, 3):
        found = top_entropy(distribution, top)
        assert found.nats == pytest.approx(-(mine[:top] * np.log(mine[:top])).sum())
        assert found.lower_bound
    assert top_entropy(distribution) == top_entropy(distribution, 20)
    assert not top_entropy(distribution, None).lower_bound
    with pytest.raises(BadInput, match=r"the 20 likeliest tokens hold 0.8817 of the probability"):
        top_entropy(distribution, full=True)
    with pytest.raises(BadInput, match=r"the 2 likeliest tokens hold 0.7000 of the probability"):
        top_entropy([np.log(0.5), np.log(0.2), -np.inf], full=True)
    sure = top_entropy([0.0, -np.inf])
    assert (sure.nats, sure.lower_bound, np.signbit(sure.nats)) == (0.0, False, False)
    assert top_entropy([1e-7]).nats == pytest.approx(0.0, abs=1e-6), "rounding above 0 is no error"
    # Less than a millionth of the probability may be missing, or be too much.
    assert top_entropy([1e-6], None).nats < 0
    assert top_entropy(np.log([1 - 1e-6])).lower_bound
    for missing, bound in ((5e-7, False), (2e-6, True)):
        assert top_entropy(np.log([0.5, 0.5 - missing])).lower_bound == bound


def test_ties_share_the_first_rank():
    distribution = np.log([0.4, 0.4, 0.2])
    assert token_rank(distribution, distribution[0]) == token_rank(distribution, distribution[1]) == 1
    assert token_rank(distribution, distribution[2]) == 3
    assert token_rank(distribution, distribution[0] - 1e-12) == 1
    assert token_rank(distribution, distribution[0] - 1e-6) == 3
    assert token_rank([0, -1, -2], -1.5, 0.5) == 2, "above by more than a tie"
    assert token_rank([0, -1, -2], -1.5, 0.25) == 3


@pytest.mark.parametrize(
    ("entropy", "rank", "kind"),
    [(0.0, 1, "deterministic"), (SURE, 1, "deterministic"), (0.06, 1, "uncertain"),
     (0.06, 2, "sampled-off"), (0.01, 2, "other")],
)  # fmt: skip
def test_the_four_cells(entropy, rank, kind):
    assert cliff_kind(entropy, rank) == kind


def test_mass_is_the_probability_of_falling():
    assert cliff_mass([0.5, 0.3, 0.1], [True, False, True]) == pytest.approx(0.6)
    assert cliff_mass([], []) == 0.0
    with pytest.raises(BadInput, match="fit together"):
        cliff_mass([0.9, 0.9], [True, True])


def test_ungraded_candidates_are_no_cliffs():
    assert falls((60, 64), (0, 64))
    assert not falls((60, 64), (0, 0))
    assert not falls((0, 0), (0, 64))


def test_refusals():
    for entropy, rank in ((-0.1, 1), (np.nan, 1), (0.5, 0)):
        with pytest.raises(BadInput, match="not possible"):
            cliff_kind(entropy, rank)
    for wrong in ([0.5], [], [-1.0, np.nan], [1e-5]):
        with pytest.raises(BadInput, match="log-probs"):
            top_entropy(wrong)


def test_sure_may_be_another_bound():
    assert [cliff_kind(0.5, rank, 0.5) for rank in (1, 2)] == ["deterministic", "other"]
    assert [cliff_kind(0.75, rank, 0.5) for rank in (1, 2)] == ["uncertain", "sampled-off"]
