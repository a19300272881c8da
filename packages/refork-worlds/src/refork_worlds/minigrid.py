"""``minigrid:ENV-ID?setting=value``: MiniGrid and BabyAI environments in words.

Actions are ``left right forward pickup drop toggle done`` (some environments have only the first three). The
prompt is the mission; an observation tells every cell in view (see :func:`tell_view`). What is no action,
and an action that changes nothing, is answered ``nothing happens ; ...`` and takes a turn, as all do.

The reward at the end is 1 where the mission was accomplished, else 0; with ``reward=own`` it is the
environment's, which is less the longer it took and in one family -1. ``turns`` limits an episode (default:
the environment's own limit); every other option is a setting of the environment.

Tasks are layouts: a reset seed whose layout and mission no earlier task has, in the split that the layout
decides. An environment with few layouts runs out of tasks. The chance of turn t (moving obstacles) is a pure
function of the episode's seed and t. A snapshot is the environment's whole state as JSON.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from enum import Enum
from importlib.metadata import version
from typing import Any, Final, Literal, final

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput, CannotDo, Mismatch, MissingExtra
from refork.sampling.noise import stream_of
from refork.types import Json
from refork.worlds.base import Observation, Split, Task
from refork.worlds.dice import Dice, digest, split_of
from refork.worlds.game import clean, need
from refork.worlds.spec import Spec

#: Draws in a row without a new layout after which an environment counts as exhausted.
_PATIENCE = 200
#: Objects that a BabyAI instruction can send an agent to, at most: two pairs of actions, each on two objects.
_ERRANDS = 8
_BAD_SNAPSHOT = (ValueError, TypeError, KeyError, IndexError, AttributeError)


def _library() -> Any:
    try:
        import gymnasium
        import minigrid  # noqa: F401  (importing it registers its environments)
    except ImportError:
        raise MissingExtra("minigrid", "minigrid") from None
    return gymnasium


@final
class MiniGridEpisode:
    """One live environment."""

    def __init__(
        self, world: MiniGridWorld, task: Task, seed: int, env: Any, observation: Observation
    ) -> None:
        self.task = task
        self.env = env
        self._world = world
        self._seed = seed
        self._turn = 0
        self._first = self._seen = observation

    @property
    def first(self) -> Observation:
        """What reset showed."""
        return self._first

    @property
    def done(self) -> bool:
        """Whether the episode is over."""
        return self._seen.done

    def step(self, action: str) -> Observation:
        """Act and see; after the end the last answer is given again."""
        if self.done:
            return replace(self._seen, info={})
        self._turn += 1
        said, before = clean(action), self._seen.state_key
        known = said in self._world.actions
        own, over = self._move(said) if known else self._pass()
        text, key = look(self.env)
        if not known or (key == before and not over):
            text = f"nothing happens ; {text}"
        done = over or self._turn >= self._limit
        info: Json = {} if known else {"invalid": True}
        reward = (own if self._world.reward == "own" else float(own > 0)) if done else None
        self._seen = Observation(text, key, done, reward, info | ({"own_reward": own} if done else {}))
        return self._seen

    def snapshot(self) -> bytes | None:
        """The whole state as JSON; None where an environment of a third party cannot be saved."""
        try:
            state = save_state(self.env)
        except CannotDo:
            return None
        record = {
            "task": self.task.id,
            "seed": self._seed,
            "turn": self._turn,
            "first": asdict(self._first),
            "seen": asdict(self._seen),
            "state": state,
        }
        return json.dumps(record, sort_keys=True, separators=(",", ":")).encode()

    def load(self, snapshot: bytes) -> None:
        """Go to the state of a snapshot; raises BadInput where it is not one of this task."""
        try:
            record = json.loads(snapshot)
            if record["task"] != self.task.id:
                raise ValueError(f"it is of task {record['task']!r}")
            self._seed, self._turn = int(record["seed"]), int(record["turn"])
            self._first, self._seen = (Observation(**record[name]) for name in ("first", "seen"))
            load_state(self.env, record["state"])
        except _BAD_SNAPSHOT as error:
            raise BadInput(f"not a snapshot of {self._world.name}: {error}", where=self.task.id) from error

    def reseed(self, seed: int) -> None:
        """Draw the environment's chance anew from here on."""
        self._seed = seed

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    @property
    def _limit(self) -> int:
        return min(self._world.max_turns, int(self.env.max_steps))

    def _move(self, said: str) -> tuple[float, bool]:
        """Let the environment act; its reward, and whether it ended."""
        bits = np.random.Philox(key=stream_of("minigrid", self._seed, self._turn))
        self.env.np_random = np.random.Generator(bits)
        # That it was cut off is left aside: the limit is kept here.
        _, reward, ended, _, _ = self.env.step(self.env.actions[said])
        return float(reward), bool(ended)

    def _pass(self) -> tuple[float, bool]:
        """A turn that the environment does not hear of, but counts."""
        self.env.step_count += 1
        return 0.0, False


