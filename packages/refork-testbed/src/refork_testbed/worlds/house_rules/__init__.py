"""Sessions under a house rule, and planted agents. What a rule forbids is told by the checkers of ``pin``.

Source: arXiv 2606.22528 (nine rules, self-contained triggers, mechanical grading).
"""

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
    "RuleTask",
    "Scenario",
    "Slot",
    "find_task",
    "requested",
    "scenario",
    "scenarios",
]
