"""What becomes of rules when a history is compacted: scenarios, forks, grids and audits of sessions.

Source: arXiv:2606.22528.
"""

from ramify.operate.rot.audit import Audit, audit_file
from ramify.operate.rot.compactors import COMPACTORS, open_compactor
from ramify.operate.rot.conditions import CONDITIONS, STRESS, grid_size
from ramify.operate.rot.grid import run_grid
from ramify.operate.rot.grid_report import grid_report
from ramify.operate.rot.on_tree import Decay, GovernanceProbe
from ramify.operate.rot.readers import checkpoint_session, read_sessions, write_session
from ramify.operate.rot.recipe import RotRecipe
from ramify.operate.rot.session import ModelCall, SessionLog, session_of

__all__ = [
    "COMPACTORS",
    "CONDITIONS",
    "STRESS",
    "Audit",
    "Decay",
    "GovernanceProbe",
    "ModelCall",
    "RotRecipe",
    "SessionLog",
    "audit_file",
    "checkpoint_session",
    "grid_report",
    "grid_size",
    "open_compactor",
    "read_sessions",
    "run_grid",
    "session_of",
    "write_session",
]
