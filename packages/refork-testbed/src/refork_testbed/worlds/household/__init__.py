"""``household:SIZE``: rooms, keys, doors, containers and objects to deliver."""

from refork.core.world.household.build import SIZES, household_world

__all__ = ["SIZES", "household_world"]
