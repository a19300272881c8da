"""Worlds that a search can run in, by name, recipe or import path.

A world is a module with a function ``open_world(**options)``; what it returns has ``workspace``, ``slots``
and ``runtime`` as :func:`refork_methods.evolve.search.run` takes them. It may have ``text(archive, cell,
key)``, the text of an artifact, for the tree; and the module may have ``SETTINGS``, the terms of a run where
none are named.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol, final

from pydantic import Field

from refork.errors import BadInput
from refork.plain import from_json, to_json
from refork.runs.recipe import RecipePart, resolve
from refork.types import Json
from refork_methods.evolve.archive import Archive
from refork_methods.evolve.records import Cell, EvaluatorSlot
from refork_methods.evolve.search import Runtime, Settings

#: World names and where they are opened; imported when they are asked for.
WORLDS: Final[Mapping[str, str]] = {
    "scripted": "refork_methods.evolve.scripted.world:open_world",
    "reviewer": "refork_methods.evolve.reviewer.world:open_world",
    "directory": "refork_methods.evolve.directory:open_world",
}


class Opened(Protocol):
    """What a search needs of a world: where it begins, its slots, and who breeds, measures and examines."""

    @property
    def workspace(self) -> Json:
        """The first workspace, plain JSON."""
        ...

    @property
    def slots(self) -> tuple[EvaluatorSlot, ...]:
        """The slots with their first judges."""
        ...

    @property
    def runtime(self) -> Runtime:
        """Who breeds, measures and examines."""
        ...


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """A run before it begins: the world's name or import path, its options, and settings that differ."""

    world: str
    options: Json = field(default_factory=dict)
    settings: Json = field(default_factory=dict)


@final
@dataclass(frozen=True, slots=True)
class Ready:
    """A world that is open, and the settings that the run will have."""

    opened: Opened
    settings: Settings

    def text(self, archive: Archive, cell: Cell, key: str) -> str:
        """The text of an artifact, where the world tells it; else its key."""
        tell: Callable[[Archive, Cell, str], str] | None = getattr(self.opened, "text", None)
        return key if tell is None else tell(archive, cell, key)


class _Recipe(RecipePart):
    world: str
    options: dict[str, Any] = Field(default_factory=dict)
    settings: dict[str, Any] = Field(default_factory=dict)


def read_plan(world: str, given: Iterable[str] = ()) -> Plan:
    """The plan of a world's name, of an import path ``module:function``, or of a recipe file (TOML).

    A recipe holds ``world``, and tables ``options`` and ``settings``. On top come ``key=value`` items: a
    setting, ``gate.KEY``, or ``options.KEY`` of the world; values are read as TOML where they are, else as
    text.

    Raises: BadInput for a file that is not there, is not TOML, or has other keys; an item without ``=``.
    """
    file = Path(world) if world.endswith(".toml") else None
    items = [item if item.startswith("options.") else f"settings.{item}" for item in given]
    told = resolve(_Recipe, file, items, {}, world=None if file else world)
    return Plan(told.world, told.options, told.settings)


def open_plan(plan: Plan, home: Path | None = None) -> Ready:
    """The world of a plan, open, with the plan's settings over the world's own.

    ``home`` is the run's folder, for a world that takes ``home`` to keep what it makes there.

    Raises: BadInput for a world that is not there, options that it does not take, or settings that cannot be.
    """
    opener = _opener(plan.world)
    accepted = inspect.signature(opener).parameters.values()
    own = {"home": home} if any(one.name == "home" for one in accepted) else {}
    needed = [one.name for one in accepted if one.default is one.empty and one.kind is not one.VAR_KEYWORD]
    if missing := [name for name in needed if name not in plan.options]:
        raise BadInput(
            f"the world needs {', '.join(missing)}", where=f"world {plan.world}",
            hint=f"--set options.{missing[0]}=..., or [options] of a recipe",
        )  # fmt: skip
    if not any(one.kind is one.VAR_KEYWORD for one in accepted):
        unknown = plan.options.keys() - {one.name for one in accepted if one.name != "home"}
        if unknown:
            raise BadInput(
                f"no option {min(unknown)!r}", where=f"world {plan.world}",
                hint=f"options: {', '.join(one.name for one in accepted if one.name != 'home') or 'none'}",
            )  # fmt: skip
    opened: Opened = opener(**plan.options, **own)
    # The module that defines the opener: the path may name one that only passes it on.
    base: Settings = getattr(import_module(opener.__module__), "SETTINGS", None) or Settings(1024)
    return Ready(opened, _settings(base, plan.settings))


def _settings(base: Settings, given: Json) -> Settings:
    told: Json = to_json(base)
    unknown = given.keys() - told.keys() or given.get("gate", {}).keys() - told["gate"].keys()
    if unknown:
        raise BadInput(f"no setting {min(unknown)!r}", where="settings", hint=", ".join(told))
    # As many looks as the settings of this run have checkpoints, unless it says otherwise.
    gate = told["gate"] | {"looks": None} | given.get("gate", {})
    return from_json(Settings, told | given | {"gate": gate}, "settings")


def _opener(world: str) -> Callable[..., Opened]:
    path = WORLDS.get(world, world)
    module, colon, name = path.partition(":")
    if not colon:
        raise BadInput(
            f"no world {world!r}", hint=f"{', '.join(WORLDS)}, a recipe FILE.toml, or module:function"
        )
    try:
        found: Callable[..., Opened] = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        raise BadInput(f"there is no module {error.name!r}", where=f"world {world}") from error
    except AttributeError as error:
        raise BadInput(f"module {module!r} has no {name!r}", where=f"world {world}") from error
    return found
