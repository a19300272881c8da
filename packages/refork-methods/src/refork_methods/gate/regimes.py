"""Where careful choosing pays and where a one-line rule is as good: the regime map."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
from jaxtyping import Float

from refork.errors import BadInput
from refork.types import Json
from refork_methods.gate.controller import BayesController
from refork_methods.gate.evaluate import worth
from refork_methods.gate.model import CriticModel, Prices
from refork_methods.gate.policy import Policy, Verify
from refork_methods.gate.problem import in_floats
from refork_methods.gate.rules import every_rule
from refork_methods.gate.vary import varied

#: The rules to compare with, for a model and a horizon.
Rules: TypeAlias = Callable[[CriticModel, int], Mapping[str, Policy]]
Table: TypeAlias = Float[np.ndarray, "ys xs"]
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
    problem = in_floats(model, prices, horizon, verify)
    values = {name: worth(rule, problem) for name, rule in rules(model, horizon).items()}
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

    @property
    def gain(self) -> Table:
        """The controller's gain over the best simple rule."""
        return np.array([[cell.gain for cell in row] for row in self.cells])

    @property
    def winners(self) -> tuple[tuple[str, ...], ...]:
        """Who wins each cell."""
        return tuple(tuple(cell.winner for cell in row) for row in self.cells)

    def to_json(self) -> Json:
        """Plain fields."""
        return {
            "x": self.x, "xs": list(self.xs), "y": self.y, "ys": list(self.ys),
            "cells": [[cell.to_json() for cell in row] for row in self.cells],
        }  # fmt: skip


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
