"""Go back to any token of a recorded rollout, change one thing, run on many times, and compare."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from refork.chat import ChatModel, PolicyChat, ScriptedChat
    from refork.decide import break_even, fit_calibration
    from refork.decoding.live import LiveDecoder
    from refork.errors import ReforkError, UserError
    from refork.forking import (
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
    from refork.growing import UUCB, grow, grow_trees, plant_prompt
    from refork.growing.leaves import leaf_batch
    from refork.growing.report import collapse_report
    from refork.judge import Judge, MatchJudge
    from refork.policies.base import Policy, Sampling
    from refork.policies.grammar import Grammar
    from refork.policies.inside import Capture, Edit
    from refork.policies.local import LocalPolicy
    from refork.policies.open import open_policy
    from refork.policies.remote import RemotePolicy
    from refork.policies.scripted import ScriptedPolicy
    from refork.tree.activations import ActivationStore
    from refork.tree.node import Draft, Node, Point, Trajectory
    from refork.tree.score import Producer, Score
    from refork.tree.tree import Tree
    from refork.worlds.base import Task, World
    from refork.worlds.environment import Brief, EnvTrajectory
    from refork.worlds.open import open_world
    from refork.worlds.simulated import Simulator

# Loaded on first use: a script that only reads a tree does not wait for torch.
_HOME = {
    "ActivationStore": "tree.activations",
    "Ban": "forking",
    "Brief": "worlds.environment",
    "Capture": "policies.inside",
    "ChatModel": "chat",
    "Compose": "forking",
    "Draft": "tree.node",
    "Edit": "policies.inside",
    "EditMessage": "forking",
    "Effect": "forking",
    "EnvTrajectory": "worlds.environment",
    "Force": "forking",
    "Fork": "forking",
    "Grammar": "policies.grammar",
    "Insert": "forking",
    "Judge": "judge",
    "LiveDecoder": "decoding.live",
    "LocalPolicy": "policies.local",
    "MatchJudge": "judge",
    "Node": "tree.node",
    "Point": "tree.node",
    "Policy": "policies.base",
    "PolicyChat": "chat",
    "Producer": "tree.score",
    "ReforkError": "errors",
    "RemotePolicy": "policies.remote",
    "Remove": "forking",
    "Replace": "forking",
    "Sampling": "policies.base",
    "Score": "tree.score",
    "ScriptedChat": "chat",
    "ScriptedPolicy": "policies.scripted",
    "Set": "forking",
    "Simulator": "worlds.simulated",
    "SwapPolicy": "forking",
    "SwapWorld": "forking",
    "Sweep": "forking",
    "Task": "worlds.base",
    "Trajectory": "tree.node",
    "Tree": "tree.tree",
    "UUCB": "growing",
    "UserError": "errors",
    "World": "worlds.base",
    "break_even": "decide",
    "collapse_report": "growing.report",
    "compare": "forking",
    "compare_until": "forking",
    "fit_calibration": "decide",
    "fork": "forking",
    "grow": "growing",
    "grow_trees": "growing",
    "leaf_batch": "growing.leaves",
    "open_policy": "policies.open",
    "open_world": "worlds.open",
    "plant_prompt": "growing",
    "sweep": "forking",
}

__all__ = [  # noqa: RUF022 - plain order, not constants first
    "ActivationStore",
    "Ban",
    "Brief",
    "Capture",
    "ChatModel",
    "Compose",
    "Draft",
    "Edit",
    "EditMessage",
    "Effect",
    "EnvTrajectory",
    "Force",
    "Fork",
    "Grammar",
    "Insert",
    "Judge",
    "LiveDecoder",
    "LocalPolicy",
    "MatchJudge",
    "Node",
    "Point",
    "Policy",
    "PolicyChat",
    "Producer",
    "ReforkError",
    "RemotePolicy",
    "Remove",
    "Replace",
    "Sampling",
    "Score",
    "ScriptedChat",
    "ScriptedPolicy",
    "Set",
    "Simulator",
    "SwapPolicy",
    "SwapWorld",
    "Sweep",
    "Task",
    "Trajectory",
    "Tree",
    "UUCB",
    "UserError",
    "World",
    "break_even",
    "collapse_report",
    "compare",
    "compare_until",
    "fit_calibration",
    "fork",
    "grow",
    "grow_trees",
    "leaf_batch",
    "open_policy",
    "open_world",
    "plant_prompt",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'refork' has no attribute {name!r}")
    value = getattr(import_module(f"refork.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
