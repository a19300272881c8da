"""Two simulators on the same turns, paired; and how far judges agree on simulators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Shaped

from refork.errors import BadInput
from refork.stats import Difference, clustered_difference
from refork.stats.results import Array, paired
from refork_methods.simulate.fidelity import MEASURES, JudgedTurn


@dataclass(frozen=True, slots=True)
class Gap:
    """A measure of ``other`` minus that of ``base`` over ``n`` shared turns: 95 % interval and p.

    None where no difference can be told: fewer than two turns or trajectories.
    """

    base: float
    other: float
    difference: float
    low: float | None
    high: float | None
    p: float | None
    n: int
    trajectories: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two simulators on one set of turns, over all of them and by domain; each by measure."""

    base: str
    other: str
    overall: dict[str, Gap]
    domains: dict[str, dict[str, Gap]]


#: What is compared unless told otherwise.
COMPARED = ("coverage", "exact", "exact_deterministic", "rule", "rubric")


def compare_simulators(
    base: Sequence[JudgedTurn],
    other: Sequence[JudgedTurn],
    *,
    names: tuple[str, str] = ("base", "other"),
    measures: Sequence[str] = COMPARED,
    level: float = 0.95,
) -> Comparison:
    """Differences of two evaluations of the same turns, paired by turn and clustered by trajectory.

    A turn counts for a measure where it does for both.

    Raises:
        BadInput: no shared turn, the same turn twice, or another observation under the same name.
    """
    one, two = _by_key(base), _by_key(other)
    shared = [(turn, two[key]) for key, turn in one.items() if key in two]
    if not shared:
        raise BadInput("the two evaluations share no turn", where="compare simulators")
    for a, b in shared:
        if a.observation != b.observation:
            raise BadInput("the two evaluations differ in what was really observed", where=f"turn {a.key}")
    domains: dict[str, list[tuple[JudgedTurn, JudgedTurn]]] = {}
    for pair in shared:
        domains.setdefault(pair[0].domain, []).append(pair)
    return Comparison(
        *names,
        overall=_gaps(shared, measures, level),
        domains={name: _gaps(domains[name], measures, level) for name in sorted(domains)},
    )


def _by_key(turns: Sequence[JudgedTurn]) -> Mapping[str, JudgedTurn]:
    found = {turn.key: turn for turn in turns}
    if len(found) < len(turns):
        raise BadInput("an evaluation holds one turn twice", where="compare simulators")
    return found


def _gaps(
    pairs: Sequence[tuple[JudgedTurn, JudgedTurn]], measures: Sequence[str], level: float
) -> dict[str, Gap]:
    found = {}
    for name in measures:
        gap = _gap(pairs, MEASURES[name], level)
        if gap is not None:
            found[name] = gap
    return found


def _gap(
    pairs: Sequence[tuple[JudgedTurn, JudgedTurn]],
    measure: Callable[[JudgedTurn], float | None],
    level: float,
) -> Gap | None:
    x, y, clusters = [], [], []
    for a, b in pairs:
        left, right = measure(a), measure(b)
        if left is not None and right is not None:
            x.append(left)
            y.append(right)
            clusters.append((a.source, a.trajectory))
    if not x:
        return None
    held: Difference | None = None
    if len(set(clusters)) > 1:
        held = clustered_difference(np.array(x), np.array(y), clusters, level)
    means = sum(x) / len(x), sum(y) / len(y)
    return Gap(
        *means,
        means[1] - means[0],
        None if held is None else held.interval.low,
        None if held is None else held.interval.high,
        None if held is None else held.p,
        len(x),
        len(set(clusters)),
    )


@dataclass(frozen=True, slots=True)
class Agreement:
    """Spearman's rank correlation of two judges over ``n`` things; None where one of them ranks nothing."""

    rho: float | None
    p: float | None
    n: int


def rank_agreement(one: Shaped[Array, "graded"], other: Shaped[Array, "graded"]) -> Agreement:
    """How far two judges rank alike: their scores of the same simulators, or of the same turns.

    p is the t approximation's, too small for fewer than ten.

    Raises: BadInput for fewer than two, or scores that cannot be paired.
    """
    from scipy.stats import spearmanr

    x, y = paired(one, other)
    if x.min() == x.max() or y.min() == y.max():
        return Agreement(None, None, x.size)
    found = spearmanr(x, y)
    return Agreement(float(found.statistic), float(found.pvalue), x.size)
