"""What actions cost: measured or given, in one unit; converted only by a stated rate. Unknown is not 0."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, final

from refork.errors import BadInput
from refork_methods.gate.model import UNITS, CriticModel, Prices, Unit
from refork_methods.gate.records import Record

#: What can be measured of a call.
KINDS: Final[tuple[Unit, ...]] = ("seconds", "tokens", "money")


@final
@dataclass(frozen=True, slots=True)
class Rates:
    """What one second, one token and one unit of money are worth in ``unit``; None: not known.

    The unit's own rate is 1.

    Raises: BadInput for an unknown unit, a negative or non-finite rate, or the unit's own rate not 1.
    """

    unit: Unit = "utility"
    seconds: float | None = None
    tokens: float | None = None
    money: float | None = None

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise BadInput(f"unknown unit {self.unit!r}", hint=f"one of {', '.join(UNITS)}")
        for kind in KINDS:
            rate = getattr(self, kind)
            if rate is not None and (not math.isfinite(rate) or rate < 0):
                raise BadInput(f"the rate of {kind} is {rate!r}; it must be a finite amount of 0 or more")
            if kind == self.unit and rate not in (None, 1):
                raise BadInput(f"one of {kind} is one of {kind}, not {rate!r}")

    def known(self, kind: str) -> bool:
        """Whether amounts of this kind can be converted."""
        return kind == self.unit or (kind in KINDS and getattr(self, kind) is not None)

    def rate(self, kind: str) -> float:
        """What one of a kind is worth. Raises BadInput where no rate is given."""
        if kind == self.unit:
            return 1.0
        found: float | None = getattr(self, kind) if kind in KINDS else None
        if found is None:
            raise BadInput(
                f"there is no rate from {kind} to {self.unit}, and a cost is never taken to be 0",
                hint=f"--rate {kind}=..., or --unit {kind}"
                if kind in KINDS
                else f"one of {', '.join(KINDS)}",
            )
        return found

    def value(self, amounts: Mapping[str, float]) -> float:
        """The worth of amounts by kind, added up. Raises BadInput for a kind without a rate, or none."""
        if not amounts:
            raise BadInput("a cost without any amount is unknown, not 0")
        return sum(amount * self.rate(kind) for kind, amount in amounts.items())


def convert(prices: Prices, rates: Rates) -> Prices:
    """Prices in the unit of the rates. Raises BadInput where the rate is not given."""
    rate = rates.rate(prices.unit)
    return Prices(
        prices.reward * rate,
        prices.verify * rate,
        prices.generate * rate,
        None if prices.ship_loss is None else prices.ship_loss * rate,
        rates.unit,
    )


def convert_critics(model: CriticModel, unit: Unit, rates: Rates) -> CriticModel:
    """A model whose critics are priced in ``unit``, priced in the unit of the rates. Raises BadInput."""
    rate = rates.rate(unit)
    return replace(model, critics=tuple(replace(c, price=c.price * rate) for c in model.critics))


@final
@dataclass(frozen=True, slots=True)
class Measured:
    """Mean cost of an action over the calls whose cost is known, ``calls`` of them."""

    mean: float
    calls: int


def measured(records: Iterable[Record]) -> dict[str, Measured]:
    """The mean cost of every action; an action whose cost was never recorded is not there."""
    found: dict[str, list[float]] = {}
    for record in records:
        for name, cost in record.costs.items():
            found.setdefault(name, []).append(cost)
    return {name: Measured(math.fsum(costs) / len(costs), len(costs)) for name, costs in found.items()}


def price_of(name: str, given: Mapping[str, float], seen: Mapping[str, Measured]) -> float:
    """The price of an action: the given one, else the mean measured. Raises BadInput where it is unknown."""
    if name in given:
        return given[name]
    if name in seen:
        return seen[name].mean
    raise BadInput(
        f"the price of {name!r} is unknown, and unknown is not 0",
        hint=f"give it (--price {name}=...), or record what its calls cost; amounts such as seconds need "
        "--rate seconds=... or --unit seconds",
    )


def prices_from(
    records: Iterable[Record],
    reward: float,
    given: Mapping[str, float] | None = None,
    *,
    ship_loss: float | None = None,
    unit: Unit = "utility",
) -> Prices:
    """Prices of verifying and generating as measured, with those ``given`` in their place.

    Raises: BadInput where either is neither given nor recorded, or an amount is negative.
    """
    seen, named = measured(records), dict(given or {})
    verify, generate = (price_of(name, named, seen) for name in ("verify", "generate"))
    return Prices(reward, verify, generate, ship_loss, unit)
