"""A model and its prices as plain numbers, in floats for use or in rationals for proofs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, final

from refork.errors import BadInput
from refork_methods.gate.belief import Number
from refork_methods.gate.model import CriticModel, Prices, Rate, chance, exact, rational
from refork_methods.gate.policy import Verify, verify_from


@final
@dataclass(frozen=True, slots=True)
class Check(Generic[Number]):
    """One critic: P(pass | right), P(pass | wrong), price."""

    name: str
    right: Number
    wrong: Number
    price: Number


@final
@dataclass(frozen=True, slots=True)
class Problem(Generic[Number]):
    """The decision problem: at most ``horizon`` candidates, the first one there and paid for.

    Values count from that moment on: what the first candidate cost is spent whatever is decided.
    """

    prior: Number
    checks: tuple[Check[Number], ...]
    fix: Number
    breaks: Number
    reward: Number
    verify: Number
    generate: Number
    ship_loss: Number | None
    horizon: int
    retry: bool
    zero: Number


def in_floats(model: CriticModel, prices: Prices, horizon: int, verify: Verify) -> Problem[float]:
    """The problem in floats. Raises BadInput for no candidate, or an unknown way of verifying."""
    return _problem(model, prices, horizon, verify, chance, float)


def in_rationals(model: CriticModel, prices: Prices, horizon: int, verify: Verify) -> Problem[Fraction]:
    """The problem in rationals; every number is taken as its shortest decimal. Raises BadInput as there."""
    return _problem(model, prices, horizon, verify, exact, rational)


def _problem(
    model: CriticModel,
    prices: Prices,
    horizon: int,
    verify: Verify,
    rate: Callable[[Rate], Number],
    amount: Callable[[float], Number],
) -> Problem[Number]:
    if horizon < 1:
        raise BadInput(f"a horizon of {horizon} candidates", hint="at least 1")
    return Problem(
        prior=rate(model.prior),
        checks=tuple(Check(c.name, rate(c.alpha), rate(c.beta), amount(c.price)) for c in model.critics),
        fix=rate(model.kernel.fix),
        breaks=rate(model.kernel.breaks),
        reward=amount(prices.reward),
        verify=amount(prices.verify),
        generate=amount(prices.generate),
        ship_loss=None if prices.ship_loss is None else amount(prices.ship_loss),
        horizon=horizon,
        retry=verify_from(verify) == "retry",
        zero=amount(0.0),
    )
