"""Writers and reviewers of reports that evolve together: who breeds, measures and examines them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.plain import content_hash, from_json, to_json
from refork.types import Json
from refork_methods.evolve.archive import Archive
from refork_methods.evolve.history import PANELS
from refork_methods.evolve.promote import Gate, Tally, tally
from refork_methods.evolve.records import Cell, EvaluatorSlot
from refork_methods.evolve.reviewer.features import FEATURES
from refork_methods.evolve.reviewer.judge import ReviewerSettings, TextReviewer, train
from refork_methods.evolve.reviewer.shop import (
    ANCHOR,
    LABELS,
    REVIEWER,
    SLOT,
    TASKS,
    TRAP,
    VALIDATION,
    WRITER,
    Material,
    ReviewWorld,
    Shop,
    labelled_humans,
    reviewer_of,
    watched,
)
from refork_methods.evolve.reviewer.writer import WriterSettings, mutate
from refork_methods.evolve.search import Runtime, Settings, run
from refork_methods.journal import Journal

#: The terms that the documented runs are made on. The slack: see :class:`Gate`.
SETTINGS: Final = Settings(1600, first=128, gate=Gate("paired", anchor_slack=0.05))
_LEAST_CUT, _MOST_CUT = 0.05, 0.95
#: Settings that an edit tries, the share of reports held back to compare them, and the chance of a flip.
_PROPOSALS, _HELD_BACK, _FLIP = 8, 0.33, 0.25


@final
class ReviewEditor:
    """Moves a writer's cells, or a reviewer's settings and trains it again."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop

    def edit(self, archive: Archive, parent: int, step: int) -> Json | None:
        """A child workspace; None where the writer's minutes are overdrawn."""
        rng = self._shop.world.rng("edit", step)
        workspace = dict(archive.workspaces[parent])
        if rng.random() < 0.5:
            writer = mutate(from_json(WriterSettings, workspace["writer"]), rng)
            return None if writer is None else workspace | {"writer": to_json(writer)}
        settings = from_json(TextReviewer, workspace["reviewer"]).settings
        return workspace | {"reviewer": to_json(retrained(settings, self._shop.material(archive), rng))}


def retrained(settings: ReviewerSettings, given: Material, rng: np.random.Generator) -> TextReviewer:
    """The best of some edited settings by a part held back for it, trained again on everything.

    The part is drawn anew for every edit. Human reports and traps count alike in it, whatever they weigh in
    training: else settings that leave the traps out would be judged by the easier part.
    """
    proposals = [edited(settings, rng) for _ in range(_PROPOSALS)]
    back = rng.random(len(given.labels)) < _HELD_BACK
    equal = given.weights(1.0)
    scores: list[float] = []
    for one in proposals:
        weigh = given.weights(one.trap_weight)
        trial = train(one, given.table[~back], given.labels[~back], weigh[~back])
        right = trial.accepts(given.table[back]) == given.labels[back]
        scores.append(float(right @ equal[back]))
    best = proposals[int(np.argmax(scores))]
    return train(best, given.table, given.labels, given.weights(best.trap_weight))


def edited(settings: ReviewerSettings, rng: np.random.Generator) -> ReviewerSettings:
    """Some features more or less, another threshold, and other weights."""
    looks = set(settings.features)
    for name in FEATURES:
        if rng.random() < _FLIP:
            looks ^= {name}
    odds = np.log(settings.threshold / (1 - settings.threshold)) + 0.5 * rng.standard_normal()
    moved = np.exp(0.4 * rng.standard_normal(2))
    return replace(
        settings,
        features=tuple(name for name in FEATURES if name in looks) or settings.features,
        threshold=float(np.clip(1 / (1 + np.exp(-odds)), _LEAST_CUT, _MOST_CUT)),
        good_weight=float(np.clip(settings.good_weight * moved[0], 0.25, 4.0)),
        c=float(np.clip(settings.c * moved[1], 0.01, 100.0)),
        trap_weight=float(rng.choice((1.0, 2.0, 4.0))),
    )


