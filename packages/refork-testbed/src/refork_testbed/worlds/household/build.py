"""The household world: the key-then-goal grid of size 1, and the sizes of the houses."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, final

from refork.errors import BadInput
from refork.types import Json
from refork.worlds.dice import Dice, digest
from refork.worlds.game import GameWorld, need
from refork.worlds.spec import Spec

# Layouts of houses: a tree of rooms with locked doors, drawn so that every task can be done.


#: Room names and the one surface each room has.
ROOMS = {
    "hall": "bench",
    "kitchen": "table",
    "bedroom": "bed",
    "study": "desk",
    "bathroom": "sink",
    "cellar": "crate",
    "garden": "swing",
    "attic": "rack",
    "pantry": "shelf",
    "garage": "workbench",
    "lounge": "sofa",
    "library": "lectern",
}
OBJECTS = ("apple", "book", "cup", "lamp", "vase", "pen", "coin", "hat")
COLOURS = ("red", "blue", "green")
CONTAINERS = ("drawer", "box", "chest", "basket", "cupboard")
_MOST_EXITS = 4


@dataclass(frozen=True, slots=True)
class Size:
    """How large a house is. ``star``: all rooms lie around the hall; else a random tree."""

    rooms: int
    doors: int
    containers: int
    objects: int
    goals: int
    horizon: int
    star: bool = False


@dataclass(frozen=True, slots=True)
class Passage:
    """A way between two rooms; ``colour`` names its lock ("" for the only one), None where it has none."""

    room: int
    other: int
    colour: str | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """One house and its task. Rooms are numbered; ``things`` are keys and objects with their place.

    A place is ``["room", r]`` or ``["container", c]``. ``goals`` pairs an object with a room, whose surface
    it belongs on.
    """

    rooms: tuple[str, ...]
    passages: tuple[Passage, ...]
    containers: tuple[tuple[str, int], ...]
    things: tuple[tuple[str, str, int], ...]
    goals: tuple[tuple[str, int], ...]
    start: int

    def to_json(self) -> Json:
        """Plain lists and dicts."""
        return {
            "rooms": list(self.rooms),
            "passages": [asdict(p) for p in self.passages],
            "containers": [list(c) for c in self.containers],
            "things": [list(t) for t in self.things],
            "goals": [list(g) for g in self.goals],
            "start": self.start,
        }

    @classmethod
    def from_json(cls, data: Json) -> Layout:
        """Inverse of :meth:`to_json`; raises BadInput on anything else."""
        try:
            layout = cls(
                rooms=tuple(str(r) for r in data["rooms"]),
                passages=tuple(Passage(**p) for p in data["passages"]),
                containers=tuple((str(n), int(r)) for n, r in data["containers"]),
                things=tuple((str(n), str(k), int(p)) for n, k, p in data["things"]),
                goals=tuple((str(n), int(r)) for n, r in data["goals"]),
                start=int(data["start"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"not a household layout: {error!r}", where="household") from error
        layout._check()
        return layout

    def _check(self) -> None:
        count = len(self.rooms)
        spots: list[Any] = [self.start, *(r for _, r in self.containers), *(r for _, r in self.goals)]
        spots += [end for p in self.passages for end in (p.room, p.other)]
        spots += [at for _, kind, at in self.things if kind == "room"]
        boxes = [at for _, kind, at in self.things if kind != "room"]
        names = {name for name, _, _ in self.things}
        fine = (
            all(0 <= spot < count for spot in spots)
            and all(0 <= box < len(self.containers) for box in boxes)
            and all(name in ROOMS for name in self.rooms)
            and all(goal in names for goal, _ in self.goals)
            and len(self.passages) == count - 1
        )
        if not fine:
            raise BadInput("the household layout contradicts itself", where="household")


def key_name(colour: str) -> str:
    """The key to the lock of a colour."""
    return f"{colour} key".strip()


def draw_layout(size: Size, dice: Dice) -> Layout:
    """A random house in which the task can be done and needs at least one locked door."""
    known = [room for room in ROOMS if room != "hall"][: max(4, size.rooms - 1)]
    names = ("hall", *dice.sample(known, size.rooms - 1))
    star = [Passage(0, room) for room in range(1, size.rooms)]
    passages = star if size.star else _tree(size.rooms, dice)
    start, locked = _locks(passages, size, dice)
    colours = dice.sample(COLOURS, len(locked)) if len(locked) > 1 else [""]
    marked = dict(zip(locked, colours, strict=True))
    passages = [Passage(p.room, p.other, marked.get(i)) for i, p in enumerate(passages)]
    boxes = dice.sample(CONTAINERS, size.containers)
    containers = tuple(zip(boxes, dice.sample(range(size.rooms), size.containers), strict=True))
    keys, behind = _keys(passages, start, marked, dice)
    objects, goals = _objects(size, behind, dice)
    things = tuple(_lay(name, room, containers, dice) for name, room in [*keys, *objects])
    return Layout(names, tuple(passages), containers, things, tuple(goals), start)


def _keys(
    passages: list[Passage], start: int, marked: dict[int, str], dice: Dice
) -> tuple[list[tuple[str, int]], set[int]]:
    """Keys with their rooms, and the rooms behind the last door.

    Keys are laid out in the order in which doors can be opened from the start, so no key is ever
    behind its own door.
    """
    closed = set(marked)
    reached, behind = _region(passages, start, closed), set[int]()
    keys = []
    while closed:
        ends = {i: (passages[i].room in reached, passages[i].other in reached) for i in sorted(closed)}
        door = dice.choice([i for i, (one, two) in ends.items() if one != two])
        keys.append((key_name(marked[door]), dice.choice(sorted(reached))))
        closed.remove(door)
        beyond = _region(passages, start, closed)
        reached, behind = beyond, beyond - reached
    return keys, behind


def _objects(size: Size, behind: set[int], dice: Dice) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Objects with their rooms, and goals; the first goal begins or ends behind the last door only."""
    rooms = range(size.rooms)
    objects: list[tuple[str, int]] = []
    goals: list[tuple[str, int]] = []
    for number, name in enumerate(dice.sample(OBJECTS, size.objects)):
        if number >= size.goals:
            objects.append((name, dice.below(size.rooms)))
            continue
        taken = {room for _, room in goals}
        one = dice.choice(sorted(behind)) if number == 0 else dice.below(size.rooms)
        two = dice.choice([r for r in rooms if r not in {one, *taken} and (number or r not in behind)])
        source, target = (two, one) if dice.below(2) and one not in taken else (one, two)
        objects.append((name, source))
        goals.append((name, target))
    return objects, goals


