"""Numbers and foreign text as a report shows them: the same words in Markdown and in HTML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from refork.visible import visible

DASH = "–"
TIMES = "×"

_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_RATES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def digits(value: float, most: int = 3) -> str:
    """A number with three significant digits, never with an exponent where it is small enough to read."""
    text = f"{value:.{most}g}"
    return f"{value:,.0f}" if "e+" in text and abs(value) < 1e9 else text


def times(value: float | None) -> str:
    """A ratio of times as "24.7×"; a dash for None."""
    return DASH if value is None else f"{digits(value)}{TIMES}"


def span(low: float | None, high: float | None) -> str:
    """An interval of ratios as "22.1 to 26.4×"; a dash where an end is None."""
    return DASH if low is None or high is None else f"{digits(low)} to {digits(high)}{TIMES}"


def seconds(value: float | None) -> str:
    """Seconds in the unit that fits; a dash for None."""
    if value is None:
        return DASH
    scale, unit = next(((s, u) for s, u in _SECONDS if value >= s), _SECONDS[-1])
    return f"{digits(value / scale)} {unit}"


def per_second(value: float | None, unit: str) -> str:
    """A rate as "34.1 Gflop/s"; a dash for None."""
    if value is None:
        return DASH
    scale, prefix = next(((s, p) for s, p in _RATES if value >= s), _RATES[-1])
    return f"{digits(value / scale)} {prefix}{unit}/s"


def share(value: float | None) -> str:
    """A share as "71 %"; a dash for None."""
    return DASH if value is None else f"{100 * value:.{0 if value >= 0.1 or value == 0 else 1}f} %"


def scientific(value: float | None) -> str:
    """A small number such as an error, two significant digits; a dash for None."""
    return DASH if value is None else f"{value:.2g}"


def count(number: int, one: str, many: str = "") -> str:
    """``3 kernels``, ``1 kernel``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def one_line(text: str, most: int = 60) -> str:
    """The text on one line, cut to ``most`` characters with an ellipsis."""
    line = " ".join(visible(text[: 4 * most + 200]).split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def flat(facts: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """Nested facts as one list of names and values; what is None was not found out and is left out."""
    found: dict[str, str] = {}
    for name, value in facts.items():
        key = f"{before}{name}".replace("_", " ")
        if isinstance(value, Mapping):
            found |= flat(value, f"{key}: " if not before else f"{before}{name}: ")
        elif isinstance(value, float) and not isinstance(value, bool):
            found[key] = digits(value, 4)
        elif isinstance(value, list | tuple):
            found[key] = one_line(" ".join(str(item) for item in value), 300) or DASH
        elif value is not None:
            found[key] = one_line(str(value), 300)
    return found
