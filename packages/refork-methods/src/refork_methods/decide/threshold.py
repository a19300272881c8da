"""When acting on an uncertain thing pays: the break-even chance, and the advice that states it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from refork.errors import BadInput


def break_even(gain: float, loss: float = 0.0, price: float = 0.0) -> float:
    """The chance p of being right at which acting pays nothing: ``p gain - (1 - p) loss = price``.

    Act above it. ``gain`` is what a right act earns, ``loss`` what a wrong one costs, ``price`` what either
    costs, all in one unit. Above 1: never; infinite where neither is at stake but a price is.
    Examples: verify for a reward R at cost c: ``break_even(R, price=c) = c / R``; inject a finding:
    ``break_even(G, L) = L / (L + G)``.

    Raises: BadInput for a negative or non-finite amount, or where nothing is at stake.
    """
    for name, amount in (("gain", gain), ("loss", loss), ("price", price)):
        if not math.isfinite(amount) or amount < 0:
            raise BadInput(f"the {name} is {amount!r}; it must be a finite amount of 0 or more")
    at_stake = gain + loss
    if at_stake == 0:
        if price == 0:
            raise BadInput("gain, loss and price are all 0: there is nothing to decide")
        return math.inf
    return (loss + price) / at_stake


def crossing(first: tuple[float, float], second: tuple[float, float]) -> float | None:
    """The belief b at which two value lines meet; a line is (value at b = 0, value at b = 1).

    None where they are parallel. The result may lie outside [0, 1]: then one line is above on all of it.
    """
    slope = (first[1] - first[0]) - (second[1] - second[0])
    return None if slope == 0 else (second[0] - first[0]) / slope


@dataclass(frozen=True, slots=True)
class Advice:
    """Whether to act: the chance of being right, the threshold it is held against, the expected net gain."""

    act: bool
    chance: float
    threshold: float
    net: float

    @property
    def reason(self) -> str:
        """One sentence with the numbers."""
        side = "above" if self.act else "not above"
        limit = f"{self.threshold:.3f}" if math.isfinite(self.threshold) else "any chance"
        return f"the chance of being right, {self.chance:.3f}, is {side} {limit}; acting nets {self.net:+.3g}"


def advise(chance: float, gain: float, loss: float = 0.0, price: float = 0.0) -> Advice:
    """Act exactly where ``chance`` is above :func:`break_even`; at it, leave it.

    Raises: BadInput as there, or for a chance outside [0, 1].
    """
    if not 0 <= chance <= 1:
        raise BadInput(f"the chance is {chance!r}; it must lie in [0, 1]")
    threshold = break_even(gain, loss, price)
    return Advice(chance > threshold, chance, threshold, chance * gain - (1 - chance) * loss - price)