def look(env: Any) -> tuple[str, str]:
    """What the agent sees, in words, and the key of the state; where that cannot be told, of the text."""
    seen = env.gen_obs()
    text = tell_view(seen["image"], int(seen["direction"]), env.carrying)
    try:
        return text, state_digest(env)
    except CannotDo:
        return text, digest("minigrid", str(env.spec), env.mission, text)


@final
@dataclass(frozen=True)
class MiniGridWorld:
    """One environment under one configuration."""

    env: str
    settings: Json
    actions: tuple[str, ...]
    max_turns: int
    deterministic: bool
    reward: Literal["success", "own"] = "success"
    query: str = ""

    @property
    def name(self) -> str:
        """The specification that opens this world."""
        return f"minigrid:{self.env}" + (f"?{self.query}" if self.query else "")

    @property
    def version(self) -> str:
        """This adapter's version and the library's."""
        return f"1+minigrid-{version('minigrid')}"

    def tasks(self, split: Split, count: int, seed: int = 0) -> list[Task]:
        """``count`` different layouts; the layout alone decides the split.

        Raises:
            BadInput: the environment does not have that many different layouts.
        """
        dice, found = Dice("minigrid", self.env, seed), dict[str, Task]()
        env, vain = make_env(self.env, self.settings), 0
        while len(found) < count:
            number = dice.below(2**31)
            mark = begin(env, number).state_key or ""
            vain += 1
            if mark not in found and split_of(mark) == split:
                found[mark], vain = self._task(split, env.mission, number, mark), 0
            if vain > _PATIENCE:
                raise BadInput(
                    f"found only {len(found)} different {split} layouts, not {count}",
                    where=self.name,
                    hint="ask for fewer tasks, the other split, or an environment with random layouts",
                )
        env.close()
        return list(found.values())

    def start(self, task: Task, seed: int) -> MiniGridEpisode:
        """Begin an episode; ``seed`` decides the environment's chance after the reset.

        Raises:
            BadInput: the task is of another environment.
            Mismatch: this version of the library, or these settings, lay it out otherwise.
        """
        need(task.data, ("env", "reset_seed", "layout"), self.name)
        if task.data["env"] != self.env:
            raise BadInput(f"this task is of {task.data['env']}", where=self.name)
        env = make_env(self.env, self.settings)
        seen = begin(env, int(task.data["reset_seed"]))
        if seen.state_key != task.data["layout"]:
            raise Mismatch(
                "the reset seed now gives another layout than the task's",
                where=f"task {task.id}",
                hint="use the version of minigrid and the settings that the task was made with",
            )
        _remember(self, task, seen.text)
        return MiniGridEpisode(self, task, seed, env, seen)

    def restore(self, task: Task, snapshot: bytes) -> MiniGridEpisode:
        """An episode in the state of a snapshot; raises BadInput where it is not one of this task."""
        need(task.data, ("env", "reset_seed", "layout"), self.name)
        env = make_env(self.env, self.settings)
        episode = MiniGridEpisode(self, task, 0, env, Observation(""))
        episode.load(snapshot)
        _remember(self, task, episode.first.text)
        return episode

    def _task(self, split: Split, mission: str, number: int, mark: str) -> Task:
        return Task(
            id=f"minigrid:{self.env}/{mark[:16]}",
            world=self.name,
            split=split,
            prompt=f"{mission} ; actions {' '.join(self.actions)}",
            data={"env": self.env, "reset_seed": number, "layout": mark},
        )


