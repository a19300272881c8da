"""What a search of reviewers has in common: reports by key, traps that were shown, trained reviewers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, TypeAlias, final

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.plain import from_json, to_json
from refork.sampling.noise import stream_of
from refork.stats.results import Array
from refork.types import Json
from refork_methods.evolve.archive import Archive
from refork_methods.evolve.reviewer.features import FEATURES, feature_table, features
from refork_methods.evolve.reviewer.judge import STYLE, ReviewerSettings, TextReviewer, train
from refork_methods.evolve.reviewer.readings import make_log
from refork_methods.evolve.reviewer.texts import Report, human_report, machine_report
from refork_methods.evolve.reviewer.writer import START, WriterSettings
from refork_methods.evolve.traps import TrapSet, trap_set

First: TypeAlias = Literal["glossy", "strict"]

SLOT: Final = "review"
WRITER, REVIEWER = "writer", "reviewer"
LABELS: Final = "labels"
#: The name of a reviewer's cell on a trap or control that editors were shown, before the report's key.
TRAP: Final = "trap "
#: In place of a node in the key of a commissioned report.
PANEL: Final = "panel"
#: Logs that writers report on; human reports that reviewers are trained, and measured, on; the anchor.
TASKS, TRAINING, VALIDATION, ANCHOR = 40, 500, 100, 400
#: Machine reports that were commissioned, and read by a person, to see what reviewers make of them.
COMMISSIONED: Final = 1000
#: Reports of each source on which reviewers are watched.
WATCHED: Final = 300
#: Traps and controls from which on they weigh in full.
ENOUGH_TRAPS: Final = 20
#: What the first reviewer looks at, and when it accepts.
FIRST: Final[dict[First, ReviewerSettings]] = {
    "glossy": ReviewerSettings((*STYLE, "spots"), 0.5),
    "strict": ReviewerSettings((*STYLE, "spots"), 0.9),
}


@final
@dataclass(frozen=True, slots=True)
class ReviewWorld:
    """The terms of a run: the reviewer it begins with, and what helps reviewers to change.

    ``first``: ``glossy`` likes polish, ``strict`` likes it too and refuses most. ``traps``: whether reports
    that fooled a reviewer train and examine its successors. ``replace``: whether reviewers may change at
    all. ``verified``: share of accepted machine reports that a person reads. ``challengers``: how many
    reviewers are examined at a checkpoint.

    Raises: BadInput for another first reviewer, a share outside [0, 1], or no challengers.
    """

    first: First = "glossy"
    seed: int = 0
    traps: bool = True
    replace: bool = True
    verified: float = 1.0
    challengers: int = 2

    def __post_init__(self) -> None:
        if self.first not in FIRST:
            raise BadInput(f"no first reviewer {self.first!r}", hint=f"one of {', '.join(FIRST)}")
        if not 0 <= self.verified <= 1 or self.challengers < 1:
            raise BadInput(f"verified {self.verified!r}, challengers {self.challengers}", hint="1.0 and 2")

    def rng(self, *what: object) -> np.random.Generator:
        """Randomness for one purpose, whatever was drawn before."""
        return np.random.Generator(np.random.Philox(key=stream_of("reviewer", self.seed, *what)))


@final
class Labelled:
    """Reports with their features and labels, in one order."""

    def __init__(self, reports: Sequence[Report]) -> None:
        self.reports = tuple(reports)
        self.table: NDArray[np.float64] = feature_table(reports)
        self.labels: NDArray[np.int64] = np.array([report.good for report in reports], dtype=np.int64)
        self.verdicts: NDArray[np.int64] = np.array([report.liked for report in reports], dtype=np.int64)


def labelled_humans(world: ReviewWorld, purpose: str, count: int) -> Labelled:
    """Human reports for one purpose; no other purpose has any of them."""
    return _labelled(human_report, world.seed, purpose, count)


def watched(world: ReviewWorld) -> dict[str, Labelled]:
    """Panels of both sources on which the even-handedness of reviewers is watched through a run."""
    return {
        "human": labelled_humans(world, "watched", WATCHED),
        "ai": _labelled(machine_report, world.seed, "watched", WATCHED),
    }


@lru_cache(maxsize=16)
def _labelled(made: Callable[[np.random.Generator], Report], seed: int, purpose: str, count: int) -> Labelled:
    """Reports of one kind; worlds that differ in other options share those of their seed."""
    world = ReviewWorld(seed=seed)
    return Labelled([made(world.rng(purpose, i)) for i in range(count)])


def reviewer_of(archive: Archive, node: int) -> TextReviewer:
    """The reviewer of a node."""
    return from_json(TextReviewer, archive.workspaces[node]["reviewer"])


def held_by(archive: Archive) -> TextReviewer:
    """The reviewer in the slot."""
    judge = archive.slots[SLOT].judge
    return next(r for r in (reviewer_of(archive, node) for node in range(len(archive))) if r.id == judge)


@final
@dataclass(frozen=True, slots=True)
class Material:
    """Features and labels to train on; the first ``human`` rows are human reports, the others traps."""

    table: Float[Array, "reports features"]
    labels: Int[Array, "reports"]
    human: int

    def weights(self, trap_weight: float) -> Float[Array, "reports"]:
        """What each report weighs: a human one 1, the others together ``trap_weight`` times all human ones.

        Few traps weigh less: they share what :data:`ENOUGH_TRAPS` would have.
        """
        traps = len(self.labels) - self.human
        each = trap_weight * self.human / max(traps, ENOUGH_TRAPS)
        return np.concatenate([np.ones(self.human), np.full(traps, each)])


@final
class Shop:
    """Reports by key, and the labelled human work that editors are shown; nothing of the anchor.

    All it says is a function of the world and of the archive, so that a run that was cut goes on as it would
    have gone.
    """

    def __init__(self, world: ReviewWorld) -> None:
        self.world = world
        self.training = labelled_humans(world, "training", TRAINING)
        self.validation = labelled_humans(world, "validation", VALIDATION)
        self._panel = _labelled(machine_report, world.seed, "panel", COMMISSIONED)
        self._logs = [make_log(world.rng("log", i)) for i in range(TASKS)]
        self._written: dict[str, tuple[Report, Float[Array, "features"]]] = {}
        self._reviewers: dict[str, TextReviewer] = {}
        self._known = 0

    @property
    def workspace(self) -> Json:
        """The first workspace: the first writer, and the first reviewer, trained on human reports alone."""
        first = train(FIRST[self.world.first], self.training.table, self.training.verdicts)
        return {"writer": to_json(START), "reviewer": to_json(first)}

    def reviewer(self, archive: Archive, judge: str) -> TextReviewer:
        """The reviewer of an id; raises BadInput where no node has it."""
        for node in range(self._known, len(archive)):
            one = reviewer_of(archive, node)
            # Two nodes may hold one reviewer; archives only grow, so those seen before need no second look.
            self._reviewers.setdefault(one.id, one)
        self._known = len(archive)
        if judge not in self._reviewers:
            raise BadInput(f"no node's reviewer is {judge!r}")
        return self._reviewers[judge]

    def report(self, archive: Archive, key: str) -> Report:
        """The report of an artifact key ``node:task``."""
        return self._made(archive, key)[0]

    def table(self, archive: Archive, keys: Iterable[str]) -> Float[Array, "reports features"]:
        """Features of several artifacts, a row each."""
        rows = [self._made(archive, key)[1] for key in keys]
        return np.stack(rows) if rows else np.zeros((0, len(FEATURES)))

    def _made(self, archive: Archive, key: str) -> tuple[Report, Float[Array, "features"]]:
        if key not in self._written:
            node, _, task = key.partition(":")
            if node == PANEL:
                return self._panel.reports[int(task)], self._panel.table[int(task)]
            writer = from_json(WriterSettings, archive.workspaces[int(node)]["writer"])
            made = writer.report(self._logs[int(task[1:])], self.world.rng("report", key))
            self._written[key] = made, features(made)
        return self._written[key]

    def label(self, archive: Archive, key: str) -> int | None:
        """What a person who read an artifact says of it; None where none did."""
        read = key.startswith(PANEL) or self.world.rng("reads", key).random() < self.world.verified
        return int(self.report(archive, key).good) if read else None

    def traps(self, archive: Archive) -> TrapSet:
        """Traps and controls: writers' reports that a reviewer in the slot accepted, and commissioned ones.

        Of the commissioned ones the bad are in where a reviewer that held the slot accepted them, and all the
        good: writers that have learnt to please write hardly any good report, and traps without as many
        controls teach no more than to refuse machines.
        """
        if not self.world.traps:
            return TrapSet((), ())
        accepted = {
            record.artifact: self.report(archive, record.artifact).digest
            for record in (*archive.records, *archive.erased)
            if record.cell.slot == SLOT and record.outcome
        }
        held = {decided[SLOT].incumbent.tally.name for decided in archive.decisions}
        taken = self._panel.labels == 1
        for judge in sorted(held | {archive.slots[SLOT].judge}):
            taken = taken | self.reviewer(archive, judge).accepts(self._panel.table)
        accepted |= {f"{PANEL}:{i}": self._panel.reports[i].digest for i in np.flatnonzero(taken)}
        labels = {key: label for key in accepted if (label := self.label(archive, key)) is not None}
        return trap_set(accepted.items(), labels, ANCHOR, seed=self.world.seed)

    def trap_labels(self, archive: Archive) -> tuple[list[str], Int[Array, "traps"]]:
        """Keys and labels of the traps and controls that editors were shown: those that have a cell."""
        tasks = [cell.task for cell in archive.cells if cell.task.startswith(TRAP)]
        keys = [task.removeprefix(TRAP) for task in tasks]
        return keys, np.array([int(self.label(archive, key) == 1) for key in keys], dtype=np.int64)

    def material(self, archive: Archive) -> Material:
        """All that editors may train on: the labelled human reports, and the traps and controls shown."""
        keys, labels = self.trap_labels(archive)
        human = self.training
        table = np.concatenate([human.table, self.table(archive, keys)])
        return Material(table, np.concatenate([human.verdicts, labels]), len(human.verdicts))
