"""What a policy is worth, by enumerating everything that can happen to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, final

from refork.errors import BadInput
from refork_methods.gate.model import GENERATE, SHIP, STOP, VERIFY, CriticModel, Prices
from refork_methods.gate.policy import Number, Policy, State, Verify, rejected, start_of
from refork_methods.gate.solve import Check, Problem, in_floats

#: Actions after which an episode is stopped; only the policies of the release can run into it.
CAP = 64


def worth(policy: Policy, problem: Problem[Number]) -> Number:
    """The expected utility of a policy from a fresh first candidate on, exact but for rounding."""
    wrong, right = worth_line(policy, problem)
    return (1 - problem.prior) * wrong + problem.prior * right


def promised(
    policy: Policy, model: CriticModel, prices: Prices, horizon: int = 3, verify: Verify = "terminal"
) -> float:
    """What a model promises of a policy, over its classes of difficulty if any; exact but for rounding.

    Raises: BadInput as :func:`worth`, and for bad settings.
    """
    start = start_of(policy, model)
    total = 0.0
    for share, part in model.parts:
        problem = in_floats(part, prices, horizon, verify)
        wrong, right = worth_line(policy, problem, start)
        total += share * ((1 - problem.prior) * wrong + problem.prior * right)
    return total


def worth_line(policy: Policy, problem: Problem[Number], start: State | None = None) -> tuple[Number, Number]:
    """The expected utility given that the first candidate is wrong, and given that it is right.

    ``start`` is the state the policy starts in; None: at the problem's prior. What happens is drawn from the
    problem, whatever the policy believes: a policy may hold a wrong model, or
    run a critic again, which then says the same.

    Raises: BadInput for an action that is not open.
    """
    trajectory = _PathState(policy, problem, {check.name: check for check in problem.checks})
    return trajectory.from_(State(float(problem.prior)) if start is None else start, 0)


@final
@dataclass(frozen=True, slots=True)
class _PathState(Generic[Number]):
    policy: Policy
    problem: Problem[Number]
    checks: dict[str, Check[Number]]
    known: dict[tuple[State, int], tuple[Number, Number]] = field(default_factory=dict)

    def from_(self, state: State, taken: int) -> tuple[Number, Number]:
        """(value if the candidate is wrong, value if it is right)."""
        if (
            self.policy.blind
        ):  # what it does depends on verdicts alone, so paths that differ in belief are one
            state = State(0.0, state.used, state.candidate, state.passed, state.rejected)
        # The count matters only to those that may run into CAP. Rules never do, and without it their paths
        # meet.
        place = (state, taken if not self.policy.blind else 0)
        if place not in self.known:
            self.known[place] = self._follow(state, taken)
        return self.known[place]

    def _follow(self, state: State, taken: int) -> tuple[Number, Number]:
        p = self.problem
        action = STOP if taken >= CAP else self.policy.act(state).action
        if action == STOP:
            return p.zero, p.zero
        if action == SHIP and p.ship_loss is not None:
            return -p.ship_loss, p.reward
        if action == VERIFY:
            left = self.from_(rejected(state), taken + 1)[0] if p.retry else p.zero
            return left - p.verify, p.reward - p.verify
        if action == GENERATE:
            return self._generate(state, taken)
        if action not in self.checks:
            raise BadInput(f"{self.policy.name} chose {action!r}, which is not open here")
        return self._check(self.checks[action], state, taken)

    def _generate(self, state: State, taken: int) -> tuple[Number, Number]:
        p = self.problem
        if state.candidate + 1 >= p.horizon:
            return -p.generate, -p.generate  # paid for, and nothing left to act on
        wrong, right = self.from_(self.policy.refine(state), taken + 1)
        return (
            p.fix * right + (1 - p.fix) * wrong - p.generate,
            (1 - p.breaks) * right + p.breaks * wrong - p.generate,
        )

    def _check(self, check: Check[Number], state: State, taken: int) -> tuple[Number, Number]:
        cost = -check.price
        if check.name in self.policy.charged:
            # By way of its decimal: a Fraction of the float itself would be 0.1 plus a rounding error.
            cost = -type(check.price)(repr(float(self.policy.charged[check.name])))
        if check.name in state.used:  # a critic says the same of the same candidate
            again = self.policy.update(state, check.name, check.name in state.passed)
            wrong, right = self.from_(again, taken + 1)
            return wrong + cost, right + cost
        ends = [cost, cost]
        for passed in (True, False):
            shares = [p if passed else 1 - p for p in (check.wrong, check.right)]
            # A branch of chance 0 is not walked: a policy need not have an answer there.
            if any(shares):
                lines = self.from_(self.policy.update(state, check.name, passed), taken + 1)
                ends = [end + share * value for end, share, value in zip(ends, shares, lines, strict=True)]
        return ends[0], ends[1]
