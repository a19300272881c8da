"""Programs that ask models: recorded from outside, replayed from the tape, forked anywhere, diagnosed.

Source of the design: docs/agents.md.
"""

from refork.agents.case import write_case
from refork.agents.diagnosis import Diagnosis, LostStep, Rescue, RunValue, WhySettings, why
from refork.agents.folders import CommandRun, ContainedFolder, FolderMachine, FolderState
from refork.agents.fork import (
    Outcome,
    ProgramChange,
    ProgramForkSettings,
    ProgramPoints,
    answer_tokens,
    compare_arms,
    cost_of,
    fork_run,
    other_files,
    tools_of,
)
from refork.agents.patches import patch
from refork.agents.program import ContainedRun, RecordSettings, record, replay
from refork.agents.program_side import ToolRefused, tool
from refork.agents.replay import ReplayDivergence, Replayed
from refork.agents.snapshots import start_of
from refork.agents.tape import ProgramRun, counts, exchanges, find_run, graph_state, runs_of
from refork.agents.tool_calls import ToolEvent, covered, of_tools, tool_events

__all__ = [
    "CommandRun",
    "ContainedFolder",
    "ContainedRun",
    "Diagnosis",
    "FolderMachine",
    "FolderState",
    "LostStep",
    "Outcome",
    "ProgramChange",
    "ProgramForkSettings",
    "ProgramPoints",
    "ProgramRun",
    "RecordSettings",
    "ReplayDivergence",
    "Replayed",
    "Rescue",
    "RunValue",
    "ToolEvent",
    "ToolRefused",
    "WhySettings",
    "answer_tokens",
    "compare_arms",
    "cost_of",
    "counts",
    "covered",
    "exchanges",
    "find_run",
    "fork_run",
    "graph_state",
    "of_tools",
    "other_files",
    "patch",
    "record",
    "replay",
    "runs_of",
    "start_of",
    "tool",
    "tool_events",
    "tools_of",
    "why",
    "write_case",
]
