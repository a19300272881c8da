import pytest

from support.nodes import make_node, make_walk


@pytest.fixture
def node():
    return make_node


@pytest.fixture
def walk():
    return make_walk
