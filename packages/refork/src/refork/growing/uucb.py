"""UUCB: fork where one more rollout is worth most, by value, exploration and uncertainty of the next token.

    score(u) = v_u  +  c sqrt(ln(1 + N) / (1 + n_u))  +  lambda H_u d(n_u)

N rollouts of the task so far, n_u branches at the point, pending ones included. Each term is the marginal
gain of a sum of concave functions of n_u, so the set function behind it is monotone and submodular, and
choosing greedily is optimal under a plain budget of leaves.

Source: the idea and the three terms are arXiv 2605.05262; its equations were not available to us, and every
formula here is our reconstruction.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refork.errors import BadInput
from refork.growing.selector import Candidates, ForkChoice, Needs, PointValues
from refork.sampling.noise import NoiseKey, stream_of, uniforms

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]
Value = Literal["win_rate", "mixed"]
Uncertainty = Literal["plain", "unseen"]

#: Scores nearer than this are equal: entropies and log-probs are recorded in single precision.
_TIE = 1e-6


def win_rate(leaves: ArrayLike, wins: ArrayLike) -> Float64:
    """(wins + 1/2) / (leaves + 1) per point, [n]: the smoothed success below it."""
    return np.asarray((np.asarray(wins, dtype=np.float64) + 0.5) / (np.asarray(leaves) + 1.0))


def mixedness(leaves: ArrayLike, wins: ArrayLike) -> Float64:
    """4 p (1 - p) of the smoothed success, [n]: 1 where outcomes are even, 0 where they are sure."""
    p = win_rate(leaves, wins)
    return np.asarray(4.0 * p * (1.0 - p))


def exploration(children: ArrayLike, drawn: int) -> Float64:
    """sqrt(ln(1 + drawn) / (1 + children)) per point, [n]."""
    return np.asarray(np.sqrt(np.log1p(drawn) / (1.0 + np.asarray(children, dtype=np.float64))))


@dataclass(frozen=True, slots=True)
class UUCB:
    """Uncertainty-aware upper confidence bound, as a selector.

    Args:
        c: weight of exploration. entropy_coef: weight of uncertainty (lambda).
        roots: plain rollouts before the first choice. at_once: choices per round, pending ones counted.
        value: ``win_rate``, ``mixed`` (4 p (1 - p)), or a source of values such as an implicit advantage.
        entropy: ``plain`` (the entropy itself), or ``unseen`` (the probability that the next token is new
            here, given what was drawn; needs log-probs only).
        scale: nats that count as entropy 1; None: the largest entropy among the candidates.
        inside: points per turn, see :class:`refork.growing.selector.Needs`.
        seed: of ties.

    Raises BadInput for a negative weight or an unknown variant.
    """

    c: float = 0.5
    entropy_coef: float = 1.0
    roots: int = 2
    at_once: int = 1
    value: Value | PointValues = "win_rate"
    entropy: Uncertainty = "plain"
    scale: float | None = None
    inside: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        for name, weight in (("c", self.c), ("entropy_coef", self.entropy_coef)):
            if not (np.isfinite(weight) and weight >= 0):
                raise BadInput(f"{name} is {weight}; it must be 0 or more", where="UUCB")
        if self.roots < 1 or self.at_once < 1:
            raise BadInput("roots and at_once must be at least 1", where="UUCB")
        if isinstance(self.value, str) and self.value not in ("win_rate", "mixed"):
            raise BadInput(f"unknown value {self.value!r}", where="UUCB", hint="win_rate, mixed, or a source")
        if self.entropy not in ("plain", "unseen"):
            raise BadInput(f"unknown entropy {self.entropy!r}", where="UUCB", hint="plain, unseen")
        if self.scale is not None and not self.scale > 0:
            raise BadInput(f"scale is {self.scale}; it must be above 0 nats", where="UUCB")

    @property
    def name(self) -> str:
        """Name and settings."""
        value = self.value if isinstance(self.value, str) else self.value.name
        return (
            f"uucb(c={self.c:g}, entropy_coef={self.entropy_coef:g}, roots={self.roots}, "
            f"at_once={self.at_once}, value={value}, entropy={self.entropy}, scale={self.scale}, "
            f"inside={self.inside}, seed={self.seed})"
        )

    @property
    def needs(self) -> Needs:
        """Entropies where they weigh, or where they choose the points."""
        weighs = self.entropy_coef > 0 and self.entropy == "plain"
        return Needs(entropy=weighs or self.inside > 0, inside=self.inside, adaptive=True)

    def terms(self, known: Candidates, children: Int64 | None = None) -> dict[str, Float64]:
        """The weighted terms of every candidate and their ``score``, [n] each.

        Raises BadInput where entropy weighs and was not recorded.
        """
        n = known.children if children is None else children
        parts = {
            "value": self._value(known),
            "exploration": self.c * exploration(n, known.drawn),
            "entropy": self.entropy_coef * self._uncertainty(known, n),
        }
        return parts | {"cost": known.cost, "score": np.sum(list(parts.values()), axis=0)}

    def _value(self, known: Candidates) -> Float64:
        if self.value == "win_rate":
            return win_rate(known.leaves, known.wins)
        if self.value == "mixed":
            return mixedness(known.leaves, known.wins)
        assert not isinstance(self.value, str)
        given = np.asarray(self.value.values(known), dtype=np.float64)
        if given.shape != (len(known),) or not ((given >= 0) & (given <= 1) | np.isnan(given)).all():
            raise BadInput("values of points must lie in [0, 1], one per point", where=self.value.name)
        return np.where(np.isnan(given), win_rate(known.leaves, known.wins), given)

    def _uncertainty(self, known: Candidates, children: Int64) -> Float64:
        if self.entropy_coef == 0:
            return np.zeros(len(known))
        if self.entropy == "unseen":
            return _fresh(known, children)
        if not np.isfinite(known.entropy).any():
            raise _missing("the entropy of the next token", self.name)
        if known.note is None:
            raise BadInput(
                "the entropies do not say over how many tokens they were taken",
                where=self.name,
                hint="record entropy_top_k with the sampling settings, or set the candidates' note",
            )
        heights = np.nan_to_num(known.entropy, nan=0.0)
        scale = self.scale or float(heights.max())
        return np.minimum(heights / scale, 1.0) if scale > 0 else np.zeros(len(known))

    def select(self, candidates: Candidates, leaves_left: int, round_: int) -> Sequence[ForkChoice]:
        """Roots first, then the highest score; within a round each choice counts as one more branch."""
        if round_ == 0:
            root = int(np.argmin(candidates.depth))
            return [ForkChoice(root, min(self.roots, leaves_left), {})]
        if not len(candidates):
            return []
        many = min(self.at_once, leaves_left)
        terms = self.terms(candidates)
        if many == 1:
            return [self._choice(_best(terms["score"], self._ties(candidates, round_)), terms)]
        picks = self._several(candidates, many)
        return [self._choice(i, terms) for i in picks]

    def _choice(self, index: int, terms: dict[str, Float64]) -> ForkChoice:
        return ForkChoice(index, 1, {name: float(part[index]) for name, part in terms.items()})

    def _ties(self, known: Candidates, round_: int) -> float:
        key = NoiseKey(self.seed, stream_of("uucb", known.node[0]), round_)
        return float(uniforms([key], 1)[0, 0])

    def _several(self, known: Candidates, many: int) -> tuple[int, ...]:
        """Greedy over a round: an i-th extra draw at a point gains what a point with i more children does."""
        size = len(known)
        gains = [self.terms(known, known.children + i)["score"] for i in range(many)]
        stacked = np.minimum.accumulate(np.array(gains), axis=0)

        def value(items: Sequence[int]) -> float:
            counts = np.bincount(np.asarray(items, dtype=np.int64) % size, minlength=size)
            rows = np.arange(many)[:, None] < counts[None, :]
            return float((stacked * rows).sum())

        return tuple(i % size for i in _greedy(value, size * many, many))


def _greedy(value: Callable[[Sequence[int]], float], size: int, many: int) -> list[int]:
    """``many`` of ``size`` items whose ``value`` together is largest; ties go to the lowest item.

    An old gain bounds the gain now, since returns diminish: only items on top are asked for again. Gains are
    differences of values and not the summands themselves, whose ties a resumed run would break otherwise.

    Source: Minoux, Accelerated greedy algorithms for maximizing submodular set functions (1978).
    """
    chosen: list[int] = []
    held = 0.0
    heap = [(-value([item]), item, 0) for item in range(size)]
    heapq.heapify(heap)
    while heap and len(chosen) < many:
        bound, item, seen = heapq.heappop(heap)
        if seen == len(chosen):
            chosen.append(item)
            held -= bound
        else:
            heapq.heappush(heap, (held - value([*chosen, item]), item, len(chosen)))
    return chosen


def _fresh(known: Candidates, children: Int64) -> Float64:
    """Chance that the next token is new at each point; a draw on its way shrinks it by the same share."""
    if known.unseen is None or not np.isfinite(known.unseen).any():
        raise _missing("log-probs of the sampled tokens", "UUCB(entropy='unseen')")
    left = np.nan_to_num(known.unseen, nan=0.0)
    return np.asarray(left ** (1.0 + np.maximum(children - known.children, 0)))


def _best(score: Float64, uniform: float) -> int:
    """The highest score; equal ones share the uniform."""
    top = np.flatnonzero(score >= score.max() - _TIE * max(1.0, abs(float(score.max()))))
    return int(top[min(int(uniform * len(top)), len(top) - 1)])


def _missing(what: str, where: str) -> BadInput:
    return BadInput(
        f"an entropy term needs {what}, and it was not recorded",
        where=where,
        hint="sample with entropy_top_k set, as growing does where the policy can; or entropy_coef=0",
    )
