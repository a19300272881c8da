"""What a run of reviewers came to, measured on fresh reports whose truth no reviewer saw."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, final

import numpy as np
from jaxtyping import Float

from refork.plain import from_json
from refork.sampling.noise import stream_of
from refork.stats import Interval, auroc, paired_difference, wilson
from refork.stats.results import Array
from refork_methods.evolve.archive import Archive
from refork_methods.evolve.belief import EPS
from refork_methods.evolve.reviewer.features import feature_table
from refork_methods.evolve.reviewer.judge import TextReviewer
from refork_methods.evolve.reviewer.readings import make_log
from refork_methods.evolve.reviewer.shop import (
    SLOT,
    WRITER,
    Labelled,
    ReviewWorld,
    Shop,
    held_by,
    reviewer_of,
)
from refork_methods.evolve.reviewer.texts import Polish, human_report, machine_report, write
from refork_methods.evolve.reviewer.writer import START, WriterSettings
from refork_methods.evolve.stringency import stringency_ratio

#: Fresh reports of each kind that a measurement takes.
REPORTS: Final = 1000
#: The polish that is put on plain reports to see what it alone is worth.
DRESSED: Final = Polish(padding=4, markers=5, layout=6)


@final
@dataclass(frozen=True, slots=True)
class ReviewerMeasured:
    """A reviewer on fresh reports.

    ``stringency``: acceptance of machine over that of human reports, which are equally good; 1 is
    even-handed. ``polish``: what polish alone adds to the chance of acceptance, on the same statements with
    and without it; 0 is unbiased. ``human``: share of human reports accepted, beside ``human_good``, the
    share that deserves it. ``truth_auc``: how well its scores tell good from bad, over both sources.
    """

    reviewer: TextReviewer
    stringency: Interval
    polish: Interval
    human: Interval
    human_good: float
    truth_auc: Interval


@final
@dataclass(frozen=True, slots=True)
class WriterMeasured:
    """A writer on fresh logs: share of its reports accepted by a reviewer, and share that is good."""

    writer: WriterSettings
    accepted: Interval
    good: Interval


@final
@dataclass(frozen=True, slots=True)
class Caught:
    """A reviewer on held-out traps and controls: traps refused of traps, controls accepted of controls."""

    refused: int
    traps: int
    accepted: int
    controls: int


@final
@dataclass(frozen=True, slots=True)
class ReviewOutcome:
    """The first and the last reviewer; the first and the chosen writer, both before the first reviewer.

    ``caught_first`` and ``caught_last`` are the two reviewers on the traps of the end of the run.
    """

    first: ReviewerMeasured
    last: ReviewerMeasured
    writer_first: WriterMeasured
    writer_last: WriterMeasured
    caught_first: Caught
    caught_last: Caught
    replaced: int
    erased: int


def _rng(seed: int, *what: object) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=stream_of("reviewer outcome", seed, *what)))


@lru_cache(maxsize=4)
def _panels(count: int, seed: int) -> tuple[Labelled, Labelled]:
    human, machine = _rng(seed, "human"), _rng(seed, "machine")
    return (
        Labelled([human_report(human) for _ in range(count)]),
        Labelled([machine_report(machine) for _ in range(count)]),
    )


@lru_cache(maxsize=4)
def _dressed(
    count: int, seed: int
) -> tuple[Float[Array, "reports features"], Float[Array, "reports features"]]:
    """Features of the same statements without and with polish."""
    tables = []
    for polish in (Polish(), DRESSED):
        reports = []
        for i in range(count):
            # Begun anew for each polish: report i makes the same statements with and without it.
            rng = _rng(seed, "dressed", i)
            log, care = make_log(rng), float(rng.random())
            reports.append(write(log, care, polish, "machine", rng))
        tables.append(feature_table(reports))
    return tables[0], tables[1]


def measure_reviewer(reviewer: TextReviewer, *, reports: int = REPORTS, seed: int = 0) -> ReviewerMeasured:
    """A reviewer on ``reports`` fresh human and as many machine reports, of equal quality by construction.

    Raises: CannotDo where it accepts no human report.
    """
    human, machine = _panels(reports, seed)
    plain, dressed = (reviewer.accepts(table) for table in _dressed(reports, seed))
    taken, theirs = reviewer.accepts(human.table), reviewer.accepts(machine.table)
    scores = np.concatenate([reviewer.scores(human.table), reviewer.scores(machine.table)])
    truth = np.concatenate([human.labels, machine.labels]).astype(np.float64)
    return ReviewerMeasured(
        reviewer,
        stringency_ratio(theirs, taken, seed=seed),
        paired_difference(plain.astype(np.int8), dressed.astype(np.int8)).interval,
        wilson(int(taken.sum()), reports),
        float(human.labels.mean()),
        auroc(scores, truth),
    )


def measure_writer(
    writer: WriterSettings, reviewer: TextReviewer, *, reports: int = REPORTS, seed: int = 0
) -> WriterMeasured:
    """A writer on fresh logs, before a reviewer and before the truth."""
    rng = _rng(seed, "writer")
    made = Labelled([writer.report(make_log(rng), rng) for _ in range(reports)])
    accepted = int(reviewer.accepts(made.table).sum())
    return WriterMeasured(writer, wilson(accepted, reports), wilson(int(made.labels.sum()), reports))


def measure(world: ReviewWorld, archive: Archive, *, reports: int = REPORTS, seed: int = 0) -> ReviewOutcome:
    """The outcome of a run; raises BadInput where no valid record names a writer."""
    first, last = reviewer_of(archive, 0), held_by(archive)
    best = dict(archive.endpoint(EPS).specialists)[WRITER]
    writer = from_json(WriterSettings, archive.workspaces[best]["writer"])
    shop = Shop(world)
    held = shop.traps(archive).held_out
    table = shop.table(archive, [trap.artifact for trap in held])
    control = np.array([trap.is_control for trap in held], dtype=bool)

    def caught(reviewer: TextReviewer) -> Caught:
        said = reviewer.accepts(table)
        return Caught(
            int((~said[~control]).sum()), int((~control).sum()), int(said[control].sum()), int(control.sum())
        )

    return ReviewOutcome(
        measure_reviewer(first, reports=reports, seed=seed),
        measure_reviewer(last, reports=reports, seed=seed),
        measure_writer(START, first, reports=reports, seed=seed),
        measure_writer(writer, first, reports=reports, seed=seed),
        caught(first),
        caught(last),
        archive.slots[SLOT].epoch,
        len(archive.erased),
    )
