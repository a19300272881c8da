"""The selector seam: which point of a growing tree to fork next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ramify.core.policy.noise import NoiseKey, stream_of, uniforms


@dataclass(frozen=True, slots=True)
class Candidates:
    """Points of one task that may be forked, as plain arrays of one length.

    ``node``: node ids; ``token``: tokens kept (-1: all). ``depth``: tokens from the root.
    ``children``: branches that already start here, pending ones included. ``leaves``, ``wins``:
    graded leaves below and the sum of their success. ``entropy``: of the next token there, in nats
    (NaN where never computed). ``cost``: expected tokens of one more leaf from here.
    """

    node: tuple[str, ...]
    token: NDArray[np.int64]
    depth: NDArray[np.int64]
    children: NDArray[np.int64]
    leaves: NDArray[np.int64]
    wins: NDArray[np.float64]
    entropy: NDArray[np.float64]
    cost: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.node)


@dataclass(frozen=True, slots=True)
class Choice:
    """What a selector decided: fork candidate ``index`` ``draws`` more times; ``terms`` say why."""

    index: int
    draws: int
    terms: dict[str, float]


@runtime_checkable
class Selector(Protocol):
    """Chooses points to fork; UUCB and tree search implement this."""

    @property
    def name(self) -> str:
        """Name and settings, as recorded with every choice."""
        ...

    def select(self, candidates: Candidates, leaves_left: int, round_: int) -> Sequence[Choice]:
        """The next points to fork; an empty answer ends the growing."""
        ...


@dataclass(frozen=True, slots=True)
class Independent:
    """Every rollout begins at the task: the plain group of GRPO."""

    name: str = "independent"

    def select(self, candidates: Candidates, leaves_left: int, round_: int) -> Sequence[Choice]:
        """All that is left, from the root."""
        root = int(np.argmin(candidates.depth))
        return [Choice(root, leaves_left, {})]


@dataclass(frozen=True, slots=True)
class RandomNode:
    """Any point with equal chance, with replacement: the baseline of blind branching.

    ``roots`` plain rollouts come first, then ``at_once`` forks a round.
    """

    seed: int = 0
    roots: int = 2
    at_once: int = 1

    @property
    def name(self) -> str:
        """Name and settings."""
        return f"random-node(seed={self.seed}, roots={self.roots}, at_once={self.at_once})"

    def select(self, candidates: Candidates, leaves_left: int, round_: int) -> Sequence[Choice]:
        """Random points; the root alone in the first round."""
        if round_ == 0:
            return [Choice(int(np.argmin(candidates.depth)), min(self.roots, leaves_left), {})]
        key = NoiseKey(self.seed, stream_of("random-node", candidates.node[0]), round_)
        picks = (uniforms([key], self.at_once)[0] * len(candidates)).astype(int)
        return [Choice(int(pick), 1, {}) for pick in picks[:leaves_left]]
