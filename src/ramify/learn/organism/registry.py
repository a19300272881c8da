"""Which organisms there are, and where they live."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
from pathlib import Path

import ramify.core.world
from ramify.core.errors import BadInput
from ramify.learn.organism import recipe as recipe_module
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
    """Sha256 (hex) of every source that decides what is built: recipe, builder, trainer and worlds."""
    own = inspect.getmodule(recipe.conversations)
    taken = {m.__file__ for m in vars(own).values() if inspect.ismodule(m) and ".recipes." in m.__name__}
    files = [Path(inspect.getfile(recipe.conversations)), *sorted(Path(str(file)) for file in taken)]
    # The list of organisms decides nothing about one of them: a new one must not rebuild the others.
    parts = Path(recipe_module.__file__).parent.glob("*.py")
    files += sorted(part for part in parts if part.name not in ("__init__.py", "registry.py"))
    files += [Path(sft.__file__)]
    files += sorted(Path(ramify.core.world.__path__[0]).rglob("*.py"))
    mixed = hashlib.sha256()
    for file in files:
        mixed.update(file.name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return mixed.hexdigest()


def home() -> Path:
    """Where Ramify keeps what it built: RAMIFY_HOME, else ``~/.cache/ramify``."""
    return Path(os.environ.get("RAMIFY_HOME") or Path.home() / ".cache" / "ramify")


def path(name: str) -> Path:
    """Where an organism lies, or will lie when it is built."""
    return home() / "organisms" / f"{name}-{recipe_digest(find(name))[:12]}"
