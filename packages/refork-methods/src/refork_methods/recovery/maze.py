"""``maze:W,K,L``: a walk through a path-star maze, told in words.

Prompt: ``find the target leaf``. Observations::

    source ; exits out
    fork ; came out ; exits branch 17 branch 4 branch 9
    fork ; came in from branch 4 ; exits branch 17 branch 4 branch 9
    branch 4 left 0 ; came out ; exits in edge 0 edge 1 edge 2
    branch 4 right 0 ; came out by edge 2 ; exits edge 0 edge 1 edge 2 out
    branch 4 left 0 ; came in by edge 1 ; exits in edge 0 edge 1 edge 2
    branch 9 leaf ; came out ; dead end ; exits in
    branch 4 leaf ; came out ; target reached

Actions: ``go`` and an exit: ``go out``, ``go in``, ``go edge 2``, ``go branch 4``. ``out`` leads away from
the fork and ``in`` back towards it; "came" is the last edge and the direction it was taken in.
Branch names are drawn for each task from a pool of numbers, the target among them. The state key is
(node, direction of arrival): parallel edges merge. Reward 1 on the target, 0 at the turn limit.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple, cast, final, get_args

from refork.errors import BadInput
from refork.policies.scripted import Distribution, ScriptedPolicy, bare
from refork.types import Json
from refork.worlds.dice import Dice
from refork.worlds.game import GameWorld, need
from refork.worlds.spec import Spec
from refork_methods.recovery.graph import Move, Node, PathStar, Role, State

_WORDS = (
    "find", "the", "target", "leaf", "source", "fork", "branch", "left", "right", "exits", "out",
    "in", "came", "from", "by", "edge", "dead", "end", "reached", "go", ";",
)  # fmt: skip


class Position(NamedTuple):
    """A state and the number of the edge or branch one came by (-1: a single edge)."""

    state: State
    via: int = -1


@final
@dataclass(frozen=True)
class MazeGame:
    """The rules of one maze: its graph, the names of its branches, and the target's number."""

    graph: PathStar
    names: tuple[int, ...]
    target: int

    @property
    def begin(self) -> Position:
        """At the source."""
        return Position(self.graph.start)

    def view(self, state: Position) -> str:
        """The place, the last edge and the exits."""
        (node, arrived), via = state
        if node.role in ("source", "fork"):
            parts: list[str] = [node.role]
        else:
            diamond = f" {node.diamond}" if node.diamond >= 0 else ""
            parts = [f"branch {self.names[node.branch]} {node.role}{diamond}"]
        if arrived is not None:
            parts.append(f"came {arrived}{self._by(node, via)}")
        if self.grade(state) is not None:
            return " ; ".join([*parts, "target reached"])
        if node.role == "leaf":
            parts.append("dead end")
        return " ; ".join([*parts, "exits " + " ".join(self._label(m) for m in self.graph.moves(node))])

    def canonical(self, state: Position) -> str:
        """Maze, node and direction of arrival."""
        shape = (self.graph.branches, self.graph.diamonds, self.graph.edges)
        return f"maze {shape} {tuple(state.state.node)} {state.state.arrived}"

    def actions(self, state: Position) -> tuple[str, ...]:
        """One per exit."""
        if self.grade(state) is not None:
            return ()
        return tuple(f"go {self._label(move)}" for move in self.graph.moves(state.state.node))

    def useful(self, state: Position) -> tuple[str, ...]:
        """Every exit."""
        return self.actions(state)

    def act(self, state: Position, action: str) -> Position | None:
        """Take an exit."""
        node = state.state.node
        move = next((m for m in self.graph.moves(node) if action == f"go {self._label(m)}"), None)
        after = self.graph.follow(node, move) if move and self.grade(state) is None else None
        if move is None or after is None:
            return None
        # At the fork what counts is the branch one comes from; its single edge has no number.
        return Position(after, node.branch if after.node.role == "fork" else self._edge_number(move))

    def grade(self, state: Position) -> float | None:
        """1 on the target leaf."""
        node = state.state.node
        return 1.0 if node.role == "leaf" and node.branch == self.target else None

    def save(self, state: Position) -> Any:
        """Role, branch, diamond, direction and edge as a list."""
        return [*state.state.node, state.state.arrived, state.via]

    def load(self, data: Any) -> Position:
        """Inverse of :meth:`save`."""
        place, branch, diamond, arrived, via = data
        node = Node(cast("Role", place), int(branch), int(diamond))
        if place not in get_args(Role) or node not in set(self.graph.nodes()):
            raise ValueError(f"no node {data!r}")
        if arrived not in (None, "in", "out"):
            raise ValueError(f"no direction {arrived!r}")
        if not -1 <= int(via) < (len(self.names) if place == "fork" else self.graph.edges):
            raise ValueError(f"no edge {via!r}")
        return Position(State(node, arrived), int(via))

    @staticmethod
    def _edge_number(move: Move) -> int:
        return move.number if move.kind == "edge" else -1

    def _by(self, node: Node, via: int) -> str:
        if via < 0:
            return ""
        return f" from branch {self.names[via]}" if node.role == "fork" else f" by edge {via}"

    def _label(self, move: Move) -> str:
        if move.kind == "branch":
            return f"branch {self.names[move.number]}"
        return move.kind if move.number < 0 else f"edge {move.number}"


