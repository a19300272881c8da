"""Programs that ask models: runs recorded from outside, replayed from the tape, and forked at any exchange.

Source of the design: docs/agents.md.
"""

from refork.agents.fork import Outcome, ProgramChange, ProgramForkSettings, cost_of, fork_run
from refork.agents.program import record, replay
from refork.agents.replay import ReplayDivergence, Replayed
from refork.agents.tape import ProgramRun, counts, exchanges, find_run, runs_of

__all__ = [
    "Outcome",
    "ProgramChange",
    "ProgramForkSettings",
    "ProgramRun",
    "ReplayDivergence",
    "Replayed",
    "cost_of",
    "counts",
    "exchanges",
    "find_run",
    "fork_run",
    "record",
    "replay",
    "runs_of",
]
