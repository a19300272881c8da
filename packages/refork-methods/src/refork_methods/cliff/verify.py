"""Nominees tested again on fresh draws of both sides, with their kind and what they could cost at most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from refork.errors import BadInput, CannotDo
from refork.forking.arm import Fork, graded, prepare, run_jobs
from refork.judge import Judge
from refork.policies.base import NextDistribution, Policy
from refork.progress import Progress, silent
from refork.sampling.noise import stream_of
from refork.worlds.base import World
from refork_methods.cliff.bound import max_drop
from refork_methods.cliff.curve import Curve
from refork_methods.cliff.detect import Count, survivors, z_of
from refork_methods.cliff.kinds import Entropy, Kind, cliff_kind, token_rank, top_entropy
from refork_methods.cliff.scan import Nominee, Scanned
from refork_methods.cliff.table import DELTA0, LEAST_DRAWS, check_draws, is_cliff, unpaired_error


@dataclass(frozen=True, slots=True)
class Cliff:
    """A nominee after its re-test.

    ``before`` and ``after``: fresh (successes, graded draws) on its two sides. ``p``: of "the true drop is at
    most delta0"; ``q``: adjusted for all nominees tested together; ``real``: q within the false-discovery
    rate. ``chance``: the token's probability under the sampling distribution; ``possible``: the largest drop
    that it allows. ``kind``, ``entropy``, ``rank``: at temperature 1; None where the policy cannot say its
    distribution.
    """

    nominee: Nominee
    before: Count
    after: Count
    p: float
    q: float
    real: bool
    chance: float
    possible: float
    kind: Kind | None
    entropy: Entropy | None
    rank: int | None
    sampled: int
    tokens: int

    @property
    def drop(self) -> float:
        """The drop on fresh draws."""
        return self.before[0] / self.before[1] - self.after[0] / self.after[1]


def counts(arm: Fork, score: str = "success", draws: int | None = None) -> Count:
    """(successes, graded draws) of an arm's first ``draws`` draws; ungraded draws are not failures."""
    values = graded(arm.values(score))
    if draws is not None:
        # The tree may hold more draws of this arm, from an earlier run that asked for more.
        values = values[np.array([record.draw < draws for record in arm.draws], dtype=bool)]
    known = values[~np.isnan(values)]
    return int((known >= 1.0).sum()), len(known)


def describe_token(policy: Policy, nominee: Nominee) -> tuple[Kind, Entropy, int]:
    """Kind, entropy before it and rank of a token, from the policy's whole distribution at temperature 1.

    Raises: CannotDo where the policy can only sample.
    """
    if not isinstance(policy, NextDistribution):
        raise CannotDo(
            f"policy {policy.card.name!r} cannot say the distribution of the next token",
            hint="kinds of cliffs need a local or a scripted policy",
        )
    assert nominee.trace.end.tree is not None
    prefix = nominee.trace.end.tree.path(nominee.before).tokens
    distribution = policy.next_logprobs([prefix])[0]
    entropy, rank = top_entropy(distribution), token_rank(distribution, float(distribution[nominee.token]))
    return cliff_kind(entropy.nats, rank), entropy, rank


def as_published(
    first: Scanned, second: Scanned, policy: Policy, *, delta0: float = DELTA0, alpha: float = 0.05
) -> list[Cliff]:
    """The tokens of a trace that the published test takes for cliffs: one look, and no re-test.

    The shares before a token are ``first``'s and those behind it ``second``'s: two scans of the trace under
    different seeds, each with all its draws at every boundary. So the two sides are independent, as they are
    where every position is drawn anew; a draw that serves both sides can make no fall by chance. None of what
    is returned is ``real``: nothing was proven. The last token, behind which nothing is drawn, is left out.

    Raises: BadInput for scans of different traces, or one scan given twice.
    """
    if first is second or first.end.node.id != second.end.node.id:
        raise BadInput(
            "the published test needs two scans of one trace", where="cliff test", hint="another seed"
        )
    found = []
    for index in range(len(first.curve) - 1):
        before, after = _count(first.curve, index), _count(second.curve, index + 1)
        if min(before[1], after[1]) < LEAST_DRAWS:
            continue
        p, q = before[0] / before[1], after[0] / after[1]
        if is_cliff(p - q, unpaired_error(p, q, before[1], after[1]), delta0, z_of(alpha)):
            nominee = Nominee(first, index, first.points[index], first.points[index + 1])
            found.append(_cliff(nominee, _Sides(before, after, 0, 0), policy, 1.0, 1.0, False))
    return found


