"""Six miniature environments and scripted agents whose motive is known.

Source: reconstructed from what arXiv 2606.26071 says of its six cases, whose code we could not get.
"""

from refork.core.world.motives.agents import AGENTS, TWINS, Agent, environment_dials, find_agent
from refork.core.world.motives.causes import CAUSES, Cause, rate
from refork.core.world.motives.environment import (
    AUDIT,
    ENGINEER,
    IDLE,
    NOBODY,
    SAMPLE,
    SELF,
    WEIGHTY,
    Dials,
    check_environment,
)
from refork.core.world.motives.scenes import APPEAL, NEUTRAL, SCENES, environment
from refork.core.world.motives.script import (
    ASK_SHARE,
    CAREFUL_OPENING,
    QUICK_OPENING,
    SURFACES,
    TAKE,
    sentences_in,
)
from refork.core.world.motives.world import (
    MotiveWorld,
    TargetJudge,
    command_in,
    ending_of,
    environment_task,
    motive_world,
)

__all__ = [
    "AGENTS",
    "APPEAL",
    "ASK_SHARE",
    "AUDIT",
    "CAREFUL_OPENING",
    "CAUSES",
    "ENGINEER",
    "IDLE",
    "NEUTRAL",
    "NOBODY",
    "QUICK_OPENING",
    "SAMPLE",
    "SCENES",
    "SELF",
    "SURFACES",
    "TAKE",
    "TWINS",
    "WEIGHTY",
    "Agent",
    "Cause",
    "Dials",
    "MotiveWorld",
    "TargetJudge",
    "check_environment",
    "command_in",
    "ending_of",
    "environment",
    "environment_dials",
    "environment_task",
    "find_agent",
    "motive_world",
    "rate",
    "sentences_in",
]
