"""How far apart refusals and compliances lie along the thinking, and how far they would by chance alone."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal, final

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.progress import Progress, silent
from refork.stats.results import Array
from refork.types import Json
from refork_methods.probe.cases import FEWEST, codes

POSITIONS: Final = 100
Reading = Literal["hopping", "pooling"]


@final
@dataclass(frozen=True, slots=True)
class Valley:
    """A dip: higher before and after it, on prompts that did not choose its place.

    ``depth`` is how far the lower of the two shoulders lies above the bottom, in the curve's unit, with a
    95 % bootstrap interval; ``recovery`` the share of the fall that is regained by the end.
    """

    start: int
    bottom: int
    end: int
    depth: float
    low: float
    high: float
    recovery: float

    @property
    def real(self) -> bool:
        """Whether the interval of the depth lies above 0."""
        return self.low > 0


@final
@dataclass(frozen=True, slots=True, eq=False)
class SeparabilityCurve:
    """Separability at each position [t], beside its permutation null.

    ``above`` is the curve less the mean of the null; ``low`` and ``high`` [t] are the null's 95 % band around
    it at each position, ``ever`` the value that the null exceeds *anywhere* in 5 % of permutations.
    ``null_level`` is the closed form of the null's mean, (1/refusals + 1/compliances)/2.
    """

    value: NDArray[np.float64]
    null_mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    ever: float
    null_level: float
    permutations: int
    valley: Valley | None

    @property
    def above(self) -> NDArray[np.float64]:
        """The curve less what chance alone gives on average."""
        return self.value - self.null_mean

    def to_json(self) -> Json:
        """Plain lists."""
        from dataclasses import asdict

        valley = None if self.valley is None else asdict(self.valley) | {"real": self.valley.real}
        lists = {
            name: getattr(self, name).tolist() for name in ("value", "null_mean", "low", "high", "above")
        }
        return {
            "method": "norm_fisher", **lists, "ever": self.ever, "null_level": self.null_level,
            "permutations": self.permutations, "valley": valley,
        }  # fmt: skip


def resample_trace(
    trace: Float[Array, "length width"], how: Reading = "hopping", positions: int = POSITIONS
) -> Any:
    """States of a thinking trace at a fixed number of places, [positions, width].

    ``hopping`` takes token floor(linspace(0, L - 1, positions)); ``pooling`` averages equal chunks. Traces
    shorter than ``positions`` repeat tokens.

    Raises: BadInput for an empty trace or an unknown way.
    Source: arXiv:2606.25013.
    """
    x = np.asarray(trace)
    if x.ndim != 2 or not len(x):
        raise BadInput(f"a trace of shape {list(x.shape)} has no states to choose from", where="separability")
    if how == "hopping":
        return x[np.floor(np.linspace(0, len(x) - 1, positions)).astype(np.int64)]
    if how == "pooling":
        edges = np.floor(np.linspace(0, len(x), positions + 1)).astype(np.int64)
        return np.stack([x[a : max(b, a + 1)].mean(axis=0) for a, b in pairwise(edges.tolist())])
    raise BadInput(f"unknown way {how!r} to read a trace", hint="'hopping' or 'pooling'")


def standardised(states: Float[Array, "rows width"]) -> Float[Array, "rows width"]:
    """States less their mean, over their standard deviation; constant dimensions become 0."""
    spread = states.std(axis=0)
    return np.asarray((states - states.mean(axis=0)) / np.where(spread > 0, spread, 1.0))


def norm_fisher(
    states: Float[Array, "rows width"], labels: Int[Array, "labellings rows"]
) -> Float[Array, "labellings"]:
    """How far the classes lie apart under each labelling (1 refused, 0 complied) of standardised states.

    The squared distance of the class means over the sum of the classes' mean squared distances to their own
    mean; 0 where both vanish, as constant states have no distance at all.

    Source: arXiv:2606.25013.
    """
    ones = labels.astype(np.float64)
    refused, complied = (part.sum(axis=1, keepdims=True) for part in (ones, 1 - ones))
    mean_r, mean_c = ones @ states / refused, (1 - ones) @ states / complied
    top = ((mean_r - mean_c) ** 2).sum(axis=1)
    squares = (states**2).sum(axis=1)
    # Mean square less squared mean: all labellings in two products, instead of a pass for each.
    within_r = ones @ squares / refused[:, 0] - (mean_r**2).sum(axis=1)
    within_c = (1 - ones) @ squares / complied[:, 0] - (mean_c**2).sum(axis=1)
    bottom = within_r + within_c
    return np.where(bottom > 1e-300, top / np.maximum(bottom, 1e-300), np.where(top == 0, 0.0, np.inf))


def permutations_of(
    labels: Int[Array, "rows"], owners: Int[Array, "rows"], count: int, rng: np.random.Generator
) -> Int[Array, "count rows"]:
    """``count`` shuffled copies of the labels, each prompt taking over the whole row of labels of another.

    Prompts change labels only with prompts of as many rows; with one row each this is a free shuffle.

    Raises: BadInput where more than half of the rows belong to prompts that nobody could change with.
    """
    blocks: dict[int, list[NDArray[np.int64]]] = {}
    order = np.argsort(owners, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(owners[order])) + 1):
        blocks.setdefault(len(rows), []).append(rows)
    fixed = sum(size for size, group in blocks.items() if len(group) == 1)
    if 2 * fixed > len(labels):
        raise BadInput(
            "prompts have so different numbers of rollouts that labels cannot be shuffled between them",
            where="permutation null",
            hint="take one rollout, or equally many, of every prompt",
        )
    found = np.repeat(labels[None], count, axis=0)
    for group in blocks.values():
        stacked = np.stack(group)
        for copy in found:
            copy[stacked] = labels[stacked[rng.permutation(len(stacked))]]
    return found


def null_level(refused: int, complied: int) -> float:
    """Expected norm-Fisher separability where labels mean nothing: (1/refused + 1/complied)/2, not 0."""
    if min(refused, complied) < 1:
        raise BadInput("both classes are needed")
    return (1 / refused + 1 / complied) / 2


def separability_curve(
    states: Float[Array, "rows positions width"],
    y: Sequence[int] | NDArray[Any],
    *,
    prompts: Sequence[Hashable] | None = None,
    permutations: int = 200,
    seed: int = 0,
    progress: Progress = silent,
) -> SeparabilityCurve:
    """Separability of refusals (1) and compliances (0) at every position, with a permutation null.

    Every dimension is standardised over all rows first. Labels of the null are shuffled between prompts as
    whole blocks, so that rollouts of one prompt stay alike. ``states`` may be memory-mapped: one position is
    read at a time.

    Raises: BadInput for shapes that do not fit, fewer than five examples of a class, fewer than 20
        permutations, or prompts of which no two have as many rows.
    Source: arXiv:2606.25013 for norm-Fisher; the null, and that a dip counts only above it, are ours.
    """
    labels, owners = _checked(states, y, prompts, permutations)
    rng = np.random.default_rng(seed)
    shuffled = permutations_of(labels, owners, permutations, rng)
    every = np.concatenate([labels[None], shuffled])
    found = np.zeros((len(every), states.shape[1]))
    for t in range(states.shape[1]):
        x = np.asarray(states[:, t], dtype=np.float64)
        if not np.isfinite(x).all():
            raise BadInput("some hidden states are NaN or infinite", where=f"position {t}")
        found[:, t] = norm_fisher(standardised(x), every)
        progress("separability", t + 1, states.shape[1])
    refused = int(labels.sum())
    null = found[1:]
    mean = null.mean(axis=0)
    low, high = np.quantile(null, (0.025, 0.975), axis=0)
    return SeparabilityCurve(
        value=found[0], null_mean=mean, low=low - mean, high=high - mean,
        # The largest excess of each permutation, wherever it lies: so looking at all positions is paid for.
        ever=float(np.quantile((null - mean).max(axis=1), 0.95)),
        null_level=null_level(refused, len(labels) - refused),
        permutations=permutations, valley=find_valley(states, labels, owners, mean, seed),
    )  # fmt: skip


def find_valley(
    states: Float[Array, "rows positions width"],
    labels: Int[Array, "rows"],
    owners: Int[Array, "rows"],
    null_mean: Float[Array, "positions"],
    seed: int = 0,
    resamples: int = 200,
) -> Valley | None:
    """A dip of norm-Fisher whose place is chosen on half of the prompts and whose depth is of the other half.

    A curve always has a lowest place, so the depth where it was found proves nothing. None where there is no
    inner low on the first half, or a half holds fewer than five of a class. The mean of the permutation null,
    scaled to each half's size, is taken off first.

    Source: ours.
    """
    rng = np.random.default_rng(seed)
    people = rng.permutation(int(owners.max()) + 1)
    first = np.isin(owners, people[: len(people) // 2])
    if any(min(v.sum(), len(v) - v.sum()) < FEWEST for v in (labels[first], labels[~first])):
        return None
    whole = null_level(int(labels.sum()), int(len(labels) - labels.sum()))

    def chance(rows: NDArray[np.bool_]) -> NDArray[np.float64]:
        refused = int(labels[rows].sum())
        return null_mean * (null_level(refused, int(rows.sum()) - refused) / whole)

    chosen = _shape(_curve(states[first], labels[first]) - chance(first))
    if chosen is None:
        return None
    start, bottom, end = chosen
    rest = np.flatnonzero(~first)
    part = np.asarray(states[rest][:, [start, bottom, end]])
    off = chance(~first)[[start, bottom, end]]
    at = _curve(part, labels[rest]) - off
    depths = _depths(part, labels[rest], owners[rest], off, rng, resamples)
    low, high = (float(v) for v in np.quantile(depths, (0.025, 0.975)))
    fall = at[0] - at[1]
    regained = float((at[2] - at[1]) / fall) if fall > 0 else 0.0
    return Valley(start, bottom, end, float(min(at[0], at[2]) - at[1]), low, high, regained)


def _depths(
    part: NDArray[Any],
    labels: NDArray[np.int64],
    owners: NDArray[np.int64],
    off: NDArray[np.float64],
    rng: np.random.Generator,
    resamples: int,
) -> NDArray[np.float64]:
    """Depth of the dip in bootstrap resamples of prompts."""
    rows_of = [np.flatnonzero(owners == owner) for owner in np.unique(owners)]
    found: list[float] = []
    while len(found) < resamples:
        rows = np.concatenate([rows_of[i] for i in rng.integers(len(rows_of), size=len(rows_of))])
        drawn = labels[rows]
        # A class of one state has no spread of its own, and would seem further away than it is.
        if min(drawn.sum(), len(drawn) - drawn.sum()) < 2:
            continue
        at = _curve(part[rows], drawn) - off
        found.append(float(min(at[0], at[2]) - at[1]))
    return np.array(found)


def _curve(states: NDArray[Any], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Norm-Fisher at each position, [positions]."""
    columns = (np.asarray(states[:, t], dtype=np.float64) for t in range(states.shape[1]))
    return np.array([norm_fisher(standardised(x), labels[None])[0] for x in columns])


