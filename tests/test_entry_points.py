"""Every name that the packages register can be loaded: else nothing says that what is behind it is used."""

from __future__ import annotations

from importlib.metadata import distribution

import pytest

PACKAGES = ("refork", "refork-methods", "refork-worlds", "refork-testbed")
NAMES = [one for package in PACKAGES for one in distribution(package).entry_points]


@pytest.mark.parametrize("name", NAMES, ids=lambda one: f"{one.group}:{one.name}")
def test_a_registered_name_loads(name):
    assert name.load() is not None
