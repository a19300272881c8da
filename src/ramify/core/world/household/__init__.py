"""``household:SIZE``: rooms, keys, doors, containers and objects to deliver."""

from ramify.core.world.household.build import SIZES, household_world

__all__ = ["SIZES", "household_world"]
