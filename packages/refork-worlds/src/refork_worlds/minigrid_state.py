"""The whole state of a MiniGrid environment as JSON: every attribute, every object, and who shares what.

Missions refer to the very objects that stand in the grid, so the state is a graph. It is written as a table
of its mutable parts, with references by number. Reading it back is harmless: objects are made empty and
filled, and only those of classes in the environment's own modules. What cannot be written (a third party's
attribute of another kind) raises :class:`CannotDo`.
"""

from __future__ import annotations

import sys
from enum import Enum
from typing import Any, final

import numpy as np

from refork.errors import CannotDo
from refork.types import Json
from refork.worlds.dice import digest

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
        if not _own(module, self._modules) or module not in sys.modules or "." in path:
            raise ValueError(f"{name!r} is no class of this environment")
        kind = getattr(sys.modules[module], path)
        if not isinstance(kind, type) or kind.__module__ != module:
            raise ValueError(f"{name!r} is no class of that module")
        return kind
