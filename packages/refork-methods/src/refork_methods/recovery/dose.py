"""How many recoveries are enough: the expected moves of a student by the share of them that it was shown.

Source: arXiv 2606.22938 shows none and all; the curve between them, and its prediction, are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from refork.errors import BadInput
from refork_methods.recovery.chain import TARGET, expected_visits
from refork_methods.recovery.rows import Float64, RowPolicy
from refork_methods.recovery.sample import SampledPaths, count_moves, golden_moves, sample_paths
from refork_methods.recovery.surgery import erase_loops
from refork_methods.recovery.trainers import SftSettings, sft


@final
@dataclass(frozen=True, slots=True)
class MazeDose:
    """Expected moves of a student of a mix: predicted from the teacher's distribution, and measured."""

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
        trajectories = sample_paths(teacher, missing, cap, rng)
        if not bool(trajectories.reached.any()):
            raise BadInput(
                f"no trace of the teacher reached the target in {cap} moves",
                where="dose",
                hint="raise the cap",
            )
        # Cut trajectories are drawn again, or the mix would hold fewer recoveries than its fraction says.
        moves += count_moves(trajectories.only(trajectories.reached))
        missing -= int(trajectories.reached.sum())
    return moves


def shorten_paths(sampled: SampledPaths) -> SampledPaths:
    """Paths that reached the target without their detours: loops over nodes erased, whatever the direction.

    Raises:
        BadInput: a trajectory that was cut, whose detours are not known to end.
    """
    if not bool(sampled.reached.all()):
        raise BadInput("only trajectories that reached the target can be shortened", where="maze")
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
    trajectories = sample_paths(teacher, count, cap, np.random.default_rng(seed))
    short = shorten_paths(trajectories.only(trajectories.reached))
    return sft(RowPolicy.base(teacher.graph), count_moves(short)).hitting_time
