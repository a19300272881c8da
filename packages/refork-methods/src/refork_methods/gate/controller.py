"""The Bayes controller: the next action by expected utility, with what every action is worth and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, final

from refork.errors import BadInput
from refork_methods.gate.model import GENERATE, SHIP, STOP, VERIFY, CriticModel, Prices
from refork_methods.gate.policy import (
    Choice,
    State,
    Verify,
    fresh,
    observed,
    pass_chance,
    regenerated,
)
from refork_methods.gate.solve import ClassSolution, GridSolution, greedy_q, solve_classes, solve_grid

# One sentence that says why an action was chosen.


def reason_for(action: str, q: Mapping[str, float], state: State, model: CriticModel, prices: Prices) -> str:
    """Why ``action``: what it nets, what it leads to, and how far the next best is behind."""
    others = {name: value for name, value in q.items() if name != action}
    if action == STOP and not others:
        return "the verifier refused the last candidate; nothing else is open"
    if action == STOP:
        best = max(others, key=lambda name: others[name])
        return (
            f"at a belief of {state.belief:.3f} nothing is worth its price; "
            f"the best of the rest, {best}, nets {others[best]:+.2f}"
        )
    # A critic that tells nothing only puts off what comes after it; it is no alternative.
    idle = {critic.name for critic in model.critics if critic.gap == 0}
    second = max((name for name in others if name not in idle), key=lambda name: others[name])
    lead = f"{q[action]:+.2f} against {others[second]:+.2f} for {second}"
    if action == VERIFY:
        return (
            f"a belief of {state.belief:.3f} makes the reward of {prices.reward:g} "
            f"worth the verifier's {prices.verify:g}: {lead}"
        )
    if action == SHIP:
        return f"the chance of being wrong, {1 - state.belief:.3f}, does not pay for a verification: {lead}"
    if action == GENERATE:
        return (
            f"a new candidate for {prices.generate:g} moves the belief from {state.belief:.3f} "
            f"to {regenerated(state, model.kernel).belief:.3f}: {lead}"
        )
    critic = model.critic(action)
    up, down = (observed(state, critic, passed).belief for passed in (True, False))
    share = pass_chance(state.belief, critic.right, critic.wrong)
    if state.hidden:
        passes = zip(state.hidden, critic.classes, strict=True)
        share = sum(
            pass_chance(1.0, right * alpha, 0.0) + wrong * beta for (wrong, right), (alpha, beta) in passes
        )
    return (
        f"for {critic.price:g}, {action} moves the belief from {state.belief:.3f} to {up:.3f} "
        f"if it passes (chance {share:.2f}) and to {down:.3f} if not: {lead}"
    )


# The Bayes controller: the next action by expected utility, with what every action is worth and why.

Method: TypeAlias = Literal["dp", "greedy"]

METHODS: tuple[Method, ...] = ("dp", "greedy")

#: Values closer than this are equal; the action that comes first in the table is taken.
TIE = 1e-9


@final
@dataclass(frozen=True, slots=True)
class BayesController:
    """Chooses among critics, refine, verify, ship and stop at a belief.

    ``dp`` plans over all ``horizon`` candidates, ``lookahead`` critics of each ahead (None: all); ``greedy``
    looks one step ahead. Used critics are part of the state, so a verdict never counts twice.

    Raises: BadInput or CannotDo for settings that cannot be solved.
    Source: arXiv:2606.24453; deviations are listed at ``solve_grid`` and ``greedy_q``.
    """

    model: CriticModel
    prices: Prices
    horizon: int = 3
    verify: Verify = "terminal"
    method: Method = "dp"
    lookahead: int | None = None
    solution: GridSolution | ClassSolution = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        method_from(self.method)
        solved: GridSolution | ClassSolution
        if self.model.classes:
            if self.lookahead is not None:
                raise BadInput(
                    "with classes of difficulty all critics are planned ahead; leave lookahead out"
                )
            solved = solve_classes(self.model, self.prices, self.horizon, self.verify)
        else:
            solved = solve_grid(self.model, self.prices, self.horizon, self.verify, lookahead=self.lookahead)
        object.__setattr__(self, "solution", solved)

    @property
    def name(self) -> str:
        """The method."""
        return self.method

    @property
    def blind(self) -> bool:
        """It acts on the belief."""
        return False

    @property
    def charged(self) -> Mapping[str, float]:
        """It pays the model's prices."""
        return {}

    def start(self) -> State:
        """The state of a fresh first candidate."""
        return fresh(self.model)

    def value(self) -> tuple[float, float]:
        """The bracket of the best expected utility from a fresh first candidate on, its cost spent."""
        return self.solution.value()

    def act(self, state: State) -> Choice:
        """The next action. Raises BadInput for a candidate beyond the horizon or an unknown critic."""
        self._known(state)
        if isinstance(self.solution, ClassSolution):
            if not state.hidden:
                raise BadInput(
                    "this state says nothing of the difficulty, and the policy plans with classes of it",
                    hint="begin with the policy's start()",
                )
            by = self.solution.greedy if self.method == "greedy" else self.solution.q
            worths = by(state.hidden, state.used, state.candidate)
            table = {action: (value, value) for action, value in worths.items()}
        elif self.method == "greedy":
            q = greedy_q(self.solution.problem, state.belief, state.used, state.candidate)
            table = {action: (value, value) for action, value in q.items()}
        else:
            table = self.solution.q(state.belief, state.used, state.candidate)
        if state.rejected:  # wrong for certain: asking again, even for nothing, would go on for ever
            table = {action: table[action] for action in (STOP, GENERATE) if action in table}
        # The lower bounds decide: a known plan attains each of them, while an upper bound may be out of
        # reach.
        q = {action: low for action, (low, _) in table.items()}
        bracket = (max(q.values()), max(high for _, high in table.values())) if self.method == "dp" else None
        best = max(q.values())
        action = next(name for name, value in q.items() if value >= best - TIE)
        return Choice(action, q, bracket, reason_for(action, q, state, self.model, self.prices))

    def update(self, state: State, critic: str, passed: bool) -> State:
        """The state after a critic's verdict. Raises BadInput for an unknown or a used critic."""
        return observed(state, self.model.critic(critic), passed)

    def refine(self, state: State) -> State:
        """The state of the next candidate, refined from this one."""
        return regenerated(state, self.model.kernel)

    def _known(self, state: State) -> None:
        if state.candidate >= self.horizon:
            raise BadInput(
                f"candidate {state.candidate} is beyond the horizon of {self.horizon}",
                hint="candidates are counted from 0",
            )
        for name in state.used:
            self.model.critic(name)


def method_from(text: str) -> Method:
    """A method by name. Raises BadInput."""
    for known in METHODS:
        if known == text:
            return known
    raise BadInput(f"unknown method {text!r}", hint=f"one of {', '.join(METHODS)}")
