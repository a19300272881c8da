"""Go back to any token of a recorded rollout, change one thing, run on many times, and compare."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ramify.core.chat import ChatModel, PolicyChat, ScriptedChat
    from ramify.core.decide import break_even, fit_calibration
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
    from ramify.core.grow import UUCB, grow, grow_trees, plant_prompt
    from ramify.core.grow.leaves import leaf_batch
    from ramify.core.grow.report import collapse_report
    from ramify.core.judge import Judge, MatchJudge
    from ramify.core.policy.base import Policy, Sampling
    from ramify.core.policy.decoder.live import LiveDecoder
    from ramify.core.policy.grammar import Grammar
    from ramify.core.policy.inside import Capture, Edit
    from ramify.core.policy.local import LocalPolicy
    from ramify.core.policy.open import open_policy
    from ramify.core.policy.remote import RemotePolicy
    from ramify.core.policy.scripted import ScriptedPolicy
    from ramify.core.tree.activations import ActivationStore
    from ramify.core.tree.node import Draft, Node, Point, Trajectory
    from ramify.core.tree.score import Producer, Score
    from ramify.core.tree.tree import Tree
    from ramify.core.world.base import Task, World
    from ramify.core.world.environment import Brief, EnvTrajectory
    from ramify.core.world.open import open_world
    from ramify.core.world.simulated import Simulator
    from ramify.discover.localize import RepoTools
    from ramify.discover.localize.casefile import CaseFile
    from ramify.discover.localize.investigate import investigate
    from ramify.discover.localize.on_repository import localize_path
    from ramify.examine.crosscoder import CrossCoder
    from ramify.examine.forensics import Case, Hypothesis, Incident, Intervention
    from ramify.examine.probe import FirstTokenProbe
    from ramify.examine.stance import causal_cuts, continuation_variance
    from ramify.examine.steer import AblateDirection, AddVector, ClampDirection, steering
    from ramify.learn.credit.graph import StateGraph
    from ramify.learn.credit.implicit.pair import ImplicitPair
    from ramify.learn.credit.methods import credit_method
    from ramify.learn.recovery import read_traces, recovery_audit
    from ramify.learn.simulate import (
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
    from ramify.learn.train.loop import TreeTraining, improve
    from ramify.operate.gate import BayesController, CriticModel
    from ramify.operate.gate.fit import fit_critics
    from ramify.operate.gate.live import run_gate
    from ramify.operate.memory import ExperienceMemory, RecurrenceGate
    from ramify.operate.pin import Constraint, PinnedBuffer, PinnedCompactor
    from ramify.operate.rot import GovernanceProbe
    from ramify.operate.route import OutcomeTable, RoutedChat, WorkerPool, label_by_fork
    from ramify.operate.route.conduct.conductor import Conductor
    from ramify.operate.route.head import SelectionHead
    from ramify.operate.speculate.calibrate import SequentialTemperatureScaling
    from ramify.operate.speculate.checkpoint import load_draft
    from ramify.operate.speculate.decoder import SpeculativeDecoder
    from ramify.operate.speculate.lossless import check_lossless
    from ramify.operate.speculate.policy import SpeculativePolicy, speculative
    from ramify.operate.speculate.schedule import PrefixScheduler
    from ramify.operate.speculate.step_cost import StepCost
    from ramify.operate.speculate.train import train_draft

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
    "RamifyError": "core.errors",
    "RecurrenceGate": "operate.memory",
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
    "RamifyError",
    "RecurrenceGate",
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
        raise AttributeError(f"module 'ramify' has no attribute {name!r}")
    value = getattr(import_module(f"ramify.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
