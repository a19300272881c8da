"""Figures and texts as words: percentages, points, intervals, tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeGuard

from refork.visible import visible

DASH = "–"
NBSP = "\u00a0"
MINUS = "−"


def decimals(value: float) -> int:
    """Decimals a percentage (0 to 100) needs: one near the ends, where a whole number would lie."""
    far = min(abs(value), abs(100 - abs(value)))
    return 1 if 0 < far < 0.95 and abs(far - round(far)) > 1e-9 else 0


def rate(value: float | None) -> str:
    """``0.582`` as "58 %"; a dash for None and NaN. What is nearly nothing or all is told as that."""
    return f"{_share(value)}{NBSP}%" if _known(value) else DASH


def _known(value: float | None) -> TypeGuard[float]:
    return value is not None and not math.isnan(value)


def _share(value: float) -> str:
    text = _number(100 * value)
    return {"0.0": f"<{NBSP}0.1", "100.0": f">{NBSP}99.9"}.get(text, text) if 0 < value < 1 else text


def _number(value: float, sign: bool = False) -> str:
    text = f"{abs(value):.{decimals(value)}f}"
    # By the text: a small negative number that is written as 0 has no sign.
    zero = float(text) == 0
    mark = "" if zero else MINUS if value < 0 else "+" if sign else ""
    return mark + text


def points(value: float | None) -> str:
    """``0.27`` as "+27 points"; a dash for None and NaN."""
    if not _known(value):
        return DASH
    number = _number(100 * value, sign=True)
    return f"{number}{NBSP}{'point' if number in ('+1', MINUS + '1') else 'points'}"


def mean(value: float | None, sign: bool = False) -> str:
    """A mean in its own unit, three significant digits; a dash for None and NaN."""
    if not _known(value):
        return DASH
    text = f"{abs(value):.3g}"
    return (MINUS if value < 0 else "+" if sign and value > 0 else "") + text


def value_of(value: float | None, scale: str) -> str:
    """A rate as a percentage, a mean as a number."""
    return rate(value) if scale == "rate" else mean(value)


def change_of(value: float | None, scale: str) -> str:
    """A difference of rates in points, of means in their unit."""
    return points(value) if scale == "rate" else mean(value, sign=True)


def span(low: float | None, high: float | None, scale: str = "rate", sign: bool = False) -> str:
    """A range with its unit once, "18 to 36 %"; a dash where an end is None or NaN."""
    if not (_known(low) and _known(high)):
        return DASH
    if scale == "rate":
        ends = [_number(100 * end, sign) if sign else _share(end) for end in (low, high)]
        return f"{ends[0]} to {ends[1]}" + ("" if sign else f"{NBSP}%")
    return f"{mean(low, sign)} to {mean(high, sign)}"


def p_value(value: float | None, bare: bool = False) -> str:
    """A p value as "p < 0.001" or "p = 0.03" (without "p" and "=" where ``bare``); a dash for None."""
    if value is None:
        return DASH
    small = value < 0.001
    number = f"<{NBSP}0.001" if small else f"{value:.2g}"
    return number if bare else f"p{NBSP}{number}" if small else f"p{NBSP}={NBSP}{number}"


def level(value: float) -> str:
    """``0.95`` as "95 %"."""
    return f"{100 * value:.4g}{NBSP}%"


def count(value: int | None) -> str:
    """A whole number with thousands apart; a dash for None."""
    return DASH if value is None else f"{value:,}"


def duration(seconds: float | None) -> str:
    """Seconds as "3.2 s", "48 s" or "2 min 05 s"; a dash for None."""
    if seconds is None:
        return DASH
    if seconds < 10:
        return f"{seconds:.1f}{NBSP}s"
    # By the rounded number: 59.6 s are a minute, not 60 s.
    if round(seconds) < 60:
        return f"{seconds:.0f}{NBSP}s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}{NBSP}min {rest:02d}{NBSP}s"


_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_RATES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def digits(value: float, most: int = 3) -> str:
    """A number with three significant digits, without an exponent where it is small enough to read."""
    text = f"{value:.{most}g}"
    return f"{value:,.0f}" if "e+" in text and abs(value) < 1e9 else text


def times(value: float | None) -> str:
    """A ratio of times as "24.7×"; a dash for None."""
    return DASH if value is None else f"{digits(value)}×"


def times_span(low: float | None, high: float | None) -> str:
    """An interval of ratios as "22.1 to 26.4×"; a dash where an end is None."""
    return DASH if low is None or high is None else f"{digits(low)} to {digits(high)}×"


def scientific(value: float | None) -> str:
    """A small number such as an error, two significant digits; a dash for None."""
    return DASH if value is None else f"{value:.2g}"


def short_time(seconds: float | None) -> str:
    """Seconds in the unit that fits, "3.2 ms"; a dash for None."""
    if seconds is None:
        return DASH
    scale, unit = next(((s, u) for s, u in _SECONDS if seconds >= s), _SECONDS[-1])
    return f"{digits(seconds / scale)}{NBSP}{unit}"


def per_second(value: float | None, unit: str) -> str:
    """A rate as "34.1 Gflop/s"; a dash for None."""
    if value is None:
        return DASH
    scale, prefix = next(((s, p) for s, p in _RATES if value >= s), _RATES[-1])
    return f"{digits(value / scale)}{NBSP}{prefix}{unit}/s"


def counted(number: int, one: str, many: str = "") -> str:
    """``3 kernels``, ``1 kernel``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def one_line(text: str, most: int = 60) -> str:
    """The text on one line, cut to ``most`` characters with an ellipsis."""
    line = " ".join(visible(text[: 4 * most + 200]).split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def token_text(text: str) -> str:
    """A token as a word in a sentence: ends trimmed, white space shown by its sign."""
    bare = visible(text)
    if bare.strip():
        return bare.strip().replace("\n", "↵")
    return bare.replace("\n", "↵").replace("\t", "⇥").replace(" ", "␣") or "∅"


def flat(facts: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """Nested facts as one list of names and values; what is None was not found out and is left out."""
    found: dict[str, str] = {}
    for name, value in facts.items():
        key = f"{before}{name}".replace("_", " ")
        if isinstance(value, Mapping):
            found |= flat(value, f"{key}: " if not before else f"{before}{name}: ")
        elif isinstance(value, float):
            found[key] = digits(value, 4)
        elif isinstance(value, list | tuple):
            found[key] = one_line(" ".join(str(item) for item in value), 300) or DASH
        elif value is not None:
            found[key] = one_line(str(value), 300)
    return found
