"""The tree of one task, drawn sideways: width for leaves, colour for success, the swept run outlined."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from refork.report.palette import shade
from refork.report.svg import label, num, svg, tag
from refork.report.words import count, one_line, rate
from refork_testbed.demo.data import TreeNode
from refork_testbed.demo.tree_layout import Layout, Placed, Twig, layout

GAP = 34.0
LETTER = 5.7
MARGIN = 14.0
LONGEST = 34


@dataclass(frozen=True, slots=True)
class Column:
    """Where the straight part of a column's branches starts and ends."""

    start: float
    end: float


def tree_picture(nodes: Sequence[TreeNode]) -> Markup:
    """The tree as one picture of its natural size.

    Raises: BadInput for nodes that are no tree.
    """
    plan = layout(nodes)
    columns = _columns(plan)
    most = max((p.twig.leaves for p in plan.twigs), default=1)
    halos, branches, marks, words = [], [], [], []
    # The swept run comes last and so lies over the others.
    for place in sorted(plan.twigs, key=lambda p: p.twig.on_trace):
        parent = plan.twigs[place.parent] if place.parent is not None else None
        thick = _thickness(place.twig, most)
        track = _track(place, parent, columns)
        if place.twig.on_trace:
            halos.append(tag("path", d=track, class_="halo", stroke_width=thick + 3.6))
        branches.append(_branch(place, track, thick))
        marks += _marks(place, columns[place.column], thick)
        words += _words(place, columns[place.column], thick)
    width = max((c.end for c in columns), default=0) + 64
    name = f"Tree of one task: {count(len(nodes))} events, coloured by success"
    height = plan.height + 2 * MARGIN
    return svg(width, height, name, *halos, *branches, *marks, *words, class_="tree")


def _columns(plan: Layout) -> list[Column]:
    """Each column as wide as its longest shown label."""
    found: list[Column] = []
    start = MARGIN
    for i in range(plan.columns):
        letters = [len(_label(p)) * (1.08 if p.twig.on_trace else 1) for p in plan.twigs if p.column == i]
        widest = max(letters, default=0.0) * LETTER + 12
        found.append(Column(start, start + max(58.0, widest)))
        start = found[-1].end + GAP
    return found


def _label(place: Placed) -> str:
    """The words on a branch; none where its room is too small."""
    twig = place.twig
    if place.room < 13:
        return ""
    if twig.mixed:
        return f"{twig.copies} endings"
    if twig.first.kind == "task":
        return "task"
    acts = [e.label for e in twig.events if e.kind == "action"]
    return one_line(" · ".join(acts or [twig.first.label]), LONGEST) or twig.first.kind


def _thickness(twig: Twig, most: int) -> float:
    least = 3.2 if twig.on_trace else 1.6
    return least + 8.0 * math.sqrt(max(0, twig.leaves - 1) / max(1, most))


def _track(place: Placed, parent: Placed | None, columns: Sequence[Column]) -> str:
    here, y = columns[place.column], place.y + MARGIN
    straight = f"M{num(here.start)} {num(y)} H{num(here.end)}"
    if parent is None:
        return straight
    before, above = columns[parent.column].end, parent.y + MARGIN
    middle = (before + here.start) / 2
    bend = f"C{num(middle)} {num(above)} {num(middle)} {num(y)} {num(here.start)} {num(y)}"
    return f"M{num(before)} {num(above)} {bend} H{num(here.end)}"


def _branch(place: Placed, track: str, thick: float) -> Markup:
    drawn = tag("path", d=track, class_=f"branch {shade(place.twig.success)}", stroke_width=thick)
    return tag("g", tag("title", _tooltip(place.twig)), drawn)


def _tooltip(twig: Twig) -> str:
    """The tooltip: success, leaves, and every event of the branch."""
    events = "\n".join(f"{e.kind}: {one_line(e.label, 90)}" for e in twig.events[:12])
    more = f"\n… {len(twig.events) - 12} more events" if len(twig.events) > 12 else ""
    times = f"\ndrawn once for {twig.copies} equal branches" if twig.copies > 1 and not twig.mixed else ""
    if twig.mixed:
        times = f"\ndrawn once for {twig.copies} branches that end alike; the first:"
        return f"{_counted(twig)}{times}\n{events}{more}"
    where = "\non the swept run" if twig.on_trace else ""
    return f"{_counted(twig)}{where}{times}\n{events}{more}"


def _counted(twig: Twig) -> str:
    runs = "1 run" if twig.leaves == 1 else f"{count(twig.leaves)} runs"
    return f"success {rate(twig.success)} of {runs}"


def _marks(place: Placed, here: Column, thick: float) -> list[Markup]:
    """A sign at each ending, a ring where a fork started."""
    twig, y = place.twig, place.y + MARGIN
    small = place.room < 13
    if not twig.children:
        colour = shade(twig.success)
        x = here.end + (4 if small else 8)
        drawn = [tag("circle", cx=x, cy=y, r=3 if small else 7.5, class_=f"leaf {colour}")]
        if not small:
            drawn.append(label(x, y + 4, _sign(twig.success), class_="leaf-sign mid"))
        if twig.copies > 1 and place.room >= 9 and not (twig.mixed and not small):
            drawn.append(label(x + (7 if small else 13), y + 4, f"×{twig.copies}", class_="tick"))
        return drawn
    if any(child.forked for child in twig.children):
        return [tag("circle", cx=here.end, cy=y, r=max(5.0, thick / 2 + 2.5), class_="fork-ring")]
    return []


def _sign(success: float | None) -> str:
    if success is None:
        return "?"
    return "✓" if success >= 0.5 else "✗"


def _words(place: Placed, here: Column, thick: float) -> list[Markup]:
    """The label over the branch and, where there is room and more than one leaf, the figures under it."""
    twig, y = place.twig, place.y + MARGIN
    text = _label(place)
    if not text:
        return []
    strong = " strong" if twig.on_trace else ""
    words = [
        label(
            here.start + 2, y - thick / 2 - (6.5 if twig.on_trace else 4), text, class_=f"branch-name{strong}"
        )
    ]
    if place.room >= 40 and twig.leaves > 1:
        figures = f"{rate(twig.success)} of {count(twig.leaves)}"
        times = f" ×{twig.copies}" if twig.copies > 1 and twig.children else ""
        words.append(
            label(
                here.start + 2,
                y + thick / 2 + (15 if twig.on_trace else 13),
                figures + times,
                class_="branch-figure",
            )
        )
    return words
