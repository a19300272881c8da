"""What was drafted and not said, beside what was: rejected suffixes as pruned siblings.

They belong to the fork whose draws they left, and count in nothing: no draw names them, no score reads them,
and they have no log-prob, since the model never said them. They show where a drafter goes astray.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from refork.errors import BadInput
from refork.policies.local import LocalPolicy
from refork.sampling.noise import NoiseKey
from refork.tree.node import NewNode, Node
from refork.tree.tree import Tree
from refork.types import token_array
from refork_methods.speculate.decoder import RejectedDraft

PRUNED: Final = "pruned"
"""The key of ``extra`` that marks such a node; its value says why it was pruned."""


def record_rejected(
    tree: Tree,
    target: LocalPolicy,
    nodes: Iterable[Node],
    rejected: Sequence[RejectedDraft],
    *,
    drafter: str,
) -> list[Node]:
    """Store rejected suffixes as siblings of the actions that they left, with what was said up to there.

    ``nodes`` are recorded actions of one arm, found by their noise; ``drafter`` is the digest of the
    drafter's weights. Storing the same once more changes nothing.

    Raises:
        BadInput: an action of no fork, or a suffix that leaves none of them.
    """
    by_noise: dict[NoiseKey, Node] = {}
    for node in nodes:
        if node.noise is None or node.fork is None:
            raise BadInput(
                "rejected drafts are recorded beside the draws of a fork only", where=f"node {node.id[:12]}"
            )
        by_noise[node.noise] = node
    drafts: list[NewNode] = []
    for item in rejected:
        found = by_noise.get(item.noise)
        if found is None or found.tokens is None or item.offset >= found.length:
            raise BadInput(
                f"a suffix from token {item.offset} on leaves no recorded action",
                where=f"request {item.request}",
                hint="record what was said first, and give the actions of that arm",
            )
        drafts.append(_draft(target, found, item, drafter))
    return tree.append(drafts) if drafts else []


def _draft(target: LocalPolicy, node: Node, item: RejectedDraft, drafter: str) -> NewNode:
    assert node.tokens is not None
    tokens = token_array(np.concatenate([node.tokens[: item.offset], item.tokens]))
    text, offsets = target.codec.pieces(tokens)
    return NewNode(
        kind="action",
        parent=node.parent,
        keep=node.keep,
        key=f"pruned/{node.key}/{item.offset}",
        text=text,
        tokens=tokens,
        offsets=offsets,
        weights=drafter,
        fork=node.fork,
        extra={PRUNED: "rejected draft", "of": node.id, "from": item.offset},
    )


def pruned(node: Node) -> bool:
    """Whether a node was drafted and never said."""
    return PRUNED in node.extra
