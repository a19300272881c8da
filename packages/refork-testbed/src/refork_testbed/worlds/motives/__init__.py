"""Six miniature environments and scripted agents whose motive is known.

Source: reconstructed from what arXiv 2606.26071 says of its six cases, whose code we could not get.
"""

from refork_testbed.worlds.motives.agents import AGENTS, TWINS, Agent, environment_dials, find_agent
from refork_testbed.worlds.motives.causes import CAUSES, Cause, rate
from refork_testbed.worlds.motives.environment import (
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
from refork_testbed.worlds.motives.scenes import APPEAL, NEUTRAL, SCENES, environment
from refork_testbed.worlds.motives.script import (
    ASK_SHARE,
    CAREFUL_OPENING,
    QUICK_OPENING,
    SURFACES,
    TAKE,
    sentences_in,
)
from refork_testbed.worlds.motives.world import (
    MotiveWorld,
    command_in,
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
    "check_environment",
    "command_in",
    "environment",
    "environment_dials",
    "environment_task",
    "find_agent",
    "motive_world",
    "rate",
    "sentences_in",
]
