"""A causal model that is a table of logits, and nodes with what training reads of them."""

from types import SimpleNamespace

import pytest
import torch

from refork.policies.local import LocalPolicy
from refork_testbed.models import build
from support.nodes import make_node, make_walk


class Table(torch.nn.Module):
    """Logits of the next token depend on the present token only: ``table`` [v, v]."""

    def __init__(self, table):
        super().__init__()
        self.table = torch.nn.Parameter(torch.as_tensor(table, dtype=torch.float64))

    def forward(self, input_ids, attention_mask=None, position_ids=None, use_cache=False):
        return SimpleNamespace(logits=self.table[input_ids])


@pytest.fixture
def table():
    def make(size=4, seed=0):
        return Table(torch.randn(size, size, generator=torch.Generator().manual_seed(seed)))

    return make


@pytest.fixture
def node():
    return make_node


@pytest.fixture
def walk():
    return make_walk


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """The folder of the ``test-tiny`` organism, built once."""
    return str(build("test-tiny", tmp_path_factory.mktemp("organisms") / "test-tiny"))


@pytest.fixture
def counting(tiny):
    """The organism as a policy, fresh each time."""
    return LocalPolicy.load(tiny)
