"""Which of several causes is it? Tests that may be repeated, then one patch and one verification, exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias, final

from refork.errors import BadInput

Belief: TypeAlias = tuple[Fraction, ...]


@final
@dataclass(frozen=True, slots=True)
class CauseProblem:
    """Causes with a prior, and tests with their chance of failing under each; everything in rationals.

    A patch fits one cause; patching and verifying the likeliest earns ``reward`` where it is the one.
    ``repeat``: a test may be run again with fresh noise.

    Raises: BadInput for a prior that does not sum to 1, chances outside [0, 1] or a negative price.
    """

    prior: Belief
    failing: Mapping[str, Belief]
    reward: Fraction
    patch: Fraction
    verify: Fraction
    test: Fraction
    repeat: bool = True

    def __post_init__(self) -> None:
        if not self.prior or sum(self.prior) != 1 or min(self.prior) < 0:
            raise BadInput("the prior over causes must be chances that sum to 1")
        for name, chances in self.failing.items():
            if len(chances) != len(self.prior) or not all(0 <= p <= 1 for p in chances):
                raise BadInput(
                    f"test {name!r} needs one chance of failing for each of {len(self.prior)} causes"
                )
        if min(self.reward, self.patch, self.verify, self.test) < 0:
            raise BadInput("reward and prices must be 0 or more")


def patch_value(problem: CauseProblem, belief: Belief) -> Fraction:
    """What patching the likeliest cause and verifying is worth."""
    return problem.reward * max(belief) - problem.patch - problem.verify


def cause_value(problem: CauseProblem, tests: int, belief: Belief | None = None) -> Fraction:
    """The best expected utility with at most ``tests`` tests before the patch.

    Raises: BadInput for a negative number of tests. Source: the anchor problem in the code release of
    arXiv:2606.24453; its published values are for one and for at most two tests.
    """
    if tests < 0:
        raise BadInput(f"{tests} tests", hint="0 or more")
    return _value(problem, tests, problem.prior if belief is None else belief, frozenset(), {})


def _value(
    problem: CauseProblem,
    tests: int,
    belief: Belief,
    used: frozenset[str],
    known: dict[tuple[Belief, frozenset[str], int], Fraction],
) -> Fraction:
    place = (belief, used, tests)
    if place not in known:
        best = patch_value(problem, belief)
        if tests:
            for name in problem.failing:
                if name not in used:
                    best = max(best, _tested(problem, tests, belief, used, name, known))
        known[place] = best
    return known[place]


def _tested(
    problem: CauseProblem,
    tests: int,
    belief: Belief,
    used: frozenset[str],
    name: str,
    known: dict[tuple[Belief, frozenset[str], int], Fraction],
) -> Fraction:
    value = -problem.test
    spent = used if problem.repeat else used | {name}
    for failed in (True, False):
        joint = tuple(
            b * (p if failed else 1 - p) for b, p in zip(belief, problem.failing[name], strict=True)
        )
        share = sum(joint, Fraction(0))
        if share:
            after = tuple(j / share for j in joint)
            value += share * _value(problem, tests - 1, after, spent, known)
    return value
