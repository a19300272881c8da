"""One-line rules: what a controller has to beat before it is worth having."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, final

from refork.errors import BadInput
from refork_methods.gate.model import GENERATE, STOP, VERIFY, CriticModel
from refork_methods.gate.policy import Choice, State, fresh, observed, regenerated

#: The action of a state, and why.
Decide: TypeAlias = Callable[[State], tuple[str, str]]


@final
@dataclass(frozen=True, slots=True)
class Rule:
    """A policy that looks only at verdicts; its belief is tracked all the same, as a confidence score."""

    name: str
    model: CriticModel
    decide: Decide
    charged: Mapping[str, float] = field(default_factory=dict)

    @property
    def blind(self) -> bool:
        """It does not act on the belief."""
        return True

    def start(self) -> State:
        """The state of a fresh first candidate."""
        return fresh(self.model)

    def act(self, state: State) -> Choice:
        """The next action."""
        action, why = self.decide(state)
        return Choice(action, {}, None, why)

    def update(self, state: State, critic: str, passed: bool) -> State:
        """The state after a critic's verdict. Raises BadInput for an unknown or a used critic."""
        return observed(state, self.model.critic(critic), passed)

    def refine(self, state: State) -> State:
        """The state of the next candidate."""
        return regenerated(state, self.model.kernel)


def stop(model: CriticModel) -> Rule:
    """Leave it: worth 0, and hard to beat where verifying is dear."""
    return Rule("stop", model, lambda state: (STOP, "this rule always stops"))


def always_verify(model: CriticModel, horizon: int) -> Rule:
    """Verify at once; where a refused candidate may be refined, refine it and verify again."""

    def decide(state: State) -> tuple[str, str]:
        return _next_or_stop(state, horizon) if state.rejected else (VERIFY, "this rule verifies unseen")

    return Rule("always_verify", model, decide)


def best_of_n(model: CriticModel, horizon: int, n: int | None = None) -> Rule:
    """Draw ``n`` candidates (None: the horizon) and verify the last.

    Without a critic no draw is known to be better than another, so this only wastes draws, as in the release
    of arXiv:2606.24453. With one, see :func:`reflexion`: verifying the first draw that passes is choosing the
    best of n by a yes-or-no critic, without paying for the draws after it.

    Raises: BadInput for ``n`` outside 1 .. horizon.
    """
    draws = horizon if n is None else n
    if not 1 <= draws <= horizon:
        raise BadInput(f"best of {draws} within a horizon of {horizon} candidates")

    def decide(state: State) -> tuple[str, str]:
        if state.rejected:
            return _next_or_stop(state, horizon)
        if state.candidate + 1 < draws:
            return GENERATE, f"draw {state.candidate + 2} of {draws}"
        return VERIFY, f"this rule verifies draw {draws}"

    return Rule(f"best_of_{draws}", model, decide)


def gate(model: CriticModel, horizon: int, critic: str) -> Rule:
    """Run one critic: verify on a pass, refine on a fail, stop after the last candidate. Raises BadInput."""
    return _gated(model, horizon, [critic], f"gate({critic})", early=True)


def pipeline(model: CriticModel, horizon: int, critics: Sequence[str] | None = None) -> Rule:
    """Run all critics, verify if all pass, else refine. Raises BadInput for an unknown one."""
    return _gated(model, horizon, critics, "pipeline", early=False)


def cascade(model: CriticModel, horizon: int, critics: Sequence[str]) -> Rule:
    """Run critics in order, refine at the first fail, verify if all pass; ours. Raises BadInput."""
    return _gated(model, horizon, critics, f"cascade({' > '.join(critics)})", early=True)


def self_refine(model: CriticModel, horizon: int) -> Rule:
    """Refine to the last candidate without looking, then verify it, as the release replays it.

    Source: the rule is named after arXiv:2303.17651, the replay is that of arXiv:2606.24453.
    """
    rule = best_of_n(model, horizon)
    return Rule("self_refine", model, rule.decide)


def reflexion(model: CriticModel, horizon: int, critic: str) -> Rule:
    """Refine until a critic passes, then verify; the last candidate is verified in any case. Raises BadInput.

    Source: the rule is named after arXiv:2303.11366, the replay is that of arXiv:2606.24453.
    """
    model.critic(critic)

    def decide(state: State) -> tuple[str, str]:
        if state.rejected:
            return _next_or_stop(state, horizon)
        if critic not in state.used:
            return critic, f"this rule asks {critic} first"
        if critic in state.passed:
            return VERIFY, f"{critic} passed"
        if state.candidate + 1 < horizon:
            return GENERATE, f"{critic} failed"
        return VERIFY, f"{critic} failed, and there is no further candidate"

    return Rule(f"reflexion({critic})", model, decide)


def gates(model: CriticModel, horizon: int) -> dict[str, Rule]:
    """The rules that judge each candidate alone: stop, always_verify, a gate per critic, the pipeline."""
    rules = [stop(model), always_verify(model, horizon)]
    rules += [gate(model, horizon, name) for name in model.names]
    if len(model.critics) > 1:
        rules.append(pipeline(model, horizon))
    return {rule.name: rule for rule in rules}


def simple_rules(model: CriticModel, horizon: int) -> dict[str, Rule]:
    """The paper's rules by name, with a gate and a reflexion for each critic: :func:`gates` and more."""
    more = [best_of_n(model, horizon), self_refine(model, horizon)]
    more += [reflexion(model, horizon, name) for name in model.names]
    return gates(model, horizon) | {rule.name: rule for rule in more}


def every_rule(model: CriticModel, horizon: int) -> dict[str, Rule]:
    """The paper's rules and our cascades: the strongest simple opposition we know."""
    return simple_rules(model, horizon) | cascades(model, horizon)


def cascades(model: CriticModel, horizon: int) -> dict[str, Rule]:
    """Cascades over every ordered pair of critics and over all of them by gap for their price."""
    # The floor keeps a free critic from a division by 0, and ranks one that tells anything before all others.
    ranked = sorted(model.critics, key=lambda c: (-abs(c.gap) / max(c.price, 1e-9), c.name))
    pairs = [[a.name, b.name] for a in ranked for b in ranked if a is not b]
    orders = pairs + ([[c.name for c in ranked]] if len(ranked) > 2 else [])
    return {rule.name: rule for rule in (cascade(model, horizon, order) for order in orders)}


def _gated(
    model: CriticModel, horizon: int, critics: Sequence[str] | None, name: str, *, early: bool
) -> Rule:
    order = model.names if critics is None else tuple(critics)
    if not order:
        raise BadInput(f"{name} has no critic to run")
    for critic in order:
        model.critic(critic)

    def decide(state: State) -> tuple[str, str]:
        if state.rejected:
            return _next_or_stop(state, horizon)
        failed = [critic for critic in order if critic in state.used - state.passed]
        due = [critic for critic in order if critic not in state.used]
        if due and not (early and failed):
            return due[0], f"this rule asks {due[0]} next"
        if not failed:
            return VERIFY, f"{' and '.join(order)} passed"
        action, _ = _next_or_stop(state, horizon)
        return action, f"{' and '.join(failed)} failed"

    return Rule(name, model, decide)


def _next_or_stop(state: State, horizon: int) -> tuple[str, str]:
    if state.candidate + 1 < horizon:
        return GENERATE, "the candidate was refused"
    return STOP, "the candidate was refused, and there is no further one"
