"""Tiny speculative decoders whose every outcome can be enumerated: laws, drafts and confidences are known.

A request's prefix is a tuple that begins with the request's own number, so requests have laws of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import TypeAlias, final

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from refork.stats.results import Array
from refork_methods.speculate.accept import keep_chance, residual
from refork_methods.speculate.step_cost import StepCost

Prefix: TypeAlias = tuple[int, ...]
Law: TypeAlias = NDArray[np.float64]
#: Probabilities of outcomes: the tokens said by every request.
Outcomes: TypeAlias = dict[tuple[Prefix, ...], float]


@lru_cache(maxsize=1 << 16)
def _verdict(p: tuple[float, ...], q: tuple[float, ...], token: int) -> tuple[float, tuple[float, ...]]:
    """The chance that a draft is kept and the law after a rejection, by the decoder's own functions."""
    laws = (torch.tensor(law, dtype=torch.float64) for law in (p, q))
    target, draft = laws
    keep = float(keep_chance(target[token], draft[token]))
    return keep, tuple(residual(target, draft).tolist())


@final
@dataclass(frozen=True, slots=True)
class TinyWorld:
    """Laws [V] of the target and of the draft after a prefix, and the confidence at that place.

    ``confidence(prefix)`` is c for the token that comes next: it may read every token of the prefix,
    drafted ones included, and never the token itself. ``cost`` is the table schedules are given.
    """

    name: str
    requests: int
    block: int
    vocabulary: int
    target: Callable[[Prefix], Law]
    draft: Callable[[Prefix], Law]
    confidence: Callable[[Prefix], float]
    cost: StepCost

    def blocks(self, prefix: Prefix) -> list[tuple[Prefix, float]]:
        """Every block that may be drafted after a prefix, with its probability."""
        found = []
        for tokens in product(range(self.vocabulary), repeat=self.block):
            chance = 1.0
            for k, token in enumerate(tokens):
                chance *= float(self.draft(prefix + tokens[:k])[token])
            if chance > 0:
                found.append((tokens, chance))
        return found

    def survival(self, prefix: Prefix, tokens: Prefix) -> Float[np.ndarray, "g"]:
        """Stated survivals of a drafted block."""
        return np.cumprod([self.confidence(prefix + tokens[:k]) for k in range(self.block)])

    def own(self, prefix: Prefix, tokens: Prefix) -> Float[np.ndarray, "g"]:
        """The draft's probabilities of its own tokens."""
        return np.array([self.draft(prefix + tokens[:k])[t] for k, t in enumerate(tokens)])

    def said(self, prefix: Prefix, tokens: Prefix, length: int) -> list[tuple[Prefix, float]]:
        """What a request says when the first ``length`` drafts are verified, with probabilities."""
        found: list[tuple[Prefix, float]] = []
        reach = 1.0
        for k in range(length):
            p, q = self.target(prefix + tokens[:k]), self.draft(prefix + tokens[:k])
            keep, rest = _verdict(tuple(p.tolist()), tuple(q.tolist()), tokens[k])
            if keep < 1.0:
                found += [((*tokens[:k], v), reach * (1 - keep) * r) for v, r in enumerate(rest) if r]
            reach *= keep
        bonus = self.target(prefix + tokens[:length])
        return found + [((*tokens[:length], v), reach * b) for v, b in enumerate(bonus.tolist()) if b]

    def truth(self, length: int) -> Outcomes:
        """The target's law of the first ``length`` tokens of every request."""
        single = []
        for request in range(self.requests):
            chances: dict[Prefix, float] = {}
            for tokens in product(range(self.vocabulary), repeat=length):
                chance = 1.0
                for k, token in enumerate(tokens):
                    chance *= float(self.target((request, *tokens[:k]))[token])
                chances[tokens] = chance
            single.append(chances)
        return {
            tokens: float(np.prod([single[r][t] for r, t in enumerate(tokens)]))
            for tokens in product(*single)
        }


def jagged(seconds: Array) -> StepCost:
    """A table over 1, 2, ... tokens."""
    return StepCost.of({b + 1: float(s) for b, s in enumerate(seconds)})


def counterexample() -> TinyWorld:
    """One request, two drafts, and a second confidence that gives away what the first draft is.

    Source: arXiv 2607.05147 (why an arg-max over lengths is not lossless); table and laws as there.
    """
    p, q = np.array([0.7, 0.3]), np.array([0.5, 0.5])
    return TinyWorld(
        "counterexample", 1, 2, 2,
        target=lambda prefix: p,
        draft=lambda prefix: q,
        confidence=lambda prefix: 0.8 if len(prefix) == 1 else (0.9 if prefix[1] == 0 else 0.0),
        cost=jagged(1 / np.array([1.0, 0.5, 0.45])),
    )  # fmt: skip


def single_draft() -> TinyWorld:
    """One request, one draft, p = (0.7, 0.3) and q = (0.6, 0.4): for rules that read the draft's own law."""
    p, q = np.array([0.7, 0.3]), np.array([0.6, 0.4])
    return TinyWorld(
        "single draft", 1, 1, 2,
        target=lambda prefix: p,
        draft=lambda prefix: q,
        confidence=lambda prefix: 0.9,
        cost=jagged(np.array([1.0, 1.0])),
    )  # fmt: skip


def random_world(
    seed: int,
    cost: StepCost,
    *,
    requests: int = 2,
    block: int = 2,
    vocabulary: int = 2,
    context_only: bool = False,
) -> TinyWorld:
    """Laws and confidences drawn anew for every prefix.

    Confidences are true acceptances pushed up or down by what was drafted before, to tempt schedules to
    read them; with ``context_only`` they depend on the position and the request alone.
    """
    known: dict[tuple[str, Prefix], Law] = {}

    def drawn(kind: str, prefix: Prefix) -> Law:
        key = (kind, prefix)
        if key not in known:
            rng = np.random.default_rng([seed, len(kind), *(t + 1 for t in prefix)])
            known[key] = rng.dirichlet(np.full(vocabulary, 0.8))
        return known[key]

    def confidence(prefix: Prefix) -> float:
        seen = (prefix[0], *(0 for _ in prefix[1:])) if context_only else prefix
        rng = np.random.default_rng([seed, 9, *(t + 1 for t in seen)])
        return float(rng.beta(0.7, 0.5))

    def target(prefix: Prefix) -> Law:
        return drawn("target", prefix)

    def draft(prefix: Prefix) -> Law:
        # Half the target's own law: good drafts, so that lengths matter.
        return 0.5 * drawn("target", prefix) + 0.5 * drawn("draft", prefix)

    name = f"{requests} requests, laws {seed}"
    return TinyWorld(name, requests, block, vocabulary, target, draft, confidence, cost)
