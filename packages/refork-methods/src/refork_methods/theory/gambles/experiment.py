"""Risky choice: two gambles, each a list of outcomes with their chances."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, final

import numpy as np
from jaxtyping import Float

from refork.errors import BadInput
from refork.stats.results import Array
from refork.types import Json

DOMAIN: Final = "gambles"
#: Branches (outcome, chance).
Gamble: TypeAlias = tuple[tuple[float, float], ...]


@final
@dataclass(frozen=True, slots=True)
class GambleExperiment:
    """Pairs of gambles. An outcome is an amount, below 0 for a loss; a gamble's chances sum to 1.

    Raises: BadInput for no pair, a gamble without a branch, an outcome that is not finite, chances that are
        negative or do not sum to 1, outcomes that are all 0, or options that never differ.
    """

    a: tuple[Gamble, ...]
    b: tuple[Gamble, ...]

    def __post_init__(self) -> None:
        if not self.a or len(self.a) != len(self.b):
            raise BadInput(
                f"{len(self.a)} gambles A and {len(self.b)} gambles B", hint="as many, and one or more"
            )
        for gamble in (*self.a, *self.b):
            _check(gamble)
        if not any(outcome for gamble in (*self.a, *self.b) for outcome, _ in gamble):
            raise BadInput("every outcome is 0")
        if self.a == self.b:
            raise BadInput("the two gambles are the same in every pair: no theory can be told from another")

    @classmethod
    def of(cls, pairs: Sequence[tuple[Any, Any]]) -> GambleExperiment:
        """An experiment from pairs of lists of (outcome, chance). Raises BadInput as the class."""
        try:
            sides = [
                tuple(tuple((float(x), float(p)) for x, p in pair[side]) for pair in pairs) for side in (0, 1)
            ]
        except (TypeError, ValueError, IndexError) as error:
            raise BadInput("gambles must be pairs of lists of (outcome, chance)") from error
        return cls(sides[0], sides[1])

    @property
    def domain(self) -> str:
        """Always ``gambles``."""
        return DOMAIN

    @property
    def stimuli(self) -> int:
        """How many pairs there are."""
        return len(self.a)

    @property
    def scale(self) -> float:
        """The largest outcome, gain or loss: amounts are divided by it before they are compared."""
        return max(abs(outcome) for gamble in (*self.a, *self.b) for outcome, _ in gamble)

    def context(self) -> Json:
        """``scale``."""
        return {"scale": self.scale}

    def stimulus(self, index: int) -> Json:
        """Branches of ``a`` and ``b`` as [outcome, chance], and the experiment's ``scale``."""
        sides = {"a": self.a[index], "b": self.b[index]}
        return {"scale": self.scale, **{name: [list(branch) for branch in of] for name, of in sides.items()}}

    def arrays(self) -> tuple[Float[Array, "stimuli 2 branches"], Float[Array, "stimuli 2 branches"]]:
        """Outcomes and chances, worst first; short gambles are filled up with their worst at chance 0."""
        width = max(len(gamble) for gamble in (*self.a, *self.b))
        outcomes = np.zeros((self.stimuli, 2, width))
        chances = np.zeros_like(outcomes)
        for row, pair in enumerate(zip(self.a, self.b, strict=True)):
            for side, gamble in enumerate(pair):
                branches = sorted(gamble)
                # The worst outcome at chance 0 moves neither sums nor cumulative weights.
                filled = [(branches[0][0], 0.0)] * (width - len(branches)) + branches
                outcomes[row, side] = [x for x, _ in filled]
                chances[row, side] = [p for _, p in filled]
        return outcomes, chances

    def to_json(self) -> Json:
        """The design as plain JSON."""
        sides = {"a": self.a, "b": self.b}
        return {
            "domain": DOMAIN,
            **{name: [[list(branch) for branch in g] for g in of] for name, of in sides.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], where: str | None = None) -> GambleExperiment:
        """Inverse of :meth:`to_json`. Raises BadInput."""
        a, b = data.get("a"), data.get("b")
        if not isinstance(a, list) or not isinstance(b, list) or len(a) != len(b):
            raise BadInput("the experiment has no lists 'a' and 'b' of one length", where=where)
        try:
            return cls.of(list(zip(a, b, strict=True)))
        except BadInput as error:
            raise BadInput(error.what, where=where, hint=error.hint) from error


def _check(gamble: Gamble) -> None:
    if not gamble:
        raise BadInput("a gamble without a branch")
    if not all(math.isfinite(x) for x, _ in gamble):
        raise BadInput("an outcome is not finite")
    if not all(p >= 0 for _, p in gamble) or not math.isclose(sum(p for _, p in gamble), 1, abs_tol=1e-9):
        raise BadInput(f"the chances {[p for _, p in gamble]} must be 0 or more and sum to 1")
    real = [x for x, p in gamble if p > 0]
    if len(set(real)) < len(real):
        raise BadInput(f"the outcomes {real} name one amount twice", hint="add their chances up")


def random_gambles(
    rng: np.random.Generator, pairs: int, *, top: int = 100, losses: bool = True
) -> GambleExperiment:
    """Pairs of gambles of two branches: whole outcomes, chances in steps of 0.05, none better throughout.

    With ``losses`` a third of the pairs are of gains, a third of losses and a third mixed.

    Raises: BadInput for no pair, or outcomes that cannot differ.
    """
    if pairs < 1 or top < 10:
        raise BadInput(f"{pairs} pairs of outcomes up to {top}", hint="at least one, and 10")
    found: list[tuple[Gamble, Gamble]] = []
    while len(found) < pairs:
        kind = len(found) % 3 if losses else 0
        low, high = ((0, top), (-top, 0), (-top, top))[kind]
        one, other = (_two_branches(rng, low, high) for _ in range(2))
        if one[0][0] == other[0][0] or one[1][0] == other[1][0]:
            continue
        # The worst of one is worse and its best better: a matter of taste.
        if (one[0][0] < other[0][0]) == (one[1][0] > other[1][0]) and _near(one, other, top):
            found.append((one, other))
    return GambleExperiment(tuple(a for a, _ in found), tuple(b for _, b in found))


def _two_branches(rng: np.random.Generator, low: int, high: int) -> Gamble:
    worst, best = sorted(rng.choice(np.arange(low, high + 1), size=2, replace=False).tolist())
    chance = int(rng.integers(1, 20))
    # Rounded, as people are shown these numbers: 1 - 0.9 is 0.0999...
    return (float(worst), round(1 - chance / 20, 2)), (float(best), round(chance / 20, 2))


def _near(one: Gamble, other: Gamble, top: int) -> bool:
    """Whether the expected values are close enough for tastes to matter."""
    means = [sum(x * p for x, p in gamble) for gamble in (one, other)]
    return abs(means[0] - means[1]) < 0.25 * top