#: Tasks that this process has started, by the text that a policy reads first.
_STARTED: OrderedDict[str, list[tuple[MiniGridWorld, Task]]] = OrderedDict()
_REMEMBERED = 4096


def _remember(world: MiniGridWorld, task: Task, first: str) -> None:
    known = _STARTED.setdefault(f"{task.prompt}\n{first}", [])
    if (world, task) not in known:
        known.append((world, task))
    if len(_STARTED) > _REMEMBERED:
        _STARTED.popitem(last=False)


def started(opening: str) -> list[tuple[MiniGridWorld, Task]]:
    """Tasks that this process has started whose prompt and first observation read so."""
    return list(_STARTED.get(opening, ()))


def begin(env: Any, seed: int) -> Observation:
    """Reset an environment and see; BabyAI prints the missions that it rejects, which is swallowed."""
    with contextlib.redirect_stdout(io.StringIO()):
        env.reset(seed=seed)
    return Observation(*look(env))


@contextlib.contextmanager
def _refusals(env: str) -> Iterator[None]:
    """What the library raises at an id, a setting or a missing package, in our words."""
    library = _library()
    try:
        yield
    except library.error.DependencyNotInstalled as error:
        raise CannotDo(f"{env} needs another package: {error}") from error
    except (library.error.Error, TypeError, ValueError, KeyError, AssertionError) as error:
        raise BadInput(
            f"minigrid cannot make {env!r}: {error}", hint="gymnasium.pprint_registry()"
        ) from error


def make_env(env: str, settings: Json) -> Any:
    """A MiniGrid environment without wrappers.

    Raises:
        BadInput: there is none of this id, or it refuses the settings.
        CannotDo: it needs another package.
        MissingExtra: minigrid is not installed.
    """
    library = _library()
    if not env.startswith(("MiniGrid-", "BabyAI-")) and env not in library.registry:
        raise BadInput(f"there is no environment {env!r}", hint="for example minigrid:BabyAI-GoToLocal-v0")
    with _refusals(env), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        made = library.make(env, disable_env_checker=True, **settings).unwrapped
    from minigrid.minigrid_env import MiniGridEnv

    if not isinstance(made, MiniGridEnv):
        raise BadInput(f"{env} is no MiniGrid environment", hint=f"gymnasium:{env}")
    return made


def _most_turns(env: Any) -> int:
    """The environment's limit; where a BabyAI mission decides it, the largest that one can give."""
    if getattr(env, "fixed_max_steps", True):
        return int(env.max_steps)
    return _ERRANDS * int(env.room_size) ** 2 * int(env.num_rows) * int(env.num_cols)


def _certain(env: Any) -> bool:
    """Whether nothing is left to chance after the reset; what others wrote is not known."""
    kinds = {kind.__name__ for kind in type(env).__mro__}
    return type(env).__module__.startswith("minigrid.") and "DynamicObstaclesEnv" not in kinds


def open_minigrid(spec: Spec) -> MiniGridWorld:
    """``minigrid:ENV-ID``: any MiniGrid or BabyAI world in words (its settings as options; turns, reward).

    Raises:
        BadInput: an unknown environment or setting.
        CannotDo: the environment needs another package.
        MissingExtra: minigrid is not installed.
    """
    options = dict(spec.options)
    turns, reward = options.pop("turns", None), options.pop("reward", "success")
    if turns is not None and (not isinstance(turns, int) or isinstance(turns, bool) or turns < 1):
        raise BadInput(f"turns is {turns!r}; it must be at least 1", where=spec.name)
    if reward not in ("success", "own"):
        raise BadInput(f"reward cannot be {reward!r}", where=spec.name, hint="reward=success or reward=own")
    for name, instead in {"render_mode": "nothing is drawn", "max_steps": "use turns"}.items():
        if name in options:
            raise BadInput(f"{name} is not an option: {instead}", where=spec.name)
    env = make_env(spec.argument, options)
    with _refusals(spec.argument):
        begin(env, 0)
    # Some environments have fewer actions than there are names.
    names = tuple(action.name for action in env.actions)[: int(env.action_space.n)]
    limit = turns or _most_turns(env)
    env.close()
    return MiniGridWorld(
        spec.argument, options, names, limit, _certain(env), reward, spec.query,
    )  # fmt: skip


