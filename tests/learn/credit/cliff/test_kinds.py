from __future__ import annotations

import numpy as np
import pytest

from ramify.core.errors import BadInput
from ramify.learn.credit.cliff.candidates import cliff_mass, falls
from ramify.learn.credit.cliff.kinds import SURE, cliff_kind, token_rank, top_entropy


def test_the_bound_is_the_entropy_of_a_99_to_1_coin():
    assert pytest.approx(0.0560, abs=5e-5) == SURE
    assert top_entropy(np.log([0.99, 0.01])).nats == pytest.approx(SURE)


def test_entropy_of_the_top_tokens_is_a_lower_bound_and_says_so():
    law = np.log(np.full(40, 1 / 40))
    some, whole = top_entropy(law, 20), top_entropy(law, None)
    assert some.lower_bound
    assert some.nats == pytest.approx(20 / 40 * np.log(40))
    assert not whole.lower_bound
    assert whole.nats == pytest.approx(np.log(40))


def test_a_partial_law_is_refused_as_full_entropy():
    with pytest.raises(BadInput, match="lower bound"):
        top_entropy(np.log([0.5, 0.2]), full=True)
    assert top_entropy(np.log([0.5, 0.5]), full=True).nats == pytest.approx(np.log(2))


def test_ties_share_the_first_rank():
    law = np.log([0.4, 0.4, 0.2])
    assert token_rank(law, law[0]) == token_rank(law, law[1]) == 1
    assert token_rank(law, law[2]) == 3
    assert token_rank(law, law[0] - 1e-12) == 1


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
    with pytest.raises(BadInput, match="not possible"):
        cliff_kind(-0.1, 1)
    with pytest.raises(BadInput, match="log-probs"):
        top_entropy([0.5])
