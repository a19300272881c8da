"""What a scripted co-evolution came to, measured on the truth that no judge saw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from refork.stats import Interval
from refork_methods.evolve.archive import Archive
from refork_methods.evolve.belief import EPS
from refork_methods.evolve.scripted.coevolution import SLOT, WRITER, World, rule_of
from refork_methods.evolve.scripted.papers import JudgeRule, human_papers, machine_papers, mean_quality
from refork_methods.evolve.stringency import stringency_ratio


@final
@dataclass(frozen=True, slots=True)
class JudgeMeasured:
    """A judge on fresh panels of human and machine work of the same quality; ratio 1 is even-handed."""

    judge: str
    stringency: Interval
    accuracy: float
    human_acceptance: float


@final
@dataclass(frozen=True, slots=True)
class CoevolutionOutcome:
    """The first and the last judge, the quality that the chosen writer aims at, and what it cost."""

    first: JudgeMeasured
    last: JudgeMeasured
    writer_quality: float
    replaced: int
    erased: int


def measure_judge(rule: JudgeRule, *, papers: int = 20_000, seed: int = 0) -> JudgeMeasured:
    """A judge on ``papers`` papers of each source; accuracy is on human work, as an anchor's would be.

    The panels have equal quality, so that a ratio other than 1 is bias: on what the writers of a
    search made, a better writer would look like a biased judge.
    """
    rng = np.random.default_rng([seed, 99])
    human, machine = human_papers(papers, rng), machine_papers(papers, rng)
    accepted = rule.accepts(human)
    ratio = stringency_ratio(rule.accepts(machine), accepted, seed=seed)
    return JudgeMeasured(rule.id, ratio, rule.accuracy(human), float(accepted.mean()))


def held_by(world: World, archive: Archive) -> JudgeRule:
    """The rule that holds the slot at the end of a run."""
    judge = archive.slots[SLOT].judge
    rules = (rule_of(archive, node) for node in range(len(archive)))
    return world.judge if judge == world.judge.id else next(rule for rule in rules if rule.id == judge)


def measure(world: World, archive: Archive, *, papers: int = 20_000, seed: int = 0) -> CoevolutionOutcome:
    """The outcome of a run; raises BadInput where no valid record names a writer."""
    writer = dict(archive.endpoint(EPS).specialists)[WRITER]
    return CoevolutionOutcome(
        measure_judge(world.judge, papers=papers, seed=seed),
        measure_judge(held_by(world, archive), papers=papers, seed=seed),
        mean_quality(float(archive.workspaces[writer]["effort"])),
        archive.slots[SLOT].epoch,
        len(archive.erased),
    )