def _count(curve: Curve, index: int) -> Count:
    return round(float(curve.wins[index])), int(curve.draws[index])


def verify(
    nominees: Sequence[Nominee],
    policy: Policy,
    retest: int = 64,
    *,
    delta0: float = DELTA0,
    fdr: float = 0.1,
    score: str = "success",
    world: World | None = None,
    judge: Judge | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> list[Cliff]:
    """Every nominee with its re-test on ``retest`` fresh draws of each side; ``real`` says which survive.

    The noise differs from every scan's, so what nominated a token takes no part in judging it. All
    nominees given are one family of tests.

    Raises: BadInput for fewer than 16 draws.
    """
    check_draws(retest)
    if not nominees:
        return []
    fresh = stream_of("re-test", seed) >> 33
    jobs = [
        prepare(point, policy, retest, world=world, seed=fresh)
        for nominee in nominees
        for point in (nominee.before, nominee.after)
        if point is not None
    ]
    arms = iter(run_jobs(jobs, judge=judge, progress=progress, stage="testing again"))
    sides = [_side(nominee, arms, score, retest) for nominee in nominees]
    usable = [i for i, side in enumerate(sides) if side.before[1] and side.after[1]]
    verdict = survivors(
        [sides[i].before for i in usable], [sides[i].after for i in usable], delta0=delta0, fdr=fdr
    )
    # A nominee without a graded draw on one side is no member of the family and keeps p = q = 1.
    p, q = np.ones(len(sides)), np.ones(len(sides))
    real = np.zeros(len(sides), dtype=bool)
    p[usable], q[usable], real[usable] = verdict.p, verdict.q, verdict.survives
    return [
        _cliff(nominee, side, policy, float(p[i]), float(q[i]), bool(real[i]))
        for i, (nominee, side) in enumerate(zip(nominees, sides, strict=True))
    ]


@dataclass(frozen=True, slots=True)
class _Sides:
    """Fresh counts on both sides of a nominee and what they cost."""

    before: Count
    after: Count
    sampled: int
    tokens: int


def _side(nominee: Nominee, arms: Iterator[Fork], score: str, draws: int) -> _Sides:
    first = next(arms)
    before = counts(first, score, draws)
    if nominee.after is None:
        # Behind the last token nothing is left to chance: the trace's own outcome is the value.
        outcome = nominee.trace.curve.outcome
        after = (0, 0) if outcome is None else (round(draws * float(outcome >= 1.0)), draws)
        return _Sides(before, after, draws, first.tokens)
    second = next(arms)
    return _Sides(before, counts(second, score, draws), 2 * draws, first.tokens + second.tokens)


def _cliff(nominee: Nominee, side: _Sides, policy: Policy, p: float, q: float, real: bool) -> Cliff:
    kind, entropy, rank = (
        describe_token(policy, nominee) if isinstance(policy, NextDistribution) else (None, None, None)
    )
    chance = float(nominee.trace.curve.chance[nominee.index])
    value = side.after[0] / side.after[1] if side.after[1] else 0.0
    possible = np.nan if np.isnan(chance) else float(max_drop(chance, value))
    return Cliff(
        nominee, side.before, side.after, p, q, real, chance, possible, kind, entropy, rank,
        side.sampled, side.tokens,
    )  # fmt: skip