def _lay(name: str, room: int, containers: tuple[tuple[str, int], ...], dice: Dice) -> tuple[str, str, int]:
    """A thing in a room, or by even chance in the room's container."""
    inside = [i for i, (_, where) in enumerate(containers) if where == room]
    return (name, "container", inside[0]) if inside and dice.below(2) else (name, "room", room)


def _tree(rooms: int, dice: Dice) -> list[Passage]:
    """A random tree of rooms, grown from room 0, none with more than four exits."""
    exits = [0] * rooms
    passages = []
    for room in range(1, rooms):
        near = dice.choice([r for r in range(room) if exits[r] < _MOST_EXITS])
        passages.append(Passage(near, room))
        exits[near] += 1
        exits[room] += 1
    return passages


def _locks(passages: list[Passage], size: Size, dice: Dice) -> tuple[int, list[int]]:
    """A start room and the passages to lock, none of which shuts the start room in alone."""
    start = dice.below(size.rooms)
    near = [i for i, p in enumerate(passages) if start in (p.room, p.other)]
    options = [i for i in range(len(passages)) if len(near) > 1 or i not in near]
    return start, dice.sample(options, min(size.doors, len(options)))


def _region(passages: list[Passage], start: int, closed: set[int]) -> set[int]:
    """Rooms that can be reached without the closed passages."""
    reached = {start}
    grew = True
    while grew:
        grew = False
        for i, p in enumerate(passages):
            if i not in closed and (p.room in reached) != (p.other in reached):
                reached |= {p.room, p.other}
                grew = True
    return reached


