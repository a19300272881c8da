"""The success scale: eleven colours, brick (never succeeds) over grey to blue (always succeeds).

Red-green blindness keeps the two ends apart: they differ in blue, and the middle has no hue.
"""

from __future__ import annotations

#: On a light page; each at least 2.8 : 1 against the paper, the two ends above 6 : 1.
LIGHT = (
    "#a5351f", "#b44e31", "#c26543", "#c1795a", "#b08873", "#9b958b",
    "#7e9397", "#5e91a3", "#3f859f", "#28708e", "#0b5c7d",
)  # fmt: skip
#: On a dark page.
DARK = (
    "#f4795a", "#e68164", "#d7886d", "#c18a74", "#a38779", "#85837d",
    "#81969b", "#79a9ba", "#6fb6d2", "#63bde1", "#55c4f0",
)  # fmt: skip

NONE = "none"


def shade(value: float | None) -> str:
    """The step of the scale as a class name: ``s0`` to ``s10``, ``snone`` for None."""
    if value is None:
        return f"s{NONE}"
    return f"s{round(10 * min(1.0, max(0.0, value)))}"
