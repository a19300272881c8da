"""Rewrites of C loops: legal moves on a kernel's source and flags, and how each is made.

Source to source on a syntax tree. A move is offered only where a conservative test of dependences shows that
the kernel computes the same, up to the rounding of reordered sums where the move says so.
"""

from refork_methods.kernel.rewrite.moves import apply, moves
from refork_methods.kernel.rewrite.rule import Move

__all__ = ["Move", "apply", "moves"]
