"""Whose choices are left out of an observation, and why: rules set before anybody looked at the choices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from refork.errors import BadInput
from refork_methods.theory.metrics import switch_rate
from refork_methods.theory.trials import Trials


@final
@dataclass(frozen=True, slots=True)
class Session:
    """What was recorded of a person beside the choices; None: never recorded, and then no rule uses it.

    ``response_ms``: mean time of a response in milliseconds; ``away_s``: seconds away from the page.
    """

    response_ms: float | None = None
    away_s: float | None = None
    bot: bool | None = None


@final
@dataclass(frozen=True, slots=True)
class QualityRules:
    """Limits beyond which a person is left out.

    Raises: BadInput for a share outside (0, 1], or a time below 0.
    Source: arXiv:2606.26448 (code).
    """

    one_key: float = 0.95
    alternation: float = 0.95
    fastest_ms: float = 1200.0
    away_s: float = 60.0

    def __post_init__(self) -> None:
        for share in (self.one_key, self.alternation):
            if not 0 < share <= 1:
                raise BadInput(f"a share of {share}; it must lie in (0, 1]")
        for time in (self.fastest_ms, self.away_s):
            if not (time >= 0 and math.isfinite(time)):
                raise BadInput(f"a time of {time}; it must be 0 or more")

    def reason(self, trials: Trials, session: Session | None = None) -> str | None:
        """Why a person's trials are left out: the first rule that they break; None where they break none."""
        known = session or Session()
        share = float(trials.response.mean())
        if max(share, 1 - share) > self.one_key:
            return f"one key in {max(share, 1 - share):.0%} of the trials"
        switches = switch_rate()(trials)
        if switches is not None and switches > self.alternation:
            return f"the other key in {switches:.0%} of the trials"
        if known.response_ms is not None and known.response_ms < self.fastest_ms:
            return f"{known.response_ms:.0f} ms a response"
        if known.away_s is not None and known.away_s > self.away_s:
            return f"{known.away_s:.0f} s away from the page"
        return "a bot's signal" if known.bot else None
