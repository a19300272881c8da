"""The search: clades are sampled, workspaces bred and measured, judges replaced at checkpoints only.

Every step is an event in a journal, and every choice a pure function of the seed and the events before
it. So the events alone replay the run, and a journal that stops early is resumed where it stops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, final

import numpy as np

from refork.errors import BadInput
from refork.plain import to_json
from refork.sampling.noise import stream_of
from refork.types import Json
from refork_methods.evolve.archive import BEGIN, CELLS, CHECKPOINT, END, EXPAND, MEASURE, Archive
from refork_methods.evolve.clades import thompson
from refork_methods.evolve.promote import Decision, Gate, Tally, promote
from refork_methods.evolve.records import Cell, EvaluatorSlot
from refork_methods.evolve.schedule import ALPHA, RATIO, checkpoints, may_expand, next_boundary
from refork_methods.journal import Entry, Journal


@final
@dataclass(frozen=True, slots=True)
class Settings:
    """Outcomes to spend, when judges may change, how fast the archive grows, and the terms of the gate.

    A gate that does not say how often it looks at the anchor looks at every checkpoint.

    Raises: BadInput for a budget or schedule that cannot be.
    """

    budget: int
    first: int = 64
    ratio: float = RATIO
    alpha: float = ALPHA
    seed: int = 0
    gate: Gate = field(default_factory=Gate)

    def __post_init__(self) -> None:
        points = checkpoints(self.first, self.budget, self.ratio)
        may_expand(1, 1, self.alpha)
        if self.gate.looks is None:
            object.__setattr__(self, "gate", replace(self.gate, looks=max(1, len(points))))


class Editor(Protocol):
    """Breeds workspaces. It sees the archive, which holds nothing of any anchor."""

    def edit(self, archive: Archive, parent: int, step: int) -> Json | None:
        """A child of a node's workspace as plain JSON; None: the edit is invalid. ``step`` seeds it."""
        ...


class Evaluator(Protocol):
    """Runs workspaces on cells and has the outcome judged."""

    def cells(self, archive: Archive) -> Sequence[Cell]:
        """The cells of the epoch that begins; those of earlier epochs among them."""
        ...

    def evaluate(self, archive: Archive, node: int, cell: Cell, artifact: str | None) -> tuple[int, str, str]:
        """The outcome 0 or 1, who judged, and the artifact's key: the cached one's, where there is one."""
        ...


class Examiner(Protocol):
    """Holds the anchor, alone: it gives away counts, and a fingerprint of what they were counted on."""

    @property
    def fingerprint(self) -> str:
        """Digest of the anchor."""
        ...

    def examine(self, archive: Archive, slot: EvaluatorSlot) -> tuple[Tally, Sequence[Tally], Json]:
        """The incumbent's and the challengers' counts, and notes for the log that tell no item."""
        ...


class Log(Protocol):
    """Where events go: a journal, or one that checks them against a recorded run."""

    def __len__(self) -> int: ...

    def append(self, kind: str, body: Json) -> Entry:
        """Write one event; what was written."""
        ...


class Watch(Protocol):
    """Told after every event."""

    def __call__(self, archive: Archive, kind: str) -> None:
        """The archive that the events so far add up to, and the kind of the last one."""
        ...


@final
@dataclass(frozen=True, slots=True)
class Runtime:
    """Who breeds, measures and examines."""

    editor: Editor
    evaluator: Evaluator
    examiner: Examiner


def run(
    settings: Settings,
    workspace: Json,
    slots: Sequence[EvaluatorSlot],
    runtime: Runtime,
    journal: Journal | None = None,
    watch: Watch | None = None,
) -> Archive:
    """Search until the budget is spent, or nothing is left to measure; what the events add up to.

    Outcomes are counted as they come, those of re-scored artifacts too. ``journal`` must be empty
    (:func:`refork_methods.evolve.replay.resume` goes on with one that is not). ``watch`` sees the archive
    after every event; what it raises stops the search between two events, so that it can be resumed.

    Raises: BadInput for a journal with entries, a paired gate with fewer looks than the settings have
        checkpoints, no slots that a cell names, or answers of the runtime that cannot be; Mismatch where the
        runtime contradicts the archive.
    Source: arXiv:2606.26294, Algorithm 1; a (node, cell) counts once per judge, which is ours.
    """
    # A clock that stands still: ids cover the time, and two runs of one seed have equal ids.
    log = Journal(clock=lambda: 0.0) if journal is None else journal
    if len(log):
        raise BadInput(f"the journal has {len(log)} entries already", hint="resume it")
    # Here and not in the settings: a run of before is read with the looks that it had.
    points, gate = len(checkpoints(settings.first, settings.budget, settings.ratio)), settings.gate
    if gate.rule == "paired" and (gate.looks or 1) < points:
        raise BadInput(
            f"the gate is made for {gate.looks} looks at the anchor, and there are {points} checkpoints",
            where="gate.looks", hint="leave it out: it is then the number of checkpoints",
        )  # fmt: skip
    return Search(settings, workspace, slots, runtime, log, watch).run()


