"""How much the plan depends on each number, and what acting on a wrong one costs."""

from __future__ import annotations

from dataclasses import dataclass

from refork.decide import BetaRate
from refork.types import Json
from refork_methods.gate.controller import BayesController
from refork_methods.gate.evaluate import worth
from refork_methods.gate.model import CriticModel, Prices, Rate
from refork_methods.gate.policy import Verify
from refork_methods.gate.problem import in_floats
from refork_methods.gate.regimes import Rules, compare_rules
from refork_methods.gate.rules import every_rule
from refork_methods.gate.vary import parameters, present, varied


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

    def to_json(self) -> Json:
        """Plain fields."""
        return {
            "parameter": self.parameter, "present": self.present, "other": self.other,
            "replanned": self.replanned, "unchanged": self.unchanged, "regret": self.regret,
            "rule": self.rule, "rule_value": self.rule_value, "holds": self.holds,
        }  # fmt: skip


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
            kept = worth(plan, in_floats(*changed, horizon, verify))
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
