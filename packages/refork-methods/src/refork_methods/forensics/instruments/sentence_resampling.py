"""Sentence resampling: which sentence of a trace moved the chance of the target act.

A trace of n sentences has n + 1 prefixes. "Behind sentence i" and "before sentence i + 1" are the same
prefix, so n + 1 evaluations suffice and the scores add up to the whole change along the trace, exactly.

Source: arXiv:2606.26071, appendix E. The shared prefixes, the intervals, both identities (sum and mean zero)
and their use as checks are our own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from refork import stats
from refork.errors import BadInput
from refork.forking.arm import ReadyArm, prepare, run_jobs
from refork.judge import Judge
from refork.policies.base import Policy, Sampling
from refork.progress import Progress, silent
from refork.stats.results import Array
from refork.tree.node import Point, Trajectory
from refork.types import Json
from refork.worlds.base import World
from refork_methods.forensics.arm import Arm
from refork_methods.forensics.instruments.outcomes import arm_of, check_hit, grade, same_model
from refork_methods.forensics.instruments.sentences import Piece, Unit, pieces

Floats = NDArray[np.float64]


def prefix_scores(rates: Float[Array, "prefixes"]) -> Float[Array, "sentences"]:
    """Score of every sentence: the target rate behind it minus the rate before it, [n] of [n + 1] rates.

    Raises: BadInput for fewer than two prefixes.
    """
    if len(rates) < 2:
        raise BadInput(f"{len(rates)} prefix has no sentence to score; at least two are needed")
    return np.asarray(np.diff(np.asarray(rates, dtype=np.float64)))


def telescoping_error(rates: Float[Array, "prefixes"], scores: Float[Array, "sentences"]) -> float:
    """``|sum(scores) - (last rate - first rate)|``: 0 up to rounding, unless a prefix was counted wrongly."""
    # fsum rounds once: what is left over many sentences is a wrong count, not a sum of roundings.
    return abs(math.fsum(np.asarray(scores).tolist()) - float(rates[-1] - rates[0]))


@dataclass(frozen=True, slots=True)
class Martingale:
    """Mean score over sentences of on-policy traces: 0 within noise, else a prefix or sampler is wrong."""

    mean: float
    error: float
    z: float
    traces: int
    sentences: int

    @property
    def holds(self) -> bool:
        """Whether the mean lies within two standard errors of 0."""
        return abs(self.z) <= 2.0


def martingale(scores: Sequence[Float[Array, "sentences"]]) -> Martingale:
    """Check that on-policy scores have mean 0; traces are the units, since scores of one trace depend.

    Given the prefix, the expected rate behind an on-policy sentence is the rate before it, so every score
    has mean 0, and so has their sum along a trace of any length.

    Raises: BadInput for fewer than two traces, or NaN scores.
    """
    if len(scores) < 2:
        raise BadInput(f"{len(scores)} trace cannot show a mean with its error; at least two are needed")
    sums = np.array([float(np.sum(s)) for s in scores])
    count = sum(len(s) for s in scores)
    if np.isnan(sums).any() or not count:
        raise BadInput("scores hold NaN: a prefix of some trace was never graded")
    # Under the hypothesis the sums have mean 0, so their spread is taken around 0.
    spread = math.sqrt(float((sums**2).sum()))
    z = 0.0 if spread == 0 else float(sums.sum()) / spread
    return Martingale(float(sums.sum()) / count, spread / count, z, len(scores), count)


@dataclass(frozen=True, slots=True)
class Profile:
    """The target rate at every prefix of one trace, and the score of every sentence.

    ``arms`` [n + 1], in order. ``outcome`` (0 or 1): the trace is finished, and its own outcome is the rate
    behind its last sentence, where nothing is drawn; None: it can run on there, or it was cut off.
    """

    trace: str
    pieces: tuple[Piece, ...]
    arms: tuple[Arm, ...]
    outcome: float | None
    warnings: tuple[str, ...] = ()

    @property
    def rates(self) -> Floats:
        """Target rate at every prefix, [n + 1]; NaN where no continuation was graded."""
        return np.array([math.nan if a.rate is None else a.rate for a in self.arms], dtype=np.float64)

    @property
    def scores(self) -> Floats:
        """Score of every sentence, [n]."""
        return np.asarray(prefix_scores(self.rates))

    def intervals(self, level: float = 0.95) -> list[stats.Interval | None]:
        """Wilson interval of every prefix; None where nothing was graded, no width for a recorded outcome."""
        found = [arm.interval(level) if arm.runs else None for arm in self.arms]
        if self.outcome is not None:
            found[-1] = stats.Interval(self.outcome, self.outcome, self.outcome, level, "recorded")
        return found

    def score_intervals(self, level: float = 0.95) -> list[stats.Interval | None]:
        """Newcombe interval of every score (its two arms are independent); None where one was not graded."""
        found: list[stats.Interval | None] = []
        for i in range(len(self.pieces)):
            left, right = self.arms[i], self.arms[i + 1]
            if not left.runs or not right.runs:
                found.append(None)
            elif self.outcome is not None and i + 1 == len(self.pieces):
                known, y = left.interval(level), self.outcome
                gain = y - known.estimate
                found.append(stats.Interval(gain, y - known.high, y - known.low, level, "Wilson"))
            else:
                found.append(stats.newcombe(left.counts, right.counts, level).interval)
        return found

    def adjusted(self) -> list[float | None]:
        """Fisher's p of every score, by Holm over the trace; None where one side is one recorded outcome."""
        ends = len(self.pieces) - (self.outcome is not None)
        pairs = [(self.arms[i], self.arms[i + 1]) for i in range(ends)]
        tested = [i for i, (left, right) in enumerate(pairs) if left.runs and right.runs]
        raw = np.array([stats.fisher(pairs[i][0].counts, pairs[i][1].counts).p for i in tested])
        found: list[float | None] = [None] * len(self.pieces)
        for i, p in zip(tested, stats.holm(raw).p, strict=True):
            found[i] = float(p)
        return found

    def to_json(self) -> Json:
        """Plain fields: a row per prefix and per sentence, with rates, scores, intervals and arms."""
        rates, spans, gains = self.rates, self.intervals(), self.score_intervals()
        error = telescoping_error(rates, self.scores)
        return {
            "instrument": "sentence resampling",
            "trace": self.trace,
            "outcome": self.outcome,
            "prefixes": [
                {"hits": a.hits, "runs": a.runs, "failed": a.failed, "unfinished": a.unfinished,
                 "rate": a.rate, "low": s and s.low, "high": s and s.high, "forks": list(a.forks)}
                for a, s in zip(self.arms, spans, strict=True)
            ],
            "sentences": [
                {"text": piece.text, "turn": piece.turn, "before": piece.before.address,
                 "after": piece.after.address,
                 "score": g and g.estimate, "low": g and g.low, "high": g and g.high, "p_holm": p}
                for piece, g, p in zip(self.pieces, gains, self.adjusted(), strict=True)
            ],
            "telescoping_error": None if math.isnan(error) else error,
            "warnings": list(self.warnings),
        }  # fmt: skip


