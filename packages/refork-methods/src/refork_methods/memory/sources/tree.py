"""Trajectories of a tree: every leaf a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from refork.policies.base import Cost
from refork.tree.node import Node, Trajectory
from refork.tree.tree import Tree
from refork.types import Message
from refork_methods.memory.events import added
from refork_methods.memory.sources.messages import run_of_messages
from refork_methods.memory.trajectory import RunTrajectory

_ROLE = {"task": "user", "observation": "user", "action": "assistant"}


def runs_of_tree(path: Path) -> Iterator[RunTrajectory]:
    """A run for every leaf; its task id is the recorded task's and the leaf's, as a task may have many."""
    with Tree.open(path, "r") as tree:
        for leaf in tree.leaves():
            walk = tree.path(leaf)
            if any(step.node.kind == "action" for step in walk):
                yield _run(walk, tree.score_map("success", [step.node for step in walk]))


def _run(walk: Trajectory, success: dict[str, float]) -> RunTrajectory:
    task = walk.root.extra.get("task") or {}
    data = task.get("data") or {}
    messages = [m for step in walk.steps for m in _messages(step.node)]
    value = next((success[step.node.id] for step in reversed(walk.steps) if step.node.id in success), None)
    actions = [step.node for step in walk.steps if step.node.kind == "action"]
    query = data.get("query")
    return run_of_messages(
        messages,
        f"{task.get('id') or walk.root.id}/{walk.leaf.id[:12]}",
        query=str(query) if query else None,
        success=None if value is None else value >= 1.0,
        cost=added(*(node.cost for node in actions)) if actions else Cost(),
    )


def _messages(node: Node) -> list[Message]:
    """The messages of a node; a verdict has none."""
    many = node.extra.get("messages")
    if isinstance(many, list):
        return many
    if node.message is not None:
        return [node.message]
    role = _ROLE.get(node.kind)
    return [{"role": role, "content": node.text}] if role and node.text else []
