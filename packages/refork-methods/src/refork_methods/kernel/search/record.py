"""What a search leaves behind, and where it puts it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, final

from refork_methods.kernel.bench.result import Candidate, Evaluated
from refork_methods.kernel.search.model import Observation, Proposal
from refork_methods.kernel.slip import Slip


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SearchNode:
    """A kernel that was tried. The original is number 0, with the parent -1 and no proposal.

    ``notes`` are those that it added to the search's memory.
    """

    number: int
    parent: int
    candidate: Candidate
    evaluated: Evaluated
    proposal: Proposal | None = None
    notes: tuple[str, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class Round:
    """A choice: the node, what was proposed there, and whether nothing is left to try on it."""

    number: int
    parent: int
    proposals: tuple[Proposal, ...]
    spent: bool


@final
@dataclass(slots=True)
class History:
    """All of a search so far; its order is that of the work."""

    nodes: list[SearchNode] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    observations: dict[int, Observation] = field(default_factory=dict)
    slips: list[Slip] = field(default_factory=list)


class Sink(Protocol):
    """Takes a search's record as it grows; what it was given is safe when the call returns."""

    def add_node(self, node: SearchNode) -> None:
        """A kernel that was tried."""
        ...

    def add_round(self, choice: Round) -> None:
        """A choice, before anything of it is built."""
        ...

    def add_observation(self, number: int, observation: Observation) -> None:
        """What was measured of a node."""
        ...

    def add_slip(self, slip: Slip) -> None:
        """A rule or a tool that broke."""
        ...


@final
class Forgotten:
    """Keeps nothing beside what the search holds itself."""

    def add_node(self, node: SearchNode) -> None:
        """Nothing."""

    def add_round(self, choice: Round) -> None:
        """Nothing."""

    def add_observation(self, number: int, observation: Observation) -> None:
        """Nothing."""

    def add_slip(self, slip: Slip) -> None:
        """Nothing."""


def fastest(nodes: Sequence[SearchNode], most: int = 1) -> list[SearchNode]:
    """The right kernels with the largest measured speed-ups, the oldest of equals first; ``most`` of them."""
    right = [node for node in nodes if node.evaluated.ok and node.evaluated.speedup is not None]
    return sorted(right, key=lambda node: (-(node.evaluated.speedup or 0.0), node.number))[:most]
