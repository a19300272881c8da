"""Whether a challenger replaces a judge: by best belief, or by a paired exact test.

Both rules are worked out at every checkpoint, whichever decides, so that a log shows where they differ. On
equally good candidates that answer the same anchor items, best belief is "one more item right" and nothing
else: the benchmark of evolving measures how often it then replaces a judge for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.stats.results import Array
from refork_methods.evolve.belief import EPS, best_belief, check_eps, quantile

Rule: TypeAlias = Literal["paired", "best_belief"]
#: Right, wrong, and not answered, in arrays of answers.
RIGHT, WRONG, UNANSWERED = 1, 0, -1


def paired_p(gains: Int[Array, "..."], losses: Int[Array, "..."]) -> Float[Array, "..."]:
    """One-sided exact p that a challenger is no better: items only it has right, and only the incumbent has.

    P(X >= gains) for X ~ Binomial(gains + losses, 1/2), elementwise: half of McNemar's two-sided p where
    gains exceed losses. 1 where no item tells the two apart.

    Source: McNemar (1947), as :func:`refork.stats.mcnemar`; one-sided, because only a better judge may
    come in.
    """
    from scipy.special import betainc

    good, bad = np.asarray(gains, dtype=np.float64), np.asarray(losses, dtype=np.float64)
    # The upper tail of a binomial is an incomplete beta function; its corner at no gain is 1.
    tail: NDArray[np.float64] = betainc(np.maximum(good, 1.0), bad + 1.0, 0.5)
    return np.where(good > 0, tail, 1.0)


@final
@dataclass(frozen=True, slots=True)
class Tally:
    """How a candidate did in an examination: counts only, so that a log of it shows no item.

    ``anchor``: right and wrong on the anchor; ``traps``: the same on held-out traps and controls together;
    ``controls``: accepted and refused of the controls alone. ``gains`` and ``losses``: items of all parts,
    answered by both, that only the candidate, or only the incumbent, has right.
    """

    name: str
    anchor: tuple[int, int]
    gains: int = 0
    losses: int = 0
    traps: tuple[int, int] = (0, 0)
    controls: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        if min(*self.anchor, *self.traps, *self.controls, self.gains, self.losses) < 0:
            raise BadInput("an examination counts items, none below 0", where=f"judge {self.name}")

    def mixed(self, enough: int) -> tuple[float, float]:
        """Right and wrong, where traps and controls together weigh as much as the anchor.

        Below ``enough`` of them their weight falls in proportion. The two add up to the items answered: the
        balance moves the share of right ones, and claims no more evidence than there is.
        """
        seen, more = sum(self.anchor), sum(self.traps)
        if not seen or not more:
            return float(self.anchor[0] + self.traps[0]), float(self.anchor[1] + self.traps[1])
        weight = 0.5 * min(1.0, more / enough)
        share = (1 - weight) * self.anchor[0] / seen + weight * self.traps[0] / more
        return share * (seen + more), (1 - share) * (seen + more)


def tally(
    name: str,
    answers: Int[Array, "items"],
    incumbent: Int[Array, "items"],
    traps: Int[Array, "traps"] | Sequence[int] = (),
    incumbent_traps: Int[Array, "traps"] | Sequence[int] = (),
    is_control: Sequence[bool] | None = None,
) -> Tally:
    """Counts of one candidate's answers, 1 right, 0 wrong, -1 unanswered, beside the incumbent's.

    ``is_control`` says which of the trap items are controls (good work, to be accepted); None: none.

    Raises: BadInput for other values, or arrays that do not speak of the same items.
    """
    mine, theirs = _answers(answers, incumbent, name)
    more, their_more = _answers(traps, incumbent_traps, name)
    control = np.zeros(more.shape, dtype=bool) if is_control is None else np.asarray(is_control, dtype=bool)
    if control.shape != more.shape:
        raise BadInput(f"{control.size} marks of controls for {more.size} items", where=f"judge {name}")
    x, y = np.concatenate([mine, more]), np.concatenate([theirs, their_more])
    return Tally(
        name,
        _split(mine),
        int(((x == RIGHT) & (y == WRONG)).sum()),
        int(((x == WRONG) & (y == RIGHT)).sum()),
        _split(more),
        _split(more[control]),
    )


def _answers(one: object, other: object, name: str) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    pair = [np.asarray(values).reshape(-1) for values in (one, other)]
    if pair[0].shape != pair[1].shape:
        raise BadInput(f"{pair[0].size} answers beside the incumbent's {pair[1].size}", where=f"judge {name}")
    for values in pair:
        if not np.isin(values, (RIGHT, WRONG, UNANSWERED)).all():
            raise BadInput("answers are 1 (right), 0 (wrong) or -1 (unanswered)", where=f"judge {name}")
    return pair[0].astype(np.int8), pair[1].astype(np.int8)


def _split(answers: NDArray[np.int8]) -> tuple[int, int]:
    return int((answers == RIGHT).sum()), int((answers == WRONG).sum())


@final
@dataclass(frozen=True, slots=True)
class Gate:
    """The terms of a replacement.

    ``rule`` decides: ``paired`` (default), or ``best_belief`` as the paper has it. ``rate`` is the
    chance, over all challengers of all ``looks`` at the same anchor, that the paired rule takes in one
    that is no better (Bonferroni; without traps). ``looks`` None: as many as the search has checkpoints,
    and one outside a search. ``minimum`` anchor outcomes are needed to be eligible.
    ``control_floor`` is the share of controls that a challenger must accept, where there are any.
    ``anchor_slack`` is the share of anchor items by which a challenger that is examined on traps may
    fall below the incumbent: an incumbent was
    chosen on the same anchor, so that its own share is a lucky one, and at 0 it bars better judges for
    good.

    Raises: BadInput for an unknown rule, eps outside (0, 0.5], or numbers that cannot be.
    """

    rule: Rule = "paired"
    eps: float = EPS
    rate: float = 0.05
    looks: int | None = None
    minimum: int = 30
    control_floor: float = 0.5
    anchor_slack: float = 0.0

    def __post_init__(self) -> None:
        check_eps(self.eps)
        if self.rule not in ("paired", "best_belief"):
            raise BadInput(f"unknown rule {self.rule!r}", hint="'paired' or 'best_belief'")
        if not 0 <= self.anchor_slack < 1:
            raise BadInput(f"the anchor slack is {self.anchor_slack!r}; it must lie in [0, 1)", hint="0.05")
        few = (self.looks is not None and self.looks < 1) or self.minimum < 1
        if few or not 0 < self.rate < 1 or not 0 <= self.control_floor <= 1:
            raise BadInput(
                f"rate {self.rate!r}, looks {self.looks}, minimum {self.minimum}, control floor "
                f"{self.control_floor!r}: the rate in (0, 1), the floor in [0, 1], the others at least 1"
            )


@final
@dataclass(frozen=True, slots=True)
class Judged:
    """A candidate's counts and its best belief over all parts.

    ``p`` is one-sided (None: it is the incumbent); ``barred`` says why it may not come in (None: it may).
    """

    tally: Tally
    belief: float
    p: float | None
    barred: str | None = None


@final
@dataclass(frozen=True, slots=True)
class Decision:
    """What a checkpoint decided for one slot; challengers by name. A choice of None: the incumbent stays."""

    incumbent: Judged
    challengers: tuple[Judged, ...]
    rule: Rule
    by_best_belief: str | None
    by_paired: str | None
    threshold: float

    @property
    def chosen(self) -> str | None:
        """The challenger that comes in by the rule in force; None: the incumbent stays."""
        return self.by_paired if self.rule == "paired" else self.by_best_belief

    @property
    def anchor_queries(self) -> int:
        """How many anchor answers were looked at; an anchor that is asked often is learnt."""
        return sum(sum(one.tally.anchor) for one in (self.incumbent, *self.challengers))


def promote(incumbent: Tally, challengers: Iterable[Tally], gate: Gate | None = None) -> Decision:
    """Whether one of the challengers replaces the incumbent; the order in which they come changes nothing.

    ``best_belief``: the largest belief in the balanced mix of anchor and traps (:meth:`Tally.mixed`),
    strictly above the incumbent's. ``paired``: the smallest p, where it is at most
    ``rate / (challengers * looks)``. Both bar who has too few anchor
    outcomes, with traps an anchor belief below the incumbent's (less the slack), or too few controls
    accepted; a tie keeps the incumbent.

    The error rate of ``paired`` holds for challengers that never saw the items, on an anchor. Traps are
    chosen by the incumbent's own mistakes: with as many controls beside them
    (:func:`refork_methods.evolve.traps.trap_set`) a challenger gains nothing by refusing at random, but
    one that is as good and errs elsewhere still gains. With traps the p is a score, not an error rate.

    Raises: BadInput where two candidates have one name.
    Source: arXiv:2606.26294, Algorithm 1 (best belief); the paired rule and the control floor are ours.
    """
    terms, rivals = gate or Gate(), sorted(challengers, key=lambda one: one.name)
    names = [incumbent.name, *(one.name for one in rivals)]
    if len(set(names)) != len(names):
        raise BadInput("two candidates have one name", hint="name each by its digest")
    floor = best_belief(*incumbent.anchor, terms.eps)
    held = Judged(incumbent, _belief(incumbent, terms), None)
    judged = tuple(_judge(one, floor, terms) for one in rivals)
    able = [one for one in judged if one.barred is None]
    threshold = terms.rate / max(1, len(rivals) * (terms.looks or 1))
    # ``max`` and ``min`` keep the first of equals, and names are sorted.
    best = max(able, key=lambda one: one.belief, default=None)
    surest = min(able, key=lambda one: (_p(one), -one.belief), default=None)
    return Decision(
        held,
        judged,
        terms.rule,
        best.tally.name if best is not None and best.belief > held.belief else None,
        surest.tally.name if surest is not None and _p(surest) <= threshold else None,
        threshold,
    )


def _belief(one: Tally, gate: Gate) -> float:
    return float(quantile(*one.mixed(gate.minimum), gate.eps))


def _p(one: Judged) -> float:
    return 1.0 if one.p is None else one.p


def _judge(one: Tally, floor: float, gate: Gate) -> Judged:
    barred = None
    accepted, refused = one.controls
    if sum(one.anchor) < gate.minimum:
        barred = f"{sum(one.anchor)} anchor outcomes of {gate.minimum} needed"
    elif sum(one.traps) and _slackened(one.anchor, gate) < floor:
        barred = "a lower anchor belief than the incumbent's"
    elif accepted + refused and accepted < gate.control_floor * (accepted + refused):
        barred = f"accepts {accepted} of {accepted + refused} controls"
    p = float(paired_p(np.asarray(one.gains), np.asarray(one.losses)))
    return Judged(one, _belief(one, gate), p, barred)


def _slackened(anchor: tuple[int, int], gate: Gate) -> float:
    """A candidate's anchor belief with the items given back that the slack allows it to lose."""
    # 0.29 * 100 is 28.999...: without the small sum an item would be lost to rounding.
    given = min(anchor[1], int(gate.anchor_slack * sum(anchor) + 1e-9))
    return best_belief(anchor[0] + given, anchor[1] - given, gate.eps)
