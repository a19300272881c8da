"""Layouts of houses: a tree of rooms with locked doors, drawn so that every task can be done."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from refork.errors import BadInput
from refork.types import Json
from refork.worlds.dice import Dice

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
