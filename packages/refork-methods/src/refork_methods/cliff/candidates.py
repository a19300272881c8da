"""What else could have been said at a cliff, and what it was worth: the likeliest tokens, forced one by one.

Source: arXiv 2606.25524 (candidate replacement and the cliff probability mass).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from refork.errors import BadInput, CannotDo, WrongTokenizer
from refork.forking.arm import prepare, run_jobs
from refork.forking.change import Force
from refork.judge import Judge
from refork.policies.base import NextDistribution, Policy
from refork.progress import Progress, silent
from refork.sampling.noise import stream_of
from refork.worlds.base import World
from refork_methods.cliff.detect import Count
from refork_methods.cliff.kinds import token_rank
from refork_methods.cliff.table import DELTA0, Z, check_draws, is_cliff, unpaired_error
from refork_methods.cliff.verify import Cliff, counts


def falls(before: Count, after: Count, delta0: float = DELTA0, z: float = Z) -> bool:
    """Whether ``after`` is a cliff against ``before`` by the published rule; False where ungraded."""
    if not before[1] or not after[1]:
        return False
    p, q = before[0] / before[1], after[0] / after[1]
    return bool(is_cliff(p - q, unpaired_error(p, q, before[1], after[1]), delta0, z))


def cliff_mass(chances: ArrayLike, cliffs: ArrayLike) -> float:
    """Probability that the next token is a cliff: the sum of pi over candidates that are (a lower bound).

    ``chances`` [k] at temperature 1; ``cliffs`` [k]: which of them fall.
    """
    pi, fall = np.asarray(chances, dtype=np.float64), np.asarray(cliffs, dtype=bool)
    if pi.shape != fall.shape or (pi < 0).any() or pi.sum() > 1 + 1e-6:
        raise BadInput("probabilities and cliffs of candidates do not fit together", where="cliff mass")
    return float(pi[fall].sum())


@dataclass(frozen=True, slots=True)
class Candidate:
    """One token that could stand at a cliff: its probability at temperature 1 and fresh (wins, draws)."""

    token: int
    text: str
    chance: float
    count: Count
    cliff: bool

    @property
    def value(self) -> float | None:
        """Its success probability; None where no continuation was graded."""
        return self.count[0] / self.count[1] if self.count[1] else None


@dataclass(frozen=True, slots=True)
class Choices:
    """The candidates at one cliff, likeliest first; the cliff's own token is among them or added last."""

    cliff: Cliff
    candidates: tuple[Candidate, ...]
    sampled: int
    tokens: int

    @property
    def mass(self) -> float:
        """Cliff probability mass over the candidates."""
        return cliff_mass([c.chance for c in self.candidates], [c.cliff for c in self.candidates])


def candidates(
    cliffs: Sequence[Cliff],
    policy: Policy,
    k: int = 10,
    draws: int = 64,
    *,
    score: str = "success",
    world: World | None = None,
    judge: Judge | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> list[Choices]:
    """The ``k`` likeliest tokens at each cliff, each forced and run on ``draws`` times, all with one noise.

    The cliff's own token keeps the counts of its re-test.

    Raises:
        CannotDo: the policy cannot say the distribution of the next token.
        BadInput: fewer than 16 draws, or k below 1.
    """
    check_draws(draws)
    if k < 1:
        raise BadInput(f"k is {k}; at least one candidate is needed")
    if not isinstance(policy, NextDistribution):
        raise CannotDo(f"policy {policy.card.name!r} cannot say the distribution of the next token")
    fresh = stream_of("candidates", seed) >> 33
    plans: list[tuple[Cliff, list[int], np.ndarray[tuple[int], np.dtype[np.float32]]]] = []
    jobs = []
    for cliff in cliffs:
        before, own = cliff.nominee.before, cliff.nominee.token
        assert before.tree is not None
        distribution = policy.next_logprobs([before.tree.path(before).tokens])[0]
        # Stable: tokens of one probability come in the order of their ids, and a run done again is the same.
        ids = [int(i) for i in np.argsort(-distribution, kind="stable")[:k] if np.isfinite(distribution[i])]
        plans.append((cliff, ids, distribution))
        jobs += [
            prepare(before, policy, draws, change=Force(ids=(token,)), world=world, seed=fresh)
            for token in ids
            if token != own
        ]
    arms = iter(run_jobs(jobs, judge=judge, progress=progress, stage="trying other tokens"))
    found = []
    for cliff, ids, distribution in plans:
        own, rows, tokens, sampled = cliff.nominee.token, [], 0, 0
        # In the order of the jobs above: arms are taken one by one, and the own token has none.
        for token in ids if own in ids else [*ids, own]:
            count = cliff.after
            if token != own:
                arm = next(arms)
                count, tokens, sampled = counts(arm, score, draws), tokens + arm.tokens, sampled + draws
            text = policy.decode(np.array([token], dtype=np.int32))
            rows.append(
                Candidate(token, text, float(np.exp(distribution[token])), count, falls(cliff.before, count))
            )
        found.append(Choices(cliff, tuple(rows), sampled, tokens))
    return found


@dataclass(frozen=True, slots=True)
class Shift:
    """One cliff seen by another model: its mass there minus here, and the token's rank in both."""

    mass: float
    rank_here: int
    rank_there: int


def shift(choices: Choices, here: Policy, there: Policy) -> Shift:
    """How another model with the same tokenizer sees the candidates of a cliff.

    Raises:
        WrongTokenizer: the models do not share their tokens.
        CannotDo: one of them cannot say the distribution of the next token.
    """
    if here.card.tokenizer != there.card.tokenizer:
        raise WrongTokenizer("a cliff can be compared between models of one tokenizer only")
    before = choices.cliff.nominee.before
    assert before.tree is not None
    prefix = before.tree.path(before).tokens
    masses, ranks = [], []
    for policy in (here, there):
        if not isinstance(policy, NextDistribution):
            raise CannotDo(f"policy {policy.card.name!r} cannot say the distribution of the next token")
        distribution = policy.next_logprobs([prefix])[0]
        chances = [float(np.exp(distribution[c.token])) for c in choices.candidates]
        masses.append(cliff_mass(chances, [c.cliff for c in choices.candidates]))
        ranks.append(token_rank(distribution, float(distribution[choices.cliff.nominee.token])))
    return Shift(masses[1] - masses[0], ranks[0], ranks[1])
