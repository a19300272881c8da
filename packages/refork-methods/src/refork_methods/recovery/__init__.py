"""Recovery: what teaches a policy to turn back, and whether a data set still does."""

from refork_methods.recovery.audit import RecoveryReport, recovery_audit
from refork_methods.recovery.closed import (
    base_hitting_time,
    optimal_hitting_time,
    search_cost,
    sft_limit_hitting_time,
)
from refork_methods.recovery.distillation import build_distillation_set, mix_traces
from refork_methods.recovery.dose import maze_dose
from refork_methods.recovery.hitting import HittingTime, expected_hitting_time
from refork_methods.recovery.on_tree import read_traces
from refork_methods.recovery.rows import RowPolicy, path_star
from refork_methods.recovery.traces import Trace, shorten, state_key
from refork_methods.recovery.trainers import distill, rlvr, sft

__all__ = [
    "HittingTime",
    "RecoveryReport",
    "RowPolicy",
    "Trace",
    "base_hitting_time",
    "build_distillation_set",
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
