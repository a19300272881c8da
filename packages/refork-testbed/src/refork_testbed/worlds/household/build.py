"""``household``: a house of five rooms (size 2), and the key-then-goal grid (size 1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

from refork.errors import BadInput
from refork.types import Json
from refork.worlds.dice import Dice, digest
from refork.worlds.game import GameWorld, need
from refork.worlds.spec import Spec

# ``household:2``: an object is fetched and put where it belongs; it lies, or belongs, behind a locked door.
#
# Prompt: ``put the apple on the desk``.
# Observation: the room, the open and the locked rooms next to it, what is seen, what is held::
#
#     hall exits kitchen bedroom bathroom locked study see bench hold nothing
#
# Actions: ``go kitchen``, ``unlock study`` (with the key in hand), ``take apple``, ``take key``,
# ``put apple on desk``. Hands are never full. The key opens its door for good. Putting the object on a
# surface is final: on the right one the episode ends with reward 1, on a wrong one with 0. A key that is put
# down lies in the room.


#: Room names and the one surface each room has; all rooms lie around the hall.
ROOMS = {"hall": "bench", "kitchen": "table", "bedroom": "bed", "study": "desk", "bathroom": "sink"}
OBJECTS = ("apple", "book", "cup", "lamp", "vase", "pen", "coin", "hat")
_ROOM_WORDS = (
    "put", "the", "on", "exits", "locked", "see", "hold", "for", "nothing", "closed", "open", "key",
    "task", "done", "failed", "go", "unlock", "take",
)  # fmt: skip
HELD, DELIVERED, WRONG = -1, -2, -3


@final
@dataclass(frozen=True, slots=True)
class Layout:
    """One house and its task. Rooms are numbered, the hall is 0.

    ``locked`` is the room behind the door, ``key``, ``source`` and ``goal`` the rooms where the key lies, the
    object lies, and it belongs.
    """

    rooms: tuple[str, ...]
    start: int
    locked: int
    key: int
    thing: str
    source: int
    goal: int

    @classmethod
    def draw(cls, dice: Dice) -> Layout:
        """A random house in which the task can be done and needs the key."""
        rooms = ("hall", *dice.sample(tuple(ROOMS)[1:], 4))
        start = dice.below(len(rooms))
        # The door must not shut the agent in.
        locked = dice.choice([room for room in range(1, len(rooms)) if room != start])
        others = [room for room in range(len(rooms)) if room != locked]
        # Two draws decide nothing here: without them every house would be another one.
        dice.uniform()
        key, thing = dice.choice(others), dice.choice(OBJECTS)
        dice.uniform()
        other = dice.choice(others)
        source, goal = (other, locked) if dice.below(2) else (locked, other)
        return cls(rooms, start, locked, key, thing, source, goal)

    def to_json(self) -> Json:
        """Plain lists and dicts."""
        return {
            "rooms": list(self.rooms),
            "passages": [
                {"room": 0, "other": room, "colour": "" if room == self.locked else None}
                for room in range(1, len(self.rooms))
            ],
            "containers": [],
            "things": [["key", "room", self.key], [self.thing, "room", self.source]],
            "goals": [[self.thing, self.goal]],
            "start": self.start,
        }

    @classmethod
    def from_json(cls, data: Json) -> Layout:
        """Inverse of :meth:`to_json`; raises BadInput on anything else."""
        try:
            (locked,) = (p["other"] for p in data["passages"] if p["colour"] is not None)
            (_, _, key), (thing, _, source) = data["things"]
            ((_, goal),) = data["goals"]
            layout = cls(tuple(data["rooms"]), data["start"], locked, key, thing, source, goal)
            fine = layout.to_json() == data and set(layout.rooms) == set(ROOMS) and layout.rooms[0] == "hall"
            fine = fine and all(0 <= room < len(ROOMS) for room in (data["start"], key, source, goal))
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"not a household layout: {error!r}", where="household") from error
        if not fine:
            raise BadInput("the household layout contradicts itself", where="household")
        return layout


class House(NamedTuple):
    """Room of the agent, places of the key and of the object, whether the door is open (``(door,)``).

    A place is a room, or HELD, DELIVERED, WRONG. ``opened`` is always empty; it is part of the keys of states
    in trees that were recorded when larger houses had containers.
    """

    room: int
    things: tuple[int, ...]
    unlocked: tuple[int, ...] = ()
    opened: tuple[int, ...] = ()


@final
@dataclass(frozen=True)
class HouseGame:
    """The rules of one layout."""

    layout: Layout
    _mark: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_mark", digest(self.layout.to_json()))

    @property
    def begin(self) -> House:
        """The agent at the start with empty hands."""
        return House(self.layout.start, (self.layout.key, self.layout.source))

    def view(self, state: House) -> str:
        """Room, exits, what is seen, what is held."""
        reward = self.grade(state)
        if reward is not None:
            return "task done" if reward else "task failed"
        rooms, near, thing = self.layout.rooms, self._near(state), self.layout.thing
        exits = [rooms[room] for room in near if not self._shut(state, room)]
        locked = [rooms[room] for room in near if self._shut(state, room)]
        held = (("key", f"{thing} for {self._surface(self.layout.goal)}")[t] for t in self._at(state, HELD))
        parts = [
            rooms[state.room],
            "exits",
            *(exits or ["nothing"]),
            *(["locked", *locked] if locked else []),
        ]
        parts += ["see", self._surface(state.room), *(self._name(t) for t in self._at(state, state.room))]
        return " ".join([*parts, "hold", *(list(held) or ["nothing"])])

    def canonical(self, state: House) -> str:
        """Layout and state."""
        return f"house {self._mark} {tuple(state)}"

    def actions(self, state: House) -> tuple[str, ...]:
        """Going, unlocking, taking, putting, in this order."""
        if self.grade(state) is not None:
            return ()
        rooms, near = self.layout.rooms, self._near(state)
        unlock = [f"unlock {rooms[r]}" for r in near if self._shut(state, r) and state.things[0] == HELD]
        take = [f"take {self._name(t)}" for t in self._at(state, state.room)]
        put = [f"put {self._name(t)} on {self._surface(state.room)}" for t in self._at(state, HELD)]
        return (*self._ways(state), *unlock, *take, *put)

    def useful(self, state: House) -> tuple[str, ...]:
        """One action that every way to the goal needs and that can be done here, else every move.

        Hands are never full, so doing a needed thing where one stands never lengthens the way.
        """
        if self.grade(state) is not None:
            return ()
        key, thing = state.things
        locked, goal = self.layout.locked, self.layout.goal
        door = self._shut(state, locked) and locked in (goal, thing)
        if door and key == HELD and locked in self._near(state):
            return (f"unlock {self.layout.rooms[locked]}",)
        if thing == state.room:
            return (f"take {self.layout.thing}",)
        if door and key == state.room:
            return ("take key",)
        if thing == HELD and goal == state.room:
            return (f"put {self.layout.thing} on {self._surface(goal)}",)
        return self._ways(state)

    def act(self, state: House, action: str) -> House | None:
        """Carry out an admissible action."""
        if action not in self.actions(state):
            return None
        verb, _, rest = action.partition(" ")
        if verb == "go":
            return state._replace(room=self.layout.rooms.index(rest))
        key, thing = state.things
        if verb == "unlock":
            return state._replace(unlocked=(self.layout.locked - 1,))
        if rest.startswith("key"):
            return state._replace(things=(HELD if verb == "take" else state.room, thing))
        right = DELIVERED if self.layout.goal == state.room else WRONG
        return state._replace(things=(key, HELD if verb == "take" else right))

    def grade(self, state: House) -> float | None:
        """1 when the object is delivered, 0 when it was put in the wrong place."""
        return {DELIVERED: 1.0, WRONG: 0.0}.get(state.things[1])

    def save(self, state: House) -> Any:
        """The four parts as lists."""
        return [state.room, list(state.things), list(state.unlocked), list(state.opened)]

    def load(self, data: Any) -> House:
        """Inverse of :meth:`save`."""
        room, things, unlocked, opened = data
        state = House(int(room), *(tuple(int(n) for n in part) for part in (things, unlocked, opened)))
        if not 0 <= state.room < len(ROOMS) or len(state.things) != 2 or state.opened:
            raise ValueError(f"no state {data!r}")
        if not all(WRONG <= at < len(ROOMS) for at in state.things):
            raise ValueError(f"no place {data!r}")
        return state

    def _name(self, thing: int) -> str:
        return ("key", self.layout.thing)[thing]

    def _surface(self, room: int) -> str:
        return ROOMS[self.layout.rooms[room]]

    @staticmethod
    def _at(state: House, place: int) -> list[int]:
        """The things at a place: 0 is the key, 1 the object."""
        return [thing for thing, at in enumerate(state.things) if at == place]

    def _near(self, state: House) -> range:
        """The rooms next to the agent, open or not."""
        return range(1) if state.room else range(1, len(ROOMS))

    def _shut(self, state: House, room: int) -> bool:
        """Whether the way to a room next to the agent is locked."""
        return self.layout.locked in (room, state.room) and not state.unlocked

    def _ways(self, state: House) -> tuple[str, ...]:
        return tuple(f"go {self.layout.rooms[r]}" for r in self._near(state) if not self._shut(state, r))


@final
@dataclass(frozen=True)
class HouseFamily:
    """Houses of five rooms."""

    name = "household:2"
    version = "1"
    horizon = 16
    words = (*_ROOM_WORDS, *ROOMS, *ROOMS.values(), *OBJECTS)

    def draw(self, dice: Dice) -> Json:
        """A random layout."""
        return {"size": 2, "layout": Layout.draw(dice).to_json()}

    def prompt(self, data: Json) -> str:
        """What to put where."""
        layout = Layout.from_json(data["layout"])
        return f"put the {layout.thing} on the {ROOMS[layout.rooms[layout.goal]]}"

    def game(self, data: Json) -> HouseGame:
        """The house of a task."""
        need(data, ("size", "layout"), self.name)
        if data["size"] != 2:
            raise BadInput(f"this task is of household:{data['size']}", where=self.name)
        return HouseGame(Layout.from_json(data["layout"]))


# ``household:1``: take the key, then reach the goal, on a grid of cells.

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


def household_world(size: int = 2, slip: float = 0.0) -> GameWorld[Any]:
    """The household world of size 1 (the key-then-goal grid) or 2 (five rooms, one locked door).

    ``slip`` is the probability that an admissible action is replaced by a random admissible one.

    Raises:
        BadInput: no such size, or slip outside [0, 1].
    """
    if size not in (1, 2):
        raise BadInput(f"there is no household of size {size}", hint="sizes: 1 and 2")
    return GameWorld(GridFamily() if size == 1 else HouseFamily(), slip, f"slip={slip:g}" if slip else "")


def open_household(spec: Spec) -> GameWorld[Any]:
    """``household:SIZE``: rooms, a key and an object to deliver (2), or a grid (1); option slip."""
    size = spec.argument or "2"
    if not size.isdigit():
        raise BadInput(f"{size!r} is not a size", where="household", hint="sizes: 1 and 2")
    return household_world(int(size), **spec.take({"slip": (float, int)}))
