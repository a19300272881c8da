"""Nodes, points and trajectories: what a rollout is once it is recorded."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from refork.errors import BadPoint
from refork.policies.base import Cost
from refork.sampling.noise import NoiseKey
from refork.types import Finish, FloatArray, IntArray, Json, Message, NodeKind, Origin

if TYPE_CHECKING:
    from refork.tree.tree import Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class NewNode:
    """A node before it is stored. Everything but ``kind`` is optional; None means never known.

    ``parent`` and ``keep``: the event before it and how many of that event's tokens stand (None:
    all). ``key`` tells equal siblings apart: a draw's address for sampled nodes (appending the same
    draw twice stores it once), else the next free ordinal. Arrays have one entry per token.
    """

    kind: NodeKind
    parent: str | None = None
    keep: int | None = None
    key: str | None = None
    text: str = ""
    tokens: IntArray | None = None
    offsets: IntArray | None = None
    logprobs: FloatArray | None = None
    logprobs_t1: FloatArray | None = None
    ref_logprobs: FloatArray | None = None
    entropy: FloatArray | None = None
    message: Message | None = None
    state_key: str | None = None
    snapshot: bytes | None = None
    policy: str | None = None
    weights: str | None = None
    settings: Json | None = None
    noise: NoiseKey | None = None
    fork: str | None = None
    origin: Origin | None = None
    finish: Finish | None = None
    error: str | None = None
    cost: Cost = field(default_factory=Cost)
    extra: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Node:
    """One stored event. See :class:`NewNode` for the fields; ``snapshot`` is a blob's digest here.

    Nodes with one id are one node, and equal.
    """

    id: str
    kind: NodeKind
    parent: str | None
    keep: int | None
    key: str
    depth: int
    text: str
    tokens: IntArray | None
    offsets: IntArray | None
    logprobs: FloatArray | None
    logprobs_t1: FloatArray | None
    ref_logprobs: FloatArray | None
    entropy: FloatArray | None
    message: Message | None
    state_key: str | None
    snapshot: str | None
    policy: str | None
    weights: str | None
    settings: Json | None
    noise: NoiseKey | None
    fork: str | None
    origin: Origin | None
    finish: Finish | None
    error: str | None
    cost: Cost
    created: float
    extra: Json

    # Not field by field: the comparison of two numpy arrays has no truth value.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def length(self) -> int:
        """Tokens this event adds; 0 where token ids were never recorded."""
        return 0 if self.tokens is None else len(self.tokens)

    def text_upto(self, token: int | None) -> str:
        """Text of the first ``token`` tokens (all of it for None)."""
        if token is None or (self.tokens is not None and token >= self.length):
            return self.text
        if token == 0:
            return ""
        if self.offsets is None:
            raise BadPoint("this node records no token offsets", where=f"node {self.id[:12]}")
        return self.text[: int(self.offsets[token - 1])]


def node_id(parent: str | None, keep: int | None, kind: str, key: str) -> str:
    """The id of a node: a digest of its place, so it is the same wherever and whenever it is written."""
    # The key comes last: it alone may hold the separator, so no two places give one text.
    name = "\x1f".join([parent or "", "" if keep is None else str(keep), kind, key])
    return hashlib.blake2b(name.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Point:
    """A place between two tokens: after the first ``token`` tokens of a node (None: after all).

    ``tree`` is where it was taken from, so that a point alone is enough to fork.
    """

    node: Node
    token: int | None = None
    tree: Tree | None = field(default=None, compare=False, repr=False)

    @property
    def keep(self) -> int:
        """Tokens of the node that stand before the point."""
        return self.node.length if self.token is None else self.token

    @property
    def mid_node(self) -> bool:
        """Whether part of the node is cut away."""
        return self.token is not None and self.token < self.node.length

    @property
    def address(self) -> str:
        """``node:token``, the stable name of the point."""
        return f"{self.node.id}:{'end' if not self.mid_node else self.keep}"


@dataclass(frozen=True, slots=True)
class Step:
    """One node of a trajectory and how many of its tokens the trajectory keeps."""

    node: Node
    keep: int | None

    @property
    def text(self) -> str:
        """The kept text."""
        return self.node.text_upto(self.keep)

    @property
    def tokens(self) -> IntArray | None:
        """The kept token ids."""
        return None if self.node.tokens is None else self.node.tokens[: self.keep]


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A root-to-point trajectory."""

    steps: tuple[Step, ...]

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def leaf(self) -> Node:
        """The last node."""
        return self.steps[-1].node

    @property
    def root(self) -> Node:
        """The task."""
        return self.steps[0].node

    @property
    def context(self) -> tuple[Step, ...]:
        """The steps a policy sees: from the last rewrite on, verdicts left out."""
        # A rewrite carries the whole context; what was before it is not in sight of the policy any more.
        start = max((i for i, s in enumerate(self.steps) if s.node.kind == "rewrite"), default=0)
        return tuple(s for s in self.steps[start:] if s.node.kind != "verdict")

    @property
    def tokens(self) -> IntArray:
        """The prefix a policy sees: the token deltas along the trajectory, never re-rendered.

        What ended an episode was never shown to the policy: text without token ids at the end of a
        trajectory adds nothing. Before later tokens it is an error.
        """
        pieces: list[IntArray] = []
        unread: Node | None = None
        for step in self.context:
            tokens = step.tokens
            if tokens is None:
                unread = unread or (step.node if step.text else None)
            elif unread is not None and len(tokens):
                raise _no_ids(unread)
            else:
                pieces.append(tokens)
        if unread is not None and not pieces:
            raise _no_ids(unread)
        joined = np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.int32)
        joined = joined.astype(np.int32, copy=False)
        # Several requests share it as their prefix.
        joined.flags.writeable = False
        return joined


def _no_ids(node: Node) -> BadPoint:
    return BadPoint(
        "this trajectory holds text without token ids",
        where=f"node {node.id[:12]}",
        hint="tokenise it with `refork tree import --policy`, or fork at a message",
    )
