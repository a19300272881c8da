"""``household:1``: take the key, then reach the goal, on a 6 x 6 grid with five actions.

Prompt: ``take the key at row 1 column 4 ; then go to row 5 column 0``. Observation (cell and has-key,
nothing else): ``row 2 column 3 ; hold nothing`` or ``row 2 column 3 ; hold key``. Actions: ``go north``,
``go south``, ``go west``, ``go east``, ``take key``; a step off the grid is not admissible. The episode
ends with reward 1 in the goal cell with the key in hand (``task done``), with 0 after 30 turns.

Source: the key-then-goal task that arXiv 2606.22995 is reproduced on (reward 1 where it says 10).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, final

from refork.errors import BadInput
from refork.types import Json
from refork.worlds.dice import Dice
from refork.worlds.game import need

SIDE = 6
STEPS = {"north": (-1, 0), "south": (1, 0), "west": (0, -1), "east": (0, 1)}
_WORDS = (
    "take", "the", "key", "at", "row", "column", "then", "go", "to", "hold", "nothing", "task",
    "done", ";",
)  # fmt: skip


class Cell(NamedTuple):
    """Where the agent stands and whether it has the key."""

    row: int
    column: int
    key: bool = False


@final
@dataclass(frozen=True)
class GridGame:
    """The rules of one grid: cells are (row, column), north and west are lower."""

    start: tuple[int, int]
    key: tuple[int, int]
    goal: tuple[int, int]

    @property
    def begin(self) -> Cell:
        """The start cell without the key."""
        return Cell(*self.start)

    def view(self, state: Cell) -> str:
        """Cell and has-key."""
        if self.grade(state) is not None:
            return "task done"
        return f"row {state.row} column {state.column} ; hold {'key' if state.key else 'nothing'}"

    def canonical(self, state: Cell) -> str:
        """Layout, cell and has-key."""
        return f"grid {self.start} {self.key} {self.goal} {tuple(state)}"

    def actions(self, state: Cell) -> tuple[str, ...]:
        """Steps that stay on the grid, and taking the key where it lies."""
        if self.grade(state) is not None:
            return ()
        steps = [
            f"go {way}"
            for way, (down, right) in STEPS.items()
            if 0 <= state.row + down < SIDE and 0 <= state.column + right < SIDE
        ]
        if not state.key and (state.row, state.column) == self.key:
            steps.append("take key")
        return tuple(steps)

    def useful(self, state: Cell) -> tuple[str, ...]:
        """All admissible actions."""
        return self.actions(state)

    def act(self, state: Cell, action: str) -> Cell | None:
        """Step or take."""
        if action not in self.actions(state):
            return None
        if action == "take key":
            return state._replace(key=True)
        down, right = STEPS[action.removeprefix("go ")]
        return Cell(state.row + down, state.column + right, state.key)

    def grade(self, state: Cell) -> float | None:
        """1 in the goal cell with the key."""
        return 1.0 if state.key and (state.row, state.column) == self.goal else None

    def save(self, state: Cell) -> Any:
        """Row, column and has-key as a list."""
        return list(state)

    def load(self, data: Any) -> Cell:
        """Inverse of :meth:`save`."""
        row, column, key = data
        if not (0 <= int(row) < SIDE and 0 <= int(column) < SIDE):
            raise ValueError(f"no cell {data!r}")
        return Cell(int(row), int(column), bool(key))


@final
@dataclass(frozen=True)
class GridFamily:
    """Grids with different start, key and goal cells."""

    name = "household:1"
    version = "1"
    horizon = 30
    words = (*_WORDS, *STEPS, *(str(n) for n in range(SIDE)))

    def draw(self, dice: Dice) -> Json:
        """Three different cells."""
        cells = [[r, c] for r in range(SIDE) for c in range(SIDE)]
        start, key, goal = dice.sample(cells, 3)
        return {"start": start, "key": key, "goal": goal}

    def prompt(self, data: Json) -> str:
        """Where the key and the goal are."""
        (kr, kc), (gr, gc) = data["key"], data["goal"]
        return f"take the key at row {kr} column {kc} ; then go to row {gr} column {gc}"

    def game(self, data: Json) -> GridGame:
        """The grid of a task."""
        need(data, ("start", "key", "goal"), self.name)
        cells = []
        for name in ("start", "key", "goal"):
            row, column = (int(n) for n in data[name])
            if not (0 <= row < SIDE and 0 <= column < SIDE):
                raise BadInput(f"{name} {data[name]} is off the {SIDE} x {SIDE} grid", where=self.name)
            cells.append((row, column))
        return GridGame(*cells)
