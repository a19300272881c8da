"""Writers and reviewers that evolve together, the truth known: what traps do to a judge of gloss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.plain import content_hash, from_json, to_json
from refork.sampling.noise import stream_of
from refork.types import Json
from refork_methods.evolve.archive import Archive
from refork_methods.evolve.belief import best_beliefs
from refork_methods.evolve.history import PANELS
from refork_methods.evolve.promote import Tally, tally
from refork_methods.evolve.records import Cell, EvaluatorSlot, own_counts
from refork_methods.evolve.scripted.papers import (
    JudgeRule,
    Papers,
    fitted,
    human_papers,
    machine_papers,
    written,
)
from refork_methods.evolve.search import Runtime, Settings, run
from refork_methods.evolve.traps import TrapSet, trap_set
from refork_methods.journal import Journal

SLOT = "review"
WRITER, REVIEWER = "writer", "reviewer"
LABELS = "labels"
_TRAP = "trap "
_TASKS = 40
_VALIDATION = 40
_TRAINING = 500
_ENOUGH = 20
_ANCHOR = 200
#: Papers of each source on which the stringency of judges is watched; nobody chooses by them.
_PANEL = 2000
#: Shape of the gamma weights of a retraining: the larger, the more alike are two reviewers of one time.
_ALIKE = 16.0


@final
@dataclass(frozen=True, slots=True)
class World:
    """The terms of a scripted co-evolution: the judge it begins with, and what helps it to change.

    ``traps``: whether work that fooled a judge trains and examines its successors. ``replace``: whether
    judges may change at all. ``verified``: share of accepted machine-made papers that a person reads.
    ``challengers``: how many reviewers are examined at a checkpoint.

    Raises: BadInput for a share outside [0, 1], or no challengers.
    """

    judge: JudgeRule
    seed: int = 0
    traps: bool = True
    replace: bool = True
    verified: float = 0.6
    challengers: int = 16
    effort: float = 0.5
    polish: float = 0.7

    def __post_init__(self) -> None:
        if not 0 <= self.verified <= 1 or self.challengers < 1:
            raise BadInput(f"verified {self.verified!r}, challengers {self.challengers}", hint="0.6 and 16")

    def rng(self, *what: object) -> np.random.Generator:
        """Randomness for one purpose, whatever was drawn before."""
        return np.random.Generator(np.random.Philox(key=stream_of("scripted", self.seed, *what)))

    @property
    def workspace(self) -> Json:
        """The first workspace: a writer, and a reviewer that is the first judge."""
        return {"effort": self.effort, "polish": self.polish, "rule": to_json(self.judge)}


def rule_of(archive: Archive, node: int) -> JudgeRule:
    """The reviewer of a node."""
    return from_json(JudgeRule, archive.workspaces[node]["rule"])


@final
class Shop:
    """What writers made, by key; the traps among it; and the labelled human work that editors are shown.

    All it says is a function of the world and the archive, so that a run that was cut goes on as it would
    have gone.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.training = human_papers(_TRAINING, world.rng("training"))
        self.validation = human_papers(_VALIDATION, world.rng("validation"))
        self._written: dict[str, Papers] = {}

    def paper(self, archive: Archive, key: str) -> Papers:
        """The one paper of an artifact key ``node:task``: a function of the seed and the key alone."""
        if key not in self._written:
            workspace = archive.workspaces[int(key.split(":", maxsplit=1)[0])]
            self._written[key] = written(
                workspace["effort"], workspace["polish"], 1, self.world.rng("paper", key)
            )
        return self._written[key]

    def papers(self, archive: Archive, keys: Sequence[str]) -> Papers:
        """The papers of several keys, in order."""
        found = [self.paper(archive, key) for key in keys]
        # So that no key gives columns of length 0; there is no concatenation of nothing.
        empty = np.zeros(0)
        columns = ("quality", "gloss", "length", "observed")
        return Papers(*(np.concatenate([empty, *(getattr(one, name) for one in found)]) for name in columns))

    def label(self, archive: Archive, key: str) -> int | None:
        """What a person who read a paper says of it; None where none did."""
        if self.world.rng("reads", key).random() >= self.world.verified:
            return None
        return int(self.paper(archive, key).good[0])

    def traps(self, archive: Archive) -> TrapSet:
        """Traps and controls out of all that any judge of the slot has accepted so far."""
        if not self.world.traps:
            return TrapSet((), ())
        accepted = {
            record.artifact: content_hash(record.artifact)
            for record in (*archive.records, *archive.erased)
            if record.cell.slot == SLOT and record.outcome
        }
        labels = {key: label for key in accepted if (label := self.label(archive, key)) is not None}
        return trap_set(accepted.items(), labels, _ANCHOR, seed=self.world.seed)

    def trap_labels(self, archive: Archive) -> tuple[list[str], NDArray[np.bool_]]:
        """Keys and labels of the traps and controls that editors were shown: those that have a cell."""
        keys = [cell.task.removeprefix(_TRAP) for cell in archive.cells if cell.task.startswith(_TRAP)]
        return keys, np.array([self.label(archive, key) == 1 for key in keys], dtype=bool)

    def rule(self, archive: Archive, judge: str) -> JudgeRule:
        """The rule of an id; raises BadInput where no node has it."""
        found = (rule_of(archive, node) for node in range(len(archive)))
        rule = next((one for one in found if one.id == judge), None)
        if rule is None:
            raise BadInput(f"no node's reviewer is {judge!r}")
        return rule


