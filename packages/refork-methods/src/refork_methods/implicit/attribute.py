"""Which step lost it: rules that name the decisive step of a failed trajectory from its step scores.

Source: arXiv 2606.26080; all three rules are in its released code. How far a rule is ahead of its runner-up
(the margin), and leaving steps out that are not whole, are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from refork.errors import BadInput

AttributionRule = Literal["lowest", "running-sum", "drop"]
ATTRIBUTION_RULES: tuple[AttributionRule, ...] = get_args(AttributionRule)


@dataclass(frozen=True, slots=True)
class Decisive:
    """The step (0-based) a rule names, and how far ahead of its second choice it is, in score units.

    ``margin`` is None where there was nothing to choose: one scorable step, or the rule's own fall-back
    (``pointed`` is false then: no score points at any step).
    """

    step: int
    rule: AttributionRule
    margin: float | None
    pointed: bool = True


@dataclass(frozen=True, slots=True)
class StepAccuracy:
    """How often the named step is the marked one; ``mean_error`` is the mean distance in steps.

    ``exact`` compares integers. ``as_text`` counts a step as right where its digits occur in the marked
    one's (1 in 10), as a public evaluator does; it is shown to be told apart, never to be reported alone.
    """

    exact: float
    as_text: float
    mean_error: float
    count: int


def decisive_step(steps: ArrayLike, rule: AttributionRule = "lowest") -> Decisive:
    """The step of a failed trajectory that a rule holds responsible.

    ``lowest``: the single lowest score (the first step where none is below 0). ``running-sum``: where
    the sum of scores so far is lowest. ``drop``: the sharpest fall from one step to the next (the first
    step where there is none). Ties go to the earlier step. NaN steps cannot be named.

    Raises:
        BadInput: an unknown rule, or no step with a score.
    """
    values = np.asarray(steps, dtype=np.float64)
    known = np.flatnonzero(~np.isnan(values))
    if rule not in ATTRIBUTION_RULES:
        raise BadInput(f"unknown attribution rule {rule!r}", hint=f"known: {', '.join(ATTRIBUTION_RULES)}")
    if not len(known):
        raise BadInput("no step of this trajectory has a score, so none can be named")
    scored = values[known]
    if len(known) == 1:
        return Decisive(int(known[0]), rule, None)
    if rule == "lowest":
        criterion = scored
        nothing = bool((scored >= 0).all())
    elif rule == "running-sum":
        criterion, nothing = np.cumsum(scored), False
    else:
        # The first step falls from nothing. A difference of exactly 0 still counts as a fall, as in the
        # released code.
        criterion = np.concatenate([[np.inf], np.diff(scored)])
        nothing = bool((criterion > 0).all())
    if nothing:
        return Decisive(int(known[0]), rule, None, pointed=False)
    best = int(np.argmin(criterion))
    others = np.delete(criterion, best)
    margin = float(others.min() - criterion[best]) if np.isfinite(others).any() else None
    return Decisive(int(known[best]), rule, margin)


def step_accuracy(named: Sequence[int], marked: Sequence[int]) -> StepAccuracy:
    """Share of trajectories whose named step equals the marked one, as integers.

    Raises:
        BadInput: lengths that differ, nothing to compare, or a step that is not an integer.
    """
    if len(named) != len(marked) or not len(named):
        raise BadInput(f"{len(named)} named steps cannot be compared with {len(marked)} marked ones")
    for step in (*named, *marked):
        if isinstance(step, bool) or not isinstance(step, (int, np.integer)):
            raise BadInput(f"step {step!r} is not an integer", hint="compare step numbers, not their text")
    pairs = [(int(a), int(b)) for a, b in zip(named, marked, strict=True)]
    return StepAccuracy(
        exact=float(np.mean([a == b for a, b in pairs])),
        as_text=float(np.mean([str(a) in str(b) for a, b in pairs])),
        mean_error=float(np.mean([abs(a - b) for a, b in pairs])),
        count=len(pairs),
    )
