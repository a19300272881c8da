"""Labelled cases of a probe: each row's outcome, whose prompt it is, and what its reader could see."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, final

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput
from refork_methods.probe.ceiling import ONE_ROLLOUT

Position = Literal["last_prompt", "first_thinking"]
POSITIONS: Final[tuple[Position, ...]] = ("last_prompt", "first_thinking")
#: Fewer examples of a class than this carry no probe.
FEWEST: Final = 5

Ints = NDArray[np.int64]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Cases:
    """Rows of a probe. ``labels`` [n]: 1 refused, 0 complied. ``prompts`` and ``units`` [n] are codes.

    A unit is all that a reader at the position sees: the prompt, or the prompt and the first thinking token.
    ``refusals`` and ``rollouts`` [units] are counts over all recorded rollouts, of which the rows may be a
    part; ``unit_prompts`` [units] says whose they are. All three are None where AUROC* cannot be found, and
    ``no_ceiling`` then says why.
    """

    labels: Ints
    prompts: Ints
    units: Ints
    refusals: Ints | None
    rollouts: Ints | None
    unit_prompts: Ints | None
    no_ceiling: str | None

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, rows: NDArray[np.bool_]) -> Cases:
        """Only some rows, codes made dense again; counts of units without a row are dropped."""
        labels = self.labels[rows]
        prompts, units = self.prompts[rows], self.units[rows]
        known, dense = np.unique(prompts, return_inverse=True)
        kept, dense_units = np.unique(units, return_inverse=True)
        if self.refusals is None or self.rollouts is None or self.unit_prompts is None:
            return Cases(labels, dense, dense_units, None, None, None, self.no_ceiling)
        # The prompt of a kept unit is itself kept, so every owner is found.
        owner = np.searchsorted(known, self.unit_prompts[kept])
        return Cases(labels, dense, dense_units, self.refusals[kept], self.rollouts[kept], owner, None)


def make_cases(
    labels: Any,
    prompts: Sequence[Hashable] | None,
    first_tokens: Sequence[Hashable] | None,
    position: Position,
    counts: tuple[Sequence[int], Sequence[int]] | None = None,
) -> Cases:
    """Cases of rows; see :meth:`FirstTokenProbe.fit` for the arguments.

    Raises: BadInput for labels other than 0 and 1, lengths that differ, counts that contradict each other or
        the rows, or fewer than five examples (or prompts) of a class.
    """
    y = np.asarray(labels)
    if y.ndim != 1 or not np.isin(y, (0, 1)).all():
        raise BadInput("labels must be one row of 0 (complied) and 1 (refused)", where="probe")
    y = y.astype(np.int64)
    owners = codes(range(len(y)) if prompts is None else prompts, len(y), "prompts")
    _enough(y, owners)
    units, reason = owners, None
    if position == "first_thinking":
        if first_tokens is None:
            reason = "the first thinking tokens were not given, so it is not known which rollouts shared one"
        else:
            seen = codes(first_tokens, len(y), "first tokens")
            units = np.unique(np.stack([owners, seen], axis=1), axis=0, return_inverse=True)[1].reshape(-1)
    if reason is not None:
        return Cases(y, owners, units, None, None, None, reason)
    refusals, rollouts = _unit_counts(y, units, counts)
    if rollouts.max() < 2:
        return Cases(y, owners, units, None, None, None, ONE_ROLLOUT)
    whose = np.zeros(len(refusals), dtype=np.int64)
    whose[units] = owners
    return Cases(y, owners, units, refusals, rollouts, whose, None)


def codes(names: Sequence[Hashable], rows: int, what: str) -> Ints:
    """Dense codes of names in order of appearance, one per row."""
    if len(names) != rows:
        raise BadInput(f"{len(names)} {what} for {rows} rows", where="probe")
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(name, len(known)) for name in names], dtype=np.int64)


def _enough(labels: Ints, prompts: Ints) -> None:
    for value, name in ((1, "refusal"), (0, "compliance")):
        rows = int((labels == value).sum())
        owners = len(np.unique(prompts[labels == value]))
        if min(rows, owners) < FEWEST:
            raise BadInput(
                f"{rows} examples of {name} from {owners} prompts: a probe needs {FEWEST} of each class, "
                f"from {FEWEST} prompts",
                where="probe",
                hint="add prompts whose outcome is the other one",
            )


def _unit_counts(labels: Ints, units: Ints, counts: tuple[Any, Any] | None) -> tuple[Ints, Ints]:
    """Refusals and rollouts of each unit: as counted elsewhere, else from the rows themselves."""
    size = int(units.max()) + 1
    seen, refused = np.bincount(units, minlength=size), np.bincount(units, labels, size).astype(np.int64)
    if counts is None:
        return refused, seen
    given = [np.asarray(part) for part in counts]
    if any(part.shape != labels.shape for part in given):
        raise BadInput("counts must hold one number of refusals and one of rollouts per row", where="probe")
    found = np.zeros((2, size), dtype=np.int64)
    # Rows of a unit overwrite one another; reading back finds those that disagree, and fractions.
    found[:, units] = np.stack(given).astype(np.int64)
    if (found[:, units] != np.stack(given)).any():
        raise BadInput("rows of one unit name different counts", where="probe")
    r, n = found
    if (r < refused).any() or (n - r < seen - refused).any():
        raise BadInput("the counts hold fewer outcomes than the rows", where="probe")
    return r, n
