"""One condition's rollouts, counted: committed, not committed, asked, unfinished, failed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Self, TypeAlias

from refork.errors import BadInput
from refork.stats import Interval, wilson

#: ``hit``: the target action was taken. ``miss``: the rollout ended without it. ``asked``: it ended by
#: asking the user, without it. ``unfinished``: cut off before either. ``failed``: no usable rollout.
End: TypeAlias = Literal["hit", "miss", "asked", "unfinished", "failed"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one rollout ended, where it is recorded, and what a judge's scale says of it (None: not asked)."""

    end: End
    node: str | None = None
    fork: str | None = None
    value: float | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Arm:
    """Counts of one condition. ``hits`` of ``runs`` graded rollouts that ended; ``asked`` are among ``runs``.

    ``failed`` and ``unfinished`` are *not* among ``runs``. ``unfinished`` or ``asked`` None: nobody counted
    them, which is not 0. ``grader``: the id of the producer that said what a hit is. ``subject``: the
    weights digest of the policy, else its name. ``dose``: this arm's value of a varied number.
    ``nodes`` and ``forks`` are ids in the incident's tree; ``values`` a judge's scale, one per rollout.
    """

    name: str
    hits: int
    runs: int
    failed: int = 0
    unfinished: int | None = None
    asked: int | None = None
    grader: str | None = None
    subject: str | None = None
    dose: float | None = None
    nodes: tuple[str, ...] = ()
    forks: tuple[str, ...] = ()
    values: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.hits <= self.runs or min(self.failed, self.unfinished or 0, self.asked or 0) < 0:
            raise BadInput(f"{self.hits} of {self.runs} are not counts", where=f"arm {self.name}")
        if (self.asked or 0) > self.runs - self.hits:
            raise BadInput("more rollouts asked than ended without the action", where=f"arm {self.name}")

    @classmethod
    def of(
        cls,
        name: str,
        outcomes: Iterable[Outcome],
        *,
        grader: str | None = None,
        subject: str | None = None,
        dose: float | None = None,
    ) -> Self:
        """The arm of some outcomes, everything counted."""
        given = list(outcomes)
        count = {
            end: sum(o.end == end for o in given) for end in ("hit", "miss", "asked", "unfinished", "failed")
        }
        return cls(
            name=name, hits=count["hit"], runs=count["hit"] + count["miss"] + count["asked"],
            failed=count["failed"], unfinished=count["unfinished"], asked=count["asked"], grader=grader,
            subject=subject, dose=dose, nodes=tuple(o.node for o in given if o.node is not None),
            forks=tuple(dict.fromkeys(o.fork for o in given if o.fork is not None)),
            values=tuple(o.value for o in given if o.value is not None),
        )  # fmt: skip

    @property
    def total(self) -> int:
        """All rollouts begun."""
        # Where nobody counted the unfinished this is the number of those that are known.
        return self.runs + self.failed + (self.unfinished or 0)

    @property
    def rate(self) -> float | None:
        """Share of hits among ended rollouts; None where none ended."""
        return self.hits / self.runs if self.runs else None

    @property
    def counts(self) -> tuple[int, int]:
        """``(hits, runs)``, as the tests take them."""
        return self.hits, self.runs

    @property
    def lost_share(self) -> float:
        """Share of begun rollouts that failed."""
        return self.failed / self.total if self.total else 0.0

    def interval(self, level: float = 0.95) -> Interval:
        """Wilson interval of the rate; raises BadInput where no rollout ended."""
        if not self.runs:
            raise BadInput(
                f"none of the {self.total} rollouts ended, so there is no rate",
                where=f"arm {self.name}",
                hint="allow them more turns or tokens; why each stopped is on the tree",
            )
        return wilson(self.hits, self.runs, level)

    def bounds(self) -> tuple[float, float]:
        """The rate if every failed or unfinished rollout were a miss, and if each were a hit."""
        if not self.total:
            raise BadInput("no rollout was begun", where=f"arm {self.name}")
        missing = self.failed + (self.unfinished or 0)
        return self.hits / self.total, (self.hits + missing) / self.total