# The whole state of a MiniGrid environment as JSON: every attribute, every object, and who shares what.
#
# Missions refer to the very objects that stand in the grid, so the state is a graph. It is written as a
# table of its mutable parts, with references by number. Reading it back is harmless: objects are made empty
# and filled, and only those of classes in the environment's own modules. What cannot be written (a third
# party's attribute of another kind) raises :class:`CannotDo`.


#: Attributes that making the environment sets and nothing changes, or that are replaced before every step.
_MADE = frozenset(
    {
        "action_space",
        "observation_space",
        "actions",
        "spec",
        "window",
        "clock",
        "_np_random",
        "_np_random_seed",
    }
)
_PLAIN = frozenset({type(None), bool, int, float, str})
_WALL = "#"
#: What a mission of two parts knows of them: False at first, then what was last said of it.
_TRIED = ("a_done", "b_done")


def save_state(env: Any) -> Json:
    """The state of an environment (unwrapped): ``{"env": {...}, "parts": [...]}``.

    Raises:
        CannotDo: an attribute holds what cannot be written.
    """
    writer = _Writer(env)
    root = {key: writer.write(value) for key, value in sorted(vars(env).items()) if key not in _MADE}
    return {"env": root, "parts": writer.parts}


def state_digest(env: Any) -> str:
    """A digest of what decides how the episode goes on, but for the turns that are left.

    Numbers count by their value alone, and a part of a mission that nobody has tried yet (False) as one that
    is not accomplished: so the way to a state leaves no trace in its digest.
    """
    writer = _Writer(env, plain=True)
    kept = {key: value for key, value in sorted(vars(env).items()) if key not in _MADE | {"step_count"}}
    root = {key: writer.write(value) for key, value in kept.items()}
    return digest("minigrid", root, writer.parts)


def load_state(env: Any, state: Json) -> None:
    """Bring a newly made environment to a saved state.

    Raises:
        ValueError, TypeError, KeyError, IndexError, AttributeError: this is no such state.
    """
    reader = _Reader(env, state["parts"])
    attributes = {str(key): reader.read(value) for key, value in state["env"].items() if key not in _MADE}
    vars(env).update(attributes)


def _modules(env: Any) -> frozenset[str]:
    """Modules whose classes a state may name beside the package's own: those that define the environment."""
    from minigrid.minigrid_env import MiniGridEnv

    return frozenset(kind.__module__ for kind in type(env).__mro__ if issubclass(kind, MiniGridEnv))


def _own(module: str, modules: frozenset[str]) -> bool:
    return module in modules or module.partition(".")[0] == "minigrid"


def _is_wall(value: Any) -> bool:
    """Whether it is a wall like any other; nothing can be done to one, so it has no identity."""
    usual = {"type": "wall", "color": "grey", "contains": None, "init_pos": None, "cur_pos": None}
    return type(value).__name__ == "Wall" and vars(value) == usual


def _python(value: Any) -> Any:
    """A number, or the numbers of an array as nested tuples."""
    plain = value.tolist()
    return _nested(plain) if isinstance(plain, list) else plain


def _nested(items: list[Any]) -> tuple[Any, ...]:
    return tuple(_nested(item) if isinstance(item, list) else item for item in items)


