"""The household world: the key-then-goal grid of size 1, and the sizes of the houses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, final

from refork.errors import BadInput
from refork.types import Json
from refork.worlds.dice import Dice
from refork.worlds.game import GameWorld, need
from refork.worlds.spec import Spec
from refork_testbed.worlds.household.layout import Size
from refork_testbed.worlds.household.rooms import HouseFamily

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


#: Houses by number; 1 is the grid.
SIZES = {
    2: Size(rooms=5, doors=1, containers=0, objects=1, goals=1, horizon=16, star=True),
    3: Size(rooms=6, doors=1, containers=2, objects=3, goals=1, horizon=24),
    4: Size(rooms=8, doors=2, containers=3, objects=4, goals=1, horizon=40),
    5: Size(rooms=10, doors=3, containers=4, objects=5, goals=2, horizon=64),
    6: Size(rooms=12, doors=3, containers=5, objects=6, goals=2, horizon=80),
}


def household_world(size: int = 2, slip: float = 0.0) -> GameWorld[Any]:
    """The household world of a size from 1 (the key-then-goal grid) to 6 (twelve rooms, two goals).

    ``slip`` is the probability that an admissible action is replaced by a random admissible one.

    Raises:
        BadInput: no such size, or slip outside [0, 1].
    """
    options = f"slip={slip:g}" if slip else ""
    if size == 1:
        return GameWorld(GridFamily(), slip, options)
    if size not in SIZES:
        raise BadInput(f"there is no household of size {size}", hint=f"sizes: 1 to {max(SIZES)}")
    return GameWorld(HouseFamily(size, SIZES[size]), slip, options)


def open_household(spec: Spec) -> GameWorld[Any]:
    """``household:SIZE``: rooms, keys and objects, SIZE 1 to 6 (option slip)."""
    size = spec.argument or "2"
    if not size.isdigit():
        raise BadInput(f"{size!r} is not a size", where="household", hint=f"sizes: 1 to {max(SIZES)}")
    return household_world(int(size), **spec.take({"slip": (float, int)}))