def sentence_resample(
    end: Point,
    policy: Policy,
    k: int = 50,
    *,
    grader: Judge,
    unit: Unit = "sentence",
    settings: Sampling | None = None,
    world: World | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Profile:
    """The target rate over ``k`` continuations of every prefix of the trace that ends at ``end``.

    All prefixes are one batch, so the decoder computes the trace once. Behind the last sentence of a
    finished trace its own outcome is the rate, and nothing is drawn. Continuations on the tree already are
    not drawn again.

    Raises:
        BadInput: no turn of the policy on the trajectory, or ``k`` below 1.
        CannotDo: token ids are missing, or the policy cannot go on inside a turn (use ``unit="turn"``).
    Source: arXiv:2606.26071, appendix E (there two evaluations per sentence).
    """
    tree = end.tree
    found = pieces(end, unit)
    assert tree is not None
    trajectory = tree.path(end)
    over, outcome = _own_outcome(end, grader)
    points = [found[0].before, *(piece.after for piece in found)]
    live = points[:-1] if over else points
    jobs: list[ReadyArm] = [prepare(p, policy, k, settings=settings, world=world, seed=seed) for p in live]
    forks = run_jobs(jobs, judge=grader, progress=progress, stage="resampling sentences")
    arms = [arm_of(f"behind sentence {i}", fork, grader, k) for i, fork in enumerate(forks)]
    if over:
        known = outcome is not None
        arms.append(
            Arm("the trace itself", int(outcome or 0), int(known), unfinished=int(not known),
                grader=grader.producer.id, nodes=(trajectory.leaf.id,))
        )  # fmt: skip
    warnings = (*same_model(grader, policy), *_concerns(trajectory, arms, world))
    return Profile(trajectory.leaf.id, tuple(found), tuple(arms), outcome, warnings)


def _concerns(trajectory: Trajectory, arms: Sequence[Arm], world: World | None) -> list[str]:
    """What a reader must know: edited text, missing world, cut-off and failed continuations, no contrast."""
    found = []
    if any("edit" in s.node.extra for s in trajectory) or trajectory.context[0].node.kind == "rewrite":
        found.append("the trace holds text that was not sampled: its scores need not have mean 0")
    if world is None and "task" in trajectory.root.extra:
        found.append("the trace was recorded in a world and none is given: continuations end with the turn")
    for arm in arms:
        lost = arm.failed + (arm.unfinished or 0)
        if lost:
            low, high = arm.bounds()
            found.append(
                f"{arm.name}: {arm.failed} continuations failed and {arm.unfinished or 0} were cut off; "
                f"the rate lies between {low:.0%} and {high:.0%}"
            )
    rates = {arm.rate for arm in arms if arm.rate is not None}
    if rates in ({0.0}, {1.0}):
        found.append("no contrast: every prefix has the same rate, so no sentence can be told from another")
    return found


def _own_outcome(end: Point, grader: Judge) -> tuple[bool, float | None]:
    """Whether nothing can follow the trace, and its own grade: 0 or 1, None where it is open or unknown.

    A trace that was cut off has no outcome unless the act was done already.
    """
    tree, node = end.tree, end.node
    assert tree is not None
    said_all = node.kind == "action" and not end.mid_node and node.finish is not None
    if node.kind != "verdict" and not said_all:
        return False, None
    verdict = grade(tree, [node.id], grader)[node.id]
    if verdict.value is None:
        return True, None
    hit = check_hit(verdict.value, f"node {node.id[:12]}")
    cut = node.finish == "length" or verdict.reason == "unfinished"
    return True, None if cut and not hit else float(hit)
