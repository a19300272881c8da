"""Pictures of a run: stringency over epochs, and the history of its judges. SVG that stands alone."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from markupsafe import Markup

from refork.report import palette
from refork.report.charts import Dot, Figure, Level, Line, Plane, curves
from refork.report.svg import label, line, svg, tag
from refork.stats import Interval
from refork_methods.evolve.history import Examination, JudgeHistory, Tenure

_WIDE: Final = 760
_LEFT: Final = 64
_RIGHT: Final = 24
#: Even-handed enough, as the published target is read.
_BAND: Final = (0.85, 1.15)
_STYLE: Final = """
svg { background: #fff; font: 12px sans-serif; fill: #333 }
.title { font-size: 14px; font-weight: 600 } .faint { fill: #777 } .mid { text-anchor: middle }
.end { text-anchor: end } .grid { stroke: #e3e3e3 } .axis { stroke: #888 } .one { stroke: #555 }
.held { fill: #0072b2 } .held-2 { fill: #3d8fbf } .name { fill: #fff }
.kept { fill: #fff; stroke: #0072b2; stroke-width: 2 }
.swap { fill: #d55e00; stroke: #d55e00; stroke-width: 2 }
.alone { fill: #fff; stroke: #d55e00; stroke-width: 2 }
"""


def stringency_figure(history: JudgeHistory) -> Figure | None:
    """The stringency ratio of every judge over the outcomes that it held the slot; 1 is even-handed.

    None where no judge's ratio is known. One picture for each slot that has ratios.
    """
    slots = sorted({one.slot for one in history.tenures if one.stringency is not None})
    if not slots:
        return None
    first, *rest = [_ratios(slot, [one for one in history.tenures if one.slot == slot]) for slot in slots]
    return replace(first, more=tuple(rest))


def _ratios(slot: str, tenures: list[Tenure]) -> Figure:
    held = [(one, one.stringency) for one in tenures if one.stringency is not None]
    dots = [
        Dot(
            (t.since + t.until) / 2,
            r.estimate,
            r.low,
            r.high,
            f"{t.judge[:8]}, outcomes {t.since} to {t.until}",
        )
        for t, r in held
    ]
    own = Line(
        "a judge, over its outcomes", dots, colour=palette.SERIES[1], band=False, whiskers=True, joined=False
    )
    steps = [
        Line("a judge, over its outcomes", [Dot(t.since, r.estimate), Dot(t.until, r.estimate)], faint=True)
        for t, r in held
    ]
    plane = Plane(
        "outcomes", "acceptance of machine-made over human work", "count", "times", log=True, zone=_BAND,
        levels=[Level(1.0, "even-handed")],
    )  # fmt: skip
    return curves([own, *steps], name=f"{slot}: acceptance of machine-made over human work", plane=plane)


def judges_picture(history: JudgeHistory) -> str:
    """Who held each slot when, how every examination went, and each judge's share of anchor items right.

    A filled dot: the judge was replaced there; an open one: it stayed; an open one of the other colour: it
    stayed, but the rule that was not in force would have replaced it.
    """
    slots = sorted({one.slot for one in history.tenures})
    tall = 132
    parts: list[Markup] = []
    for row, slot in enumerate(slots):
        mine = [one for one in history.tenures if one.slot == slot]
        done = [one for one in history.examinations if one.slot == slot]
        parts += _judge_panel(history, mine, done, row * tall)
    parts += _outcome_axis(history, tall * len(slots) + 4)
    parts += _key(tall * len(slots) + 58)
    return _document(tall * len(slots) + 76, "Judges of a run over its outcomes", parts)


def _judge_panel(
    history: JudgeHistory, tenures: list[Tenure], done: list[Examination], top: float
) -> list[Markup]:
    parts = [label(_LEFT, top + 22, f"{tenures[0].slot}: judges", class_="title")]
    bar = top + 62
    for one in tenures:
        x0, x1 = _x(history, one.since), _x(history, one.until)
        wide = x1 - x0
        parts.append(
            tag(
                "rect",
                x=x0,
                y=bar,
                width=max(wide - 1, 0.5),
                height=30,
                class_="held" if one.epoch % 2 == 0 else "held-2",
            )
        )
        if wide > 54:
            parts.append(
                label(
                    (x0 + x1) / 2, bar + 19, one.judge[:8] if wide > 80 else one.judge[:5], class_="mid name"
                )
            )
        if one.anchor is not None and wide > 34:
            parts.append(label((x0 + x1) / 2, bar + 46, _share(one.anchor), class_="mid faint"))
    parts.append(label(_LEFT - 8, bar + 46, "anchor", class_="end faint"))
    for exam in done:
        chosen = exam.decision.chosen is not None
        kind = "swap" if chosen else "alone" if exam.differs else "kept"
        parts.append(tag("circle", cx=_x(history, exam.at), cy=bar - 14, r=5, class_=kind))
    return parts


def _share(found: Interval) -> str:
    return f"{100 * found.estimate:.0f} %"


def _key(y: float) -> list[Markup]:
    told = (
        ("swap", "replaced"),
        ("kept", "examined, stays"),
        ("alone", "stays, the other rule would replace it"),
    )
    parts: list[Markup] = []
    x = float(_LEFT)
    for kind, text in told:
        parts += [tag("circle", cx=x, cy=y - 4, r=5, class_=kind), label(x + 11, y, text)]
        x += 40 + 7 * len(text)
    return parts


def _x(history: JudgeHistory, outcome: float) -> float:
    return _LEFT + (_WIDE - _LEFT - _RIGHT) * outcome / max(history.outcomes, 1)


def _outcome_axis(history: JudgeHistory, y: float) -> list[Markup]:
    total = max(history.outcomes, 1)
    rough = total / 6
    power = 10 ** math.floor(math.log10(rough)) if rough >= 1 else 1
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= rough)
    parts = [line(_LEFT, y, _WIDE - _RIGHT, y, "axis")]
    for mark in range(0, total + 1, int(step)):
        parts.append(label(_x(history, mark), y + 17, f"{mark:,}", class_="mid"))
    parts.append(label((_LEFT + _WIDE - _RIGHT) / 2, y + 35, "outcomes", class_="mid faint"))
    return parts


def _document(tall: float, name: str, parts: list[Markup]) -> str:
    style = Markup(f"<style>{_STYLE}</style>")
    text = str(svg(_WIDE, tall, name, style, *parts))
    return text.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1) + "\n"