@final
@dataclass(frozen=True)
class MazeFamily:
    """Mazes of one shape; tasks differ in the names of the branches and in the target."""

    graph: PathStar
    horizon: int

    version = "1"

    @property
    def name(self) -> str:
        """``maze:W,K,L``."""
        return f"maze:{self.graph.branches},{self.graph.diamonds},{self.graph.edges}"

    @property
    def _pool(self) -> int:
        return max(24, 4 * self.graph.branches)

    @property
    def words(self) -> tuple[str, ...]:
        """Fixed words and numbers."""
        numbers = max(self._pool, self.graph.diamonds, self.graph.edges)
        return (*_WORDS, *(str(n) for n in range(numbers)))

    def draw(self, dice: Dice) -> Json:
        """Names and a target, uniformly."""
        return {
            "shape": [self.graph.branches, self.graph.diamonds, self.graph.edges],
            "names": dice.sample(range(self._pool), self.graph.branches),
            "target": dice.below(self.graph.branches),
        }

    def prompt(self, data: Json) -> str:
        """The same for every maze: the target is hidden."""
        del data
        return "find the target leaf"

    def game(self, data: Json) -> MazeGame:
        """The maze of a task."""
        need(data, ("shape", "names", "target"), self.name)
        shape = [self.graph.branches, self.graph.diamonds, self.graph.edges]
        names, target = tuple(int(n) for n in data["names"]), int(data["target"])
        if list(data["shape"]) != shape or len(set(names)) != shape[0] or not 0 <= target < shape[0]:
            raise BadInput(f"this task is of a maze of shape {data['shape']}", where=self.name)
        return MazeGame(self.graph, names, target)


def maze_world(branches: int, diamonds: int, edges: int, cap: int | None = None) -> GameWorld[Position]:
    """The maze world of W branches, K diamonds, L parallel edges, ended after ``cap`` turns.

    The default cap is twice the optimal expected trajectory. With one branch there is no dead end to turn
    back from, which is allowed but warned about.

    Raises:
        BadInput: W, K or L below 1, or a cap below 2 K + 2, under which no target can be reached.
    """
    graph = PathStar(branches, diamonds, edges)
    if branches == 1:
        warnings.warn("a maze of one branch has no dead ends", UserWarning, stacklevel=2)
    horizon = max(2 * graph.optimal_hitting_time, graph.golden_length) if cap is None else cap
    if horizon < graph.golden_length:
        raise BadInput(
            f"cap is {horizon}; the target is {graph.golden_length} moves away",
            where="maze",
            hint=f"use a cap of at least 2 K + 2 = {graph.golden_length}",
        )
    family = MazeFamily(graph, horizon)
    return GameWorld(family, options="" if cap is None else f"cap={cap}")


def open_maze(spec: Spec) -> GameWorld[Position]:
    """``maze:W,K,L``: path-star maze, W branches of K diamonds of L parallel edges (option cap)."""
    parts = spec.argument.split(",") if spec.argument else ["3", "3", "3"]
    if len(parts) != 3 or not all(part.strip().lstrip("-").isdigit() for part in parts):
        raise BadInput(f"{spec.argument!r} is not W,K,L", where="maze", hint="for example maze:3,3,3")
    return maze_world(*(int(part) for part in parts), **spec.take({"cap": int}))


def walker(argument: str) -> ScriptedPolicy:
    """``walker``: takes a random exit of a maze."""
    bare("walker", argument)
    words = ("go", " in", " out", " edge", " branch")
    return ScriptedPolicy.from_text(walker_distribution, words, name="scripted:walker")


def walker_distribution(text: str) -> Distribution:
    """The next piece of ``go EXIT``, every exit of the last line that lists some being equally likely."""
    before, _, said = text.rpartition("\n")
    listed = before.rpartition("exits ")[2].partition("\n")[0] if "exits " in before else "out"
    actions = [f"go {found}" for found in re.findall(r"in|out|edge \d+|branch \d+", listed)]
    fitting = [action for action in actions if action.startswith(said)]
    distribution: dict[str, float] = {}
    for action in fitting:
        # Numbers go digit by digit: behind "branch 1" both its end and "branch 17" are still open.
        found = re.match(r"\s?[a-z]+|\s|\d", action[len(said) :])
        piece = found.group() if found else ""
        distribution[piece] = distribution.get(piece, 0.0) + 1.0 / len(fitting)
    return distribution or {"": 1.0}
