"""The closed forms of the planted worlds, held against enumeration of their own distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from refork.errors import BadInput
from refork_testbed.worlds.refusal.distribution import CLOSE, OPEN, REFUSE, RefusalDistribution
from refork_testbed.worlds.refusal.prompts import LEVELS, refusal_chances
from refork_testbed.worlds.refusal.truth import (
    free_refusal,
    lengths,
    level_weights,
    mean_variance,
    prompt_chances,
    variance,
)

Q = 0.3
LAWS = [
    RefusalDistribution(rule, steps=5, flip=flip, commit=2, early=early)
    for rule in ("P", "D", "C")
    for early in (0.0, 0.15)
    for flip in ((0.1, 0.4) if rule == "D" else (0.1,))
]


def turns(law, said=(OPEN,), mass=1.0):
    """Every turn that goes on from here, with its probability."""
    for word, p in law.next_word(Q, said).items():
        if word:
            yield from turns(law, (*said, word), mass * p)
        else:
            yield said, mass


def thoughts(law, kept, said=(OPEN,), mass=1.0):
    """Every open thinking of ``kept`` words, with its probability."""
    if len(said) == kept + 1:
        yield said[1:], mass
        return
    for word, p in law.next_word(Q, said).items():
        if word != CLOSE:
            yield from thoughts(law, kept, (*said, word), mass * p)


def refusal_mass(law, said):
    return math.fsum(p for turn, p in turns(law, said) if turn[-1] == REFUSE)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_next_word_is_a_law_everywhere(law):
    total = 0.0
    for turn, p in turns(law):
        total += p
        for place in range(len(turn) + 1):
            assert math.fsum(law.next_word(Q, turn[:place]).values()) == pytest.approx(1.0, abs=1e-12)
    assert total == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_refusal_from_every_open_thinking(law):
    for kept in range(law.steps):
        for thought, _ in thoughts(law, kept):
            exact = refusal_mass(law, (OPEN, *thought))
            assert free_refusal(law, Q, thought) == pytest.approx(exact, abs=1e-12)
    assert refusal_mass(law, (OPEN,)) == pytest.approx(Q if law.rule == "P" else 0.5, abs=1e-12)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_variance_at_every_cut_in_both_modes(law):
    for kept in range(law.steps + 1):
        found = list(thoughts(law, kept))
        mass = np.array([p for _, p in found])
        for mode in ("forced", "free"):
            if mode == "forced" or kept == law.steps:
                q = np.array([law.refusal(Q, thought) for thought, _ in found])
            else:
                q = np.array([refusal_mass(law, (OPEN, *thought)) for thought, _ in found])
            exact = float(mass @ (4 * q * (1 - q)) / mass.sum())
            assert variance(law, Q, kept, mode) == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("share", [0.2, 0.5, 0.8, 1.0])
def test_mean_variance_over_traces_cut_at_a_share_of_their_own_length(law, share):
    for mode in ("forced", "free"):
        total = 0.0
        for turn, p in turns(law):
            thought = turn[1 : turn.index(CLOSE)]
            kept = thought[: max(1, math.floor(share * len(thought) + 1e-9))]
            forced = mode == "forced" or len(kept) == law.steps
            q = law.refusal(Q, kept) if forced else free_refusal(law, Q, kept)
            total += p * 4 * q * (1 - q)
        assert mean_variance(law, [Q], share, mode) == pytest.approx(total, abs=1e-12)


@pytest.mark.parametrize("early", [0.0, 0.1])
def test_lengths_are_a_law(early):
    distribution = RefusalDistribution("P", steps=6, early=early)
    counted = np.zeros(7)
    for turn, p in turns(distribution):
        counted[turn.index(CLOSE) - 1] += p
    np.testing.assert_allclose(lengths(distribution), counted, atol=1e-12)
    for after in range(1, 7):
        rest = counted.copy()
        rest[:after] = 0
        np.testing.assert_allclose(lengths(distribution, after), rest / rest.sum(), atol=1e-12)


def test_the_published_size_has_the_stated_values():
    p, d, c = (RefusalDistribution(rule) for rule in "PDC")
    for share in (0.2, 0.4, 0.6, 0.8, 1.0):
        kept = round(20 * share)
        left = 20 - kept
        for mode in ("forced", "free"):
            assert variance(p, Q, kept, mode) == pytest.approx(4 * Q * (1 - Q), abs=1e-12)
            assert variance(c, Q, kept, mode) == (1.0 if kept <= 8 else 0.0)
        assert variance(d, Q, kept, "forced") == 0.0
        assert variance(d, Q, kept, "free") == pytest.approx(1 - 0.8 ** (2 * left), abs=1e-12)
    assert variance(d, Q, 4, "free") == pytest.approx(0.9992, abs=5e-5)
    flip = np.array([[0.9, 0.1], [0.1, 0.9]])
    for kept in range(1, 20):
        chance = np.linalg.matrix_power(flip, 20 - kept)[0, 1]
        assert variance(d, Q, kept, "free") == pytest.approx(4 * chance * (1 - chance), abs=1e-12)


def test_what_a_prompt_tells():
    q = prompt_chances(RefusalDistribution("P"))
    assert tuple(q) == refusal_chances()
    for rule in ("D", "C"):
        assert set(prompt_chances(RefusalDistribution(rule))) == {0.5}
    for intent in ("harmful", "benign"):
        assert math.fsum(level_weights(intent)) == pytest.approx(1.0, abs=1e-12)
    both = (np.array(level_weights("harmful")) + np.array(level_weights("benign"))) / 2
    np.testing.assert_allclose(both, 1 / LEVELS, atol=1e-15)


@pytest.mark.parametrize("kept", [-1, 21])
def test_cuts_outside_the_thinking_are_refused(kept):
    with pytest.raises(BadInput, match="cut"):
        variance(RefusalDistribution("P"), Q, kept, "free")


@pytest.mark.parametrize("share", [0.0, 1.2, float("nan")])
def test_shares_outside_the_thinking_are_refused(share):
    with pytest.raises(BadInput, match="share"):
        mean_variance(RefusalDistribution("P"), [Q], share, "free")
