"""Go back to any token of a recorded rollout, change one thing, run on many times, and compare."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ramify.core.errors import RamifyError, UserError
    from ramify.core.fork import (
        Ban,
        Compose,
        EditMessage,
        Effect,
        Force,
        Fork,
        Insert,
        Remove,
        Replace,
        Set,
        SwapPolicy,
        SwapWorld,
        Sweep,
        compare,
        compare_until,
        fork,
        sweep,
    )
    from ramify.core.grow import grow, grow_trees, plant_prompt
    from ramify.core.judge import Judge, MatchJudge
    from ramify.core.policy.base import Policy, Sampling
    from ramify.core.policy.local import LocalPolicy
    from ramify.core.policy.open import open_policy
    from ramify.core.policy.remote import RemotePolicy
    from ramify.core.policy.scripted import ScriptedPolicy
    from ramify.core.tree.node import Draft, Node, Point, Trajectory
    from ramify.core.tree.score import Producer, Score
    from ramify.core.tree.tree import Tree
    from ramify.core.world.base import Task, World
    from ramify.core.world.open import open_world

# Loaded on first use: a script that only reads a tree does not wait for torch.
_HOME = {
    "Ban": "fork",
    "Compose": "fork",
    "Draft": "tree.node",
    "EditMessage": "fork",
    "Effect": "fork",
    "Force": "fork",
    "Fork": "fork",
    "Insert": "fork",
    "Judge": "judge",
    "LocalPolicy": "policy.local",
    "MatchJudge": "judge",
    "Node": "tree.node",
    "Point": "tree.node",
    "Policy": "policy.base",
    "Producer": "tree.score",
    "RamifyError": "errors",
    "RemotePolicy": "policy.remote",
    "Remove": "fork",
    "Replace": "fork",
    "Sampling": "policy.base",
    "Score": "tree.score",
    "ScriptedPolicy": "policy.scripted",
    "Set": "fork",
    "SwapPolicy": "fork",
    "SwapWorld": "fork",
    "Sweep": "fork",
    "Task": "world.base",
    "Trajectory": "tree.node",
    "Tree": "tree.tree",
    "UserError": "errors",
    "World": "world.base",
    "compare": "fork",
    "compare_until": "fork",
    "fork": "fork",
    "grow": "grow",
    "grow_trees": "grow",
    "open_policy": "policy.open",
    "open_world": "world.open",
    "plant_prompt": "grow",
    "sweep": "fork",
}

__all__ = [
    "Ban",
    "Compose",
    "Draft",
    "EditMessage",
    "Effect",
    "Force",
    "Fork",
    "Insert",
    "Judge",
    "LocalPolicy",
    "MatchJudge",
    "Node",
    "Point",
    "Policy",
    "Producer",
    "RamifyError",
    "RemotePolicy",
    "Remove",
    "Replace",
    "Sampling",
    "Score",
    "ScriptedPolicy",
    "Set",
    "SwapPolicy",
    "SwapWorld",
    "Sweep",
    "Task",
    "Trajectory",
    "Tree",
    "UserError",
    "World",
    "compare",
    "compare_until",
    "fork",
    "grow",
    "grow_trees",
    "open_policy",
    "open_world",
    "plant_prompt",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ramify' has no attribute {name!r}")
    value = getattr(import_module(f"ramify.core.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
