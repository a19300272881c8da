"""``household:SIZE``: rooms, keys, doors, containers and objects to deliver."""

from refork_testbed.worlds.household.build import SIZES, household_world

__all__ = ["SIZES", "household_world"]
