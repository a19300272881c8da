"""How many recoveries are enough: the hitting time on the maze, and supervised states in any traces.

Source: arXiv 2606.22938 shows none and all; the curve between them, and both predictions, are ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from refork.errors import BadInput
from refork_methods.recovery.audit import Visit, visits
from refork_methods.recovery.chain import TARGET, expected_visits
from refork_methods.recovery.distillation import mix_traces
from refork_methods.recovery.rows import Float64, RowPolicy
from refork_methods.recovery.sample import SampledPaths, count_moves, golden_moves, sample_paths
from refork_methods.recovery.surgery import erase_loops
from refork_methods.recovery.traces import StateKey, Trace, erased, normalised_key, shorten, successful
from refork_methods.recovery.trainers import SftSettings, sft


@final
@dataclass(frozen=True, slots=True)
class MazeDose:
    """Expected moves of a student of a mix: predicted from the teacher's law, and measured per seed."""

    fraction: float
    recoveries: int
    predicted: float
    measured: tuple[float, ...]


def maze_dose(
    teacher: RowPolicy,
    fractions: Sequence[float],
    *,
    paths: int = 1000,
    cap: int = 400,
    seeds: Sequence[int] = (0, 1, 2),
    settings: SftSettings | None = None,
) -> list[MazeDose]:
    """Train students from the uniform walk on shortest paths with a fraction of the teacher's traces.

    Predicted: the student of the expected moves of such a mix, from the teacher's exact expected visits.
    Measured: the exact expected hitting time of the student of a drawn mix, one per seed; every fraction
    draws its own traces.

    Raises:
        BadInput: a fraction outside [0, 1], no paths, or a cap below 2 K + 2.
    """
    if paths < 1 or not all(0 <= f <= 1 for f in fractions):
        raise BadInput("fractions must lie in [0, 1] and paths be at least 1", where="dose")
    chosen = settings or SftSettings(paths=paths)
    start = RowPolicy.base(teacher.graph)
    each = expected_visits(teacher)
    found = []
    for place, fraction in enumerate(fractions):
        taken = round(fraction * paths)
        golden = golden_moves(teacher.graph, paths - taken)
        values = tuple(
            sft(start, golden + _drawn(teacher, taken, cap, seed, place), chosen).hitting_time
            for seed in seeds
        )
        predicted = sft(start, golden + taken * each, chosen).hitting_time
        found.append(MazeDose(fraction, taken, predicted, values))
    return found


def _drawn(teacher: RowPolicy, count: int, cap: int, seed: int, place: int) -> Float64:
    """Moves of ``count`` traces of the teacher that reached the target."""
    moves = np.zeros((4, teacher.graph.diamonds, 2))
    rng = np.random.default_rng([seed, place])
    missing = count
    while missing:
        walks = sample_paths(teacher, missing, cap, rng)
        if not bool(walks.reached.any()):
            raise BadInput(
                f"no trace of the teacher reached the target in {cap} moves",
                where="dose",
                hint="raise the cap",
            )
        moves += count_moves(walks.only(walks.reached))
        missing -= int(walks.reached.sum())
    return moves


def shorten_paths(sampled: SampledPaths) -> SampledPaths:
    """Walks that reached the target without their detours: loops over nodes erased, whatever the direction.

    Raises:
        BadInput: a walk that was cut, whose detours are not known to end.
    """
    if not bool(sampled.reached.all()):
        raise BadInput("only walks that reached the target can be shortened", where="maze")
    k = sampled.chain.diamonds
    row = sampled.chain.row
    # A node is named by the state of arriving there outward: row a stands for b, and c for d.
    node = np.arange(len(row)) - np.where((row // k) % 2 == 1, k, 0) * (row >= 0)
    paths = []
    for number in range(len(sampled)):
        visited = node[sampled.states[: int(sampled.steps[number]) + 1, number]].tolist()
        paths.append([visited[i] for i in erase_loops(visited).first])
    steps = np.array([len(path) - 1 for path in paths], dtype=np.int64)
    states = np.full((int(steps.max()) + 1, len(paths)), TARGET, dtype=np.int32)
    for number, path in enumerate(paths):
        states[: len(path), number] = path
    return SampledPaths(sampled.chain, sampled.cap, steps, sampled.reached, states)


def golden_student(teacher: RowPolicy, count: int, *, cap: int = 400, seed: int = 0) -> float:
    """Expected moves of a student of ``count`` traces of the teacher with their detours cut out."""
    walks = sample_paths(teacher, count, cap, np.random.default_rng(seed))
    short = shorten_paths(walks.only(walks.reached))
    return sft(RowPolicy.base(teacher.graph), count_moves(short)).hitting_time


@final
@dataclass(frozen=True, slots=True)
class CoverageDose:
    """Distinct backward-facing states that a mix supervises: expected exactly, and measured per seed."""

    fraction: float
    recoveries: int
    predicted: float
    measured: tuple[int, ...]
    of: int


def _never_drawn(holders: NDArray[np.int64], total: int, taken: int) -> Float64:
    """Chance that none of ``taken`` of ``total`` traces is one of the ``holders``, without replacement."""
    rest = total - holders
    possible = rest >= taken
    safe = np.where(possible, rest, taken)
    # In logarithms: the binomial coefficients of a large data set overflow.
    log = gammaln(safe + 1) - gammaln(safe - taken + 1) - gammaln(total + 1) + gammaln(total - taken + 1)
    return np.asarray(np.where(possible, np.exp(log), 0.0))


def coverage_dose(
    traces: Sequence[Trace],
    fractions: Sequence[float],
    *,
    key: StateKey = normalised_key,
    threshold: float = 1.0,
    seeds: Sequence[int] = (0, 1, 2),
) -> list[CoverageDose]:
    """How many backward-facing states a mix of a data set supervises, by the fraction kept whole.

    Predicted: the exact expectation over which traces stay whole (hypergeometric). Measured: the states
    that one drawn mix supervises, per seed.

    Raises:
        BadInput: as :func:`refork_methods.recovery.distillation.mix_traces`.
    """
    won = successful(traces, threshold)
    holders = [trace for trace in won if erased(trace, key).recoveries]
    each = [{visit for visit in visits(trace, key) if visit[1]} for trace in holders]
    count: Counter[Visit] = Counter(visit for found in each for visit in found)
    # What shortening leaves facing back (nothing but stalls could) is supervised at any dose.
    kept = [{v for v in visits(shorten(t, key), key) if v[1]} for t in won]
    always = set[Visit]().union(*kept)
    numbers = np.array([n for visit, n in count.items() if visit not in always], dtype=np.int64)
    found = []
    for fraction in fractions:
        mixes = [mix_traces(won, fraction, key=key, threshold=threshold, seed=seed) for seed in seeds]
        taken = round(fraction * len(won))
        predicted = len(always) + float((1 - _never_drawn(numbers, len(holders), taken)).sum())
        measured = tuple(len({v for t in mix for v in visits(t, key) if v[1]}) for mix in mixes)
        found.append(CoverageDose(fraction, taken, predicted, measured, len(count)))
    return found
