"""How much of the turn that a walk ends in has been said."""

from __future__ import annotations

from collections.abc import Callable

from ramify.core.tree.node import Trajectory
from ramify.core.types import IntArray


def turn_begun(walk: Trajectory, encode: Callable[[str], IntArray]) -> int:
    """Tokens at the end of a walk that are of the turn it ends in; 0 where it ends between turns.

    ``encode`` is that of the policy; a rewritten context may itself end in a turn's beginning.
    """
    total = 0
    for step in reversed(walk.context):
        if step.node.kind == "action":
            total += 0 if step.tokens is None else len(step.tokens)
            continue
        pending = step.node.extra.get("pending") if step.node.kind == "rewrite" else None
        return total + (len(encode(pending)) if pending else 0)
    return total
