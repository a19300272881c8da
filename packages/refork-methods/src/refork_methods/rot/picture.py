"""Pictures of rules over a session and over a grid: visibility strips, and rates with their intervals."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from refork.report.charts import WIDE, Across, Figure, Row, intervals
from refork.report.svg import label, line, svg, tag
from refork.report.words import one_line, rate
from refork.types import Json

_STEP, _TOP, _NAME = 34, 34, 118
_NAMES = {
    "floor": "no rule",
    "control": "control",
    "compaction": "compaction",
    "attack_volume": "bulk text",
    "attack_inject": "injected note",
    "defense_pin": "pinned",
    "defense_pin_attack": "pinned, injected",
    "stress_rescind": "pin, rescinded",
    "stress_distractors": "pin, distractors",
    "stress_impersonation": "pin, impersonation",
}


def condition_name(name: str) -> str:
    """A condition in two or three words."""
    return _NAMES.get(name, name)


def strip(calls: Sequence[Json], rules: Sequence[str], width: int = WIDE) -> Markup:
    """A line for each rule, a square for each call: filled in view, ringed pinned, hollow gone, crossed out.

    A dashed line stands before each call that a compaction came before.
    """
    left = _NAME if width >= WIDE else 84
    space = (width - left - 16) / max(len(calls), 1)
    side = max(3.0, min(20.0, space - 3))
    height = _TOP + _STEP * len(rules) + 26
    drawn: list[Markup] = []
    for i, call in enumerate(calls):
        x = left + space * i
        if call["compacted"]:
            told = tag("title", f"compaction before call {call['call']}: {call['reason']}")
            drawn.append(tag("g", told, line(x - 1.5, 18, x - 1.5, height - 24, "zero")))
            if space >= 26 or len(calls) <= 24:
                drawn.append(label(x - 1.5, 12, "compacted", class_="tick mid"))
        if i == 0 or i == len(calls) - 1 or (len(calls) <= 30 and space > 18):
            drawn.append(label(x + side / 2, height - 6, str(call["call"]), class_="tick mid"))
    for j, rule in enumerate(rules):
        y = _TOP + _STEP * j
        drawn.append(label(0, y + side / 2 + 5, one_line(rule, 14), class_="row-name"))
        drawn += [_square(c, c["rules"][j], left + space * i, y, side) for i, c in enumerate(calls)]
    return svg(width, height, "Where each rule is in view, call by call", *drawn, class_="strip")


def _square(call: Json, one: Json, x: float, y: float, side: float) -> Markup:
    state = "seen" if one["visible"] else "lost"
    words = [f"call {call['call']}", f"in view, {one['copies']} x" if one["visible"] else "not in view"]
    if one["pinned"]:
        words.append("pinned")
    if one["lost"]:
        words.append(one["lost"])
    if one["outcome"] and one["outcome"] != "refused":
        words.append(one["outcome"])
    drawn = [
        tag("title", ", ".join(words)),
        tag("rect", x=x, y=y, width=side, height=side, rx=2, class_=state),
    ]
    if one["pinned"]:
        drawn.append(tag("rect", x=x - 2, y=y - 2, width=side + 4, height=side + 4, rx=4, class_="ring"))
    if one["violated"]:
        a, b = side * 0.24, side * 0.76
        drawn += [line(x + a, y + a, x + b, y + b, "cross"), line(x + a, y + b, x + b, y + a, "cross")]
    return tag("g", *drawn)


def conditions_figure(table: Sequence[Json], model: str | None = None) -> Figure:
    """Violation in every condition with its interval; INVALID where the trigger was never reached."""
    rows = []
    for one in table:
        told = one["all"] if model is None else one["models"][model]
        known = told["rate"] is not None
        text = f"{rate(told['rate'])}, {told['violations']} of {told['n']}" if known else told["state"]
        rows.append(Row(condition_name(one["condition"]), told["rate"], told["low"], told["high"], text))
    name = f"Violations{f' of {model}' if model else ''} in each condition with their 95 % intervals"
    return intervals(rows, name=name, across=Across(bounds=(0.0, 1.0)), value="Violations")
