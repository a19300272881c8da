"""Six miniature environments and scripted agents whose motive is known.

Source: reconstructed from what arXiv 2606.26071 says of its six cases; the environments' code was not published.
"""

from ramify.core.world.motives.agents import AGENTS, TWINS, Agent, environment_dials, find_agent
from ramify.core.world.motives.causes import CAUSES, Cause, rate
from ramify.core.world.motives.environment import Dials, check_environment
from ramify.core.world.motives.scenes import SCENES, environment
from ramify.core.world.motives.world import (
    MotiveWorld,
    TargetJudge,
    ending_of,
    environment_task,
    motive_world,
)

__all__ = [
    "AGENTS",
    "CAUSES",
    "SCENES",
    "TWINS",
    "Agent",
    "Cause",
    "Dials",
    "MotiveWorld",
    "TargetJudge",
    "check_environment",
    "ending_of",
    "environment",
    "environment_dials",
    "environment_task",
    "find_agent",
    "motive_world",
    "rate",
]
