"""Go back to a point, change one thing, run on many times, compare."""

from ramify.core.fork.arm import Fork, fork, recorded_settings
from ramify.core.fork.change import (
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
from ramify.core.fork.effect import Effect, compare, compare_until
from ramify.core.fork.parse import change_from_json, parse_change
from ramify.core.fork.potential import Sweep, potential_scores, sweep
from ramify.core.fork.report import arm_summary, trace_report

__all__ = [
    "Ban",
    "Change",
    "Compose",
    "EditMessage",
    "Effect",
    "Force",
    "Fork",
    "Insert",
    "Remove",
    "Replace",
    "Set",
    "SwapPolicy",
    "SwapWorld",
    "Sweep",
    "arm_summary",
    "change_from_json",
    "compare",
    "compare_until",
    "fork",
    "parse_change",
    "potential_scores",
    "recorded_settings",
    "sweep",
    "trace_report",
]
