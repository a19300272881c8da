"""Best of N: the candidate with the highest score of each task, beside the mean and the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from refork.errors import BadInput
from refork.stats import Interval, paired_difference
from refork_methods.implicit.soft_values import Floats, Ints


@dataclass(frozen=True, slots=True)
class Selected:
    """What choosing by score is worth, averaged over tasks.

    ``chosen`` is the outcome of the candidates that were picked, ``expected`` the same averaged over all
    ways to break ties, ``mean`` that of a blind pick, ``oracle`` that of the best candidate. ``gain`` is
    expected minus mean with its 95 % paired interval over tasks (None for fewer than two). ``fewest`` and
    ``most`` are the numbers of candidates per task.
    """

    picks: Ints
    chosen: float
    expected: float
    mean: float
    oracle: float
    gain: Interval | None
    tasks: int
    fewest: int
    most: int


def _groups(tasks: Sequence[object], size: int) -> list[Ints]:
    if len(tasks) != size or not size:
        raise BadInput(f"{size} scores but {len(tasks)} task names", where="best of N")
    members: dict[object, list[int]] = {}
    for row, task in enumerate(tasks):
        members.setdefault(task, []).append(row)
    return [np.array(rows, dtype=np.int64) for rows in members.values()]


def _best(scores: Floats, rows: Ints) -> Ints:
    """Rows that share the highest known score; all rows where none is known."""
    known = scores[rows]
    if np.isnan(known).all():
        return rows
    return np.asarray(rows[known == np.nanmax(known)])


def best_of(scores: ArrayLike, tasks: Sequence[object], *, seed: int = 0) -> Ints:
    """Row of the chosen candidate of each task, tasks in order of appearance; ties are drawn by lot.

    A candidate without a score (NaN) is chosen only where none has one.
    """
    values = np.asarray(scores, dtype=np.float64)
    rng = np.random.default_rng(seed)
    return np.array([rng.choice(_best(values, rows)) for rows in _groups(tasks, len(values))])


def select_best(
    scores: ArrayLike, tasks: Sequence[object], outcomes: ArrayLike, *, seed: int = 0
) -> Selected:
    """What the chosen candidates earn; ``scores`` and ``outcomes`` are [n], ``tasks`` names of n rows.

    Raises:
        BadInput: an outcome that is not finite, lengths that differ, or one candidate per task throughout.
    """
    values, earned = np.asarray(scores, dtype=np.float64), np.asarray(outcomes, dtype=np.float64)
    if values.shape != earned.shape or not np.isfinite(earned).all():
        raise BadInput(
            "every candidate needs an outcome to tell what choosing is worth",
            where="best of N",
            hint="leave ungraded candidates out, or ask for the picks alone",
        )
    groups = _groups(tasks, len(values))
    sizes = [len(rows) for rows in groups]
    if max(sizes) == 1:
        raise BadInput("every task has one candidate, so there is nothing to choose", where="best of N")
    picks = best_of(values, tasks, seed=seed)
    expected = np.array([earned[_best(values, rows)].mean() for rows in groups])
    blind = np.array([earned[rows].mean() for rows in groups])
    return Selected(
        picks,
        chosen=float(earned[picks].mean()),
        expected=float(expected.mean()),
        mean=float(blind.mean()),
        oracle=float(np.mean([earned[rows].max() for rows in groups])),
        gain=paired_difference(blind, expected).interval if len(groups) > 1 else None,
        tasks=len(groups),
        fewest=min(sizes),
        most=max(sizes),
    )
