"""Sampled walks through the maze, many at once, and what they visit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput
from refork_methods.recovery.censored import CensoredMean, censored_mean
from refork_methods.recovery.chain import SOURCE, TARGET, Chain, Int64, maze_chain
from refork_methods.recovery.graph import PathStar
from refork_methods.recovery.rows import Float64, RowPolicy

_BLOCK = 32
cached_chain = lru_cache(maxsize=8)(maze_chain)


def check_cap(graph: PathStar, cap: int) -> None:
    """Refuse a cap below 2 K + 2, under which no trajectory can reach the target."""
    if cap < graph.golden_length:
        raise BadInput(
            f"cap is {cap}; the target is {graph.golden_length} moves away",
            where="maze",
            hint=f"use a cap of at least 2 K + 2 = {graph.golden_length}",
        )


@final
@dataclass(frozen=True, eq=False)
class SampledPaths:
    """Sampled paths: ``steps`` [n] moves made, ``reached`` [n] whether the target was (else: cut at ``cap``).

    ``states`` [longest + 1, n] are chain state numbers, the target repeated after it is reached. There is no
    mean here: trajectories that were cut are not complete, see
    :func:`refork_methods.recovery.censored.censored_mean`.
    """

    chain: Chain
    cap: int
    steps: Int64
    reached: NDArray[np.bool_]
    states: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.steps)

    def only(self, keep: NDArray[np.bool_]) -> SampledPaths:
        """The trajectories that a mask names."""
        return SampledPaths(self.chain, self.cap, self.steps[keep], self.reached[keep], self.states[:, keep])


def sample_paths(policy: RowPolicy, count: int, cap: int, rng: np.random.Generator) -> SampledPaths:
    """``count`` independent walks from the source, each cut after ``cap`` moves.

    Raises:
        BadInput: a cap below 2 K + 2, or no trajectories.
    """
    check_cap(policy.graph, cap)
    if count < 1:
        raise BadInput(f"{count} trajectories were asked for", where="maze")
    chain = cached_chain(policy.graph.diamonds)
    chance = chain.chances(policy)
    # Interleaved: entry 2 * state + 1 is the wanted successor, the one before it the other.
    after = np.stack([chain.other, chain.wanted], axis=1).reshape(-1)
    here = np.full(count, SOURCE)
    path = [here]
    luck = np.zeros((0, count))
    for step in range(cap):
        if step % _BLOCK == 0:
            if bool((here == TARGET).all()):
                break
            # In blocks: a call for each step would cost more than the trajectories.
            luck = rng.random((min(_BLOCK, cap - step), count))
        here = after[2 * here + (luck[step % _BLOCK] < chance[here])]
        path.append(here)
    states = np.array(path, dtype=np.int32)
    reached = states[-1] == TARGET
    steps = np.where(reached, (states == TARGET).argmax(axis=0), cap)
    return SampledPaths(chain, cap, steps.astype(np.int64), reached, states[: int(steps.max()) + 1])


def sampled_hitting_time(policy: RowPolicy, count: int, cap: int, rng: np.random.Generator) -> CensoredMean:
    """Moves to the target by ``count`` sampled paths cut at ``cap``, those that were cut taken as cut."""
    trajectories = sample_paths(policy, count, cap, rng)
    return censored_mean(trajectories.steps, trajectories.reached)


def moves_of(paths: SampledPaths) -> tuple[Int64, NDArray[np.bool_], Int64]:
    """Every decided move of the paths: its row (4-row number * K + diamond), whether desired, whose path."""
    before, after = paths.states[:-1], paths.states[1:]
    row = paths.chain.row[before]
    made = row >= 0
    wanted = paths.chain.wanted[before[made]] == after[made]
    return row[made], wanted, np.nonzero(made)[1]


def count_moves(paths: SampledPaths) -> Float64:
    """Moves made in each row, [4, K, 2]: desired ones, then turns."""
    row, wanted, _ = moves_of(paths)
    k = paths.chain.diamonds
    good = np.bincount(row[wanted], minlength=4 * k)
    bad = np.bincount(row[~wanted], minlength=4 * k)
    return np.stack([good, bad], axis=-1).reshape(4, k, 2).astype(np.float64)


def golden_moves(graph: PathStar, paths: int = 1) -> Float64:
    """Moves of shortest paths in each row, [4, K, 2]: one desired move in rows a and c per diamond."""
    moves = np.zeros((4, graph.diamonds, 2))
    moves[[0, 2], :, 0] = paths
    return moves