# ``household:2`` and larger: the rules of a house.
#
# Prompt: ``put the apple on the desk`` (``... ; put the cup on the bed`` where there are two goals).
# Observation: the room, the open and the locked rooms next to it, what is seen, what is held::
#
#     hall exits kitchen bedroom bathroom locked study see bench hold nothing
#     kitchen exits hall see table drawer closed key hold apple for desk
#
# Actions: ``go kitchen``, ``unlock study`` (with the key in hand), ``take apple``, ``take key``, ``open
# drawer``, ``put apple on desk``. Where there are several locked doors, doors and keys have colours:
# ``locked study red``, ``take red key``. Hands are never full. A key opens its door for good. Putting an
# object of the goal on a surface is final: on the right one it is delivered, and the last delivery ends the
# episode with reward 1; on a wrong one the task has failed and ends with 0. Anything else that is put down
# lies in the room and can be taken again.


_ROOM_WORDS = (
    "put", "the", "on", "exits", "locked", "see", "hold", "for", "nothing", "closed", "open", "key",
    "task", "done", "failed", "go", "unlock", "take",
)  # fmt: skip

HELD, DELIVERED, WRONG = -1, -2, -3
_BOX = 100


class House(NamedTuple):
    """Room of the agent, place of each thing, unlocked passages, open containers (sorted tuples).

    A thing's place is a room number, 100 + a container's number, or HELD, DELIVERED, WRONG.
    """

    room: int
    things: tuple[int, ...]
    unlocked: tuple[int, ...] = ()
    opened: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Exit:
    name: str
    other: int
    passage: int
    colour: str | None


