"""For the tests of statistics."""

import pytest
from jaxtyping import config


@pytest.fixture
def unchecked():
    """Outside the tests nobody checks shapes and types before a function does."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
