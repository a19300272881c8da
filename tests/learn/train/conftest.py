"""A causal model that is a table of logits, and nodes with what training reads of them."""

from dataclasses import fields
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ramify.core.policy.base import Cost
from ramify.core.tree.node import Node, Step, Trajectory
from ramify.core.types import token_array


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
    def make(name, kind="action", tokens=(), parent=None, **rest):
        ids = None if tokens is None else token_array(tokens)
        plain = {f.name: None for f in fields(Node)}
        plain |= {
            "text": "x" * len(tokens or ()),
            "cost": Cost(),
            "created": 0.0,
            "extra": {},
            "key": name,
            "depth": 0,
        }
        if kind == "action" and "logprobs_t1" not in rest:
            plain["logprobs_t1"] = plain["logprobs"] = np.full(len(ids), -1.0, dtype=np.float32)
        return Node(**plain | {"id": name, "kind": kind, "parent": parent, "tokens": ids} | rest)

    return make


@pytest.fixture
def walk():
    def make(*nodes, keeps=()):
        keeps = [*keeps, *[None] * (len(nodes) - len(keeps))]
        return Trajectory(tuple(Step(n, k) for n, k in zip(nodes, keeps, strict=True)))

    return make
