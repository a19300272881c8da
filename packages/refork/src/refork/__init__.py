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
    from refork_methods.credit.graph import StateGraph
    from refork_methods.credit.methods import credit_method
    from refork_methods.crosscoder import CrossCoder
    from refork_methods.forensics import Case, Hypothesis, Incident, Intervention
    from refork_methods.gate import BayesController, CriticModel
    from refork_methods.gate.fit import fit_critics
    from refork_methods.gate.live import run_gate
    from refork_methods.implicit.pair import ImplicitPair
    from refork_methods.localize import RepoTools
    from refork_methods.localize.casefile import CaseFile
    from refork_methods.localize.investigate import investigate
    from refork_methods.localize.on_repository import localize_path
    from refork_methods.memory import ExperienceMemory, RecurrenceGate
    from refork_methods.pin import Constraint, PinnedBuffer, PinnedCompactor
    from refork_methods.probe import FirstTokenProbe
    from refork_methods.recovery import read_traces, recovery_audit
    from refork_methods.rot import GovernanceProbe
    from refork_methods.route import OutcomeTable, RoutedChat, WorkerPool, label_by_fork
    from refork_methods.route.conduct.conductor import Conductor
    from refork_methods.route.head import SelectionHead
    from refork_methods.simulate import (
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
    from refork_methods.speculate.calibrate import SequentialTemperatureScaling
    from refork_methods.speculate.checkpoint import load_draft
    from refork_methods.speculate.decoder import SpeculativeDecoder
    from refork_methods.speculate.lossless import check_lossless
    from refork_methods.speculate.policy import SpeculativePolicy, speculative
    from refork_methods.speculate.schedule import PrefixScheduler
    from refork_methods.speculate.step_cost import StepCost
    from refork_methods.speculate.train import train_draft
    from refork_methods.stance import causal_cuts, continuation_variance
    from refork_methods.steer import AblateDirection, AddVector, ClampDirection, steering
    from refork_methods.train.loop import TreeTraining, improve

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
