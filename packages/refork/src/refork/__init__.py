"""Go back to any token of a recorded rollout, change one thing, run on many times, and compare."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from refork.core.chat import ChatModel, PolicyChat, ScriptedChat
    from refork.core.decide import break_even, fit_calibration
    from refork.core.errors import ReforkError, UserError
    from refork.core.fork import (
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
    from refork.core.grow import UUCB, grow, grow_trees, plant_prompt
    from refork.core.grow.leaves import leaf_batch
    from refork.core.grow.report import collapse_report
    from refork.core.judge import Judge, MatchJudge
    from refork.core.policy.base import Policy, Sampling
    from refork.core.policy.decoder.live import LiveDecoder
    from refork.core.policy.grammar import Grammar
    from refork.core.policy.inside import Capture, Edit
    from refork.core.policy.local import LocalPolicy
    from refork.core.policy.open import open_policy
    from refork.core.policy.remote import RemotePolicy
    from refork.core.policy.scripted import ScriptedPolicy
    from refork.core.tree.activations import ActivationStore
    from refork.core.tree.node import Draft, Node, Point, Trajectory
    from refork.core.tree.score import Producer, Score
    from refork.core.tree.tree import Tree
    from refork.core.world.base import Task, World
    from refork.core.world.environment import Brief, EnvTrajectory
    from refork.core.world.open import open_world
    from refork.core.world.simulated import Simulator
    from refork.discover.localize import RepoTools
    from refork.discover.localize.casefile import CaseFile
    from refork.discover.localize.investigate import investigate
    from refork.discover.localize.on_repository import localize_path
    from refork.examine.crosscoder import CrossCoder
    from refork.examine.forensics import Case, Hypothesis, Incident, Intervention
    from refork.examine.probe import FirstTokenProbe
    from refork.examine.stance import causal_cuts, continuation_variance
    from refork.examine.steer import AblateDirection, AddVector, ClampDirection, steering
    from refork.learn.credit.graph import StateGraph
    from refork.learn.credit.implicit.pair import ImplicitPair
    from refork.learn.credit.methods import credit_method
    from refork.learn.recovery import read_traces, recovery_audit
    from refork.learn.simulate import (
        Fictional,
        HybridReward,
        LearnedSimulator,
        Perturb,
        Stingy,
        WorldModel,
        compare_simulators,
        extract_prediction,
        loss_weights,
        sim_to_real,
        turn_stats,
    )
    from refork.learn.train.loop import TreeTraining, improve
    from refork.operate.gate import BayesController, CriticModel
    from refork.operate.gate.fit import fit_critics
    from refork.operate.gate.live import run_gate
    from refork.operate.memory import ExperienceMemory, RecurrenceGate
    from refork.operate.pin import Constraint, PinnedBuffer, PinnedCompactor
    from refork.operate.rot import GovernanceProbe
    from refork.operate.route import OutcomeTable, RoutedChat, WorkerPool, label_by_fork
    from refork.operate.route.conduct.conductor import Conductor
    from refork.operate.route.head import SelectionHead
    from refork.operate.speculate.calibrate import SequentialTemperatureScaling
    from refork.operate.speculate.checkpoint import load_draft
    from refork.operate.speculate.decoder import SpeculativeDecoder
    from refork.operate.speculate.lossless import check_lossless
    from refork.operate.speculate.policy import SpeculativePolicy, speculative
    from refork.operate.speculate.schedule import PrefixScheduler
    from refork.operate.speculate.step_cost import StepCost
    from refork.operate.speculate.train import train_draft

# Loaded on first use: a script that only reads a tree does not wait for torch.
_HOME = {
    "AblateDirection": "examine.steer",
    "ActivationStore": "core.tree.activations",
    "AddVector": "examine.steer",
    "Ban": "core.fork",
    "BayesController": "operate.gate",
    "Brief": "core.world.environment",
    "Capture": "core.policy.inside",
    "Case": "examine.forensics",
    "CaseFile": "discover.localize.casefile",
    "ChatModel": "core.chat",
    "ClampDirection": "examine.steer",
    "Compose": "core.fork",
    "Conductor": "operate.route.conduct.conductor",
    "Constraint": "operate.pin",
    "CriticModel": "operate.gate",
    "CrossCoder": "examine.crosscoder",
    "Draft": "core.tree.node",
    "Edit": "core.policy.inside",
    "EditMessage": "core.fork",
    "Effect": "core.fork",
    "EnvTrajectory": "core.world.environment",
    "ExperienceMemory": "operate.memory",
    "Fictional": "learn.simulate",
    "FirstTokenProbe": "examine.probe",
    "Force": "core.fork",
    "Fork": "core.fork",
    "GovernanceProbe": "operate.rot",
    "Grammar": "core.policy.grammar",
    "HybridReward": "learn.simulate",
    "Hypothesis": "examine.forensics",
    "ImplicitPair": "learn.credit.implicit.pair",
    "Incident": "examine.forensics",
    "Insert": "core.fork",
    "Intervention": "examine.forensics",
    "Judge": "core.judge",
    "LearnedSimulator": "learn.simulate",
    "LiveDecoder": "core.policy.decoder.live",
    "LocalPolicy": "core.policy.local",
    "MatchJudge": "core.judge",
    "Node": "core.tree.node",
    "OutcomeTable": "operate.route",
    "Perturb": "learn.simulate",
    "PinnedBuffer": "operate.pin",
    "PinnedCompactor": "operate.pin",
    "Point": "core.tree.node",
    "Policy": "core.policy.base",
    "PolicyChat": "core.chat",
    "PrefixScheduler": "operate.speculate.schedule",
    "Producer": "core.tree.score",
    "RecurrenceGate": "operate.memory",
    "ReforkError": "core.errors",
    "RemotePolicy": "core.policy.remote",
    "Remove": "core.fork",
    "Replace": "core.fork",
    "RepoTools": "discover.localize",
    "RoutedChat": "operate.route",
    "Sampling": "core.policy.base",
    "Score": "core.tree.score",
    "ScriptedChat": "core.chat",
    "ScriptedPolicy": "core.policy.scripted",
    "SelectionHead": "operate.route.head",
    "SequentialTemperatureScaling": "operate.speculate.calibrate",
    "Set": "core.fork",
    "Simulator": "core.world.simulated",
    "SpeculativeDecoder": "operate.speculate.decoder",
    "SpeculativePolicy": "operate.speculate.policy",
    "StateGraph": "learn.credit.graph",
    "StepCost": "operate.speculate.step_cost",
    "Stingy": "learn.simulate",
    "SwapPolicy": "core.fork",
    "SwapWorld": "core.fork",
    "Sweep": "core.fork",
    "Task": "core.world.base",
    "Trajectory": "core.tree.node",
    "Tree": "core.tree.tree",
    "TreeTraining": "learn.train.loop",
    "UUCB": "core.grow",
    "UserError": "core.errors",
    "WorkerPool": "operate.route",
    "World": "core.world.base",
    "WorldModel": "learn.simulate",
    "break_even": "core.decide",
    "causal_cuts": "examine.stance",
    "check_lossless": "operate.speculate.lossless",
    "collapse_report": "core.grow.report",
    "compare": "core.fork",
    "compare_simulators": "learn.simulate",
    "compare_until": "core.fork",
    "continuation_variance": "examine.stance",
    "credit_method": "learn.credit.methods",
    "extract_prediction": "learn.simulate",
    "fit_calibration": "core.decide",
    "fit_critics": "operate.gate.fit",
    "fork": "core.fork",
    "grow": "core.grow",
    "grow_trees": "core.grow",
    "improve": "learn.train.loop",
    "investigate": "discover.localize.investigate",
    "label_by_fork": "operate.route",
    "leaf_batch": "core.grow.leaves",
    "load_draft": "operate.speculate.checkpoint",
    "localize_path": "discover.localize.on_repository",
    "loss_weights": "learn.simulate",
    "open_policy": "core.policy.open",
    "open_world": "core.world.open",
    "plant_prompt": "core.grow",
    "read_traces": "learn.recovery",
    "recovery_audit": "learn.recovery",
    "run_gate": "operate.gate.live",
    "sim_to_real": "learn.simulate",
    "speculative": "operate.speculate.policy",
    "steering": "examine.steer",
    "sweep": "core.fork",
    "train_draft": "operate.speculate.train",
    "turn_stats": "learn.simulate",
}

__all__ = [  # noqa: RUF022 - plain order, not constants first
    "AblateDirection",
    "ActivationStore",
    "AddVector",
    "Ban",
    "BayesController",
    "Brief",
    "Capture",
    "Case",
    "CaseFile",
    "ChatModel",
    "ClampDirection",
    "Compose",
    "Conductor",
    "Constraint",
    "CriticModel",
    "CrossCoder",
    "Draft",
    "Edit",
    "EditMessage",
    "Effect",
    "EnvTrajectory",
    "ExperienceMemory",
    "Fictional",
    "FirstTokenProbe",
    "Force",
    "Fork",
    "GovernanceProbe",
    "Grammar",
    "HybridReward",
    "Hypothesis",
    "ImplicitPair",
    "Incident",
    "Insert",
    "Intervention",
    "Judge",
    "LearnedSimulator",
    "LiveDecoder",
    "LocalPolicy",
    "MatchJudge",
    "Node",
    "OutcomeTable",
    "Perturb",
    "PinnedBuffer",
    "PinnedCompactor",
    "Point",
    "Policy",
    "PolicyChat",
    "PrefixScheduler",
    "Producer",
    "RecurrenceGate",
    "ReforkError",
    "RemotePolicy",
    "Remove",
    "Replace",
    "RepoTools",
    "RoutedChat",
    "Sampling",
    "Score",
    "ScriptedChat",
    "ScriptedPolicy",
    "SelectionHead",
    "SequentialTemperatureScaling",
    "Set",
    "Simulator",
    "SpeculativeDecoder",
    "SpeculativePolicy",
    "StateGraph",
    "StepCost",
    "Stingy",
    "SwapPolicy",
    "SwapWorld",
    "Sweep",
    "Task",
    "Trajectory",
    "Tree",
    "TreeTraining",
    "UUCB",
    "UserError",
    "WorkerPool",
    "World",
    "WorldModel",
    "break_even",
    "causal_cuts",
    "check_lossless",
    "collapse_report",
    "compare",
    "compare_simulators",
    "compare_until",
    "continuation_variance",
    "credit_method",
    "extract_prediction",
    "fit_calibration",
    "fit_critics",
    "fork",
    "grow",
    "grow_trees",
    "improve",
    "investigate",
    "label_by_fork",
    "leaf_batch",
    "load_draft",
    "localize_path",
    "loss_weights",
    "open_policy",
    "open_world",
    "plant_prompt",
    "read_traces",
    "recovery_audit",
    "run_gate",
    "sim_to_real",
    "speculative",
    "steering",
    "sweep",
    "train_draft",
    "turn_stats",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'refork' has no attribute {name!r}")
    value = getattr(import_module(f"refork.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