def _shape(curve: NDArray[np.float64]) -> tuple[int, int, int] | None:
    """Highest place before, lowest inner place, highest place after, of the deepest dip; None without one."""
    before = np.maximum.accumulate(curve)
    after = np.maximum.accumulate(curve[::-1])[::-1]
    depth = np.minimum(before, after) - curve
    bottom = int(np.argmax(depth))
    # Above 0 the bottom has a higher place on either side, so neither slice below is empty.
    if depth[bottom] <= 0:
        return None
    return int(np.argmax(curve[:bottom])), bottom, bottom + 1 + int(np.argmax(curve[bottom + 1 :]))


def _checked(
    states: Any, y: Any, prompts: Sequence[Hashable] | None, permutations: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    labels = np.asarray(y)
    if getattr(states, "ndim", 0) != 3 or 0 in states.shape or labels.shape != states.shape[:1]:
        raise BadInput(
            f"states of shape {list(getattr(states, 'shape', ()))} for {labels.size} labels; "
            "they must be [rows, positions, width]",
            where="separability",
        )
    if not np.isin(labels, (0, 1)).all():
        raise BadInput("labels must be 0 (complied) and 1 (refused)", where="separability")
    labels = labels.astype(np.int64)
    refused = int(labels.sum())
    if min(refused, len(labels) - refused) < FEWEST:
        raise BadInput(
            f"{refused} refusals and {len(labels) - refused} compliances: {FEWEST} of each are needed",
            where="separability",
        )
    if permutations < 20:
        raise BadInput(f"{permutations} permutations carry no band", hint="20 or more; 200 is usual")
    return labels, codes(range(len(labels)) if prompts is None else prompts, len(labels), "prompts")
