"""One workflow as a picture: its steps from top to bottom, and who saw whose answer."""

from __future__ import annotations

from markupsafe import Markup

from refork.report import palette
from refork.report.svg import label, num, svg, tag
from refork_methods.route.conduct.execute import Execution, StepRun

_SVG = "http://www.w3.org/2000/svg"
_BLUE, _BRICK, _INK, _QUIET = palette.LIGHT[-1], palette.LIGHT[0], "#333", "#666"
_FONT = {"font_family": "sans-serif", "font_size": "13", "fill": _INK}
_BOLD = {**_FONT, "font_weight": "bold"}
_SMALL = {**_FONT, "font_size": "11", "fill": _QUIET}
#: The boxes, and the room to their left for one lane of arrows per span of steps.
_WIDE, _BOX, _GAP, _LANE, _RIGHT, _TOP = 640, 66, 22, 16, 24, 64
#: Characters of a text that fit into a box.
_FITS = 64


def workflow_picture(execution: Execution, query: str = "") -> str:
    """An SVG document: a box per step with worker, subtask, answer and cost; an arrow per answer shown."""
    steps = execution.steps
    spans = [step.step - one.step for step in steps for one in step.earlier_steps]
    left = 40 + _LANE * max(spans, default=0)
    high = _TOP + len(steps) * (_BOX + _GAP) + 30
    parts = [tag("rect", width=_WIDE, height=high, fill="#fff")]
    parts.append(label(left, 26, _cut(query) or "Workflow", **{**_FONT, "font_size": "15"}))
    parts.append(label(left, 44, "an arrow: this answer is shown to that step", **_SMALL))
    for step in steps:
        parts += _step(step, left)
    for step in steps:
        parts += [_arrow(one.step, step.step, left) for one in step.earlier_steps]
    answer = "no answer: the last step failed" if execution.answer is None else f"answer: {execution.answer}"
    parts.append(label(left, high - 22, _cut(answer), **_BOLD))
    return str(svg(_WIDE, high, query or "Workflow", *parts)).replace("<svg", f'<svg xmlns="{_SVG}"', 1)


def _top(step: int) -> float:
    return _TOP + (step - 1) * (_BOX + _GAP)


def _step(step: StepRun, left: float) -> list[Markup]:
    y, failed = _top(step.step), step.output is None
    edge = _BRICK if failed else "#bbb6ad"
    wide = _WIDE - left - _RIGHT
    spent = [f"{step.calls} call" + ("s" if step.calls != 1 else "")]
    known = [price for price in step.prices if price is not None]
    if step.prices:
        spent.append("price unknown" if len(known) < len(step.prices) else f"{sum(known):g}")
    said = f"failed: {step.error}" if failed else f"→ {step.output}"
    return [
        tag("rect", x=left, y=y, width=wide, height=_BOX, rx=6, fill="#faf8f5", stroke=edge),
        label(left + 12, y + 20, f"{step.step}. {_cut(step.worker, 40)}", **_BOLD),
        label(left + wide - 12, y + 20, ", ".join(spent), **_SMALL, text_anchor="end"),
        label(left + 12, y + 39, _cut(step.subtask), **_FONT),
        label(left + 12, y + 57, _cut(said), **{**_FONT, "fill": _BRICK if failed else _BLUE}),
    ]


def _arrow(start: int, end: int, left: float) -> Markup:
    """A bracket at the left from one box to a later one, further out the more steps it spans."""
    out = left - 10 - _LANE * (end - start)
    above, below = _top(start) + _BOX - 14, _top(end) + 14 + 9 * (end - start - 1)
    line = f"M{num(left)} {num(above)} H{num(out)} V{num(below)} H{num(left - 7)}"
    head = f"M{num(left)} {num(below)} l-8 -4 v8 Z"
    return Markup("").join(
        [
            tag("path", d=line, fill="none", stroke=_BLUE, stroke_width="1.5"),
            tag("path", d=head, fill=_BLUE),
        ]
    )


def _cut(text: str, most: int = _FITS) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= most else plain[: most - 1] + "…"
