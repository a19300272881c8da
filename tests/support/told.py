"""What a tree says, ids and times aside: to compare trees that were made by two ways."""

from __future__ import annotations

import json
from typing import Any

from refork.tree import Tree

#: Where in the tree a node lies, which its id says already.
_PLACES = ("at",)


def told(tree: Tree) -> list[Any]:
    """Every trajectory as its steps' kinds, texts, messages, token ids, log-probs, extra, with its scores."""
    trajectories = []
    for trajectory in tree.paths(tree.leaves()):
        steps = []
        for step in trajectory:
            node = step.node
            arrays = [None if one is None else one.tolist() for one in (node.tokens, node.logprobs)]
            extra = _without_places(node.extra)
            cost = {key: value for key, value in node.cost.to_json().items() if value is not None}
            steps.append([node.kind, node.text, node.message, arrays, extra, node.policy, node.error, cost])
        scores = sorted((s.name, float(s.value)) for s in tree.scores(trajectory.leaf))
        trajectories.append(json.dumps([steps, scores], sort_keys=True))
    return sorted(trajectories)


def _without_places(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_places(one) for key, one in value.items() if key not in _PLACES}
    return [_without_places(one) for one in value] if isinstance(value, list) else value
