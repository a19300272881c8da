"""Two distributions that are easily mixed up: sentences of a class redrawn, and the class conditioned away.

Redrawing a sentence until it is not of class C samples ``prod p(s_i | prefix) 1[s_i not in C] / (1 - p(C |
prefix))``. That is an *intervention*. Conditioning on "no sentence of C anywhere" weighs the same sequences
by ``prod (1 - p(C | prefix))`` more. The two differ wherever C's chance depends on what was said. Rollouts
that never needed a redraw are an exact sample of the conditioned distribution, so one run estimates both.

Source: arXiv:2606.26071, appendix E. The distinction, the weights, the bounds and the judge's errors are our
own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool
from numpy.typing import NDArray

from refork import stats
from refork.errors import BadInput
from refork.stats.results import Array
from refork.types import Json

#: The distribution of the next sentence after those said; the empty mapping ends a sequence.
SentenceDistribution = Callable[[tuple[str, ...]], Mapping[str, float]]

#: Whether a sentence is of the class: the sentence, and those before it.
InClass = Callable[[str, tuple[str, ...]], bool]


@dataclass(frozen=True, slots=True)
class ChainPath:
    """One whole sequence of a finite chain under three distributions.

    ``free``: its chance without any intervention; ``intervened``: with sentences of the class redrawn;
    ``weight``: ``prod (1 - p(C | prefix))``, which makes the intervened distribution proportional to the
    conditioned one.
    """

    sentences: tuple[str, ...]
    free: float
    intervened: float
    weight: float


def chain_paths(
    distribution: SentenceDistribution, in_class: InClass, *, most: int = 100_000
) -> list[ChainPath]:
    """All sequences of a finite chain with their chances under redrawing, exact.

    Raises: BadInput where a distribution does not sum to 1, a prefix has no sentence outside the class, or
    there are more than ``most`` sequences.
    """
    found: list[ChainPath] = []
    open_: list[ChainPath] = [ChainPath((), 1.0, 1.0, 1.0)]
    while open_:
        at = open_.pop()
        after = distribution(at.sentences)
        if not after:
            found.append(at)
            continue
        if len(found) + len(open_) > most:
            raise BadInput(f"the chain has more than {most} sequences", hint="a shorter chain")
        if abs(math.fsum(after.values()) - 1.0) > 1e-9 or min(after.values()) < 0:
            raise BadInput(f"what follows {len(at.sentences)} sentences is no distribution: {dict(after)}")
        outside = {s: p for s, p in after.items() if not in_class(s, at.sentences)}
        rest = math.fsum(outside.values())
        # A prefix that redrawing never reaches may well have nothing left outside the class.
        if rest == 0 and at.intervened > 0:
            raise BadInput(f"after {at.sentences!r} every sentence is of the class: nothing is left to draw")
        for sentence, chance in after.items():
            kept = at.intervened * chance / rest if sentence in outside and rest else 0.0
            open_.append(ChainPath((*at.sentences, sentence), at.free * chance, kept, at.weight * rest))
    return found


@dataclass(frozen=True, slots=True)
class ChainRates:
    """Chance of the act on a finite chain: free, with the class redrawn, and given that it never occurs.

    ``reweighted``: the intervened sequences weighted by ``prod (1 - p(C | prefix))``; equal to
    ``conditioned``.
    """

    free: float
    intervened: float
    conditioned: float
    reweighted: float


def chain_rates(
    distribution: SentenceDistribution, in_class: InClass, target: Callable[[tuple[str, ...]], bool]
) -> ChainRates:
    """Exact target rates of a finite chain under the three distributions.

    Raises: BadInput as :func:`chain_paths`.
    """
    paths = chain_paths(distribution, in_class)
    hit = np.array([target(p.sentences) for p in paths], dtype=np.float64)
    free, redrawn, weight = (
        np.array([getattr(p, name) for p in paths]) for name in ("free", "intervened", "weight")
    )
    clean = free * (redrawn > 0)
    tilted = redrawn * weight
    return ChainRates(
        float(free @ hit / free.sum()),
        float(redrawn @ hit / redrawn.sum()),
        float(clean @ hit / clean.sum()),
        float(tilted @ hit / tilted.sum()),
    )


@dataclass(frozen=True, slots=True)
class JudgeQuality:
    """How well a judge knows the class, from labelled sentences; what is filtered is the judge's own class.

    ``recall``: share of the class that it finds; ``false_alarm``: share of the rest that it takes for the
    class.
    """

    recall: stats.Interval
    false_alarm: stats.Interval

    def sentence(self, name: str) -> str:
        """The effective class in words."""
        c, f = self.recall, self.false_alarm
        return (
            f"filtered is what the judge calls {name!r}: it finds {c.estimate:.0%} "
            f"[{c.low:.0%}, {c.high:.0%}] of the class and takes {f.estimate:.0%} "
            f"[{f.low:.0%}, {f.high:.0%}] of other sentences for it"
        )

    def to_json(self) -> Json:
        """Both rates with their intervals."""
        return {
            key: {"rate": i.estimate, "low": i.low, "high": i.high}
            for key, i in (("recall", self.recall), ("false_alarm", self.false_alarm))
        }


def judge_quality(
    judged: Bool[Array, "sentences"], truth: Bool[Array, "sentences"], level: float = 0.95
) -> JudgeQuality:
    """Recall and false-alarm rate of a judge on labelled sentences, with Wilson intervals.

    Raises: BadInput where lengths differ, or there is no sentence of one kind.
    """
    x: NDArray[np.bool_] = np.asarray(judged, dtype=bool)
    y: NDArray[np.bool_] = np.asarray(truth, dtype=bool)
    if x.shape != y.shape or not y.any() or y.all():
        raise BadInput(
            f"{x.size} judged and {y.size} labelled sentences, {int(y.sum())} of them of the class",
            hint="label sentences of both kinds, one label for each",
        )
    return JudgeQuality(
        stats.wilson(int((x & y).sum()), int(y.sum()), level),
        stats.wilson(int((x & ~y).sum()), int((~y).sum()), level),
    )
