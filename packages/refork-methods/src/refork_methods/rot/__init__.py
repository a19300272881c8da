"""What becomes of rules when a history is compacted: scenarios, forks, grids and audits of sessions.

Source: arXiv:2606.22528.
"""

from refork_methods.rot.audit import Audit, audit_file
from refork_methods.rot.compactors import CompactorKind, open_compactor
from refork_methods.rot.conditions import CONDITIONS, STRESS, grid_size
from refork_methods.rot.grid_report import grid_report
from refork_methods.rot.on_tree import Decay, GovernanceProbe
from refork_methods.rot.readers import checkpoint_session, read_sessions, write_session
from refork_methods.rot.session import ModelCall, SessionLog, session_of

__all__ = [
    "CONDITIONS",
    "STRESS",
    "Audit",
    "CompactorKind",
    "Decay",
    "GovernanceProbe",
    "ModelCall",
    "SessionLog",
    "audit_file",
    "checkpoint_session",
    "grid_report",
    "grid_size",
    "open_compactor",
    "read_sessions",
    "session_of",
    "write_session",
]
