"""Which organisms there are, and where they live."""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ramify.core.errors import BadInput
from ramify.learn.organism.recipe import Recipe
from ramify.learn.train import sft

#: Every organism and the module of its recipe.
RECIPES = {
    "arithmetic": "arithmetic",
    "household": "household",
    "household-novice": "household_novice",
    "maze-walker": "maze_walker",
    "test-tiny": "test_tiny",
}

_ROOT = Path(__file__).parents[2]
_DECIDE = ("ramify.core.world.", "ramify.learn.organism.")
_LISTS = ("ramify.core.world.open", "ramify.learn.organism.registry")


def names() -> tuple[str, ...]:
    """The organisms that can be built."""
    return tuple(RECIPES)


def find(name: str) -> Recipe:
    """The recipe of a name; raises BadInput where there is none."""
    if name not in RECIPES:
        raise BadInput(f"there is no organism {name!r}", hint="organisms: " + ", ".join(RECIPES))
    found = importlib.import_module(f"ramify.learn.organism.recipes.{RECIPES[name]}").RECIPE
    assert isinstance(found, Recipe)
    return found


def organism_for(world: str) -> str:
    """The organism that was made for a world of this family (``household:2`` gives ``household``).

    Raises:
        BadInput: there is none.
    """
    family = world.partition("?")[0]
    matches = [name for name in RECIPES if (find(name).world or "").partition("?")[0] == family]
    if not matches:
        raise BadInput(
            f"no organism was made for world {world!r}",
            hint="worlds with one: "
            + ", ".join(sorted({w for n in RECIPES if (w := find(n).world) is not None})),
        )
    return matches[0]


def recipe_digest(recipe: Recipe) -> str:
    """Sha256 (hex) of every source that decides what is built: recipe, builder, trainer and its worlds.

    A world or recipe that this one does not import decides nothing about it, nor do the lists of all.
    """
    files = _sources([inspect.getfile(recipe.conversations), _builder(), sft.__file__])
    mixed = hashlib.sha256()
    for name, file in sorted((file.relative_to(_ROOT).as_posix(), file) for file in files):
        mixed.update(name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return mixed.hexdigest()


def _builder() -> str:
    """The builder's source, named without importing it (it imports this module)."""
    return str(Path(__file__).with_name("build.py"))


def _sources(starts: Sequence[str]) -> set[Path]:
    """Source files reached by imports within the worlds and the organisms."""
    found: set[Path] = set()
    waiting = [Path(start) for start in starts]
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            waiting += [item for name in _imports(file) if (item := _inside(name)) is not None]
    return found


def _imports(file: Path) -> Iterator[str]:
    """Names of modules, or of things in them, that a source imports."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _inside(name: str) -> Path | None:
    """The file of a module that may decide what an organism is, or None."""
    if not name.startswith(_DECIDE) or name.endswith(_LISTS):
        return None
    place = _ROOT.joinpath(*name.split(".")[1:])
    return next((f for f in (place.with_suffix(".py"), place / "__init__.py") if f.is_file()), None)


def home() -> Path:
    """Where Ramify keeps what it built: RAMIFY_HOME, else ``~/.cache/ramify``."""
    return Path(os.environ.get("RAMIFY_HOME") or Path.home() / ".cache" / "ramify")


def path(name: str) -> Path:
    """Where an organism lies, or will lie when it is built."""
    return home() / "organisms" / f"{name}-{recipe_digest(find(name))[:12]}"
