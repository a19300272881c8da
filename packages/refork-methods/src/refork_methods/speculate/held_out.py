"""What is known of a drafter before its first round: how it fared on answers held out of its training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

from refork.types import Json

Rates: TypeAlias = tuple[float, ...]


@final
@dataclass(frozen=True, slots=True)
class HeldOut:
    """How often the draft at each position [g] was kept after all before it; None: never measured.

    ``drawn`` in answers drawn with chance, ``greedy`` in such of temperature 0: greedy text is the easier to
    draft for, where the drafter has read some.
    """

    drawn: Rates | None = None
    greedy: Rates | None = None

    @classmethod
    def read(cls, told: Any, block: int) -> HeldOut:
        """From the figures of a training; drafters from before the laws were told apart know one for both."""
        body: Json = told if isinstance(told, dict) else {}
        drawn = known_rates(body.get("kept_drawn"), block)
        both = known_rates(body.get("accept_rate"), block)
        return cls(drawn if drawn is not None else both, known_rates(body.get("kept_greedy"), block))

    def of(self, greedy: bool) -> Rates | None:
        """Those of a law; where they were never measured, the other's."""
        mine, other = (self.greedy, self.drawn) if greedy else (self.drawn, self.greedy)
        return mine if mine is not None else other

    @property
    def known(self) -> bool:
        """Whether anything was measured."""
        return self.of(True) is not None


def known_rates(rates: Any, block: int) -> Rates | None:
    """Rates of a block of ``block`` drafts; None where they are not known.

    A position that no block got to is taken to be as good as the one before it.
    """
    if not isinstance(rates, Sequence) or len(rates) != block:
        return None
    found: list[float] = []
    for rate in rates:
        value = found[-1] if rate is None and found else rate
        if not isinstance(value, float | int) or not 0 <= value <= 1:
            return None
        found.append(float(value))
    return tuple(found)
