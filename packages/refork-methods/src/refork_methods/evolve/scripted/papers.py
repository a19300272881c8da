"""Papers with a hidden quality and a gloss that readers see, and judges that weigh the two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.plain import content_hash, to_json
from refork.stats.results import Array

#: A paper deserves to be accepted where its quality lies above this.
GOOD = 0.6
#: Standard deviation with which a reader sees quality.
BLUR = 0.2
#: Rank correlation (of normal scores) between quality and gloss in human work: who writes well also polishes.
HUMAN_TIE = 0.6
_NEWTON = 12


@final
@dataclass(frozen=True, slots=True)
class Papers:
    """Features in [0, 1] (``observed`` may leave it), arrays of one length; judges see no ``quality``."""

    quality: Float[Array, "papers"]
    gloss: Float[Array, "papers"]
    length: Float[Array, "papers"]
    observed: Float[Array, "papers"]

    @property
    def good(self) -> Bool[Array, "papers"]:
        """Which deserve to be accepted."""
        found: NDArray[np.bool_] = self.quality > GOOD
        return found

    def __len__(self) -> int:
        return int(self.quality.size)

    def beside(self, other: Papers) -> Papers:
        """These papers, then the other ones."""
        names = ("quality", "gloss", "length", "observed")
        return Papers(*(np.concatenate([getattr(self, name), getattr(other, name)]) for name in names))

    def take(self, which: NDArray[np.int64]) -> Papers:
        """The papers at these places."""
        return Papers(self.quality[which], self.gloss[which], self.length[which], self.observed[which])


def _papers(
    quality: Float[Array, "papers"], gloss: Float[Array, "papers"], rng: np.random.Generator
) -> Papers:
    seen = quality + BLUR * rng.standard_normal(quality.size)
    return Papers(quality, gloss, rng.random(quality.size), seen)


def human_papers(count: int, rng: np.random.Generator) -> Papers:
    """Human work: quality uniform, gloss Beta(2, 4), tied by a Gaussian copula: gloss says something of it.

    Source: arXiv:2606.26294's sheet gives the margins; the tie is ours. Without it gloss is mere noise in
    human work, and any judge trained on human work alone unlearns it.
    """
    from scipy.special import betaincinv, ndtr

    one, two = rng.standard_normal((2, count))
    tied = HUMAN_TIE * one + np.sqrt(1 - HUMAN_TIE**2) * two
    gloss = np.asarray(betaincinv(2.0, 4.0, ndtr(tied)), dtype=np.float64)
    return _papers(np.asarray(ndtr(one), dtype=np.float64), gloss, rng)


def machine_papers(count: int, rng: np.random.Generator) -> Papers:
    """Machine-made work as good as human work (quality uniform), its gloss Beta(5, 2), tied to nothing."""
    return _papers(rng.random(count), rng.beta(5.0, 2.0, count), rng)


def written(effort: float, polish: float, count: int, rng: np.random.Generator) -> Papers:
    """What a writer makes: effort makes quality, polish makes gloss; both vary from paper to paper."""
    quality = np.clip(mean_quality(effort) + 0.2 * rng.standard_normal(count), 0, 1)
    gloss = np.clip(0.2 + 0.75 * polish + 0.1 * rng.standard_normal(count), 0, 1)
    return _papers(quality, gloss, rng)


def mean_quality(effort: float) -> float:
    """The quality that an effort aims at."""
    return 0.2 + 0.75 * effort


@final
@dataclass(frozen=True, slots=True)
class JudgeRule:
    """Accepts where ``observed + gloss * g + length * l > threshold``: a logistic rule cut at one half."""

    gloss: float
    length: float
    threshold: float

    @property
    def id(self) -> str:
        """Digest of the weights: whatever could change a verdict changes it."""
        return content_hash(to_json(self))

    def accepts(self, papers: Papers) -> Bool[Array, "papers"]:
        """Which papers it accepts; the same ones every time."""
        found: NDArray[np.bool_] = (
            papers.observed + self.gloss * papers.gloss + self.length * papers.length > self.threshold
        )
        return found

    def accuracy(self, papers: Papers) -> float:
        """Share of papers on which it is right; raises BadInput for none."""
        if not len(papers):
            raise BadInput("no papers to judge")
        return float((self.accepts(papers) == papers.good).mean())


def calibrated(gloss: float, length: float, accept: float) -> JudgeRule:
    """The rule with these weights that accepts a share ``accept`` of human work (100,000 papers)."""
    papers = human_papers(100_000, np.random.default_rng(0))
    points = papers.observed + gloss * papers.gloss + length * papers.length
    return JudgeRule(gloss, length, float(np.quantile(points, 1 - accept)))


def fitted(
    papers: Papers, labels: Bool[Array, "papers"], weights: Float[Array, "papers"], ridge: float = 1e-3
) -> JudgeRule:
    """The rule that logistic regression finds on weighted papers (Newton's method, a slight ridge).

    Raises: BadInput for labels of one kind only, or where what is seen of quality speaks against it.
    """
    if labels.all() or not labels.any():
        raise BadInput("all papers have one label", hint="show good and bad work")
    table = np.column_stack([papers.observed, papers.gloss, papers.length, np.ones(len(papers))])
    share, penalty = weights / weights.sum(), ridge * np.eye(4)
    # The intercept is not shrunk: it carries the share of good papers.
    penalty[3, 3] = 0.0
    slopes = np.zeros(4)
    for _ in range(_NEWTON):
        # exp would overflow for papers far from the boundary.
        chance = 1 / (1 + np.exp(-np.clip(table @ slopes, -30, 30)))
        pull = table.T @ (share * (labels - chance)) - penalty @ slopes
        bend = (table * (share * chance * (1 - chance))[:, None]).T @ table + penalty
        slopes += np.linalg.solve(bend, pull)
    if not slopes[0] > 0:
        raise BadInput("on these papers quality speaks against acceptance", hint="show more of them")
    seen, gloss, length, rest = (float(slope) for slope in slopes)
    return JudgeRule(gloss / seen, length / seen, -rest / seen)
