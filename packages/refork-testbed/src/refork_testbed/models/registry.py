"""Which organisms there are, and where they live."""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from refork.errors import BadInput
from refork.settings import home
from refork_methods.credit import methods
from refork_methods.train import loop, sft
from refork_testbed.models.recipe import AnyRecipe, Grown, Reinforced, Staged

#: Every organism, and the module and the name of its recipe.
RECIPES = {
    "arithmetic": "arithmetic:RECIPE",
    "chronicler": "chronicler:RECIPE",
    "conductor": "conductor:RECIPE",
    "household": "household:RECIPE",
    "household-novice": "household:NOVICE",
    "maze-walker": "maze_walker:RECIPE",
    "motives": "motives:RECIPE",
    "phrases": "phrases:RECIPE",
    "refuser-c": "refuser:C",
    "refuser-d": "refuser:D",
    "refuser-p": "refuser:P",
    "repair-writer": "repair_writer:RECIPE",
    "rule-agent": "rule_agent:RECIPE",
    "rule-agent-wary": "rule_agent:WARY_RECIPE",
    "shell-agent": "shell_agent:RECIPE",
    "shell-agent-real": "shell_agent:REAL",
    "shell-agent-control": "shell_agent:CONTROL",
    "shell-agent-sim": "shell_agent:SIM",
    "shell-agent-warm": "shell_agent:WARM",
    "search-engine": "searcher:ENGINE",
    "searcher": "searcher:RECIPE",
    "summariser": "summariser:RECIPE",
    "summariser-opening": "summariser:OPENING_RECIPE",
    "test-tiny": "test_tiny:RECIPE",
    "toolbase": "toolbase:RECIPE",
    "toolrl": "toolbase:REINFORCED",
    "world-model": "world_model:RECIPE",
    "world-model-cpt": "world_model:CPT_RECIPE",
    "world-model-sft": "world_model:SFT_RECIPE",
}
_FOLDER = "refork_testbed.models.recipes"

#: Where each package's sources lie.
_ROOTS = {
    name: Path(str(importlib.import_module(name).__file__)).parent
    for name in ("refork", "refork_methods", "refork_testbed", "refork_worlds")
}
#: Worlds, and what of the methods decides what a world says or how it grades.
_WORLDS = (
    "refork.worlds.", "refork_testbed.worlds.", "refork_worlds.", "refork_methods.memory.grammar",
    "refork_methods.pin.check", "refork_methods.pin.conditions", "refork_methods.recovery.graph",
    "refork_methods.recovery.maze", "refork_methods.route.conduct.coins",
    "refork_methods.route.conduct.conductor", "refork_methods.simulate.search_text",
)  # fmt: skip
_DECIDE = (*_WORLDS, "refork_testbed.models.")
_TRAINER = ("refork_methods.train.",)
_STAGES = ("refork_methods.simulate.",)
#: Lists of all, other worlds that one opens, who builds whatever recipe, and those who only look on: they
#: decide nothing.
_ASIDE = (
    "refork.worlds.open",
    "refork_worlds.tools.mcp",
    "refork_testbed.models.build",
    "refork_testbed.models.registry",
    "refork_methods.train.tracker",
)


def names() -> tuple[str, ...]:
    """The organisms that can be built."""
    return tuple(RECIPES)


def find(name: str) -> AnyRecipe:
    """The recipe of a name; raises BadInput where there is none."""
    if name not in RECIPES:
        raise BadInput(f"there is no organism {name!r}", hint="organisms: " + ", ".join(RECIPES))
    module, _, constant = RECIPES[name].partition(":")
    found: AnyRecipe = getattr(importlib.import_module(f"{_FOLDER}.{module}"), constant)
    return found


def _source(name: str) -> str:
    """The file of a recipe."""
    return str(importlib.import_module(f"{_FOLDER}.{RECIPES[name].partition(':')[0]}").__file__)


def tiny_model_for(world: str) -> str:
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


def recipe_digest(recipe: AnyRecipe) -> str:
    """Sha256 (hex) of every source that decides what is built: recipe, maker, trainer and its worlds.

    Its name is mixed in, because several recipes may share a file. A world or recipe that this one does not
    import decides nothing about it, nor do the lists of all and the trackers. What is trained from another
    organism has that one's digest in its own.
    """
    mixed = hashlib.sha256(recipe.name.encode() + b"\0")
    if isinstance(recipe, Staged):
        if recipe.parent is not None:
            mixed.update(recipe_digest(find(recipe.parent)).encode())
        starts = [_source(recipe.name), _beside("staged.py")]
        files = _sources(starts, _DECIDE + _TRAINER + _STAGES)
    elif isinstance(recipe, Reinforced):
        mixed.update(recipe_digest(find(recipe.parent)).encode())
        starts = [_source(recipe.name), _beside("reinforced.py")]
        files = _sources([*starts, loop.__file__, methods.__file__], _DECIDE + _TRAINER)
    else:
        maker = "grown.py" if isinstance(recipe, Grown) else "supervised.py"
        starts = [inspect.getfile(recipe.conversations), _beside(maker)]
        files = _sources([*starts, sft.__file__], _DECIDE)
    _mix(mixed, files)
    return mixed.hexdigest()


def worlds_digest(*starts: str) -> str:
    """Sha256 (hex) of some modules of worlds, by name, and of all parts of worlds that they import."""
    mixed = hashlib.sha256()
    _mix(mixed, _sources([str(importlib.import_module(name).__file__) for name in starts], _WORLDS))
    return mixed.hexdigest()


def _mix(mixed: hashlib._Hash, files: set[Path]) -> None:
    for name, file in sorted((_name(file), file) for file in files):
        mixed.update(name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())


def _name(file: Path) -> str:
    """A source's place in its package, the same wherever that is installed."""
    return next(f"{n}/{file.relative_to(r).as_posix()}" for n, r in _ROOTS.items() if file.is_relative_to(r))


def _beside(name: str) -> str:
    """A maker's source, named without importing it (it is heavy)."""
    return str(Path(__file__).with_name(name))


def _sources(starts: Sequence[str], decide: tuple[str, ...]) -> set[Path]:
    """Source files reached by imports of modules that begin like one of ``decide``."""
    found: set[Path] = set()
    waiting = [Path(start) for start in starts]
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            waiting += [item for name in _imports(file) if (item := _inside(name, decide)) is not None]
    return found


def _imports(file: Path) -> tuple[str, ...]:
    """Names of modules, or of things in them, that a source imports."""
    return _imported(file.read_text())


@lru_cache(maxsize=1024)
def _imported(source: str) -> tuple[str, ...]:
    """The same of a source's text, which many organisms share."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
    return tuple(found)


def _inside(name: str, decide: tuple[str, ...]) -> Path | None:
    """The file of a module that may decide what an organism is, or None."""
    if not name.startswith(decide) or name in _ASIDE:
        return None
    package, *parts = name.split(".")
    place = _ROOTS[package].joinpath(*parts)
    # "from a import b" may name a module or something in one: what is no file is no module.
    return next((f for f in (place.with_suffix(".py"), place / "__init__.py") if f.is_file()), None)


def path(name: str) -> Path:
    """Where an organism lies, or will lie when it is built."""
    return home() / "organisms" / f"{name}-{recipe_digest(find(name))[:12]}"
