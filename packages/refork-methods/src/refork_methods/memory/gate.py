"""The recurrence gate: a plan becomes code at exactly the theta-th distinct task that selected it.

Source: arXiv:2606.24151, Algorithm 1. The paper's theta is not given; 3, the rent-or-buy threshold and the
bounded history of eight queries are ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self, final

from refork.errors import BadInput

#: Queries of consumed buffers that a plan keeps.
HISTORY = 8


@final
@dataclass(frozen=True, slots=True)
class RecurrenceGate:
    """When a plan is due.

    ``theta`` distinct tasks; 0 makes code at once and must be asked for with ``eager=True``. Or
    ``build_cost`` and ``saving`` (what one task costs more by text than by code, same unit): theta is then
    ``ceil(build_cost / saving)``, at least 1.
    """

    theta: int = 3
    eager: bool = False

    def __post_init__(self) -> None:
        if self.eager and self.theta != 0:
            raise BadInput("an eager gate has theta 0", where="theta", hint="leave theta out")
        if not self.eager and self.theta < 1:
            raise BadInput(
                f"theta is {self.theta}; a plan must be selected at least once",
                where="theta",
                hint="theta 1 or more; code at once must be asked for: --eager, RecurrenceGate.at_once()",
            )

    @classmethod
    def at_once(cls) -> Self:
        """The eager gate: code as soon as there is a plan."""
        return cls(theta=0, eager=True)

    @classmethod
    def rent_or_buy(cls, build_cost: float, saving: float) -> Self:
        """The gate at theta* = ceil(build_cost / saving).

        Raises:
            BadInput: a cost or saving that is not positive and finite: then code never pays for itself.
        """
        return cls(theta=rent_or_buy_theta(build_cost, saving))

    def due(self, buffer: Sequence[str]) -> bool:
        """Whether a buffer of distinct task ids has reached theta."""
        return len(set(buffer)) >= self.theta


def rent_or_buy_theta(build_cost: float, saving: float) -> int:
    """theta* = ceil(build_cost / saving): stop renting (text) when the rent paid has reached the price.

    Raises:
        BadInput: a number that is not positive and finite.
    """
    for name, value in (("build_cost", build_cost), ("saving", saving)):
        if not math.isfinite(value) or value <= 0:
            raise BadInput(
                f"{name} is {value}; it must be positive",
                where=name,
                hint="where code saves nothing, keep the plan as text",
            )
    return max(1, math.ceil(build_cost / saving))


@dataclass(frozen=True, slots=True)
class Recurrence:
    """What a plan has gathered: distinct tasks and their queries since the last build, and older queries.

    ``counted`` are all tasks that ever counted, so that none counts twice.
    """

    tasks: tuple[str, ...] = ()
    queries: tuple[str, ...] = ()
    history: tuple[str, ...] = ()
    counted: frozenset[str] = field(default=frozenset())

    def seen(self, task: str, query: str) -> Recurrence:
        """With one more task; a task that counted before changes nothing."""
        if task in self.counted:
            return self
        return replace(
            self,
            tasks=(*self.tasks, task),
            queries=(*self.queries, query),
            counted=self.counted | {task},
        )

    def folded(self, keep: int = HISTORY) -> Recurrence:
        """The buffer emptied into the history, of which the last ``keep`` queries stay."""
        history = tuple(dict.fromkeys((*self.history, *self.queries)))[-keep:] if keep else ()
        return Recurrence(history=history, counted=self.counted)
