"""Where the bug is: tools over a repository's snapshot, an index of it, and case files that name the place.

Source: arXiv:2606.24820.
"""

from refork_methods.localize.facts import Span, Symbol, ToolResult
from refork_methods.localize.index import RepoIndex
from refork_methods.localize.snapshot import Snapshot
from refork_methods.localize.tools import RepoTools

__all__ = ["RepoIndex", "RepoTools", "Snapshot", "Span", "Symbol", "ToolResult"]
