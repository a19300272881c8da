"""What a search for theories may do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal, final

from refork.errors import BadInput
from refork.types import Json
from refork_methods.theory.gate import ALPHA, PLANNED, SIMULATED


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TheorySettings:
    """``rounds`` of two observations by ``people`` kept people each.

    ``designs``: designs that a side may try before its observation is refused; ``statistics`` of each.
    ``tries``: candidates of a revision. ``judge``: a candidate's loss is by people's ``choices`` (mse_pB, and
    the squared error of lag-1), or by the ``statistics`` that the sides chose, as published. ``alpha`` is
    shared among all designs and statistics of a side. ``simulated``: people of each theory behind a gate and
    a statistic; ``draws`` of its priors behind rates. ``held_out``: observations that no round may open.

    Source: arXiv:2606.26448 (5 rounds, 25 people, 3 designs of 4 statistics, 10 tries); ``choices`` is ours.
    """

    rounds: int = 5
    people: int = PLANNED
    seed: int = 1
    designs: int = 3
    statistics: int = 4
    tries: int = 20
    judge: Literal["choices", "statistics"] = "choices"
    alpha: float = ALPHA
    simulated: int = SIMULATED
    draws: int = 500
    held_out: int = 2

    def __post_init__(self) -> None:
        where = "theory search"
        if self.judge not in ("choices", "statistics"):
            raise BadInput(f"judge {self.judge!r}", where=where, hint="choices or statistics")
        for name in ("rounds", "designs", "statistics", "tries", "draws"):
            if getattr(self, name) < 1:
                raise BadInput(f"{name} is {getattr(self, name)}", where=where, hint="1 or more")
        if min(self.people, self.simulated) < 2:
            raise BadInput("fewer than two people cannot show a difference", where=where)
        if self.seed < 0 or self.held_out < 0 or not 0 < self.alpha < 1:
            raise BadInput(
                f"seed {self.seed}, held_out {self.held_out}, alpha {self.alpha}",
                where=where,
                hint="0 or more, 0 or more, and a level in (0, 1)",
            )

    @property
    def attempts(self) -> int:
        """Tests of one side that share its level."""
        return self.designs * self.statistics

    def to_json(self) -> Json:
        """Plain JSON."""
        return asdict(self)
