"""``miniapps``: five SQLite-backed apps, thirty scenario templates, and agents whose slips are known.

``miniapps_world`` opens it; ``Agent`` is the scripted agent, ``play`` lets one act, ``play_chat`` any chat
model.
"""

from refork_testbed.worlds.miniapps.advice import Text, documented, other_value, spoiled, statement
from refork_testbed.worlds.miniapps.agents import (
    Agent,
    Bindable,
    Run,
    ScriptTool,
    Session,
    Turn,
    expert,
    play,
)
from refork_testbed.worlds.miniapps.catalogue import Function, catalogue
from refork_testbed.worlds.miniapps.chat import play_chat
from refork_testbed.worlds.miniapps.grading import goal_completion
from refork_testbed.worlds.miniapps.hand import ToolFailed
from refork_testbed.worlds.miniapps.mind import Rates, default_slips
from refork_testbed.worlds.miniapps.policy import agent_policy
from refork_testbed.worlds.miniapps.scenarios import SETS
from refork_testbed.worlds.miniapps.service import is_refused
from refork_testbed.worlds.miniapps.shift import SHIFTS, Shift
from refork_testbed.worlds.miniapps.world import (
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
