"""Recovery: what teaches a policy to turn back, and whether a data set still does."""

from ramify.learn.recovery.audit import RecoveryReport, recovery_audit
from ramify.learn.recovery.closed import (
    base_hitting_time,
    optimal_hitting_time,
    search_cost,
    sft_limit_hitting_time,
)
from ramify.learn.recovery.distillation import build_distillation_set, mix_traces
from ramify.learn.recovery.dose import coverage_dose, maze_dose
from ramify.learn.recovery.hitting import HittingTime, expected_hitting_time
from ramify.learn.recovery.on_tree import read_traces
from ramify.learn.recovery.rows import RowPolicy, path_star
from ramify.learn.recovery.traces import Trace, shorten, state_key
from ramify.learn.recovery.trainers import distill, rlvr, sft

__all__ = [
    "HittingTime",
    "RecoveryReport",
    "RowPolicy",
    "Trace",
    "base_hitting_time",
    "build_distillation_set",
    "coverage_dose",
    "distill",
    "expected_hitting_time",
    "maze_dose",
    "mix_traces",
    "optimal_hitting_time",
    "path_star",
    "read_traces",
    "recovery_audit",
    "rlvr",
    "search_cost",
    "sft",
    "sft_limit_hitting_time",
    "shorten",
    "state_key",
]