@final
class ReviewEvaluator:
    """Reports are judged by the reviewer in the slot; reviewers by labelled reports and the traps shown."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._base = [Cell(WRITER, f"t{i}", SLOT) for i in range(TASKS)]
        self._base += [Cell(REVIEWER, f"h{i}") for i in range(VALIDATION)]

    def cells(self, archive: Archive) -> Sequence[Cell]:
        """Those of before, and a cell for every trap and control that editors are shown from now on."""
        shown = [Cell(REVIEWER, TRAP + trap.artifact) for trap in self._shop.traps(archive).train]
        return list(dict.fromkeys((*self._base, *archive.cells, *shown)))

    def evaluate(self, archive: Archive, node: int, cell: Cell, artifact: str | None) -> tuple[int, str, str]:
        """One verdict, on the cached artifact where there is one."""
        # The key alone seeds the report, so a report that is judged again after a resume is the same text.
        key = artifact or f"{node}:{cell.task}"
        if cell.slot is not None:
            judge = archive.slots[cell.slot].judge
            table = self._shop.table(archive, [key])
            return int(self._shop.reviewer(archive, judge).accepts(table)[0]), judge, key
        reviewer = reviewer_of(archive, node)
        if cell.task.startswith(TRAP):
            trap = cell.task.removeprefix(TRAP)
            said = bool(reviewer.accepts(self._shop.table(archive, [trap]))[0])
            return int(said == (self._shop.label(archive, trap) == 1)), LABELS, key
        row = int(cell.task[1:])
        said = bool(reviewer.accepts(self._shop.validation.table[row : row + 1])[0])
        return int(said == bool(self._shop.validation.verdicts[row])), LABELS, key


@final
class ReviewExaminer:
    """Holds the anchor, labelled human reports; examines the reviewers that do best on their cells."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._anchor = labelled_humans(shop.world, "anchor", ANCHOR)
        self._panels = watched(shop.world)

    @property
    def fingerprint(self) -> str:
        """Digest of the anchor."""
        return content_hash([[one.text for one in self._anchor.reports], self._anchor.labels.tolist()])

    def examine(self, archive: Archive, slot: EvaluatorSlot) -> tuple[Tally, Sequence[Tally], Json]:
        """Counts on the anchor, and with traps on held-out traps and controls."""
        held = self._shop.traps(archive).held_out
        table = self._shop.table(archive, [trap.artifact for trap in held])
        labels = np.array([trap.label for trap in held], dtype=np.int64)
        controls = [trap.is_control for trap in held]

        def answers(reviewer: TextReviewer) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
            right = reviewer.accepts(self._anchor.table) == self._anchor.labels
            return right.astype(np.int8), (reviewer.accepts(table) == labels).astype(np.int8)

        incumbent = self._shop.reviewer(archive, slot.judge)
        base = answers(incumbent)

        def count(reviewer: TextReviewer) -> Tally:
            mine = answers(reviewer)
            return tally(reviewer.id, mine[0], base[0], mine[1], base[1], controls)

        rivals = self._candidates(archive, slot) if self._shop.world.replace else ()
        panels = {one.id: self._watched(one) for one in (incumbent, *rivals)}
        notes = {"traps": len(held) - sum(controls), "controls": sum(controls), PANELS: panels}
        return count(incumbent), [count(rival) for rival in rivals], notes

    def _watched(self, reviewer: TextReviewer) -> Json:
        """Accepted and judged of each source, on reports by which nobody chooses."""
        counts: Json = {}
        for source, made in self._panels.items():
            counts[source] = [int(reviewer.accepts(made.table).sum()), len(made.labels)]
        return counts

    def _candidates(self, archive: Archive, slot: EvaluatorSlot) -> list[TextReviewer]:
        """The reviewers that do best on all that editors are shown: to ask such a reviewer costs nothing."""
        human, (keys, labels) = self._shop.validation, self._shop.trap_labels(archive)
        table = self._shop.table(archive, keys)

        def agreement_with(reviewer: TextReviewer) -> float:
            parts = [np.mean(reviewer.accepts(human.table) == human.verdicts)]
            if keys:
                parts.append(np.mean(reviewer.accepts(table) == labels))
            return float(np.mean(parts))

        rivals = {one.id: one for one in (reviewer_of(archive, node) for node in range(len(archive)))}
        rivals.pop(slot.judge, None)
        ranked = sorted(rivals.values(), key=lambda one: (-agreement_with(one), one.id))
        return ranked[: self._shop.world.challengers]


@final
@dataclass(frozen=True, slots=True)
class Opened:
    """What a search needs of a world: where it begins, its slots, and who breeds, measures and examines."""

    workspace: Json
    slots: tuple[EvaluatorSlot, ...]
    runtime: Runtime
    shop: Shop

    def text(self, archive: Archive, cell: Cell, key: str) -> str:
        """A writer's report; of a reviewer's cell, whose work is a verdict, the key."""
        return self.shop.report(archive, key).text if cell.role == WRITER else key


def open_world(**options: Any) -> Opened:
    """A world of reports by the options of :class:`ReviewWorld`; raises BadInput for what they cannot be."""
    known = [field.name for field in fields(ReviewWorld)]
    strange = sorted(options.keys() - set(known))
    if strange:
        raise BadInput(
            f"there is no option {strange[0]!r}", where="reviewer", hint=f"one of {', '.join(known)}"
        )
    shop = Shop(from_json(ReviewWorld, options, "reviewer"))
    first = from_json(TextReviewer, shop.workspace["reviewer"])
    runtime = Runtime(ReviewEditor(shop), ReviewEvaluator(shop), ReviewExaminer(shop))
    return Opened(shop.workspace, (EvaluatorSlot(SLOT, first.id),), runtime, shop)


def evolve(world: ReviewWorld, settings: Settings | None = None, journal: Journal | None = None) -> Archive:
    """A whole run of a world; without settings :data:`SETTINGS` with the world's seed."""
    opened = open_world(**to_json(world))
    terms = settings or replace(SETTINGS, seed=world.seed)
    return run(terms, opened.workspace, opened.slots, opened.runtime, journal)
