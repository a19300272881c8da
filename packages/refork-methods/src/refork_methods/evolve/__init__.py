"""Agents and their judges that evolve together: scores know who gave them, and die with their judge.

Names are imported when they are first asked for, so that a reader process starts fast.

Source: arXiv:2606.26294.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refork_methods.evolve.belief import best_belief
    from refork_methods.evolve.clades import clade_counts
    from refork_methods.evolve.compare import compare_judges
    from refork_methods.evolve.erase import selective_erasure
    from refork_methods.evolve.history import judge_history
    from refork_methods.evolve.promote import Gate, promote
    from refork_methods.evolve.records import Cell, EvaluatorSlot, UtilityRecord
    from refork_methods.evolve.replay import replay, resume
    from refork_methods.evolve.search import Runtime, Settings, run
    from refork_methods.evolve.stringency import stringency_ratio
    from refork_methods.evolve.swap import Verdict, judge_gate
    from refork_methods.evolve.traps import trap_set

_HOME = {
    "Cell": "records",
    "EvaluatorSlot": "records",
    "Gate": "promote",
    "Runtime": "search",
    "Settings": "search",
    "UtilityRecord": "records",
    "Verdict": "swap",
    "best_belief": "belief",
    "clade_counts": "clades",
    "compare_judges": "compare",
    "judge_gate": "swap",
    "judge_history": "history",
    "promote": "promote",
    "replay": "replay",
    "resume": "replay",
    "run": "search",
    "selective_erasure": "erase",
    "stringency_ratio": "stringency",
    "trap_set": "traps",
}

__all__ = [
    "Cell",
    "EvaluatorSlot",
    "Gate",
    "Runtime",
    "Settings",
    "UtilityRecord",
    "Verdict",
    "best_belief",
    "clade_counts",
    "compare_judges",
    "judge_gate",
    "judge_history",
    "promote",
    "replay",
    "resume",
    "run",
    "selective_erasure",
    "stringency_ratio",
    "trap_set",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
