"""What the memory costs and what it saves: three accounts kept apart, and the break-even."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from refork.errors import BadInput
from refork.policies.base import Cost
from refork.types import Json

#: build: reflection and code. selection: retrieval and manager. execution: the tasks themselves.
AccountName: TypeAlias = Literal["build", "selection", "execution"]
#: Which account an event's cost belongs to.
BOOKED: Mapping[str, AccountName] = {
    "reflect": "build",
    "codify": "build",
    "admit": "build",
    "reject": "build",
    "select": "selection",
    "observe": "execution",
}


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum of which parts may be unknown: what is known, and how many parts were not."""

    known: float = 0.0
    unknown: int = 0

    @property
    def total(self) -> float | None:
        """The sum; None where a part is not known."""
        return None if self.unknown else self.known

    def plus(self, part: float | None) -> Sum:
        """With one more part."""
        return (
            replace(self, unknown=self.unknown + 1)
            if part is None
            else replace(self, known=self.known + part)
        )


@dataclass(frozen=True, slots=True)
class Account:
    """Tokens in and out, seconds, and the number of entries."""

    entries: int = 0
    tokens_in: Sum = field(default_factory=Sum)
    tokens_out: Sum = field(default_factory=Sum)
    seconds: Sum = field(default_factory=Sum)

    @property
    def tokens(self) -> float | None:
        """All tokens; None where an entry did not know its own, 0 where there were none."""
        one, other = self.tokens_in.total, self.tokens_out.total
        return None if one is None or other is None else one + other

    def booked(self, cost: Cost) -> Account:
        """With one more entry."""
        return Account(
            self.entries + 1,
            self.tokens_in.plus(cost.tokens_in),
            self.tokens_out.plus(cost.tokens_out),
            self.seconds.plus(cost.seconds),
        )

    def to_json(self) -> Json:
        """Totals, null where not known, and how many entries were not known."""
        return {
            "entries": self.entries,
            "tokens_in": self.tokens_in.total,
            "tokens_out": self.tokens_out.total,
            "seconds": self.seconds.total,
            "unknown": {name: getattr(self, name).unknown for name in ("tokens_in", "tokens_out", "seconds")},
        }


@dataclass(frozen=True, slots=True)
class Accounts:
    """The three accounts."""

    build: Account = field(default_factory=Account)
    selection: Account = field(default_factory=Account)
    execution: Account = field(default_factory=Account)

    def booked(self, kind: str, cost: Cost) -> Accounts:
        """With the cost of an event on its account; events that cost nothing by nature change nothing."""
        name = BOOKED.get(kind)
        if name == "build":
            return replace(self, build=self.build.booked(cost))
        if name == "selection":
            return replace(self, selection=self.selection.booked(cost))
        return replace(self, execution=self.execution.booked(cost)) if name else self

    def to_json(self) -> Json:
        """Each account's totals."""
        return {
            "build": self.build.to_json(),
            "selection": self.selection.to_json(),
            "execution": self.execution.to_json(),
        }


def break_even(build: float, without: float, execution: float, selection: float = 0.0) -> int | None:
    """Tasks after which the memory has paid for itself; None where it never does.

    ``build`` in all; ``without``, ``execution`` (with the memory) and ``selection`` per task; one unit.

    Raises:
        BadInput: a cost that is negative or not finite.
    """
    costs = {"build": build, "without": without, "execution": execution, "selection": selection}
    for name, value in costs.items():
        if not math.isfinite(value) or value < 0:
            raise BadInput(f"{name} is {value}; a cost is 0 or more", where=name)
    saving = without - execution - selection
    if saving > 0:
        return math.ceil(build / saving)
    return 0 if build == 0 and saving == 0 else None
