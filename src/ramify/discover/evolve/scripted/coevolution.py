"""Writers and reviewers that evolve together, the truth known: what traps do to a judge of gloss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from ramify.core.errors import BadInput
from ramify.core.journal import Journal
from ramify.core.plain import content_hash, from_json, to_json
from ramify.core.policy.noise import stream_of
from ramify.core.types import Json
from ramify.discover.evolve.archive import Archive
from ramify.discover.evolve.belief import best_beliefs
from ramify.discover.evolve.promote import Tally, tally
from ramify.discover.evolve.records import Cell, EvaluatorSlot, own_counts
from ramify.discover.evolve.scripted.papers import JudgeRule, Papers, human_papers, written
from ramify.discover.evolve.search import Runtime, Settings, run
from ramify.discover.evolve.traps import TrapSet, trap_set

SLOT = "review"
WRITER, REVIEWER = "writer", "reviewer"
LABELS = "labels"
_TASKS = 40
_VALIDATION = 40
_TRAINING = 500
_ENOUGH = 20
_ANCHOR = 200
_PROPOSALS = 150


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
    challengers: int = 3
    effort: float = 0.5
    polish: float = 0.7

    def __post_init__(self) -> None:
        if not 0 <= self.verified <= 1 or self.challengers < 1:
            raise BadInput(f"verified {self.verified!r}, challengers {self.challengers}", hint="0.6 and 3")

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
    """What writers made, by key; the traps among it; and the labelled human work that editors are shown."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.training = human_papers(_TRAINING, world.rng("training"))
        self.validation = human_papers(_VALIDATION, world.rng("validation"))
        self.traps = TrapSet((), ())
        self._accepted: dict[str, str] = {}
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
        empty = np.zeros(0)
        columns = ("quality", "gloss", "length", "seen")
        return Papers(*(np.concatenate([empty, *(getattr(one, name) for one in found)]) for name in columns))

    def set_traps(self, archive: Archive) -> None:
        """Traps and controls from all that any judge of the slot accepted so far."""
        for record in archive.records:
            if record.cell.slot == SLOT and record.outcome:
                self._accepted.setdefault(record.artifact, content_hash(record.artifact))
        truth = {
            key: int(self.paper(archive, key).good[0])
            for key in self._accepted
            if self.world.rng("reads", key).random() < self.world.verified
        }
        self.traps = trap_set(self._accepted.items(), truth, _ANCHOR, seed=self.world.seed)


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
        return workspace | {
            "rule": to_json(self._retrained(archive, from_json(JudgeRule, workspace["rule"]), rng))
        }

    def _retrained(self, archive: Archive, rule: JudgeRule, rng: np.random.Generator) -> JudgeRule:
        """The best of many rules, near and far, on the work that editors are shown, weighted at random."""
        work, labels, weigh = self._shop.training, self._shop.training.good, np.ones(len(self._shop.training))
        shown = self._shop.traps.train
        if shown:
            work = work.beside(self._shop.papers(archive, [trap.artifact for trap in shown]))
            labels = np.concatenate([labels, np.array([trap.label for trap in shown], dtype=bool)])
            # Traps and controls weigh as much as human work together, once there are enough of them.
            each = len(self._shop.training) / max(len(shown), _ENOUGH)
            weigh = np.concatenate([weigh, np.full(len(shown), each)])
        weigh = weigh * rng.exponential(size=weigh.size)
        start = np.array([rule.gloss, rule.length, rule.threshold])
        near = start + 0.3 * rng.standard_normal((_PROPOSALS, 3))
        far = rng.uniform((-0.5, -0.5, 0.3), (2.5, 0.5, 2.5), (_PROPOSALS, 3))
        weights = np.concatenate([start[None], near, far])
        points = work.seen + weights[:, :1] * work.gloss + weights[:, 1:2] * work.length
        best = weights[int((((points > weights[:, 2:]) == labels) @ weigh).argmax())]
        return JudgeRule(float(best[0]), float(best[1]), float(best[2]))


@final
class ScriptedEvaluator:
    """Papers are judged by the rule in the slot; reviewers by labelled human work and the traps shown."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._cells = [Cell(WRITER, f"t{i}", SLOT) for i in range(_TASKS)]
        self._cells += [Cell(REVIEWER, f"h{i}") for i in range(_VALIDATION)]
        self._rules = {shop.world.judge.id: shop.world.judge}
        self._labels: dict[str, int] = {}

    def cells(self, archive: Archive) -> Sequence[Cell]:
        """Those of before, and a cell for every trap that editors were shown since."""
        for node in range(len(archive)):
            rule = rule_of(archive, node)
            self._rules[rule.id] = rule
        if self._shop.world.traps:
            for trap in self._shop.traps.train:
                if trap.artifact not in self._labels:
                    self._labels[trap.artifact] = trap.label
                    self._cells.append(Cell(REVIEWER, f"trap {trap.artifact}"))
        return self._cells

    def evaluate(self, archive: Archive, node: int, cell: Cell, artifact: str | None) -> tuple[int, str, str]:
        """One verdict, on the cached artifact where there is one."""
        key = artifact or f"{node}:{cell.task}"
        if cell.slot is not None:
            judge = archive.slots[cell.slot].judge
            return int(self._rules[judge].accepts(self._shop.paper(archive, key))[0]), judge, key
        rule = rule_of(archive, node)
        if cell.task.startswith("trap "):
            name = cell.task.removeprefix("trap ")
            said = bool(rule.accepts(self._shop.paper(archive, name))[0])
            return int(said == bool(self._labels[name])), LABELS, key
        paper = self._shop.validation.take(np.array([int(cell.task[1:])]))
        return int(rule.accepts(paper)[0] == paper.good[0]), LABELS, key


@final
class ScriptedExaminer:
    """Holds the anchor; examines the reviewers that do best on their cells."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._anchor = human_papers(_ANCHOR, shop.world.rng("anchor"))

    @property
    def fingerprint(self) -> str:
        """Digest of the anchor."""
        return content_hash([self._anchor.seen.tolist(), self._anchor.quality.tolist()])

    def examine(self, archive: Archive, slot: EvaluatorSlot) -> tuple[Tally, Sequence[Tally], Json]:
        """Counts on the anchor, and with traps on held-out traps and controls."""
        world = self._shop.world
        if world.traps:
            self._shop.set_traps(archive)
        held = self._shop.traps.held_out
        papers = self._shop.papers(archive, [trap.artifact for trap in held])
        labels = np.array([trap.label for trap in held], dtype=bool)

        def answers(rule: JudgeRule) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
            right = rule.accepts(self._anchor) == self._anchor.good
            return right.astype(np.int8), (rule.accepts(papers) == labels).astype(np.int8)

        rules = self._candidates(archive, slot) if world.replace else {}
        incumbent = self._incumbent(archive, slot)
        base = answers(incumbent)
        controls = [trap.is_control for trap in held]

        def count(rule: JudgeRule) -> Tally:
            mine = answers(rule)
            return tally(rule.id, mine[0], base[0], mine[1], base[1], controls)

        return count(incumbent), [count(rule) for rule in rules.values()], {"traps": len(held)}

    def _incumbent(self, archive: Archive, slot: EvaluatorSlot) -> JudgeRule:
        if slot.judge == self._shop.world.judge.id:
            return self._shop.world.judge
        return next(r for r in (rule_of(archive, n) for n in range(len(archive))) if r.id == slot.judge)

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
