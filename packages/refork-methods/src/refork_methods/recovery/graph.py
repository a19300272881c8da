"""The path-star multigraph with diamonds: nodes, moves and exact transitions.

From the source one edge leads to the fork. The fork has W branches. A branch is K diamonds in series and
ends in a leaf; exactly one leaf is the target. Diamond j joins its left node to its right node
by L parallel edges; single edges join the fork to left 0, right j to left j + 1, and the last right node
to the leaf. A dead leaf forces a U-turn; from the fork one can only enter a branch.

Source: arXiv 2606.22938 (the maze in which RLVR and SFT differ); indices count from 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, final

from refork.errors import BadInput

Role = Literal["source", "fork", "left", "right", "leaf"]
Direction = Literal["out", "in"]
Row = Literal["a", "b", "c", "d"]


class Node(NamedTuple):
    """A node; ``branch`` and ``diamond`` are -1 where they do not apply."""

    role: Role
    branch: int = -1
    diamond: int = -1


class Move(NamedTuple):
    """One edge end at a node: the single edge ``out`` or ``in``, a parallel ``edge``, or a ``branch``."""

    kind: Literal["out", "in", "edge", "branch"]
    number: int = -1


class State(NamedTuple):
    """What a policy may depend on: the node and the direction of arrival (None at the start)."""

    node: Node
    arrived: Direction | None


@final
@dataclass(frozen=True)
class PathStar:
    """The graph for W ``branches``, K ``diamonds`` and L parallel ``edges``."""

    branches: int
    diamonds: int
    edges: int

    def __post_init__(self) -> None:
        for letter, value in (("W", self.branches), ("K", self.diamonds), ("L", self.edges)):
            if value < 1:
                raise BadInput(f"{letter} is {value}; it must be at least 1", where="maze")

    @property
    def start(self) -> State:
        """The source, before any move."""
        return State(Node("source"), None)

    @property
    def golden_length(self) -> int:
        """Moves of the shortest path from the source to a leaf: 2 K + 2."""
        return 2 * self.diamonds + 2

    @property
    def optimal_hitting_time(self) -> int:
        """Expected moves to the target of a trajectory that never turns back but at dead leaves.

        The fork chooses uniformly, with replacement: 4 W K + 2 (W - K).
        """
        return 4 * self.branches * self.diamonds + 2 * (self.branches - self.diamonds)

    def nodes(self) -> Iterator[Node]:
        """Every node: 2 + W (2 K + 1)."""
        yield Node("source")
        yield Node("fork")
        for w in range(self.branches):
            for j in range(self.diamonds):
                yield Node("left", w, j)
                yield Node("right", w, j)
            yield Node("leaf", w)

    def moves(self, node: Node) -> tuple[Move, ...]:
        """Every move from a node, in a fixed order; parallel edges are moves of their own."""
        parallel = tuple(Move("edge", e) for e in range(self.edges))
        match node.role:
            case "source":
                return (Move("out"),)
            case "fork":
                return tuple(Move("branch", w) for w in range(self.branches))
            case "left":
                return (Move("in"), *parallel)
            case "right":
                return (*parallel, Move("out"))
            case "leaf":
                return (Move("in"),)

    def follow(self, node: Node, move: Move) -> State | None:
        """The state a move leads to; None where the node has no such move."""
        if move not in self.moves(node):
            return None
        w, j = node.branch, node.diamond
        match node.role, move.kind:
            case "source", _:
                return State(Node("fork"), "out")
            case "fork", _:
                return State(Node("left", move.number, 0), "out")
            case "left", "edge":
                return State(Node("right", w, j), "out")
            case "right", "edge":
                return State(Node("left", w, j), "in")
            case "left", _:
                back = Node("right", w, j - 1) if j else Node("fork")
                return State(back, "in")
            case "right", _:
                last = j == self.diamonds - 1
                return State(Node("leaf", w) if last else Node("left", w, j + 1), "out")
        return State(Node("right", w, self.diamonds - 1), "in")

    def states(self) -> tuple[State, ...]:
        """Every state that a trajectory can be in, the start first, in breadth-first order."""
        order: dict[State, None] = {self.start: None}
        queue = [self.start]
        # The queue grows while it is read.
        for here in queue:
            for there in self.successors(here):
                if there not in order:
                    order[there] = None
                    queue.append(there)
        return tuple(order)

    def successors(self, state: State) -> Counter[State]:
        """The next states and by how many edges each is reached (a target leaf is not absorbing here)."""
        steps = (self.follow(state.node, move) for move in self.moves(state.node))
        return Counter(step for step in steps if step is not None)

    def row(self, state: State) -> Row | None:
        """The decision family of a state.

        a: at a right node, arrived outward; b: there, arrived inward; c: at a left node, arrived
        outward; d: there, arrived inward. None where there is nothing to decide or the fork decides.
        """
        match state.node.role, state.arrived:
            case "right", "out":
                return "a"
            case "right", "in":
                return "b"
            case "left", "out":
                return "c"
            case "left", "in":
                return "d"
        return None

    def desired(self, state: State) -> State | None:
        """The successor that keeps the direction of travel; None where there is no row."""
        if self.row(state) is None:
            return None
        # Parallel edges lead to one state, so exactly one successor goes on in the same direction.
        return next(s for s in self.successors(state) if s.arrived == state.arrived)

    def golden(self, target: int) -> tuple[Move, ...]:
        """A shortest path from the source to a branch's leaf, by edge 0 of each diamond.

        Raises:
            BadInput: there is no such branch.
        """
        if not 0 <= target < self.branches:
            raise BadInput(f"branch {target} is not one of {self.branches}", where="maze")
        across = (Move("edge", 0), Move("out"))
        return (Move("out"), Move("branch", target), *(across * self.diamonds))