@final
class ScriptedEditor:
    """Mutates a writer within a budget, or retrains a reviewer on what editors are shown."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop

    def edit(self, archive: Archive, parent: int, step: int) -> Json | None:
        """A child workspace; None where the writer's budget is overdrawn."""
        rng = self._shop.world.rng("edit", step)
        workspace = dict(archive.workspaces[parent])
        if rng.random() < 0.5:
            effort, polish = np.array(
                [workspace["effort"], workspace["polish"]]
            ) + 0.15 * rng.standard_normal(2)
            if not (0 <= effort <= 1 and 0 <= polish <= 1 and effort + polish <= 1.2):
                return None
            return workspace | {"effort": float(effort), "polish": float(polish)}
        return workspace | {"rule": to_json(self._retrained(archive, rng))}

    def _retrained(self, archive: Archive, rng: np.random.Generator) -> JudgeRule:
        """A rule fitted to the work that editors are shown, weighted at random, so that no two are alike."""
        work, labels, weigh = self._shop.training, self._shop.training.good, np.ones(len(self._shop.training))
        keys, marks = self._shop.trap_labels(archive)
        if keys:
            work, labels = work.beside(self._shop.papers(archive, keys)), np.concatenate([labels, marks])
            # Traps and controls weigh as much as human work together, once there are enough of them.
            each = len(self._shop.training) / max(len(keys), _ENOUGH)
            weigh = np.concatenate([weigh, np.full(len(keys), each)])
        return fitted(work, labels, weigh * rng.gamma(_ALIKE, 1 / _ALIKE, size=weigh.size))


