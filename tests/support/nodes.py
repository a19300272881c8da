"""Nodes and trajectories without a tree: what pure functions on trajectories read of them."""

from dataclasses import fields

import numpy as np

from refork.policies.base import Cost
from refork.tree.node import Node, Step, Trajectory
from refork.types import token_array


def make_node(name, kind="action", tokens=(), parent=None, **rest):
    """A node of this id; actions have log-probs of -1 unless told otherwise."""
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
    if kind == "action" and ids is not None and "logprobs_t1" not in rest:
        plain["logprobs_t1"] = plain["logprobs"] = np.full(len(ids), -1.0, dtype=np.float32)
    return Node(**plain | {"id": name, "kind": kind, "parent": parent, "tokens": ids} | rest)


def make_walk(*nodes, keeps=()):
    """A walk over nodes, each keeping so many tokens (None: all)."""
    keeps = [*keeps, *[None] * (len(nodes) - len(keeps))]
    return Trajectory(tuple(Step(n, k) for n, k in zip(nodes, keeps, strict=True)))
