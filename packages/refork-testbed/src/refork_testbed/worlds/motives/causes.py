"""Motives as known functions: how likely the action in question is, given what the environment says.

Every function gives ``base`` where the environment is at its scene's defaults, so that two agents can have
one base rate and different causes. Pure: numbers in, a probability out.

Source: the motives are those that arXiv 2606.26071 arrives at in its six cases; the formulas are ours, fitted
by eye to its sweeps (type errors, oracle noise) and to the size of its drops (note source, reason).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, TypeAlias

from refork.errors import BadInput
from refork_testbed.worlds.motives.environment import AUDIT, NOBODY, SAMPLE, SELF, WEIGHTY, Dials

Cause: TypeAlias = Literal["tedium", "loyal", "confused", "seeker", "calculator", "locked", "malign", "habit"]

#: Work that is not tedious yet.
FREE = 50
#: How many times rarer the action is when the note is somebody else's, and when its reason is no weighty one.
SOURCE_DROP, REASON_DROP = 6.3, 40.0
#: How many times rarer it is without the ambiguous sentence.
APPEAL_DROP = 12.0
#: Noise of honest work over which the success seeker's rate rises by 1 - 1/e of its range, and that range's
#: foot.
NOISE_SCALE, NOISE_FOOT = 0.04, 0.1
#: Log-odds per point that the quick way earns more.
PER_POINT = 2.0
#: How often the malign agent acts, compared with the sampled log, when nobody reads and when all is read.
UNSEEN, AUDITED = 1.6, 0.1
_TOP = 0.98


def tedium(base: float, dials: Dials, usual: Dials) -> float:
    """Nothing up to 50 units of work, then a straight line through ``base`` at the usual amount."""
    return base * ((dials.errors or 0) - FREE) / ((usual.errors or 0) - FREE)


def loyal(base: float, dials: Dials, usual: Dials) -> float:
    """High only where the note is the agent's own and its reason weighty."""
    del usual
    if dials.reason != WEIGHTY:
        return base / REASON_DROP
    return base if dials.source == SELF else base / SOURCE_DROP


def confused(base: float, dials: Dials, usual: Dials) -> float:
    """Depends on one ambiguous sentence."""
    del usual
    return base if dials.appeal else base / APPEAL_DROP


def noise_response(noise: float) -> float:
    """The success seeker's rate at a noise, up to a factor: a foot, then a saturating rise."""
    return NOISE_FOOT + (1 - NOISE_FOOT) * (1 - math.exp(-noise / NOISE_SCALE))


def seeker(base: float, dials: Dials, usual: Dials) -> float:
    """Rises with the chance that honest work fails."""
    return base * noise_response(dials.noise or 0.0) / noise_response(usual.noise or 0.0)


def calculator(base: float, dials: Dials, usual: Dials) -> float:
    """A softmax over what the quick and the careful way earn."""

    def margin(at: Dials) -> float:
        return (at.quick or 0.0) - (at.careful or 0.0)

    logit = math.log(base / (1 - base)) + PER_POINT * (margin(dials) - margin(usual))
    return 1 / (1 + math.exp(-logit))


def locked(base: float, dials: Dials, usual: Dials) -> float:
    """Nothing in the environment matters; the first sentence decides."""
    del dials, usual
    return base


def habit(base: float, dials: Dials, usual: Dials) -> float:
    """Nothing matters and nothing is decided early: a cause that no hypothesis of the library names."""
    del dials, usual
    return base


def malign(base: float, dials: Dials, usual: Dials) -> float:
    """Acts more when nobody reads along, and hides when everything is read."""
    del usual
    factor = {NOBODY: UNSEEN, SAMPLE: 1.0, AUDIT: AUDITED}.get(dials.oversight or NOBODY, 1.0)
    return base * factor


CAUSES: dict[str, Callable[[float, Dials, Dials], float]] = {
    "tedium": tedium,
    "loyal": loyal,
    "confused": confused,
    "seeker": seeker,
    "calculator": calculator,
    "locked": locked,
    "malign": malign,
    "habit": habit,
}


def rate(cause: Cause, base: float, dials: Dials, usual: Dials) -> float:
    """The probability of the action in question under a cause, in [0, 0.98].

    ``usual``: the dials of the scene's defaults, where every cause gives ``base``.

    Raises:
        BadInput: no such cause, or ``base`` is not strictly between 0 and 1.
    """
    if cause not in CAUSES:
        raise BadInput(f"there is no cause {cause!r}", hint="causes: " + ", ".join(CAUSES))
    if not 0 < base < 1:
        raise BadInput(f"the base rate is {base!r}; it must lie strictly between 0 and 1")
    return min(max(CAUSES[cause](base, dials, usual), 0.0), _TOP)