@final
class Search:
    """One run; :func:`run` is how it is used."""

    def __init__(
        self,
        settings: Settings,
        workspace: Json,
        slots: Sequence[EvaluatorSlot],
        runtime: Runtime,
        journal: Log,
        watch: Watch | None = None,
    ) -> None:
        self._settings, self._runtime, self._journal, self._watch = settings, runtime, journal, watch
        self._points = checkpoints(settings.first, settings.budget, settings.ratio)
        self._begin: Json = {
            "settings": to_json(settings),
            "workspace": workspace,
            "slots": [to_json(slot) for slot in sorted(slots)],
            "anchor": runtime.examiner.fingerprint,
        }
        self.archive = Archive()

    def run(self) -> Archive:
        """To the end of the budget."""
        archive, settings = self.archive, self._settings
        self._write(BEGIN, self._begin)
        self._new_cells()
        reason = "budget"
        while archive.outcomes < settings.budget and reason == "budget":
            boundary = next_boundary(archive.outcomes, self._points, settings.budget)
            while archive.outcomes < boundary:
                if not self._step():
                    reason = "exhausted"
                    break
            # A search that ran out of cells stops short of the boundary, and no judge is examined there.
            if archive.outcomes == boundary < settings.budget:
                self._checkpoint()
                self._new_cells()
        best = to_json(archive.endpoint(settings.gate.eps)) if archive.records else None
        self._write(END, {"outcomes": archive.outcomes, "reason": reason, "endpoint": best})
        return archive

    def _write(self, kind: str, body: Json) -> None:
        # The archive takes in what was written, not what was meant: a reader of the log sees the same.
        self.archive.apply(kind, self._journal.append(kind, body).body)
        if self._watch is not None:
            self._watch(self.archive, kind)

    def _rng(self, what: str) -> np.random.Generator:
        return np.random.Generator(
            # By the journal's length: a resumed run, whose journal is as long, draws the same.
            np.random.Philox(key=stream_of("evolve", self._settings.seed, what, len(self._journal)))
        )

    def _new_cells(self) -> None:
        cells = tuple(self._runtime.evaluator.cells(self.archive))
        self._write(CELLS, {"cells": [to_json(cell) for cell in cells]})

    def _step(self) -> bool:
        """Perhaps one expansion, then one outcome; False where no node has anything left to measure."""
        archive, settings = self.archive, self._settings
        if may_expand(archive.outcomes, len(archive), settings.alpha):
            parent = thompson(archive.parents, archive.successes, archive.failures, self._rng("expand"))
            child = self._runtime.editor.edit(archive, parent, len(self._journal))
            self._write(EXPAND, {"parent": parent, "workspace": child})
        allowed = archive.measurable()
        if not allowed.any():
            return False
        rng = self._rng("measure")
        node = thompson(archive.parents, archive.successes, archive.failures, rng, allowed)
        cell = self._cell(node, rng)
        cached = archive.artifact(node, cell)
        outcome, judge, artifact = self._runtime.evaluator.evaluate(archive, node, cell, cached)
        self._write(MEASURE, {
            "node": node, "cell": to_json(cell), "outcome": outcome, "judge": judge, "artifact": artifact,
            "cached": cached is not None,
        })  # fmt: skip
        return True

    def _cell(self, node: int, rng: np.random.Generator) -> Cell:
        """The node's least-measured role, then one of its open cells."""
        roles = self.archive.roles(node)
        done = np.array([self.archive.done(node, role) for role in roles])
        least = np.flatnonzero(done == done.min())
        cells = self.archive.open(node, roles[int(rng.choice(least))])
        return cells[int(rng.integers(len(cells)))]

    def _checkpoint(self) -> None:
        archive = self.archive
        decisions: dict[str, Decision] = {}
        notes: Json = {}
        for name in sorted(archive.slots):
            incumbent, challengers, told = self._runtime.examiner.examine(archive, archive.slots[name])
            decisions[name], notes[name] = promote(incumbent, challengers, self._settings.gate), told
        body = {name: to_json(decision) for name, decision in decisions.items()}
        self._write(CHECKPOINT, {"at": archive.outcomes, "decisions": body, "notes": notes})