@final
@dataclass(frozen=True)
class HouseGame:
    """The rules of one layout."""

    layout: Layout
    _exits: tuple[tuple[_Exit, ...], ...] = field(init=False, repr=False)
    _goals: dict[int, int] = field(init=False, repr=False)
    _mark: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        exits: list[list[_Exit]] = [[] for _ in self.layout.rooms]
        for i, p in enumerate(self.layout.passages):
            for here, there in ((p.room, p.other), (p.other, p.room)):
                exits[here].append(_Exit(self.layout.rooms[there], there, i, p.colour))
        names = [name for name, _, _ in self.layout.things]
        object.__setattr__(self, "_exits", tuple(tuple(row) for row in exits))
        object.__setattr__(self, "_goals", {names.index(n): room for n, room in self.layout.goals})
        object.__setattr__(self, "_mark", digest(self.layout.to_json()))

    @property
    def begin(self) -> House:
        """The agent at the start with empty hands."""
        places = (at if kind == "room" else _BOX + at for _, kind, at in self.layout.things)
        return House(self.layout.start, tuple(places))

    def view(self, state: House) -> str:
        """Room, exits, what is seen, what is held."""
        reward = self.grade(state)
        if reward is not None:
            return "task done" if reward else "task failed"
        near = self._exits[state.room]
        exits = [e.name for e in near if not self._shut(state, e)]
        locked = [f"{e.name} {e.colour}".strip() for e in near if self._shut(state, e)]
        seen = [self._surface(state.room)]
        for c, (name, where) in enumerate(self.layout.containers):
            if where == state.room:
                seen.append(f"{name} {'open' if c in state.opened else 'closed'}")
        seen += [self._name(t) for t in self._reachable(state)]
        held = [self._held(t) for t, at in enumerate(state.things) if at == HELD]
        parts = [self.layout.rooms[state.room], "exits", *(exits or ["nothing"])]
        parts += ["locked", *locked] if locked else []
        return " ".join([*parts, "see", *seen, "hold", *(held or ["nothing"])])

    def canonical(self, state: House) -> str:
        """Layout and state."""
        return f"house {self._mark} {tuple(state)}"

    def actions(self, state: House) -> tuple[str, ...]:
        """Going, unlocking, taking, opening, putting, in this order."""
        if self.grade(state) is not None:
            return ()
        exits = self._exits[state.room]
        go = [f"go {e.name}" for e in exits if not self._shut(state, e)]
        unlock = [f"unlock {e.name}" for e in exits if self._shut(state, e) and self._holds_key(state, e)]
        take = [f"take {self._name(t)}" for t in self._reachable(state)]
        boxes = [
            f"open {name}"
            for c, (name, room) in enumerate(self.layout.containers)
            if room == state.room and c not in state.opened
        ]
        surface = self._surface(state.room)
        put = [f"put {self._name(t)} on {surface}" for t, at in enumerate(state.things) if at == HELD]
        return (*go, *unlock, *take, *boxes, *put)

    def useful(self, state: House) -> tuple[str, ...]:
        """One action that every way to the goal needs and that can be done here, else every move.

        Rooms form a tree, so which doors and keys are needed is certain; hands are never full, so
        doing a needed thing where one stands never lengthens the way.
        """
        if self.grade(state) is not None:
            return ()
        doors, things = self._needed(state)
        for exit_ in self._exits[state.room]:
            if exit_.passage in doors and self._holds_key(state, exit_):
                return (f"unlock {exit_.name}",)
        for t in things:
            if state.things[t] == state.room:
                return (f"take {self._name(t)}",)
            box = state.things[t] - _BOX
            if box >= 0 and self.layout.containers[box][1] == state.room:
                verb = (
                    "take " + self._name(t)
                    if box in state.opened
                    else "open " + self.layout.containers[box][0]
                )
                return (verb,)
        for t, room in self._goals.items():
            if state.things[t] == HELD and room == state.room:
                return (f"put {self._name(t)} on {self._surface(room)}",)
        return tuple(f"go {e.name}" for e in self._exits[state.room] if not self._shut(state, e))

    def act(self, state: House, action: str) -> House | None:
        """Carry out an admissible action."""
        if action not in self.actions(state):
            return None
        verb, _, rest = action.partition(" ")
        exits = {e.name: e for e in self._exits[state.room]}
        match verb:
            case "go":
                return state._replace(room=exits[rest].other)
            case "unlock":
                unlocked = tuple(sorted({*state.unlocked, exits[rest].passage}))
                return state._replace(unlocked=unlocked)
            case "open":
                names = [name for name, _ in self.layout.containers]
                return state._replace(opened=tuple(sorted({*state.opened, names.index(rest)})))
            case "take":
                return self._move(state, rest, HELD)
        return self._put(state, rest.partition(" on ")[0])

    def grade(self, state: House) -> float | None:
        """1 when all is delivered, 0 when something was put in the wrong place."""
        if WRONG in state.things:
            return 0.0
        return 1.0 if all(state.things[t] == DELIVERED for t in self._goals) else None

    def save(self, state: House) -> Any:
        """The four parts as lists."""
        return [state.room, list(state.things), list(state.unlocked), list(state.opened)]

    def load(self, data: Any) -> House:
        """Inverse of :meth:`save`."""
        room, things, unlocked, opened = data
        state = House(int(room), *(tuple(int(n) for n in part) for part in (things, unlocked, opened)))
        if not 0 <= state.room < len(self.layout.rooms) or len(state.things) != len(self.layout.things):
            raise ValueError(f"no state {data!r}")
        boxes = range(_BOX, _BOX + len(self.layout.containers))
        if not all(WRONG <= at < len(self.layout.rooms) or at in boxes for at in state.things):
            raise ValueError(f"no place {data!r}")
        return state

    def _name(self, thing: int) -> str:
        return self.layout.things[thing][0]

    def _held(self, thing: int) -> str:
        """A held thing, and where it belongs if it is part of the task."""
        name = self._name(thing)
        return f"{name} for {self._surface(self._goals[thing])}" if thing in self._goals else name

    def _surface(self, room: int) -> str:
        return ROOMS[self.layout.rooms[room]]

    @staticmethod
    def _shut(state: House, exit_: _Exit) -> bool:
        return exit_.colour is not None and exit_.passage not in state.unlocked

    def _key(self, colour: str) -> int:
        return next((i for i, (name, _, _) in enumerate(self.layout.things) if name == key_name(colour)), -1)

    def _holds_key(self, state: House, exit_: _Exit) -> bool:
        key = -1 if exit_.colour is None else self._key(exit_.colour)
        return key >= 0 and state.things[key] == HELD

    def _reachable(self, state: House) -> list[int]:
        """Things that lie in the room or in its open containers."""
        spots = {state.room} | {_BOX + c for c in state.opened if self.layout.containers[c][1] == state.room}
        return [t for t, at in enumerate(state.things) if at in spots]

    def _move(self, state: House, name: str, place: int) -> House:
        thing = next(t for t, (n, _, _) in enumerate(self.layout.things) if n == name)
        return state._replace(things=(*state.things[:thing], place, *state.things[thing + 1 :]))

    def _put(self, state: House, name: str) -> House:
        thing = next(t for t, (n, _, _) in enumerate(self.layout.things) if n == name)
        if thing not in self._goals:
            return self._move(state, name, state.room)
        return self._move(state, name, DELIVERED if self._goals[thing] == state.room else WRONG)

    def _path(self, start: int, end: int) -> list[int]:
        """Passages on the only way between two rooms."""
        trail: dict[int, list[int]] = {start: []}
        queue = [start]
        for room in queue:
            for e in self._exits[room]:
                if e.other not in trail:
                    trail[e.other] = [*trail[room], e.passage]
                    queue.append(e.other)
        return trail[end]

    def _needed(self, state: House) -> tuple[set[int], list[int]]:
        """Locked passages and lying things without which the goals cannot be reached from here."""
        doors: set[int] = set()
        things: list[int] = []
        rooms = [room for t, room in self._goals.items() if state.things[t] != DELIVERED]
        wanted = [t for t in self._goals if state.things[t] != DELIVERED]
        while rooms or wanted:
            if wanted:
                thing = wanted.pop()
                if thing in things or state.things[thing] == HELD:
                    continue
                things.append(thing)
                at = state.things[thing]
                rooms.append(at if at < _BOX else self.layout.containers[at - _BOX][1])
                continue
            for i in self._path(state.room, rooms.pop()):
                colour = self.layout.passages[i].colour
                if colour is not None and i not in state.unlocked and i not in doors:
                    doors.add(i)
                    key = self._key(colour)
                    wanted += [key] if key >= 0 else []
        return doors, things


