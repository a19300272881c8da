"""What a plan earns: 0 where it cannot run, one half where it runs and is wrong, 1 where it is right."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from refork.errors import BadInput
from refork.types import Json
from refork_methods.route.conduct.execute import Execution
from refork_methods.route.conduct.plan import MOST_STEPS

#: What a plan earns that runs.
RUNS = 0.5


@final
@dataclass(frozen=True, slots=True)
class Reward:
    """``0``, ``0.5`` or ``1``, less what the calls cost.

    ``per_call`` is taken off for every call of a worker, ``per_money`` for every unit of money. A plan that
    cannot run earns 0 whatever it would have cost.

    Raises: BadInput for a negative cost, or one per call so high that refusing to plan pays (five calls must
    leave something of the half).

    Source: arXiv:2512.04388 (0, 0.5, 1); the cost terms are ours.
    """

    per_call: float = 0.0
    per_money: float = 0.0

    def __post_init__(self) -> None:
        if not all(math.isfinite(value) and value >= 0 for value in (self.per_call, self.per_money)):
            raise BadInput("costs must be finite and 0 or more", where="reward")
        if self.per_call * MOST_STEPS >= RUNS:
            raise BadInput(
                f"at {self.per_call} per call a plan of {MOST_STEPS} steps earns less than no plan",
                hint=f"below {RUNS / MOST_STEPS}",
            )

    def of(self, execution: Execution | None, quality: float | None) -> float | None:
        """The reward of a run; ``quality`` in [0, 1] is how right its answer is. None: cannot be graded.

        A worker's failure is not the plan's: without an answer nothing is graded. Nor is it where money
        counts and a price is unknown.

        Raises: BadInput for a quality that is NaN or outside [0, 1].
        """
        if execution is None:
            return 0.0
        if execution.answer is None or quality is None:
            return None
        if not 0 <= quality <= 1:
            raise BadInput(f"the quality of an answer is {quality!r}; it must lie in [0, 1]")
        spent = self.per_call * execution.calls
        if self.per_money > 0:
            money = execution.bill.total
            if money is None:
                return None
            spent += self.per_money * money
        return RUNS + (1 - RUNS) * quality - spent

    def to_json(self) -> Json:
        """Plain fields."""
        return {"per_call": self.per_call, "per_money": self.per_money}
