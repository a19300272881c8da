"""Log-prob prefill: how near is the model to committing itself, paragraph by paragraph, before it says so?

At every paragraph break the log-probability of a commitment phrase is scored. Rollouts are split by whether
it ever exceeds its level before the first paragraph, and the target rates of both halves compared.

Source: arXiv:2606.26071, appendix E (first ten paragraphs; threshold = the level at paragraph 0). Ours: the
choice of the turn, since many agents look first and decide in a later turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray

from refork.errors import BadInput, CannotDo
from refork.forking.change import join
from refork.judge import Judge
from refork.plain import to_json
from refork.policies.base import Policy
from refork.progress import Progress, silent
from refork.stats.results import Array
from refork.tree.node import Point
from refork.types import IntArray, Json
from refork_methods.forensics.arm import Arm, Outcome
from refork_methods.forensics.evidence import Result
from refork_methods.forensics.instruments.outcomes import end_of, grade
from refork_methods.forensics.instruments.replies import subject_of
from refork_methods.forensics.instruments.sentences import pieces
from refork_methods.forensics.statistics import difference

Floats = NDArray[np.float64]
#: Turns of the policy that are scored: one by its number (from 0; negative from the end), or all as one text.
Turn: TypeAlias = int | Literal["all"]


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

    ``turn``: which turn was scored; ``without``: rollouts that have no such turn, which are in neither half.
    ``result``: the difference of the two rates; None where one half is empty.
    """

    phrase: str
    turn: Turn
    without: int
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
            "turn": self.turn,
            "without_turn": self.without,
            "within": self.within,
            "levels": [row.tolist() for row in self.levels],
            "exceeded": self.exceeded.tolist(),
            "arms": [
                {"name": a.name, "hits": a.hits, "runs": a.runs, "rate": a.rate}
                for a in (self.stayed, self.rose)
            ],
            "difference": to_json(found),
            "p": self.result and self.result.p,
        }  # fmt: skip


def paragraph_breaks(end: Point, turn: Turn = 0, within: int = 10) -> list[Point]:
    """Places before the first ``within`` paragraphs of a turn and behind each; none without such a turn.

    The place behind a turn's last paragraph lies behind what the world answered.

    Raises:
        BadInput: ``turn`` is neither a whole number nor "all", or the rollout holds no turn of the policy.
    """
    if turn != "all" and (not isinstance(turn, int) or isinstance(turn, bool)):
        raise BadInput(f"turn is {turn!r}", hint='a number from 0, -1 for the last turn, or "all"')
    found = pieces(end, "paragraph")
    if turn != "all" and found:
        wanted = turn if turn >= 0 else found[-1].turn + 1 + turn
        found = [piece for piece in found if piece.turn == wanted]
    return [found[0].before, *(piece.after for piece in found[:within])] if found else []


def phrase_levels(
    ends: Sequence[Point],
    policy: Policy,
    phrase: str,
    *,
    turn: Turn = 0,
    within: int = 10,
    progress: Progress = silent,
) -> list[Floats]:
    """Log-probability (nats) of the phrase at the paragraph breaks of a turn, entry 0 before it.

    All rollouts and breaks are one batch. A paragraph ends before its empty line: a phrase that is to open
    the next one begins with that empty line. A rollout without such a turn has no level.

    Raises:
        CannotDo: the policy gives no log-probs of given tokens (many servers do not).
        BadInput: the phrase gives no tokens, a rollout holds no turn at all, or ``turn`` is no turn.
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
        points = paragraph_breaks(end, turn, within)
        tree = end.tree
        assert tree is not None
        sequences += [join(tree.path(point).tokens, tokens) for point in points]
        counts.append(len(points))
    progress("scoring the phrase", 0, len(sequences))
    given = policy.logprobs(sequences) if sequences else []
    progress("scoring the phrase", len(sequences), len(sequences))
    # The phrase stands at the end of each sequence; what comes before it is only its context.
    values = [float(np.sum(row[-len(tokens) :], dtype=np.float64)) for row in given]
    starts = np.cumsum([0, *counts])
    return [np.array(values[a:b]) for a, b in pairwise(starts)]


def logprob_prefill(
    ends: Sequence[Point],
    policy: Policy,
    phrase: str,
    *,
    grader: Judge,
    turn: Turn = 0,
    within: int = 10,
    threshold: float | None = None,
    progress: Progress = silent,
) -> Commitment:
    """Split finished rollouts by whether the phrase ever became likelier than before the first paragraph.

    ``turn``: the policy's turn that is scored, counted from 0 (negative: from the end), or "all".
    ``threshold`` None: each rollout's own level before that turn, which is one number where they share all
    that comes before it. Rollouts without such a turn are counted and left out.

    Raises: BadInput, CannotDo as :func:`phrase_levels`; BadInput also where no rollout has such a turn.
    """
    if not ends:
        raise BadInput("there is no rollout to score")
    tree, count = ends[0].tree, len(ends)
    scored = phrase_levels(ends, policy, phrase, turn=turn, within=within, progress=progress)
    ends = [end for end, row in zip(ends, scored, strict=True) if len(row)]
    levels = [row for row in scored if len(row)]
    if not ends:
        raise BadInput(f"none of the {count} rollouts has a turn {turn}", hint="turns are counted from 0")
    exceeded = ever_exceeds(levels, within, threshold)
    assert tree is not None
    verdicts = grade(tree, [end.node.id for end in ends], grader)
    halves: dict[bool, list[Outcome]] = {False: [], True: []}
    for end, rose in zip(ends, exceeded, strict=True):
        verdict = verdicts[end.node.id]
        ended = end_of(verdict, f"node {end.node.id[:12]}", cut=end.node.finish == "length")
        halves[bool(rose)].append(Outcome(ended, end.node.id, note=verdict.reason))
    names = ("level never exceeded", "level exceeded")
    stayed, above = (
        Arm.of(name, halves[key], grader=grader.producer.id, subject=subject_of(policy))
        for name, key in zip(names, (False, True), strict=True)
    )
    result = difference(stayed, above) if stayed.runs and above.runs else None
    return Commitment(phrase, turn, count - len(ends), tuple(levels), exceeded, within, stayed, above, result)
