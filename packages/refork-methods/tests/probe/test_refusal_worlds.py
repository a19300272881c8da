"""The planted refusal worlds seen through the instruments that they were planted for."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.probe.ceiling import auroc_ceiling
from refork_methods.stance.segments import oscillations
from refork_testbed.worlds.refusal.distribution import NOISE, RefusalDistribution, stances
from refork_testbed.worlds.refusal.truth import level_weights, performative_share, prompt_chances


@pytest.mark.parametrize(
    ("spread", "limit"), [(0.1, 0.989), (0.2, 0.968), (0.5, 0.905), (1.0, 5 / 6), (2.0, 0.757)]
)
def test_the_ceiling_of_world_p_is_that_of_the_beta_law(spread, limit):
    found = auroc_ceiling(prompt_chances(RefusalDistribution("P"), spread))
    assert found == pytest.approx(limit, abs=6e-4)


def test_the_prompt_tells_nothing_in_d_and_c():
    for rule in ("D", "C"):
        assert auroc_ceiling(prompt_chances(RefusalDistribution(rule))) == 0.5


def test_within_an_intent_the_ceiling_is_lower():
    q = prompt_chances(RefusalDistribution("P"))
    for intent in ("harmful", "benign"):
        within = auroc_ceiling(q, np.array(level_weights(intent)))
        assert 0.9 < within < auroc_ceiling(q)


def words(law, chance=0.5, thought=()):
    """Every full thinking with its probability."""
    if len(thought) == law.steps:
        yield thought, 1.0
        return
    for word, p in law.next_word(chance, ("<<", *thought)).items():
        for rest, q in words(law, chance, (*thought, word)):
            yield rest, p * q


@pytest.mark.parametrize(("rule", "commit"), [("P", 0), ("D", 0), ("C", 0), ("C", 1), ("C", 3), ("C", 5)])
def test_the_share_of_performances_by_enumeration(rule, commit):
    distribution = RefusalDistribution(rule, steps=6, commit=commit)
    turned = still = 0.0
    for thought, p in words(distribution):
        for swing in oscillations(stances(thought)):
            before, after = (
                distribution.refusal(0.3, thought[: side.end]) for side in (swing.before, swing.after)
            )
            turned += p
            still += p * (before == after)
    assert performative_share(distribution) == pytest.approx(still / turned, abs=1e-12)


def test_after_the_word_that_decides_all_is_performance():
    distribution = RefusalDistribution("C", steps=6, commit=2)
    for thought, _ in itertools.islice(words(distribution), 500):
        for swing in oscillations(stances(thought)):
            if swing.before.end > distribution.commit:
                sides = [thought[: side.end] for side in (swing.before, swing.after)]
                assert distribution.refusal(0.5, sides[0]) == distribution.refusal(0.5, sides[1])


def test_shares_that_have_no_closed_form_are_refused():
    for distribution in (RefusalDistribution("P", early=0.1), RefusalDistribution("C", steps=1, commit=0)):
        with pytest.raises(BadInput, match="closed form"):
            performative_share(distribution)
    assert math.fsum(NOISE.values()) == pytest.approx(1.0)
