"""UUCB: fork where one more rollout is worth most, by value, exploration and uncertainty of the next token.

    score(u) = v_u  +  c sqrt(ln(1 + N) / (1 + n_u))  +  lambda H_u d(n_u)

N rollouts of the task so far, n_u branches at the point, pending ones included. Each term is the marginal
gain of a sum of concave functions of n_u, so the set function behind it is monotone and submodular
(:func:`uucb_objective`) and choosing greedily is optimal under a plain budget of leaves.

Source: the idea and the three terms are arXiv 2605.05262; its equations were not available to us, and every
formula here is our reconstruction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refork.errors import BadInput
from refork.growing.selector import Candidates, ForkChoice, Needs, PointValues
from refork.growing.submodular import greedy_submodular
from refork.sampling.noise import NoiseKey, stream_of, uniforms

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]
Value = Literal["win_rate", "mixed"]
Uncertainty = Literal["plain", "coverage", "unseen"]
Score = Literal["uucb", "mixed_gain"]

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


def coverage(distribution: ArrayLike, draws: int) -> float:
    """Expected number of different tokens among ``draws`` draws: sum of 1 - (1 - q)^n."""
    q = np.asarray(distribution, dtype=np.float64)
    return float((1.0 - (1.0 - q) ** draws).sum())


def coverage_gain(distribution: ArrayLike, draws: int) -> float:
    """What draw number ``draws + 1`` adds to :func:`coverage`: sum of q (1 - q)^n.

    1 at n = 0; the Gini entropy at n = 1. Shannon's entropy is the sum over n >= 1 of these gains over n:
    an entropy bonus is the harmonic sum of all coverage still to be gained.
    """
    q = np.asarray(distribution, dtype=np.float64)
    return float((q * (1.0 - q) ** draws).sum())


def mixed_gain(children: ArrayLike, leaves: ArrayLike, wins: ArrayLike, prior: float = 0.5) -> Float64:
    """Expected rise of the chance that outcomes at a point are mixed, by one more draw there, [n]; exact.

    The success rate below the point has the posterior Beta(prior + wins, prior + losses), and
    f(n) = 1 - p^n - (1 - p)^n grows by p^n (1 - p) + (1 - p)^n p. 0 at no children: a pair is needed.
    """
    from scipy.special import betaln

    n = np.asarray(children, dtype=np.float64)
    a = np.asarray(wins, dtype=np.float64) + prior
    b = np.asarray(leaves, dtype=np.float64) - np.asarray(wins, dtype=np.float64) + prior
    base = betaln(a, b)
    gain = np.exp(betaln(a + n, b + 1) - base) + np.exp(betaln(a + 1, b + n) - base)
    return np.where(n > 0, gain, 0.0)


def uucb_objective(
    counts: ArrayLike, children: ArrayLike, value: ArrayLike, entropy: ArrayLike, drawn: int,
    c: float = 0.5, entropy_coef: float = 1.0,
) -> float:  # fmt: skip
    """F of a multiset with ``counts`` more draws per point, statistics frozen; UUCB is its marginal gain."""
    total = 0.0
    known = zip(*map(np.atleast_1d, (counts, children, value, entropy)), strict=True)
    for more, before, v, h in known:
        steps = exploration(before + np.arange(more), drawn).sum()
        total += float(more * v + c * steps + entropy_coef * h * more)
    return total


@dataclass(frozen=True, slots=True)
class UUCB:
    """Uncertainty-aware upper confidence bound, as a selector.

    Args:
        c: weight of exploration. entropy_coef: weight of uncertainty (lambda).
        roots: plain rollouts before the first choice. at_once: choices per round, pending ones counted.
        value: ``win_rate``, ``mixed`` (4 p (1 - p)), or a source of values such as an implicit advantage.
        entropy: ``plain`` (the entropy itself), ``coverage`` (the expected gain of new tokens under the
            exact distribution), or ``unseen`` (the probability that the next token is new here: the same gain
            given what was drawn; needs log-probs only).
        score: ``uucb``, or ``mixed_gain``: the exact posterior gain instead of the three terms.
        per_token: divide the score by the expected tokens of the leaf. Deep points are cheap and cover
            little: measure before you use it.
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
    score: Score = "uucb"
    per_token: bool = False
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
        if self.entropy not in ("plain", "coverage", "unseen"):
            raise BadInput(f"unknown entropy {self.entropy!r}", where="UUCB", hint="plain, coverage, unseen")
        if self.score not in ("uucb", "mixed_gain"):
            raise BadInput(f"unknown score {self.score!r}", where="UUCB", hint="uucb, mixed_gain")
        if self.scale is not None and not self.scale > 0:
            raise BadInput(f"scale is {self.scale}; it must be above 0 nats", where="UUCB")

    @property
    def name(self) -> str:
        """Name and settings."""
        value = self.value if isinstance(self.value, str) else self.value.name
        return (
            f"uucb(c={self.c:g}, entropy_coef={self.entropy_coef:g}, roots={self.roots}, "
            f"at_once={self.at_once}, value={value}, entropy={self.entropy}, score={self.score}, "
            f"per_token={self.per_token}, scale={self.scale}, inside={self.inside}, seed={self.seed})"
        )

    @property
    def needs(self) -> Needs:
        """Entropies where they weigh, or where they choose the points."""
        weighs = self.entropy_coef > 0 and self.score == "uucb"
        return Needs(
            entropy=(weighs and self.entropy == "plain") or self.inside > 0,
            distributions=weighs and self.entropy == "coverage",
            inside=self.inside,
            adaptive=True,
        )

    def terms(self, known: Candidates, children: Int64 | None = None) -> dict[str, Float64]:
        """The weighted terms of every candidate and their ``score``, [n] each.

        Raises BadInput where entropy weighs and was not recorded.
        """
        n = known.children if children is None else children
        if self.score == "mixed_gain":
            gain = mixed_gain(n, known.leaves, known.wins)
            parts = {"mixed_gain": gain}
        else:
            parts = {
                "value": self._value(known),
                "exploration": self.c * exploration(n, known.drawn),
                "entropy": self.entropy_coef * self._uncertainty(known, n),
            }
        total = np.sum(list(parts.values()), axis=0)
        return parts | {"cost": known.cost, "score": total / known.cost if self.per_token else total}

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
        if self.entropy == "coverage":
            if known.distributions is None:
                raise _missing("the exact distribution of the next token", self.name)
            pairs = zip(known.distributions, children, strict=True)
            return np.array([coverage_gain(distribution, int(n)) for distribution, n in pairs])
        if not np.isfinite(known.entropy).any():
            raise _missing("the entropy of the next token", self.name)
        if known.note is None:
            raise BadInput(
                "the entropies do not say over how many tokens they were taken",
                where=self.name,
                hint="record entropy_top_k with the sampling settings, or set the candidates' note",
            )
        # A point whose entropy nobody computed earns nothing by it, and may be chosen for the other terms.
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
        """Greedy over a round: the i-th extra draw at a point has the gain of a point with i more children.

        Per token, the round may spend what as many average leaves cost, and one dear leaf that is worth
        more than all the cheap ones is taken instead of them.
        """
        size = len(known)
        plain = replace(self, per_token=False)
        gains = [plain.terms(known, known.children + i)["score"] for i in range(many)]
        # mixed_gain is 0 without a child and rises with the first, which the greedy guarantee does not allow.
        stacked = np.minimum.accumulate(np.array(gains), axis=0)

        def value(items: Sequence[int]) -> float:
            counts = np.bincount(np.asarray(items, dtype=np.int64) % size, minlength=size)
            rows = np.arange(many)[:, None] < counts[None, :]
            return float((stacked * rows).sum())

        if self.per_token:
            costs = np.tile(known.cost, many)
            found = greedy_submodular(value, size * many, many * float(known.cost.mean()), costs)
        else:
            found = greedy_submodular(value, size * many, many)
        return tuple(i % size for i in found.chosen[:many])


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
