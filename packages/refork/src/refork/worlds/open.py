"""Open a world by its specification."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from inspect import Parameter
from typing import Any

from refork import registry
from refork.calling import call, first, is_one, lacks
from refork.errors import BadInput
from refork.types import Json
from refork.worlds.base import Episode, Split, Task, World
from refork.worlds.spec import Spec


def open_world(spec: str) -> World:
    """The world that a specification names: ``NAME[:ARGUMENT][?option=value&...]``.

    Examples: ``maze:3,3,3``, ``household:2?slip=0.1``, ``lock``, ``reasoning-gym:chain_sum?min_terms=2``,
    ``./mine.py:World``, ``package.module:open_it?size=3``.

    NAME is of the entry-point group ``refork.worlds``, ``module:Name`` or ``file.py:Name``. It stands for a
    world, for a class or function that is given the options by name and the argument first, or for a function
    of a :class:`~refork.worlds.spec.Spec`. The latter two run code that the text names: a text that comes
    out of a tree, a log or a folder goes to :func:`recorded_world`.

    Raises:
        BadInput: an unknown world, argument or option, or what was named is no world.
        MissingExtra: the package behind an adapter is not installed.
    """
    return _open(Spec.parse(spec), spec.strip())


def _open(parsed: Spec, text: str) -> World:
    world = _opened(registry.resolve("worlds", parsed.name), parsed)
    if not is_one(world, World):
        parts = ", ".join(lacks(world, World)) or "an instance"
        raise BadInput(
            f"this is no world but {type(world).__name__}: it lacks {parts}",
            where=f"world {parsed.name}",
            hint="what a world has to have stands in docs/worlds.md",
        )
    # A world of one's own does not know by what text it was opened, and trees must be able to open it again.
    found: World = world
    return found if _opens(found.name, parsed.name) else named(found, text)


def recorded_world(spec: str, *, option: str = "--world SPEC") -> World:
    """The world that a tree, a log or somebody's folder names: installed ones only.

    No file is run and no module imported because a record names it. ``option`` is how the user names it.

    Raises:
        BadInput: no installed world has the name; and as :func:`open_world`.
        MissingExtra: the package behind an adapter is not installed.
    """
    # A path or a module would run code that a stranger chose: only what is installed has a name here.
    name = spec.strip().partition("?")[0].partition(":")[0]
    if registry.known("worlds", name):
        return _open(replace(Spec.parse(spec), recorded=True), spec.strip())
    raise registry.refused("worlds", spec, option)


def _opened(thing: Any, spec: Spec) -> Any:
    where = f"world {spec.name}"
    if not is_one(thing, World):
        if not callable(thing):
            return thing
        given = first(thing)
        if given is not None and given.default is Parameter.empty and given.annotation in (
            Spec, "Spec", Parameter.empty
        ):  # fmt: skip
            return call(thing, (spec,), {}, where=where)
        return call(thing, (spec.argument,) if spec.argument else (), spec.options, where=where)
    spec.alone()
    spec.take({})
    return thing


def _opens(name: str, wanted: str) -> bool:
    """Whether a world's own name opens it again."""
    # `maze` does not open `maze2`: only an argument or options may follow the name.
    return name.startswith(wanted) and name[len(wanted) : len(wanted) + 1] in ("", ":", "?")


@dataclass(frozen=True)
class Named:
    """A world under the name that opens it; within, its tasks have its own. Made by :func:`named`."""

    world: World
    name: str

    def tasks(self, split: Split, count: int, seed: int = 0) -> Sequence[Task]:
        """Its tasks, under this name."""
        return [replace(task, world=self.name) for task in self.world.tasks(split, count, seed)]

    def start(self, task: Task, seed: int) -> Episode:
        """Begin an episode."""
        return self.world.start(replace(task, world=self.world.name), seed)

    def restore(self, task: Task, snapshot: bytes) -> Episode:
        """An episode in the state of a snapshot."""
        return self.world.restore(replace(task, world=self.world.name), snapshot)


def named(world: World, name: str) -> World:
    """A world under another name, with whatever else it has and can."""

    def its(attribute: str) -> property:
        return property(lambda self: getattr(self.world, attribute))

    # Protocols are checked on the class, where a __getattr__ would not be seen.
    own = {*dir(Named), "name", "world"}
    more = [one for one in dir(world) if not one.startswith("_") and one not in own]
    kind: Any = type("Named", (Named,), {one: its(one) for one in more})
    made: World = kind(world, name)
    return made


def task_to_json(task: Task) -> Json:
    """A task as plain JSON: id, world, split, prompt and data."""
    return asdict(task)


def task_from_json(world: World, data: Any) -> Task:
    """Inverse of :func:`task_to_json`; the world must be able to start it.

    Raises:
        BadInput: keys are missing or unknown, or the task is not of this world.
    """
    keys = {"id", "world", "split", "prompt", "data"}
    if not isinstance(data, dict) or set(data) != keys:
        raise BadInput("a task has the keys id, world, split, prompt and data", where=f"world {world.name}")
    task = Task(**data)
    # Only the world itself knows whether the data are of one of its tasks.
    world.start(task, 0).close()
    return task
