"""Programs that ask models: runs recorded from outside, and run again with every answer from the tape.

Source of the design: docs/agents.md.
"""

from refork.agents.program import record, replay
from refork.agents.replay import ReplayDivergence, Replayed
from refork.agents.tape import ProgramRun, counts, find_run, runs_of

__all__ = ["ProgramRun", "ReplayDivergence", "Replayed", "counts", "find_run", "record", "replay", "runs_of"]
