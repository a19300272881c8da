"""A router beside the best single worker: the difference on tasks that neither was chosen on, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias, final

import numpy as np
from jaxtyping import Float, Int, Shaped

from refork.errors import BadInput
from refork.stats import Interval, paired_difference
from refork.stats.results import Array
from refork.types import Json

Outcome: TypeAlias = Literal["wins", "loses", "not told apart"]
#: Parts that the tasks are cut into where the best worker is picked among the tested ones.
FOLDS = 5


@final
@dataclass(frozen=True, slots=True)
class Verdict:
    """Router minus best single worker, paired over ``tasks``.

    ``worker`` is that worker; None where parts of the tasks picked different ones. ``elsewhere``: it was
    picked on tasks outside these. ``same`` is the share of queries that the router gives to that worker; None
    where whole runs are compared.
    """

    worker: str | None
    elsewhere: bool
    router: float
    single: float
    difference: Interval
    tasks: int
    same: float | None

    @property
    def outcome(self) -> Outcome:
        """What the interval says: it lies above 0, below, or holds 0."""
        if self.difference.low > 0:
            return "wins"
        return "loses" if self.difference.high < 0 else "not told apart"

    @property
    def sentence(self) -> str:
        """The outcome in words, with its figures and what to do."""
        who = "the best single worker" + ("" if self.worker is None else f" {self.worker}")
        gap = self.difference
        figures = f"{gap.estimate:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}] over {self.tasks} tasks"
        if self.outcome == "wins":
            return f"the router wins against {who}: {figures}"
        if self.outcome == "loses":
            return f"WARNING: the router loses to {who}: {figures}; use that worker alone"
        if self.same == 1:
            return f"the router is {who}: it chooses nobody else"
        return (
            f"the router is not told apart from {who}: {figures}; more tasks would tell, or that worker alone"
        )

    def to_json(self) -> Json:
        """All fields, the outcome and the sentence."""
        return asdict(self) | {"outcome": self.outcome, "sentence": self.sentence}


def against_best_single(
    rewards: Float[np.ndarray, "queries workers"],
    chosen: Int[np.ndarray, "queries"],
    workers: Sequence[str],
    groups: Int[np.ndarray, "queries"],
    *,
    single: int | None = None,
) -> Verdict:
    """The verdict on a router that sends query q to worker ``chosen[q]``; rewards are known of every worker.

    Raises: BadInput as :func:`paired_with_best`.
    """
    got = np.asarray(rewards, dtype=np.float64)[np.arange(len(chosen)), chosen]
    return paired_with_best(got, rewards, workers, groups, single=single, chosen=chosen)


def paired_with_best(
    got: Shaped[Array, "queries"],
    rewards: Shaped[Array, "queries workers"],
    workers: Sequence[str],
    groups: Int[np.ndarray, "queries"],
    *,
    single: int | None = None,
    chosen: Int[np.ndarray, "queries"] | None = None,
) -> Verdict:
    """The verdict on what a router earned query by query (``got``) beside what each worker earned alone.

    ``single`` is the best worker by other tasks. Without it the tasks are cut into five parts, and each is
    compared with the best worker of the other four: no task has a say in whom it is compared with. Queries
    of one of ``groups`` count once together, by their mean, and the interval is over groups.

    Raises: BadInput for shapes that do not fit, an unknown worker, NaN, or fewer than two groups.
    """
    table, mine = np.asarray(rewards, dtype=np.float64), np.asarray(got, dtype=np.float64)
    if table.shape != (mine.size, len(workers)) or len(groups) != mine.size:
        raise BadInput(f"rewards {table.shape} do not fit {mine.size} queries and {len(workers)} workers")
    if single is not None and not 0 <= single < len(workers):
        raise BadInput(f"there is no worker number {single}")
    place = np.unique(groups, return_inverse=True)[1]
    size = np.bincount(place)
    if size.size < 2:
        raise BadInput("one task gives no interval", hint="test on at least two")
    own = np.bincount(place, mine) / size
    alone = np.stack([np.bincount(place, column) / size for column in table.T], axis=1)
    named = np.full(size.size, single) if single is not None else picked_by_others(alone)
    theirs = alone[np.arange(size.size), named]
    found = paired_difference(theirs, own)
    one = workers[int(named[0])] if (named == named[0]).all() else None
    same = None if chosen is None else float((chosen == named[place]).mean())
    return Verdict(
        one, single is not None, float(own.mean()), float(theirs.mean()), found.interval, int(size.size), same
    )


def picked_by_others(
    alone: Float[np.ndarray, "tasks workers"], folds: int = FOLDS
) -> Int[np.ndarray, "tasks"]:
    """For each task the worker that was best on the tasks of the other parts."""
    # In turn and not at random: what was once said of a table is said again.
    part = np.arange(len(alone)) % min(folds, len(alone))
    named = np.empty(len(alone), dtype=np.int64)
    for number in range(int(part.max()) + 1):
        named[part == number] = int(alone[part != number].mean(axis=0).argmax())
    return named
