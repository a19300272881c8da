"""One small tree for all tests of the viewer."""

from __future__ import annotations

import pytest

from support.viewer_tree import grow


@pytest.fixture(scope="session")
def told(tmp_path_factory):
    return grow(tmp_path_factory.mktemp("viewer") / "tree.db")
