"""Go back to a point, change one thing, run on many times, compare."""

from refork.forking.arm import Fork, fork, fork_both, recorded_settings
from refork.forking.change import (
    Ban,
    Change,
    Compose,
    EditMessage,
    Force,
    Insert,
    Remove,
    Replace,
    Set,
    SwapPolicy,
    SwapWorld,
)
from refork.forking.effect import Effect, compare, compare_until
from refork.forking.parse import change_from_json, parse_change
from refork.forking.potential import (
    Paired,
    Sweep,
    SweepPlan,
    plan_sweep,
    potential_scores,
    run_sweep,
    sweep,
    token_chances,
)
from refork.forking.report import arm_summary, trace_report

__all__ = [
    "Ban",
    "Change",
    "Compose",
    "EditMessage",
    "Effect",
    "Force",
    "Fork",
    "Insert",
    "Paired",
    "Remove",
    "Replace",
    "Set",
    "SwapPolicy",
    "SwapWorld",
    "Sweep",
    "SweepPlan",
    "arm_summary",
    "change_from_json",
    "compare",
    "compare_until",
    "fork",
    "fork_both",
    "parse_change",
    "plan_sweep",
    "potential_scores",
    "recorded_settings",
    "run_sweep",
    "sweep",
    "token_chances",
    "trace_report",
]
