"""The sizes of the household world."""

from __future__ import annotations

from typing import Any

from refork.errors import BadInput
from refork.worlds.game import GameWorld
from refork.worlds.spec import Spec
from refork_testbed.worlds.household.grid import GridFamily
from refork_testbed.worlds.household.layout import Size
from refork_testbed.worlds.household.rooms import HouseFamily

#: Houses by number; 1 is the grid.
SIZES = {
    2: Size(rooms=5, doors=1, containers=0, objects=1, goals=1, horizon=16, star=True),
    3: Size(rooms=6, doors=1, containers=2, objects=3, goals=1, horizon=24),
    4: Size(rooms=8, doors=2, containers=3, objects=4, goals=1, horizon=40),
    5: Size(rooms=10, doors=3, containers=4, objects=5, goals=2, horizon=64),
    6: Size(rooms=12, doors=3, containers=5, objects=6, goals=2, horizon=80),
}


def household_world(size: int = 2, slip: float = 0.0) -> GameWorld[Any]:
    """The household world of a size from 1 (the key-then-goal grid) to 6 (twelve rooms, two goals).

    ``slip`` is the probability that an admissible action is replaced by a random admissible one.

    Raises:
        BadInput: no such size, or slip outside [0, 1].
    """
    options = f"slip={slip:g}" if slip else ""
    if size == 1:
        return GameWorld(GridFamily(), slip, options)
    if size not in SIZES:
        raise BadInput(f"there is no household of size {size}", hint=f"sizes: 1 to {max(SIZES)}")
    return GameWorld(HouseFamily(size, SIZES[size]), slip, options)


def open_household(spec: Spec) -> GameWorld[Any]:
    """``household:SIZE``: rooms, keys and objects, SIZE 1 to 6 (option slip)."""
    size = spec.argument or "2"
    if not size.isdigit():
        raise BadInput(f"{size!r} is not a size", where="household", hint=f"sizes: 1 to {max(SIZES)}")
    return household_world(int(size), **spec.take({"slip": (float, int)}))
