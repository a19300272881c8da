"""Whether success in a simulator is success in the world: by replay of actions, and of policies.

Source: arXiv 2512.18832 (Word2World) for success after replay in the real environment over success inside the
model; the interval is ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Shaped
from numpy.typing import NDArray

from refork.errors import BadInput, UserError
from refork.stats.clustered import cluster_values
from refork.stats.results import Array, check_level, paired
from refork.worlds.base import Task, World
from refork_methods.simulate.prompt import matches

#: Below it values are equal but for rounding.
_FLAT = 1e-12


@dataclass(frozen=True, slots=True)
class Ratio:
    """``real`` over ``inside``, mean successes of the same ``n`` runs of ``tasks`` tasks; 95 % interval.

    ``ratio`` None: nothing succeeded inside. ``low`` and ``high`` None: the interval has no end, since the
    success inside cannot be told from 0.
    """

    ratio: float | None
    low: float | None
    high: float | None
    inside: float
    real: float
    n: int
    tasks: int


def success_ratio(
    inside: Shaped[Array, "runs"],
    real: Shaped[Array, "runs"],
    tasks: Sequence[object] | None = None,
    level: float = 0.95,
) -> Ratio:
    """Mean of ``real`` over mean of ``inside``, paired by run and clustered by task (None: each run its own).

    For replays: the same actions in the simulator and in the world. For policies: the success in the world of
    the one that was trained there (``inside``) and of the one that was trained in the simulator (``real``).

    Raises: BadInput for fewer than two runs or tasks, unequal lengths, NaN.
    Source: Fieller, Some problems in interval estimation (1954).
    """
    x, y = paired(inside, real)
    clusters = list(range(x.size)) if tasks is None else list(tasks)
    if len(set(clusters)) < 2:
        raise BadInput("one task cannot show a ratio", where="sim to real", hint="at least two tasks")
    a, b = cluster_values(x, clusters), cluster_values(y, clusters)
    means = float(x.mean()), float(y.mean())
    low, high = fieller(a, b, check_level(level))
    # Of outcomes that are not negative; the values of unequal clusters may be.
    if low is not None and min(x.min(), y.min()) >= 0:
        low = max(0.0, low)
    ratio = means[1] / means[0] if means[0] > 0 else None
    return Ratio(ratio, low, high, *means, x.size, a.size)


def fieller(
    x: NDArray[np.float64], y: NDArray[np.float64], level: float = 0.95
) -> tuple[float | None, float | None]:
    """Ends of the set of ratios r for which mean(y) - r mean(x) is not told from 0; None where it has no end.

    A lower end below 0 is 0, where no value is negative. Equal values leave no width: one more cluster each
    way is assumed then, as in the adjusted t interval; so where every run keeps the same ratio.
    """
    from scipy.special import stdtrit

    if min(np.ptp(x), np.ptp(y), np.ptp(y * x.mean() - x * y.mean())) < _FLAT:
        x, y = np.concatenate([x, [0.0, 1.0]]), np.concatenate([y, [1.0, 0.0]])
    count = x.size
    t2 = float(stdtrit(count - 1, 0.5 + level / 2)) ** 2
    (vx, cov), (_, vy) = np.cov(x, y) / count
    mx, my = float(x.mean()), float(y.mean())
    square = mx * mx - t2 * vx
    if square <= 0:
        return None, None
    middle = mx * my - t2 * cov
    # Rounding can leave it just below 0 where the ends meet.
    under = max(0.0, middle * middle - square * (my * my - t2 * vy))
    low, high = (middle - math.sqrt(under)) / square, (middle + math.sqrt(under)) / square
    return (max(0.0, low) if min(x.min(), y.min()) >= 0 else low), high


@dataclass(frozen=True, slots=True)
class Replayed:
    """One simulated run and what became of its actions in the world.

    ``diverged``: the first turn (from 0) at which the world answered otherwise; None: nowhere. ``error``: the
    world failed, which is no failure of the actions: the run has no ``real`` reward.
    """

    task: str
    inside: float | None
    real: float | None
    turns: int
    diverged: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """The actions and answers of one run in a simulator, and the reward that it ended with."""

    task: Task
    history: tuple[tuple[str, str], ...]
    reward: float | None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class SimToReal:
    """The ratio over all replays, and each of them; those in which the world failed (``errors``) left out."""

    ratio: Ratio
    replays: tuple[Replayed, ...]
    errors: int
    ungraded: int


def replay(run: SimulatedRun, world: World) -> Replayed:
    """Act a simulated run's actions in the world, until they or the episode are over."""
    reward: float | None = None
    diverged: int | None = None
    turn = 0
    try:
        episode = world.start(run.task, run.seed)
        try:
            for turn, (action, said) in enumerate(run.history):
                seen = episode.step(action)
                if diverged is None and not matches(said, seen.text):
                    diverged = turn
                reward = seen.reward if seen.reward is not None else reward
                if seen.done:
                    break
        finally:
            episode.close()
    except UserError as error:
        return Replayed(run.task.id, run.reward, None, turn, diverged, str(error))
    return Replayed(run.task.id, run.reward, 0.0 if reward is None else reward, turn + 1, diverged)


def sim_to_real(runs: Sequence[SimulatedRun], world: World) -> SimToReal:
    """Success inside the simulator against success of the same actions in the world.

    A run that the simulator never graded counts as not solved there; the world's errors are counted and left
    out.

    Raises: BadInput for fewer than two runs, or tasks, that the world could replay.
    """
    replays = [replay(run, world) for run in runs]
    good = [one for one in replays if one.error is None]
    inside = np.array([0.0 if one.inside is None else one.inside for one in good])
    real = np.array([one.real for one in good], dtype=np.float64)
    ratio = success_ratio(inside, real, [one.task for one in good])
    ungraded = sum(run.reward is None for run in runs)
    return SimToReal(ratio, tuple(replays), len(replays) - len(good), ungraded)