@final
class _Writer:
    def __init__(self, env: Any, *, plain: bool = False) -> None:
        self.parts: list[Any] = []
        self._plain = plain
        self._env = env
        self._modules = _modules(env)
        self._known: dict[int, int] = {}
        self._alive: list[Any] = []  # an id is a name only while its object lives

    def write(self, value: Any) -> Any:
        if type(value) in _PLAIN:
            return value
        if isinstance(value, Enum):
            return ["enum", self._class(type(value)), value.name]
        if self._plain and isinstance(value, (np.generic, np.ndarray)):
            return self.write(_python(value))
        if isinstance(value, np.generic):
            return ["scalar", value.dtype.str, value.item()]
        if value is self._env:
            return ["self"]
        if isinstance(value, tuple):
            return ["tuple", *map(self.write, value)]
        if isinstance(value, type):
            return ["class", self._class(value)]
        if _is_wall(value):
            return [_WALL]
        return ["part", self._part(value)]

    def _part(self, value: Any) -> int:
        if id(value) in self._known:
            return self._known[id(value)]
        number = self._known[id(value)] = len(self.parts)
        self._alive.append(value)
        self.parts.append(None)  # its place, before what it refers to asks for one
        self.parts[number] = self._body(value)
        return number

    def _body(self, value: Any) -> list[Any]:
        match value:
            case list():
                return ["list", [self.write(item) for item in value]]
            case dict():
                return ["dict", [[self.write(key), self.write(item)] for key, item in value.items()]]
            case set():
                # A set has no order of its own, and equal states must give equal texts.
                return ["set", [self.write(item) for item in sorted(value, key=repr)]]
            case np.ndarray() if value.dtype.kind in "biuf":
                return ["array", value.dtype.str, list(value.shape), value.reshape(-1).tolist()]
        name = self._class(type(value))
        body = getattr(value, "__dict__", None)
        if body is None:
            raise CannotDo(f"a {name} has no attributes to save", where="minigrid")
        if self._plain:
            body = {
                key: "continue" if key in _TRIED and item is False else item for key, item in body.items()
            }
        return ["object", name, {key: self.write(item) for key, item in sorted(body.items())}]

    def _class(self, kind: type) -> str:
        if not _own(kind.__module__, self._modules):
            raise CannotDo(f"a {kind.__name__} cannot be saved", where=type(self._env).__name__)
        return f"{kind.__module__}:{kind.__qualname__}"


@final
class _Reader:
    def __init__(self, env: Any, parts: list[Any]) -> None:
        self._env = env
        self._modules = _modules(env)
        # All are made before any is filled: they refer to each other in circles.
        self._made = [self._empty(part) for part in parts]
        for part, made in zip(parts, self._made, strict=True):
            self._fill(part, made)

    def read(self, value: Any) -> Any:
        if not isinstance(value, list):
            if type(value) in _PLAIN:
                return value
            raise ValueError(f"{value!r} is no part of a state")
        match value:
            case ["enum", name, str(member)] if issubclass(kind := self._class(name), Enum):
                return kind[member]
            case ["scalar", kind, number]:
                return np.dtype(kind).type(number)
            case ["self"]:
                return self._env
            case ["tuple", *items]:
                return tuple(map(self.read, items))
            case ["class", name]:
                return self._class(name)
            case ["#"]:
                return self._class("minigrid.core.world_object:Wall")()
            case ["part", int(number)] if number >= 0:
                return self._made[number]
        raise ValueError(f"{value!r} is no part of a state")

    def _empty(self, part: Any) -> Any:
        match part:
            case ["list", list()]:
                return []
            case ["dict", list()]:
                return {}
            case ["set", list()]:
                return set()
            case ["array", str(kind), list(shape), list(items)] if np.dtype(kind).kind in "biuf":
                return np.array(items, dtype=kind).reshape(shape)
            case ["object", name, dict()]:
                kind = self._class(name)
                return kind.__new__(kind)
        raise ValueError(f"{part!r} is no part of a state")

    def _fill(self, part: Any, made: Any) -> None:
        match part:
            case ["list", items]:
                made.extend(map(self.read, items))
            case ["dict", pairs]:
                made.update((self.read(key), self.read(item)) for key, item in pairs)
            case ["set", items]:
                made.update(map(self.read, items))
            case ["object", _, body]:
                vars(made).update({str(key): self.read(item) for key, item in body.items()})

    def _class(self, name: Any) -> Any:
        module, _, path = str(name).partition(":")
        # Only what a module itself defines: a path could lead on through attributes to anything.
        if not _own(module, self._modules) or module not in sys.modules or "." in path:
            raise ValueError(f"{name!r} is no class of this environment")
        kind = getattr(sys.modules[module], path)
        if not isinstance(kind, type) or kind.__module__ != module:
            raise ValueError(f"{name!r} is no class of that module")
        return kind