@final
@dataclass(frozen=True)
class HouseFamily:
    """Houses of one size."""

    number: int
    size: Size

    version = "1"

    @property
    def name(self) -> str:
        """``household:2`` and so on."""
        return f"household:{self.number}"

    @property
    def horizon(self) -> int:
        """Turns an episode may take."""
        return self.size.horizon

    @property
    def words(self) -> tuple[str, ...]:
        """Every word of this size."""
        rooms = list(ROOMS)[: max(5, self.size.rooms)]
        surfaces = [ROOMS[room] for room in rooms]
        extra = CONTAINERS if self.size.containers else ()
        colours = COLOURS if self.size.doors > 1 else ()
        return (*_ROOM_WORDS, *rooms, *surfaces, *OBJECTS, *colours, *extra)

    def draw(self, dice: Dice) -> Json:
        """A random layout."""
        return {"size": self.number, "layout": draw_layout(self.size, dice).to_json()}

    def prompt(self, data: Json) -> str:
        """What to put where."""
        layout = Layout.from_json(data["layout"])
        return " ; ".join(f"put the {name} on the {ROOMS[layout.rooms[room]]}" for name, room in layout.goals)

    def game(self, data: Json) -> HouseGame:
        """The house of a task."""
        need(data, ("size", "layout"), self.name)
        if data["size"] != self.number:
            raise BadInput(f"this task is of household:{data['size']}", where=self.name)
        return HouseGame(Layout.from_json(data["layout"]))


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