@final
class ScriptedEvaluator:
    """Papers are judged by the rule in the slot; reviewers by labelled human work and the traps shown."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._base = [Cell(WRITER, f"t{i}", SLOT) for i in range(_TASKS)]
        self._base += [Cell(REVIEWER, f"h{i}") for i in range(_VALIDATION)]
        self._rules: dict[str, JudgeRule] = {}

    def cells(self, archive: Archive) -> Sequence[Cell]:
        """Those of before, and a cell for every trap and control that editors are shown from now on."""
        shown = [Cell(REVIEWER, _TRAP + trap.artifact) for trap in self._shop.traps(archive).train]
        return list(dict.fromkeys((*self._base, *archive.cells, *shown)))

    def evaluate(self, archive: Archive, node: int, cell: Cell, artifact: str | None) -> tuple[int, str, str]:
        """One verdict, on the cached artifact where there is one."""
        key = artifact or f"{node}:{cell.task}"
        if cell.slot is not None:
            judge = archive.slots[cell.slot].judge
            if judge not in self._rules:
                self._rules[judge] = self._shop.rule(archive, judge)
            return int(self._rules[judge].accepts(self._shop.paper(archive, key))[0]), judge, key
        rule = rule_of(archive, node)
        if cell.task.startswith(_TRAP):
            name = cell.task.removeprefix(_TRAP)
            said = bool(rule.accepts(self._shop.paper(archive, name))[0])
            return int(said == (self._shop.label(archive, name) == 1)), LABELS, key
        paper = self._shop.validation.take(np.array([int(cell.task[1:])]))
        return int(rule.accepts(paper)[0] == paper.good[0]), LABELS, key


@final
class ScriptedExaminer:
    """Holds the anchor; examines the reviewers that do best on their cells."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._anchor = human_papers(_ANCHOR, shop.world.rng("anchor"))
        self._panels = {
            "ai": machine_papers(_PANEL, shop.world.rng("panel", "ai")),
            "human": human_papers(_PANEL, shop.world.rng("panel", "human")),
        }

    @property
    def fingerprint(self) -> str:
        """Digest of the anchor."""
        return content_hash([self._anchor.observed.tolist(), self._anchor.quality.tolist()])

    def examine(self, archive: Archive, slot: EvaluatorSlot) -> tuple[Tally, Sequence[Tally], Json]:
        """Counts on the anchor, and with traps on held-out traps and controls."""
        held = self._shop.traps(archive).held_out
        papers = self._shop.papers(archive, [trap.artifact for trap in held])
        labels = np.array([trap.label for trap in held], dtype=bool)
        controls = [trap.is_control for trap in held]

        def answers(rule: JudgeRule) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
            right = rule.accepts(self._anchor) == self._anchor.good
            return right.astype(np.int8), (rule.accepts(papers) == labels).astype(np.int8)

        rules = self._candidates(archive, slot) if self._shop.world.replace else {}
        incumbent = self._shop.rule(archive, slot.judge)
        base = answers(incumbent)

        def count(rule: JudgeRule) -> Tally:
            mine = answers(rule)
            return tally(rule.id, mine[0], base[0], mine[1], base[1], controls)

        panels = {rule.id: self._panel(rule) for rule in (incumbent, *rules.values())}
        notes = {"traps": len(held) - sum(controls), "controls": sum(controls), PANELS: panels}
        return count(incumbent), [count(rule) for rule in rules.values()], notes

    def _panel(self, rule: JudgeRule) -> Json:
        """How many papers of each source a rule accepts, out of panels that serve no other purpose."""
        return {
            source: [int(rule.accepts(papers).sum()), len(papers)] for source, papers in self._panels.items()
        }

    def _candidates(self, archive: Archive, slot: EvaluatorSlot) -> dict[str, JudgeRule]:
        beliefs = best_beliefs(*own_counts(archive.records, len(archive), REVIEWER))
        found: dict[str, JudgeRule] = {}
        for node in np.argsort(-beliefs, kind="stable"):
            rule = rule_of(archive, int(node))
            if rule.id != slot.judge and len(found) < self._shop.world.challengers:
                found.setdefault(rule.id, rule)
        return found


def runtime(world: World) -> Runtime:
    """Editor, evaluator and examiner of a world; only the examiner holds the anchor."""
    shop = Shop(world)
    return Runtime(ScriptedEditor(shop), ScriptedEvaluator(shop), ScriptedExaminer(shop))


def coevolve(world: World, settings: Settings, journal: Journal | None = None) -> Archive:
    """A whole run of a world."""
    slots = [EvaluatorSlot(SLOT, world.judge.id)]
    return run(settings, world.workspace, slots, runtime(world), journal)
