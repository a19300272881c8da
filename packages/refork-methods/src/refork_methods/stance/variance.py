"""Continuation variance: how open the outcome still is when a share of the thinking is kept.

With q the chance of a refusal given a prefix, ``V = 4 q (1 - q)``: 0 where the outcome is fixed, 1 for a
coin. The share of refusals among N answers put in place of q reads ``(N - 1) / N`` of it on average, so the
headline is the unbiased estimate and the plug-in stands beside it.

Source: arXiv 2606.25013. It reports the plug-in value and bootstraps (prompt, prefix) pairs as if they were
independent; the unbiased value, the bootstrap of prompts and of prefixes within them, and the decomposition
are our own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, final

import numpy as np
from jaxtyping import Float, Shaped
from numpy.typing import NDArray

from refork import stats
from refork.errors import BadInput
from refork.stats.results import Array, check_level

Mode = Literal["force_close", "free"]
Unit = Literal["nested", "pair"]
Floats = NDArray[np.float64]

MODES: Final[tuple[Mode, ...]] = ("force_close", "free")

#: What differs, all at once, between complete rollouts (0 %) and a forced cut.
CONFOUNDED: Final = (
    "how much of the thinking is kept",
    "whether its rest is sampled or removed",
    "how many answers a group holds, and so the bias of the plug-in value",
)


def unbiased_values(
    refused: Shaped[Array, "groups"], answers: Shaped[Array, "groups"]
) -> Float[Array, "groups"]:
    """Unbiased ``4 q (1 - q)`` of every group from counts; NaN where a group has fewer than two answers."""
    k, n = _counts(refused, answers)
    values = [stats.outcome_variance(int(a), int(b)) if b >= 2 else np.nan for a, b in zip(k, n, strict=True)]
    return np.array(values, dtype=np.float64)


def plug_in_values(
    refused: Shaped[Array, "groups"], answers: Shaped[Array, "groups"]
) -> Float[Array, "groups"]:
    """``4 k/n (1 - k/n)`` of every group, too small by ``1 / n`` of it on average; NaN as above."""
    k, n = _counts(refused, answers)
    share = np.divide(k, n, out=np.full(k.shape, np.nan), where=n >= 2)
    return np.asarray(4 * share * (1 - share), dtype=np.float64)


def coin(answers: int) -> float:
    """What the plug-in value of a fair coin is on average: ``(n - 1) / n``; the unbiased one is 1."""
    if answers < 2:
        raise BadInput("one answer says nothing about variance", hint="draw at least two")
    return (answers - 1) / answers


def _counts(refused: Shaped[Array, "groups"], answers: Shaped[Array, "groups"]) -> tuple[Floats, Floats]:
    k, n = np.asarray(refused, dtype=np.float64), np.asarray(answers, dtype=np.float64)
    if k.shape != n.shape or k.ndim != 1:
        raise BadInput(f"{k.size} counts of refusals cannot be matched with {n.size} counts of answers")
    if ((k < 0) | (k > n) | (k != np.round(k)) | (n != np.round(n))).any():
        raise BadInput("a group has refusals outside 0 .. answers, or parts of one")
    return k, n


@final
@dataclass(frozen=True, slots=True)
class Parts:
    """The law of total variance over the prefixes of a prompt: ``total = within + between``.

    ``within`` is what is still open after the prefix, ``between`` what the prefix has decided.
    """

    total: float
    within: float
    between: float


def total_variance(q: Shaped[Array, "prefixes"], weight: Shaped[Array, "prefixes"] | None = None) -> Parts:
    """The exact decomposition of ``4 q (1 - q)`` from each prefix's chance of refusal and its probability.

    Raises: BadInput for chances outside [0, 1], or weights that are no distribution.
    """
    chance = np.asarray(q, dtype=np.float64)
    w = (
        np.full(chance.shape, 1.0 / max(chance.size, 1))
        if weight is None
        else np.asarray(weight, dtype=float)
    )
    if chance.shape != w.shape or not chance.size or (w < 0).any() or abs(float(w.sum()) - 1) > 1e-9:
        raise BadInput("every prefix needs one weight, and the weights must sum to 1")
    if not ((chance >= 0) & (chance <= 1)).all():
        raise BadInput("a chance of refusal lies outside [0, 1]")
    mean = float(w @ chance)
    within = float(w @ (4 * chance * (1 - chance)))
    return Parts(4 * mean * (1 - mean), within, 4 * float(w @ (chance - mean) ** 2))


def estimated_parts(refused: Shaped[Array, "prefixes"], answers: Shaped[Array, "prefixes"]) -> Parts:
    """The decomposition from counts, each part without bias where prefixes are independent rollouts.

    ``q^2`` is estimated by products of *different* prefixes. Single estimates may be negative.

    Raises: BadInput for fewer than two prefixes with two answers or more.
    """
    k, n = _counts(refused, answers)
    k, n = k[n >= 2], n[n >= 2]
    if len(k) < 2:
        raise BadInput("the decomposition needs two prefixes with two answers or more each")
    share, m = k / n, len(k)
    # Products of different prefixes alone: the square of one share also holds the error of its own draws.
    square = (share.sum() ** 2 - (share**2).sum()) / (m * (m - 1))
    total = 4 * (float(share.mean()) - float(square))
    within = float(np.mean(unbiased_values(k, n)))
    return Parts(total, within, total - within)


@final
@dataclass(frozen=True, slots=True)
class Group:
    """The answers that followed one prefix of one prompt."""

    pool: str
    prompt: str
    prefix: str
    refused: int
    answers: int


@final
@dataclass(frozen=True, slots=True)
class VarianceAt:
    """V of one cut in one mode: the mean over the pools of the mean over (prompt, prefix).

    ``value`` unbiased with its interval, ``plug_in`` beside it; ``coin`` what the plug-in of a fair coin
    would be, None where group sizes differ. ``left_out``: groups with fewer than two answers.
    """

    value: stats.Interval
    plug_in: float
    pools: dict[str, float]
    groups: int
    left_out: int
    answers: int
    coin: float | None


def variance_at(
    groups: list[Group],
    *,
    seed: int = 0,
    resamples: int = 1000,
    level: float = 0.95,
    unit: Unit = "nested",
) -> VarianceAt | None:
    """V over groups with a bootstrap interval; None where no group has two answers.

    ``unit="nested"`` draws prompts, then prefixes within each; ``"pair"`` draws (prompt, prefix) pairs as if
    independent, which is too narrow where prompts differ. Without width where all groups agree: the
    bootstrap cannot see what was not drawn.
    """
    check_level(level)
    if unit not in ("nested", "pair"):
        raise BadInput(f"unknown bootstrap unit {unit!r}", hint="nested or pair")
    if resamples < 100:
        raise BadInput(f"{resamples} resamples cannot carry an interval", hint="at least 100")
    usable = [g for g in groups if g.answers >= 2]
    if not usable:
        return None
    k = np.array([g.refused for g in usable], dtype=np.float64)
    n = np.array([g.answers for g in usable], dtype=np.float64)
    value, plug = unbiased_values(k, n), plug_in_values(k, n)
    # Sorted, so that the pools take their noise in one order, whatever order the groups came in.
    names = sorted({g.pool for g in usable})
    rng = np.random.default_rng(seed)
    means, plugs, draws = {}, [], []
    for name in names:
        mine = np.array([g.pool == name for g in usable])
        means[name] = float(value[mine].mean())
        plugs.append(float(plug[mine].mean()))
        prompts = [
            g.prompt if unit == "nested" else f"{g.prompt}\x1f{g.prefix}" for g in usable if g.pool == name
        ]
        draws.append(_resampled(value[mine], prompts, rng, resamples))
    spread = np.mean(draws, axis=0)
    low, high = np.quantile(spread, [(1 - level) / 2, (1 + level) / 2])
    # A coin's plug-in value depends on the size of a group; of several sizes there is no one line to draw.
    same = bool((n == n[0]).all())
    mean = float(np.mean(list(means.values())))
    return VarianceAt(
        stats.Interval(mean, float(low), float(high), level, f"bootstrap {unit}"),
        float(np.mean(plugs)), means, len(usable), len(groups) - len(usable), int(n.sum()),
        coin(int(n[0])) if same else None,
    )  # fmt: skip


def _resampled(values: Floats, prompts: list[str], rng: np.random.Generator, resamples: int) -> Floats:
    """Means of two-stage resamples [resamples]: whole prompts, then values within each."""
    order = np.argsort(prompts, kind="stable")
    _, sizes = np.unique(np.asarray(prompts), return_counts=True)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    ordered, most = values[order], int(sizes.max())
    picked = rng.integers(0, len(sizes), (resamples, len(sizes)))
    # As many draws as the largest prompt has; those beyond a smaller one are not counted.
    inner = np.floor(rng.random((resamples, len(sizes), most)) * sizes[picked][..., None]).astype(np.int64)
    kept = np.arange(most) < sizes[picked][..., None]
    found = ordered[starts[picked][..., None] + np.minimum(inner, sizes[picked][..., None] - 1)]
    return np.asarray((found * kept).sum(axis=(1, 2)) / kept.sum(axis=(1, 2)))


def reading(forced: VarianceAt | None, free: VarianceAt | None, decided: float = 0.2) -> str:
    """What the two modes say together, in words; forced closing alone cannot tell two stories apart.

    ``decided``: at or below it (the interval's end) a mode counts as settled.
    """
    if forced is None or free is None:
        if forced is not None and forced.value.high <= decided:
            return "settled or settled by being closed here: the free mode tells which"
        return "one mode only"
    closed, rest = forced.value.high <= decided, free.value.high <= decided
    if closed and rest:
        return "decided: what follows changes nothing"
    if closed and free.value.low > decided:
        return "not decided: closing here reads the thinking so far, going on may still change it"
    if rest and forced.value.low > decided:
        return "decided, yet closing here disturbs it"
    if forced.value.low > decided and free.value.low > decided:
        return "open in both modes"
    return "unclear: an interval reaches over the border"
