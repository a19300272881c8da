"""``miniapps``: five SQLite-backed apps, thirty scenario templates, and agents whose slips are known.

``miniapps_world`` opens it; ``Agent`` is the scripted agent, ``play`` lets one act, ``play_chat`` any chat
model.
"""

from ramify.core.world.miniapps.advice import Text, documented, other_value, spoiled, statement
from ramify.core.world.miniapps.agents import Agent, Bindable, Run, ScriptTool, Session, Turn, expert, play
from ramify.core.world.miniapps.catalogue import Function, catalogue
from ramify.core.world.miniapps.chat import play_chat
from ramify.core.world.miniapps.grading import goal_completion
from ramify.core.world.miniapps.hand import ToolFailed
from ramify.core.world.miniapps.mind import Rates, default_slips
from ramify.core.world.miniapps.policy import agent_policy
from ramify.core.world.miniapps.scenarios import SETS
from ramify.core.world.miniapps.service import is_refused
from ramify.core.world.miniapps.shift import SHIFTS, Shift
from ramify.core.world.miniapps.world import (
    Caller,
    MiniAppsEpisode,
    MiniAppsWorld,
    ToolLike,
    miniapps_world,
    scenarios_of,
)

__all__ = [
    "SETS",
    "SHIFTS",
    "Agent",
    "Bindable",
    "Caller",
    "Function",
    "MiniAppsEpisode",
    "MiniAppsWorld",
    "Rates",
    "Run",
    "ScriptTool",
    "Session",
    "Shift",
    "Text",
    "ToolFailed",
    "ToolLike",
    "Turn",
    "agent_policy",
    "catalogue",
    "default_slips",
    "documented",
    "expert",
    "goal_completion",
    "is_refused",
    "miniapps_world",
    "other_value",
    "play",
    "play_chat",
    "scenarios_of",
    "spoiled",
    "statement",
]
