"""The best value and action of small problems without any rounding: what the grid solver is held against."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias, final

from refork.errors import CannotDo
from refork_methods.gate.model import GENERATE, SHIP, STOP, VERIFY, CriticModel, Prices
from refork_methods.gate.policy import Verify, pass_chance, posterior, transition
from refork_methods.gate.solve import Problem, in_rationals

SearchState: TypeAlias = tuple[Fraction, frozenset[str], int]
#: Critics times candidates above which rationals take too long: up to 3 to that power are the beliefs.
MOST = 9


@final
@dataclass(frozen=True, slots=True)
class ExactSolution:
    """Backward induction over every reachable belief, in rationals."""

    problem: Problem[Fraction]
    _known: dict[SearchState, Fraction] = field(default_factory=dict)

    def value(
        self, belief: Fraction | None = None, used: frozenset[str] = frozenset(), candidate: int = 0
    ) -> Fraction:
        """The best expected utility from a state on; the prior, nothing used and the first by default."""
        at = self.problem.prior if belief is None else belief
        place = (at, used, candidate)
        if place not in self._known:
            self._known[place] = max(self.q(at, used, candidate).values())
        return self._known[place]

    def q(self, belief: Fraction, used: frozenset[str], candidate: int) -> dict[str, Fraction]:
        """What each open action is worth."""
        p = self.problem
        table = {STOP: p.zero}
        if p.ship_loss is not None:
            table[SHIP] = p.reward * belief - p.ship_loss * (1 - belief)
        table[VERIFY] = p.reward * belief - p.verify + (1 - belief) * self._refused(candidate)
        if candidate + 1 < p.horizon:
            table[GENERATE] = self._next(belief, candidate)
        for check in p.checks:
            if check.name in used:
                continue
            passes = pass_chance(belief, check.right, check.wrong)
            now = used | {check.name}
            table[check.name] = -check.price
            for passed, share in ((True, passes), (False, 1 - passes)):
                if share:
                    moved = posterior(belief, check.right, check.wrong, passed)
                    table[check.name] += share * self.value(moved, now, candidate)
        return table

    def best(self, belief: Fraction, used: frozenset[str], candidate: int) -> str:
        """The best action; of equal ones the first in the order stop, ship, verify, generate, critics."""
        table = self.q(belief, used, candidate)
        return max(table, key=lambda action: table[action])

    def _next(self, belief: Fraction, candidate: int) -> Fraction:
        p = self.problem
        return -p.generate + self.value(transition(belief, p.fix, p.breaks), frozenset(), candidate + 1)

    def _refused(self, candidate: int) -> Fraction:
        """What is left once the verifier refused the candidate: stop, or refine what is surely wrong."""
        p = self.problem
        if not p.retry or candidate + 1 >= p.horizon:
            return p.zero
        return max(p.zero, self._next(p.zero, candidate))


def solve_exact(
    model: CriticModel, prices: Prices, horizon: int = 3, verify: Verify = "terminal"
) -> ExactSolution:
    """The exact solution of a small problem: up to three critics and three candidates, or as many beliefs.

    Raises: CannotDo for a larger one, BadInput for bad settings.
    Source: the problem is that of arXiv:2606.24453; used critics in the state, retry, shipping and rational
    arithmetic are ours.
    """
    problem = in_rationals(model, prices, horizon, verify)
    power = len(problem.checks) * horizon
    if power > MOST:
        raise CannotDo(
            f"{len(problem.checks)} critics and {horizon} candidates have up to 3^{power} beliefs",
            hint="solve on a grid, which brackets the value",
        )
    return ExactSolution(problem)
