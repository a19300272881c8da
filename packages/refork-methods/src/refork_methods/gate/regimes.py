"""Where careful choosing pays and where a one-line rule is as good: the regime map."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

from refork.errors import BadInput
from refork.types import Json
from refork_methods.decide import BetaRate
from refork_methods.gate.controller import BayesController
from refork_methods.gate.evaluate import promised
from refork_methods.gate.model import CriticModel, Prices, Rate, parameters, present, varied
from refork_methods.gate.policy import Policy, Verify
from refork_methods.gate.rules import every_rule

#: The rules to compare with, for a model and a horizon.
Rules: TypeAlias = Callable[[CriticModel, int], Mapping[str, Policy]]

BAYES = "bayes"

#: A gain below this share of the reward is a tie, and a tie goes to the rule.
TIE = 0.005


@final
@dataclass(frozen=True, slots=True)
class Comparison:
    """One problem: the controller's value, the best simple rule beside it, and always verifying."""

    value: float
    bracket: tuple[float, float]
    rule: str
    rules: Mapping[str, float]
    tie: float

    @property
    def gain(self) -> float:
        """Over the best simple rule."""
        return self.value - self.rules[self.rule]

    @property
    def over_always_verify(self) -> float | None:
        """Over always verifying, where that is among the rules."""
        return self.value - self.rules["always_verify"] if "always_verify" in self.rules else None

    @property
    def winner(self) -> str:
        """``bayes`` where the gain is worth having, else the rule."""
        return BAYES if self.gain > self.tie else self.rule

    def to_json(self) -> Json:
        """Plain fields."""
        return {
            "value": self.value, "bracket": list(self.bracket), "best_rule": self.rule,
            "gain": self.gain, "over_always_verify": self.over_always_verify, "winner": self.winner,
            "rules": dict(self.rules),
        }  # fmt: skip


def compare_rules(
    model: CriticModel,
    prices: Prices,
    horizon: int = 3,
    verify: Verify = "terminal",
    rules: Rules = every_rule,
) -> Comparison:
    """The planned value and every rule's, both exact for the model. Raises BadInput for no rules."""
    controller = BayesController(model, prices, horizon, verify)
    values = {
        name: promised(rule, model, prices, horizon, verify) for name, rule in rules(model, horizon).items()
    }
    if not values:
        raise BadInput("there is no simple rule to compare with")
    low, high = controller.value()
    best = max(values, key=lambda name: values[name])
    return Comparison(low, (low, high), best, values, TIE * prices.reward)


@final
@dataclass(frozen=True, slots=True)
class RegimeMap:
    """Comparisons over two parameters; ``cells[j][i]`` is at ``ys[j]`` and ``xs[i]``."""

    x: str
    xs: tuple[float, ...]
    y: str
    ys: tuple[float, ...]
    cells: tuple[tuple[Comparison, ...], ...]


def regime_map(
    model: CriticModel,
    prices: Prices,
    xs: Sequence[float],
    ys: Sequence[float],
    *,
    x: str = "prior",
    y: str = "verify",
    horizon: int = 3,
    verify: Verify = "terminal",
    rules: Rules = every_rule,
) -> RegimeMap:
    """Which policy is best where two parameters vary, all else as given; see ``varied`` for their names.

    Raises: BadInput for no values, one parameter on both axes, or values it cannot have.
    Source: the idea of the map is of arXiv:2606.24453, which simulates it; ours is computed.
    """
    if not xs or not ys or x == y:
        raise BadInput("a map needs two different parameters with at least one value each")
    rows = []
    for b in ys:
        row = []
        for a in xs:
            row.append(compare_rules(*varied(*varied(model, prices, y, b), x, a), horizon, verify, rules))
        rows.append(tuple(row))
    return RegimeMap(x, tuple(xs), y, tuple(ys), tuple(rows))


# How much the plan depends on each number, and what acting on a wrong one costs.


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """One parameter at another value, while everything else stays.

    ``replanned`` is the best value there, ``unchanged`` what the present plan earns there, ``rule`` the best
    simple rule there. ``regret`` is what not knowing of the change costs.
    """

    parameter: str
    present: float
    other: float
    replanned: float
    unchanged: float
    rule: str
    rule_value: float

    @property
    def regret(self) -> float:
        """What the present plan loses there to planning anew; 0 where it is still the best."""
        return max(0.0, self.replanned - self.unchanged)

    @property
    def holds(self) -> bool:
        """Whether the present plan still earns what the best simple rule there does."""
        return self.unchanged >= self.rule_value - 1e-9


def sensitivity(
    model: CriticModel,
    prices: Prices,
    horizon: int = 3,
    verify: Verify = "terminal",
    *,
    rate_step: float = 0.05,
    price_share: float = 0.2,
    rules: Rules = every_rule,
) -> list[Sensitivity]:
    """Every parameter moved down and up, the costliest mistake first.

    A rate learned from counts moves to the ends of its 95 % credible interval, a known one by ``rate_step``,
    a price by ``price_share`` of itself.
    """
    plan = BayesController(model, prices, horizon, verify)
    rows = []
    for name in parameters(model, prices):
        now = present(model, prices, name)
        for other in _moves(model, name, now, rate_step, price_share):
            changed = varied(model, prices, name, other)
            best = compare_rules(*changed, horizon, verify, rules)
            kept = promised(plan, *changed, horizon, verify)
            rows.append(Sensitivity(name, now, other, best.value, kept, best.rule, best.rules[best.rule]))
    return sorted(rows, key=lambda row: (-row.regret, row.parameter, row.other))


def _moves(model: CriticModel, name: str, now: float, rate_step: float, price_share: float) -> list[float]:
    kind, _, critic = name.partition(":")
    rate: Rate | None = None
    if kind in ("alpha", "beta"):
        rate = getattr(model.critic(critic), kind)
    elif name in ("fix", "breaks"):
        rate = getattr(model.kernel, name)
    elif name == "prior":
        rate = model.prior
    if rate is None:
        ends = [now * (1 - price_share), now * (1 + price_share)]
    elif isinstance(rate, BetaRate):
        interval = rate.interval()
        ends = [interval.low, interval.high]
    else:
        ends = [max(0.0, now - rate_step), min(1.0, now + rate_step)]
    return [end for end in ends if end != now]
