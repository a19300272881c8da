"""How well scores tell refusals: pooled, within each group, and as a mean over a group's sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.stats.results import Array
from refork.types import Json
from refork_methods.probe.area import RESAMPLES, Area, Booted, area, mean_area
from refork_methods.probe.cases import FEWEST, Cases
from refork_methods.probe.shuffled import SHUFFLES, Null, Refit

#: A source counts in a macro mean from so many refusals on.
SOURCE_REFUSALS: Final = 20
#: The group in which every source counts alike, however many rows it has.
MACRO: Final = "benign"


@final
@dataclass(frozen=True, slots=True)
class Measured:
    """One group's area and balanced accuracy; ``sources`` are those a macro mean is of, None elsewhere."""

    area: Area
    balanced_accuracy: float
    sources: tuple[str, ...] | None = None

    def to_json(self) -> Json:
        """Plain numbers."""
        sources = None if self.sources is None else list(self.sources)
        return self.area.to_json() | {"balanced_accuracy": self.balanced_accuracy, "sources": sources}

    def __str__(self) -> str:
        return f"{self.area}, balanced accuracy {self.balanced_accuracy:.3f}"


@final
@dataclass(frozen=True, slots=True)
class Evaluation:
    """A probe's scores judged: pooled, ``within`` groups, and which sources were ``left_out`` and why."""

    pooled: Measured
    within: dict[str, Measured]
    left_out: dict[str, str]

    def areas(self) -> dict[str, Area]:
        """Every area by its name."""
        return {"pooled": self.pooled.area} | {name: part.area for name, part in self.within.items()}

    def to_json(self) -> Json:
        """Plain numbers."""
        return {
            "pooled": self.pooled.to_json(),
            "within": {name: part.to_json() for name, part in self.within.items()},
            "left_out": dict(self.left_out),
        }


