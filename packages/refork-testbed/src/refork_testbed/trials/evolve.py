"""What a scripted co-evolution came to, measured on the truth that no judge saw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from refork.stats import Interval, clopper_pearson
from refork.stats.results import Array
from refork_methods.evolve.archive import Archive
from refork_methods.evolve.belief import EPS
from refork_methods.evolve.promote import paired_p
from refork_methods.evolve.scripted.coevolution import SLOT, WRITER, World, rule_of
from refork_methods.evolve.scripted.papers import JudgeRule, human_papers, machine_papers, mean_quality
from refork_methods.evolve.stringency import stringency_ratio

# What old scores do to a ranking after the judge has changed: kept, and erased.


@final
@dataclass(frozen=True, slots=True)
class ErasureEffect:
    """Mean Spearman correlations over repetitions, with and without the old judge's outcomes.

    ``pinned``: of the ranking before the change with the one after it. ``truth``: of the ranking after it
    with the true one under the new judge. Errors are standard errors of the means.
    """

    pinned_keep: float
    pinned_erase: float
    truth_keep: float
    truth_erase: float
    errors: tuple[float, float, float, float]


def erasure_effect(new_outcomes: int) -> ErasureEffect:
    """Rank nodes by successes, before and after a judge that loves gloss gives way to one that does not.

    A node has quality q and gloss g, uniform; the old judge accepts with 0.55 + 0.4 g, the new one with
    clip(0.1 + 0.8 q - 0.3 g). A ranking without spread correlates 0 with any other.

    Source: arXiv:2606.26294 says that rankings stay pinned; this world and its figures are ours.
    """
    old_outcomes, nodes, repetitions = 48, 32, 2000
    rng = np.random.default_rng([0, new_outcomes])
    quality, gloss = rng.random((2, repetitions, nodes))
    truth = np.clip(0.1 + 0.8 * quality - 0.3 * gloss, 0, 1)
    old = rng.binomial(old_outcomes, 0.55 + 0.4 * gloss)
    new = rng.binomial(new_outcomes, truth)
    kept, alone, before = old + new, new, _ranks(old)
    columns = [
        _correlation(before, _ranks(kept)),
        _correlation(before, _ranks(alone)),
        _correlation(_ranks(truth), _ranks(kept)),
        _correlation(_ranks(truth), _ranks(alone)),
    ]
    means = [float(column.mean()) for column in columns]
    errors = [float(column.std(ddof=1) / np.sqrt(repetitions)) for column in columns]
    return ErasureEffect(means[0], means[1], means[2], means[3], (errors[0], errors[1], errors[2], errors[3]))


def _ranks(values: NDArray[np.float64] | NDArray[np.int64]) -> Float[Array, "repetitions nodes"]:
    from scipy.stats import rankdata

    return np.asarray(rankdata(values, axis=1), dtype=np.float64)


def _correlation(
    x: Float[Array, "repetitions nodes"], y: Float[Array, "repetitions nodes"]
) -> Float[Array, "repetitions"]:
    x, y = x - x.mean(axis=1, keepdims=True), y - y.mean(axis=1, keepdims=True)
    scale = np.sqrt((x * x).sum(axis=1) * (y * y).sum(axis=1))
    found = np.zeros(scale.shape)
    np.divide((x * y).sum(axis=1), scale, out=found, where=scale > 0)
    return found


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


# How often each rule replaces a judge by one that is no better.


_BATCH = 2000


@final
@dataclass(frozen=True, slots=True)
class FalseReplacement:
    """Share of repetitions in which some challenger came in, by each rule, with exact intervals."""

    challengers: int
    best_belief: Interval
    paired: Interval


def false_replacement(
    challengers: int, *, repetitions: int = 20_000, level: float = 0.95
) -> FalseReplacement:
    """Replacement rates among equally good judges that answer the same anchor.

    Each judge has each item right with chance ``accuracy``; with chance ``shared`` an item is one that
    all answer as the incumbent does. With equal numbers of items a larger belief is one more item right,
    so the counts decide.

    Source: ours, on the rule of arXiv:2606.26294.
    """
    items, accuracy, shared, rate = 100, 0.7, 0.5, 0.05
    rng = np.random.default_rng([0, challengers])
    taken = np.zeros(2, dtype=np.int64)
    for start in range(0, repetitions, _BATCH):
        size = min(_BATCH, repetitions - start)
        # Draws in single precision are five times as many per second, and no chance here needs more.
        held = rng.random((size, items), dtype=np.float32) < accuracy
        own = rng.random((size, items), dtype=np.float32) >= shared
        some = np.zeros((2, size), dtype=bool)
        for _ in range(challengers):
            theirs = rng.random((size, items), dtype=np.float32) < accuracy
            gains, losses = ((own & a & ~b).sum(axis=1) for a, b in ((theirs, held), (held, theirs)))
            some[0] |= gains > losses
            some[1] |= paired_p(gains, losses) <= rate / challengers
        taken += some.sum(axis=1)
    best, paired = (clopper_pearson(int(count), repetitions, level) for count in taken)
    return FalseReplacement(challengers, best, paired)
