"""Divisions, roots and library calls in the hot loop."""

from __future__ import annotations

from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu.metrics import cited, together
from refork_methods.kernel.finding import Finding
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import micro_tool

NAME = "SlowOps"
#: Guess: one in an innermost loop is enough, it takes as long as ten or more other instructions.
LEAST = 1


@micro_tool(source="objdump", category="compute", bounds=("compute",))
def slow_ops(signals: Signals) -> Finding | None:
    """A division, square root or call of the mathematics library in an innermost loop."""
    known = together(signals, m.DIVISIONS, m.ROOTS, m.LIBM_CALLS, m.LOOPS)
    if known is None:
        return None
    divisions, roots, libm, loops = known
    if not loops or divisions + roots + libm < LEAST:
        return None
    parts = ((divisions, "division(s)"), (roots, "square root(s)"), (libm, "call(s) of libm"))
    listed = ", ".join(f"{count:.0f} {what}" for count, what in parts if count)
    actions = [
        "Multiply by a reciprocal computed outside the loop." if divisions else "",
        "Hoist or batch the roots, or use an approximate reciprocal root with one Newton step."
        if roots
        else "",
        "Use vector mathematics (-ffast-math with libmvec, or a polynomial)." if libm else "",
    ]
    return Finding(
        tool=NAME,
        category="compute",
        severity="critical" if libm else "warn",
        cause=f"{listed} in the inner loop.",
        action=" ".join(one for one in actions if one),
        metrics={m.DIVISIONS.name: divisions, m.ROOTS.name: roots, m.LIBM_CALLS.name: libm},
        evidence=cited(signals, "objdump", "div", "sqrt", "call"),
    )
