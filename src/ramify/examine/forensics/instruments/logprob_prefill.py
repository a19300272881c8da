"""Log-prob prefill: how near is the model to committing itself, paragraph by paragraph, before it says so?

At every paragraph break the log-probability of a commitment phrase is scored. Rollouts are split by whether
it ever exceeds its level before the first paragraph, and the target rates of both halves compared.

Source: arXiv:2606.26071, appendix E (first ten paragraphs; threshold = the level at paragraph 0).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray

from ramify.core.errors import BadInput, CannotDo
from ramify.core.fork.change import join
from ramify.core.judge import Judge
from ramify.core.policy.base import Policy
from ramify.core.run.progress import Progress, silent
from ramify.core.stats.results import Array
from ramify.core.tree.node import Point
from ramify.core.types import IntArray, Json
from ramify.examine.forensics.arm import Arm, Outcome
from ramify.examine.forensics.evidence import Result
from ramify.examine.forensics.instruments.outcomes import check_hit, grade
from ramify.examine.forensics.instruments.replies import subject_of
from ramify.examine.forensics.instruments.sentences import pieces
from ramify.examine.forensics.statistics import difference

Floats = NDArray[np.float64]


def ever_exceeds(
    levels: Sequence[Float[Array, "breaks"]], within: int = 10, threshold: float | None = None
) -> Bool[Array, "rollouts"]:
    """Whether each rollout's level passes a threshold at one of its first ``within`` paragraph breaks.

    ``levels`` [breaks + 1] each, entry 0 before the first paragraph; ``threshold`` None: each rollout's own
    entry 0.

    Raises: BadInput for a rollout without a level, NaN, or ``within`` below 1.
    """
    if within < 1:
        raise BadInput(f"within is {within}; at least 1 paragraph is needed")
    found = []
    for number, row in enumerate(levels):
        values = np.asarray(row, dtype=np.float64)
        if not len(values) or np.isnan(values).any():
            raise BadInput("a rollout has no level before its first paragraph", where=f"rollout {number}")
        least = float(values[0]) if threshold is None else threshold
        found.append(bool((values[1 : within + 1] > least).any()))
    return np.array(found, dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class Commitment:
    """Levels (nats) of every rollout, and the target rates where the level was exceeded and where it was not.

    ``result``: the difference of the two rates; None where one half is empty.
    """

    phrase: str
    levels: tuple[Floats, ...]
    exceeded: NDArray[np.bool_]
    within: int
    stayed: Arm
    rose: Arm
    result: Result | None

    def to_json(self) -> Json:
        """Plain fields."""
        found = self.result and self.result.interval
        return {
            "instrument": "log-prob prefill",
            "phrase": self.phrase,
            "within": self.within,
            "levels": [row.tolist() for row in self.levels],
            "exceeded": self.exceeded.tolist(),
            "arms": [
                {"name": a.name, "hits": a.hits, "runs": a.runs, "rate": a.rate}
                for a in (self.stayed, self.rose)
            ],
            "difference": found and {"estimate": found.estimate, "low": found.low, "high": found.high},
            "p": self.result and self.result.p,
        }  # fmt: skip


def phrase_levels(
    ends: Sequence[Point], policy: Policy, phrase: str, *, within: int = 10, progress: Progress = silent
) -> list[Floats]:
    """Log-probability (nats) of the phrase at the paragraph breaks of each first turn, entry 0 before it.

    All rollouts and breaks are one batch.

    Raises:
        CannotDo: the policy gives no log-probs of given tokens (many servers do not).
        BadInput: the phrase gives no tokens, or a rollout holds no turn.
    """
    if not policy.card.can("scores"):
        raise CannotDo(
            f"{policy.card.name!r} gives no log-probs of given text",
            hint="use a local model, or a server that returns prompt log-probs",
        )
    tokens = policy.encode(phrase)
    if not len(tokens):
        raise BadInput("the commitment phrase gives no tokens", where=repr(phrase))
    sequences: list[IntArray] = []
    counts: list[int] = []
    for end in ends:
        tree = end.tree
        found = [p for p in pieces(end, "paragraph") if p.turn == 0][:within]
        assert tree is not None
        points = [found[0].before, *(piece.after for piece in found)]
        sequences += [join(tree.path(point).tokens, tokens) for point in points]
        counts.append(len(points))
    progress("scoring the phrase", 0, len(sequences))
    given = policy.logprobs(sequences)
    progress("scoring the phrase", len(sequences), len(sequences))
    values = [float(np.sum(row[-len(tokens) :], dtype=np.float64)) for row in given]
    starts = np.cumsum([0, *counts])
    return [np.array(values[a:b]) for a, b in pairwise(starts)]


def logprob_prefill(
    ends: Sequence[Point],
    policy: Policy,
    phrase: str,
    *,
    grader: Judge,
    within: int = 10,
    threshold: float | None = None,
    progress: Progress = silent,
) -> Commitment:
    """Split finished rollouts by whether the phrase ever became likelier than before the first paragraph.

    ``threshold`` None: each rollout's own level at paragraph 0, which is one number where they share a
    prompt.

    Raises: BadInput, CannotDo as :func:`phrase_levels`.
    """
    if not ends:
        raise BadInput("there is no rollout to score")
    tree = ends[0].tree
    levels = phrase_levels(ends, policy, phrase, within=within, progress=progress)
    exceeded = ever_exceeds(levels, within, threshold)
    assert tree is not None
    verdicts = grade(tree, [end.node.id for end in ends], grader)
    halves: dict[bool, list[Outcome]] = {False: [], True: []}
    for end, rose in zip(ends, exceeded, strict=True):
        value = verdicts[end.node.id].value
        where = f"node {end.node.id[:12]}"
        hit = None if value is None else check_hit(value, where)
        kind = Outcome("failed" if hit is None else "hit" if hit else "miss", end.node.id)
        halves[bool(rose)].append(kind)
    names = ("level never exceeded", "level exceeded")
    stayed, above = (
        Arm.of(name, halves[key], grader=grader.producer.id, subject=subject_of(policy))
        for name, key in zip(names, (False, True), strict=True)
    )
    result = difference(stayed, above) if stayed.runs and above.runs else None
    return Commitment(phrase, tuple(levels), exceeded, within, stayed, above, result)
