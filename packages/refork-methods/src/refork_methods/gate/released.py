"""The policies as the reference release replays them, so that both versions can be reported side by side.

What differs from ours, read in its code: verifying always ends the episode; the controllers may run a
critic again on the same candidate and count its verdict again; greedy keeps its belief for a new candidate;
the planner looks one critic ahead on 51 beliefs by nearest point, and plans one candidate more than it has;
the gate on the tests pays the syntax check's price; the pipeline leaves the tests out; best of n verifies
the last draw.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np
from jaxtyping import Float

from refork.errors import BadInput
from refork_methods.gate.controller import Method
from refork_methods.gate.model import GENERATE, STOP, VERIFY, CriticModel, Prices
from refork_methods.gate.policy import Choice, Policy, State, after, refined
from refork_methods.gate.rules import always_verify, best_of_n, gate, pipeline, reflexion, self_refine
from refork_methods.gate.solve import Problem, greedy_q, in_floats

POINTS = 51


@final
@dataclass(frozen=True, slots=True)
class ReleasedController:
    """A controller of the release, kept as it is for comparison. Source: code of arXiv:2606.24453."""

    model: CriticModel
    prices: Prices
    horizon: int = 3
    method: Method = "dp"
    charged: Mapping[str, float] = field(default_factory=dict)
    problem: Problem[float] = field(init=False, repr=False, compare=False)
    later: tuple[Float[np.ndarray, "points"], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        problem = in_floats(self.model, self.prices, self.horizon, "terminal")
        object.__setattr__(self, "problem", problem)
        # values[h]: what candidate h is worth at each belief; the one beyond the last can still be verified.
        beliefs = np.linspace(0, 1, POINTS)
        values = [np.array([max(problem.reward * b - problem.verify, 0.0) for b in beliefs])]
        for step in range(self.horizon - 1, -1, -1):
            values.insert(
                0, np.array([max(self._plan(b, step, values[0]).values()) for b in beliefs.tolist()])
            )
        object.__setattr__(self, "later", tuple(values))

    @property
    def name(self) -> str:
        """The method, marked."""
        return f"{self.method} as released"

    @property
    def blind(self) -> bool:
        """It acts on its belief."""
        return False

    def act(self, state: State) -> Choice:
        """The next action, critics already run among them."""
        if self.method == "greedy":
            none: frozenset[str] = frozenset()
            # No horizon either: a further candidate always looks possible.
            q = greedy_q(replace(self.problem, horizon=state.candidate + 2), state.belief, none,
                         state.candidate, fresh=self.problem.prior)  # fmt: skip
        else:
            belief = float(np.linspace(0, 1, POINTS)[_nearest(state.belief)])
            q = self._plan(belief, state.candidate, self.later[state.candidate + 1])
        order = [VERIFY, STOP, GENERATE, *self.model.names]
        action = max((name for name in order if name in q), key=lambda name: q[name])
        return Choice(action, q, None, "as the release does")

    def update(self, state: State, critic: str, passed: bool) -> State:
        """A verdict moves the belief every time, also where it was given before."""
        moved = after(state.belief, self.model.critic(critic), passed)
        name = frozenset((critic,))
        return replace(
            state,
            belief=moved,
            used=state.used | name,
            passed=state.passed | (name if passed else frozenset()),
        )

    def refine(self, state: State) -> State:
        """A new candidate; greedy keeps the old belief."""
        moved = refined(state.belief, self.model.kernel) if self.method == "dp" else state.belief
        return State(moved, candidate=state.candidate + 1)

    def _plan(self, belief: float, step: int, later: Float[np.ndarray, "points"]) -> dict[str, float]:
        p = self.problem

        def drawn(at: float) -> float:
            if step + 1 >= p.horizon:
                return -p.generate
            return -p.generate + float(later[_nearest(refined(at, self.model.kernel))])

        def settled(at: float) -> float:
            return max(p.reward * at - p.verify, 0.0, drawn(at) if step + 1 < p.horizon else 0.0)

        table = {VERIFY: p.reward * belief - p.verify, STOP: 0.0, GENERATE: drawn(belief)}
        for critic in self.model.critics:
            passes = critic.right * belief + critic.wrong * (1 - belief)
            up, down = (settled(after(belief, critic, passed)) for passed in (True, False))
            table[critic.name] = -critic.price + passes * up + (1 - passes) * down
        return table


def released_policies(
    model: CriticModel,
    prices: Prices,
    horizon: int = 3,
    *,
    syntax: str | None = "syntax",
    test: str | None = "test",
    reviewer: str | None = "llm",
) -> dict[str, Policy]:
    """The release's ten policies over the critics that play its three parts; None leaves a part out.

    They are to be evaluated with ``verify="terminal"``. Raises BadInput for a part that is no critic here.
    """
    parts = [name for name in (syntax, test, reviewer) if name is not None]
    if not parts:
        raise BadInput("the release's policies need at least one critic")
    wrong_price = {test: model.critic(syntax).price} if test is not None and syntax is not None else {}
    rules: list[Policy] = [
        always_verify(model, horizon),
        best_of_n(model, horizon),
        self_refine(model, horizon),
    ]
    rules += [
        replace(gate(model, horizon, name), charged=wrong_price if name == test else {}) for name in parts
    ]
    cheap = [name for name in (syntax, reviewer) if name is not None]
    if cheap:
        rules.append(pipeline(model, horizon, cheap))
    if test is not None:
        rules.append(reflexion(model, horizon, test))
    rules += [ReleasedController(model.only(parts), prices, horizon, method) for method in ("greedy", "dp")]
    return {policy.name: policy for policy in rules}


def _nearest(belief: float) -> int:
    """The grid point nearest to a belief, the lower of two."""
    return int(np.argmin(np.abs(np.linspace(0, 1, POINTS) - belief)))
