"""Where a comparison of trainings begins: with the tiny model that was made for its world."""

from __future__ import annotations

from refork.progress import Progress, silent
from refork_methods.compare.cell import Start
from refork_testbed.models import build, find, tiny_model_for


def start_for(world: str, model: str | None = None, progress: Progress = silent) -> Start:
    """The start in a world: of the model that is named, else of the one that was made for the world.

    Raises:
        BadInput: there is none.
    """
    name = model or tiny_model_for(world)
    recipe = find(name)
    # A bare name means the world as its organism was trained for.
    known = world if "?" in world else recipe.world or world
    return Start(str(build(name, progress=progress)), known, recipe.sampling)
