"""``household:2`` and larger: the rules of a house.

Prompt: ``put the apple on the desk`` (``... ; put the cup on the bed`` where there are two goals).
Observation: the room, the open and the locked rooms next to it, what is seen, what is held::

    hall exits kitchen bedroom bathroom locked study see bench hold nothing
    kitchen exits hall see table drawer closed key hold apple for desk

Actions: ``go kitchen``, ``unlock study`` (with the key in hand), ``take apple``, ``take key``, ``open
drawer``, ``put apple on desk``. Where there are several locked doors, doors and keys have colours:
``locked study red``, ``take red key``. Hands are never full. A key opens its door for good.
Putting an object of the goal on a surface is final: on the right one it is delivered, and the
last delivery ends the episode with reward 1; on a wrong one the task has failed and ends with 0.
Anything else that is put down lies in the room and can be taken again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

from refork.errors import BadInput
from refork.types import Json
from refork.worlds.dice import Dice, digest
from refork.worlds.game import need
from refork_testbed.worlds.household.layout import (
    COLOURS,
    CONTAINERS,
    OBJECTS,
    ROOMS,
    Layout,
    Size,
    draw_layout,
    key_name,
)

_WORDS = (
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
        return (*_WORDS, *rooms, *surfaces, *OBJECTS, *colours, *extra)

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
