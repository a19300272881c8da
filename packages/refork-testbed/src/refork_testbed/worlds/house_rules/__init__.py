"""Sessions under a house rule, the exact grader of the calls that break it, and planted agents.

Source: arXiv 2606.22528 (nine rules, self-contained triggers, mechanical grading).
"""

from refork.tool_calls import ToolCall, Unparseable, calls_in, compact, openai_call
from refork_testbed.worlds.house_rules.checkers import Grade, check_checker, grade, judged, violates
from refork_testbed.worlds.house_rules.scenario import (
    CHANNELS,
    REFUSAL,
    SMALL_REFUSAL,
    Scenario,
    Slot,
    scenario,
    scenarios,
)
from refork_testbed.worlds.house_rules.tasks import TASKS, TOOLS, RuleTask, find_task
from refork_testbed.worlds.house_rules.triggers import requested

__all__ = [
    "CHANNELS",
    "REFUSAL",
    "SMALL_REFUSAL",
    "TASKS",
    "TOOLS",
    "Grade",
    "RuleTask",
    "Scenario",
    "Slot",
    "ToolCall",
    "Unparseable",
    "calls_in",
    "check_checker",
    "compact",
    "find_task",
    "grade",
    "judged",
    "openai_call",
    "requested",
    "scenario",
    "scenarios",
    "violates",
]
