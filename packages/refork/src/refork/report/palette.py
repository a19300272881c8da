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

#: What a page is made of, on light and on dark ground; the names are those of its style sheet.
ROLES = {
    "ink": "#1c1e22", "soft": "#575a60", "rule": "#e3dfd6", "faint": "#eeebe4", "accent": "#0b5c7d",
    "warm": "#a5351f", "snone": "#b9b4aa",
}  # fmt: skip
DARK_ROLES = {
    "ink": "#e9e6e0", "soft": "#a6a6a1", "rule": "#2d3137", "faint": "#23262b", "accent": "#55c4f0",
    "warm": "#f4795a", "snone": "#5c5d5c",
}  # fmt: skip
#: Lines and groups that have names: apart for every common kind of colour blindness (after Okabe and Ito).
SERIES = ("#0072b2", "#c24f00", "#00795c", "#a84b82", "#8a6a00", "#3d8fbf", "#6f6a63")
DARK_SERIES = ("#4fb3ea", "#ff8f4d", "#35c9a0", "#e495c4", "#e0b52e", "#8fd0f2", "#a9a49c")

NONE = "none"


def dark_of() -> dict[str, str]:
    """Every light colour of a chart with what it is on a dark page."""
    pairs = [*zip(LIGHT, DARK, strict=True), *zip(SERIES, DARK_SERIES, strict=True)]
    return dict(pairs) | {ROLES[name]: DARK_ROLES[name] for name in ROLES}


def shade(value: float | None) -> str:
    """The step of the scale as a class name: ``s0`` to ``s10``, ``snone`` for None."""
    if value is None:
        return f"s{NONE}"
    return f"s{round(10 * min(1.0, max(0.0, value)))}"


def colour(value: float | None) -> str:
    """The step of the scale as a colour on a light page; a grey for None."""
    return ROLES["snone"] if value is None else LIGHT[round(10 * min(1.0, max(0.0, value)))]
