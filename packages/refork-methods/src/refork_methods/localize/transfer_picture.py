"""What findings are worth, setting by setting, as a picture that stands alone."""

from __future__ import annotations

from markupsafe import Markup

from refork.report import palette
from refork.report.pictures import Frame
from refork.report.svg import label, svg, tag, ticks
from refork_methods.localize.transfer import SettingTransfer, TransferReport

_SVG = "http://www.w3.org/2000/svg"
_BLUE, _BRICK, _GREY, _INK = palette.LIGHT[-1], palette.LIGHT[0], "#77736c", "#333"
_FONT = {"font_family": "sans-serif", "font_size": "12", "fill": _INK}
_SMALL = {**_FONT, "font_size": "11", "fill": "#666"}
_WIDE, _RIGHT, _TOP, _ROW = 860, 590, 84, 34
_LETTER = 6.6


def transfer_picture(report: TransferReport, title: str = "With findings minus without") -> str:
    """An SVG document: each setting's paired difference with its interval, and its rates in words.

    Blue and brick are gains and losses that stand after Holm's correction; the rest is grey.
    """
    names = [row.setting or "all tasks" for row in report.settings]
    left = 40 + _LETTER * max(len(name) for name in names)
    ends = [0.0, *(end for row in report.settings for end in (row.difference.low, row.difference.high))]
    marks = ticks(100 * min(ends), 100 * max(ends), 6)
    bottom = _TOP + _ROW * len(names)
    frame = Frame(left, _RIGHT, _TOP, bottom, marks[0], marks[-1], 0, 1)
    kind = "" if report.deployable else ", a control: nothing to deploy"
    told = f"{report.findings} findings{kind}; mean over settings {100 * report.mean:+.1f} points"
    parts = [tag("rect", width=_WIDE, height=bottom + 56, fill="#fff")]
    parts += [label(24, 28, title, **{**_FONT, "font_size": "15"}), label(24, 47, told, **_SMALL)]
    for mark in marks:
        x, zero = frame.x(mark), mark == 0
        parts.append(tag("line", x1=x, x2=x, y1=_TOP - 6, y2=bottom, stroke=_INK if zero else "#e2e0dc"))
        parts.append(label(x, bottom + 18, f"{mark:+g}" if mark else "0", text_anchor="middle", **_FONT))
    middle = (left + _RIGHT) / 2
    parts.append(label(middle, bottom + 40, "points of resolved tasks", text_anchor="middle", **_SMALL))
    parts.append(label(_RIGHT + 24, _TOP - 14, "without, with (tasks), p after Holm", **_SMALL))
    for number, (row, name) in enumerate(zip(report.settings, names, strict=True)):
        parts += _setting(row, name, frame, _TOP + _ROW * (number + 0.5))
    return str(svg(_WIDE, bottom + 56, title, *parts)).replace("<svg", f'<svg xmlns="{_SVG}"', 1)


def _setting(row: SettingTransfer, name: str, frame: Frame, y: float) -> list[Markup]:
    span = row.difference
    colour = _GREY if not row.significant else _BLUE if span.estimate > 0 else _BRICK
    low, high, x = (frame.x(100 * value) for value in (span.low, span.high, span.estimate))
    chance = "p < 0.001" if row.p < 0.001 else f"p {row.p:.3f}"
    said = f"{100 * row.without:.1f} %, {100 * row.with_:.1f} % ({row.tasks}), {chance}"
    hover = f"{name}: {row.gains} better, {row.losses} worse of {row.tasks}"
    return [
        label(frame.left - 16, y + 4, name, text_anchor="end", **_FONT),
        tag("line", x1=low, x2=high, y1=y, y2=y, stroke=colour, stroke_width="2"),
        tag("circle", tag("title", hover), cx=x, cy=y, r=5, fill=colour),
        label(_RIGHT + 24, y + 4, said, **{**_FONT, "fill": colour}),
    ]