def evaluate(
    scores: Float[Array, "rows"],
    cases: Cases,
    folds: Int[Array, "rows"],
    groups: Sequence[str] | None = None,
    sources: Sequence[str] | None = None,
    *,
    refit: Refit,
    shuffles: int = SHUFFLES,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Evaluation:
    """Out-of-fold scores (higher: refuse) judged over all rows and within each of ``groups`` (one per row).

    ``refit`` gives the scores of other labels by the same folds. Prompts exchange labels within a fold; for
    what is said within groups, also within group and source.

    In the group ``benign`` the mean over ``sources`` with at least 20 refusals is taken; where sources are
    not given, the group is one.

    Raises: BadInput for a group with one label, lengths that differ, or where no source of ``benign`` counts.
    Source: arXiv:2606.25013.
    """
    for names, what in ((groups, "groups"), (sources, "sources")):
        if names is not None and len(names) != len(cases):
            raise BadInput(f"{len(names)} {what} for {len(cases)} rows", where="probe")

    within: dict[str, Measured] = {}
    left_out: dict[str, str] = {}
    given = np.array([str(name) for name in groups or ()])
    origin = None if sources is None else np.array([str(name) for name in sources])
    for group in dict.fromkeys(given.tolist()):
        labels = cases.labels[given == group]
        if labels.min() == labels.max():
            raise BadInput(
                f"all {len(labels)} rows of group {group!r} "
                + ("are refusals" if labels[0] else "are compliances"),
                where="probe",
                hint="within this group there is nothing to tell; evaluate without groups",
            )

    def null(*names: Sequence[str] | None) -> Null:
        parts = [np.unique(np.array(of, dtype=str), return_inverse=True)[1] for of in names if of is not None]
        strata = np.unique(np.stack([folds, *parts]), axis=1, return_inverse=True)[1].reshape(-1)
        return Null.of(refit, cases.labels, cases.prompts, strata, shuffles, seed)

    pooled = _Judged(scores, cases, folds, resamples, null()).within(np.ones(len(cases), dtype=bool), seed)[0]
    if not len(given):
        return Evaluation(pooled, within, left_out)
    judged = _Judged(scores, cases, folds, resamples, null(groups, sources))
    for group in dict.fromkeys(given.tolist()):
        rows = given == group
        if group == MACRO and origin is not None:
            parts = {name: rows & (origin == name) for name in dict.fromkeys(origin[rows].tolist())}
            within[group], fewer = judged.macro(group, parts, seed)
            left_out |= fewer
        else:
            within[group] = judged.within(rows, seed)[0]
    return Evaluation(pooled, within, left_out)


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Judged:
    """Scores with their cases and folds, to be measured over parts of the rows."""

    scores: NDArray[np.float64]
    cases: Cases
    folds: NDArray[np.int64]
    resamples: int
    null: Null

    def within(self, rows: NDArray[np.bool_], seed: int) -> tuple[Measured, Booted]:
        """One part, with its bootstrap values."""
        booted = area(
            self.scores[rows],
            self.cases.part(rows),
            null=self.null.part(rows),
            resamples=self.resamples,
            seed=seed,
        )
        accuracy = balanced_accuracy(self.scores[rows], self.cases.labels[rows], self.folds[rows])
        return Measured(booted.area, accuracy), booted

    def macro(
        self, group: str, parts: dict[str, NDArray[np.bool_]], seed: int
    ) -> tuple[Measured, dict[str, str]]:
        """The mean over sources that hold enough of both, and why the others do not count."""
        kept: dict[str, tuple[Measured, Booted]] = {}
        left_out: dict[str, str] = {}
        for number, (source, rows) in enumerate(parts.items()):
            refused = int(self.cases.labels[rows].sum())
            complied = int(rows.sum()) - refused
            if refused < SOURCE_REFUSALS:
                left_out[f"{group}/{source}"] = f"{refused} refusals, {SOURCE_REFUSALS} are needed"
            elif complied < FEWEST:
                left_out[f"{group}/{source}"] = f"{complied} compliances, {FEWEST} are needed"
            else:
                # A seed for each source: their resamples must be independent for the mean's interval to hold.
                kept[source] = self.within(rows, seed + 1 + number)
        if not kept:
            raise BadInput(
                f"no source of group {group!r} has {SOURCE_REFUSALS} refusals and {FEWEST} compliances",
                where="probe",
                hint="evaluate without sources, or with more rollouts of these prompts",
            )
        accuracy = float(np.mean([measured.balanced_accuracy for measured, _ in kept.values()]))
        return Measured(mean_area([booted for _, booted in kept.values()]), accuracy, tuple(kept)), left_out


def balanced_accuracy(
    scores: Float[Array, "rows"], labels: Int[Array, "rows"], folds: Int[Array, "rows"]
) -> float:
    """Mean of the two classes' accuracies; a fold's threshold is Youden's on the other folds' scores.

    A row is called a refusal from its threshold on. Where the other folds hold one class, the threshold is
    the logit's own 0.

    Raises: BadInput where the labels hold one class.
    """
    if not 0 < labels.sum() < len(labels):
        raise BadInput("balanced accuracy needs both classes")
    said = np.zeros(len(labels), dtype=bool)
    for fold in np.unique(folds):
        test = folds == fold
        said[test] = scores[test] >= youden(scores[~test], labels[~test])
    return float((said[labels == 1].mean() + (~said[labels == 0]).mean()) / 2)


def youden(scores: Float[Array, "rows"], labels: Int[Array, "rows"]) -> float:
    """The score from which on to call a refusal so that both classes' accuracies add up to most."""
    from sklearn.metrics import roc_curve

    if len(labels) == 0 or not 0 < labels.sum() < len(labels):
        return 0.0
    false, true, thresholds = roc_curve(labels, scores)
    # The first threshold is infinite: it calls nothing, as little as the last tells apart.
    return float(thresholds[1:][np.argmax((true - false)[1:])])