# What a MiniGrid agent sees, in words: every visible cell, and nothing else.
#
# ``facing east ; hold nothing ; red door locked ahead 3 ; wall ahead 0 to 5 left 1 ; unseen ahead 6``
#
# Places are counted from the agent: ``ahead`` in the direction it faces, then ``left`` or ``right`` of that.
# A cell that is in view and not named is empty. Neighbouring walls, lava, floor and unseen cells are told as
# rectangles, other objects one by one. The text and the environment's own picture say the same: each can be
# computed from the other.


FACING: Final = ("east", "south", "west", "north")
#: Told as rectangles: what they are made of has no edges.
_SPREAD: Final = ("wall", "lava", "floor", "unseen")
_USUAL: Final = {"wall": "grey", "goal": "green", "lava": "red"}
_DOOR: Final = ("open", "closed", "locked")

#: Steps ahead, and to the right (negative: to the left).
Cell = tuple[int, int]


def tell_view(image: NDArray[Any], direction: int, carried: Any) -> str:
    """A view in words; ``image`` [side, side, 3] is the environment's, ``carried`` an object or None."""
    from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT

    side = image.shape[0]
    cells: dict[str, set[Cell]] = {}
    for across in range(side):
        for row in range(side):
            kind, colour, state = (int(n) for n in image[across, row])
            place = (side - 1 - row, across - side // 2)
            name = IDX_TO_OBJECT[kind]
            if place != (0, 0) and name != "empty":
                cells.setdefault(_named(name, IDX_TO_COLOR[colour], state), set()).add(place)
    held = "nothing" if carried is None else f"{carried.color} {carried.type}"
    spread = [name for name in cells if name.split(" ")[-1] in _SPREAD]
    single = sorted((place, name) for name, found in cells.items() if name not in spread for place in found)
    parts = [f"facing {FACING[int(direction)]}", f"hold {held}"]
    parts += [f"{name} {_where(place, place)}" for place, name in single]
    for name in sorted(spread, key=lambda name: (name == "unseen", name)):
        parts += [f"{name} {_where(*corners)}" for corners in rectangles(cells[name])]
    return " ; ".join(parts)


def _named(kind: str, colour: str, state: int) -> str:
    if kind == "unseen" or _USUAL.get(kind) == colour:
        return kind
    return f"{colour} {kind} {_DOOR[state]}" if kind == "door" else f"{colour} {kind}"


def rectangles(cells: set[Cell]) -> Iterator[tuple[Cell, Cell]]:
    """Disjoint rectangles that cover cells, nearest first: nearest left and farthest right corner of each."""
    left = set(cells)
    while left:
        start = min(left)
        found = max((_grown(left, start, first) for first in (0, 1)), key=_area)
        left -= set(_inside(*found))
        yield found


def _grown(cells: set[Cell], start: Cell, first: int) -> tuple[Cell, Cell]:
    """The rectangle from a corner that grows as far as it can ahead (0) or right (1), then the other way."""
    end = start
    for axis in (first, 1 - first):
        while True:
            wider = (end[0] + (axis == 0), end[1] + (axis == 1))
            if not cells.issuperset(_inside(start, wider)):
                break
            end = wider
    return start, end


def _inside(start: Cell, end: Cell) -> list[Cell]:
    return [(a, r) for a in range(start[0], end[0] + 1) for r in range(start[1], end[1] + 1)]


def _area(corners: tuple[Cell, Cell]) -> int:
    return len(_inside(*corners))


def _where(start: Cell, end: Cell) -> str:
    """A rectangle in words; what is 0 and not a range is left out."""
    (near, first), (far, last) = start, end
    ahead = f"ahead {near}" if near == far else f"ahead {near} to {far}"
    if first == last:
        across = "" if not first else f"right {first}" if first > 0 else f"left {-first}"
    elif last <= 0:
        across = f"left {-first} to {-last}"
    elif first >= 0:
        across = f"right {first} to {last}"
    else:
        across = f"left {-first} to right {last}"
    return " ".join(part for part in ("" if near == far == 0 else ahead, across) if part)
