"""What is said where the package behind a world is not installed."""

from __future__ import annotations

import sys

import pytest

from refork.errors import MissingExtra
from refork.worlds import open_world


@pytest.mark.parametrize(
    ("spec", "package"),
    [
        ("minigrid:BabyAI-GoToLocal-v0", "minigrid"),
        ("textarena:TowerOfHanoi-v0", "textarena"),
        ("scienceworld:boil", "scienceworld"),
        ("textworld:custom", "textworld"),
    ],
)
def test_the_extra_is_named(monkeypatch, spec, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"pip install '{package}>="):
        open_world(spec)
