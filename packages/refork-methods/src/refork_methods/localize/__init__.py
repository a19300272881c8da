"""Where the bug is: tools over a repository's snapshot, an index of it, and case files that name the place.

Names are imported when they are first asked for, so that a reader process starts fast.

Source: arXiv:2606.24820.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refork_methods.localize.facts import Span, Symbol, ToolResult
    from refork_methods.localize.index import RepoIndex
    from refork_methods.localize.snapshot import Snapshot
    from refork_methods.localize.tools import RepoTools

__all__ = ["RepoIndex", "RepoTools", "Snapshot", "Span", "Symbol", "ToolResult"]

_HOME = {
    "RepoIndex": "index",
    "RepoTools": "tools",
    "Snapshot": "snapshot",
    "Span": "facts",
    "Symbol": "facts",
    "ToolResult": "facts",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
