"""The search tree as rows, a child below its parent, with the speed-up of every kernel beside it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from markupsafe import Markup

from refork.report.charts import decades
from refork.report.svg import label, line, num, svg, tag
from refork.report.words import one_line, times
from refork_methods.kernel.report.folder import Node

#: Kernels that get a row of their own; the others are counted where they hang.
MOST = 300


@final
@dataclass(frozen=True, slots=True)
class Row:
    """One row: a kernel (``node``), or those folded below ``parent``: how many, and how many are right.

    ``parent`` is the row's number of what it hangs on, -1 for the original; ``last`` its depth's last child.
    """

    node: Node | None
    depth: int
    parent: int
    folded: int = 0
    right: int = 0


def tree_rows(nodes: Sequence[Node], path: Sequence[int], most: int = MOST) -> list[Row]:
    """The rows from the original down, children in the order in which they were tried.

    Of more than ``most`` kernels the way to the best has rows, then the fastest with all above them, then
    the earliest failed ones; the others are folded into one row for each parent.
    """
    if not nodes:
        return []
    children: dict[int, list[Node]] = defaultdict(list)
    for node in nodes:
        if node.parent is not None:
            children[node.parent].append(node)
    kept = _selected_nodes(nodes, path, most)
    below = _below(nodes)
    rows: list[Row] = []
    waiting: list[tuple[Node | list[Node], int, int]] = [(nodes[0], 0, -1)]
    while waiting:
        one, depth, parent = waiting.pop()
        if isinstance(one, list):
            counts = [below[node.number] for node in one]
            rows.append(Row(None, depth, parent, sum(n for n, _ in counts), sum(ok for _, ok in counts)))
            continue
        at = len(rows)
        rows.append(Row(one, depth, parent))
        folded = [child for child in children[one.number] if child.number not in kept]
        if folded:
            waiting.append((folded, depth + 1, at))
        waiting += [
            (child, depth + 1, at) for child in reversed(children[one.number]) if child.number in kept
        ]
    return rows


def _selected_nodes(nodes: Sequence[Node], path: Sequence[int], most: int) -> set[int]:
    """Numbers with a row; with each also all above it."""
    known = {node.number: node for node in nodes}
    kept = {nodes[0].number, *path}
    ranked = sorted(
        nodes, key=lambda node: (not node.evaluated.ok, -(node.evaluated.speedup or 0.0), node.number)
    )
    for node in ranked:
        new: list[int] = []
        at: int | None = node.number
        while at is not None and at not in kept:
            new.append(at)
            at = known[at].parent
        if len(kept) + len(new) <= most:
            kept.update(new)
    return kept


def _below(nodes: Sequence[Node]) -> dict[int, tuple[int, int]]:
    """For each kernel: how many it and those below it are, and how many of these are right."""
    found = {node.number: (1, int(node.evaluated.ok)) for node in nodes}
    # Parents come before their children in the record.
    for node in reversed(nodes):
        if node.parent is not None:
            (n, ok), (more, fine) = found[node.parent], found[node.number]
            found[node.parent] = (n + more, ok + fine)
    return found


#: Height of a row and of the head, in pixels.
ROW, HEAD = 24, 34
#: Width of a character of a name.
_LETTER = 6.7


@final
@dataclass(frozen=True, slots=True)
class LogAxis:
    """Values above 0 on pixels from ``start`` to ``stop``, by their logarithm."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        """The pixel of a value; what is off the axis stands at its end."""
        kept = min(max(value, self.low), self.high)
        share = math.log(kept / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.stop - self.start)

    def ticks(self, most: int = 7) -> list[float]:
        """Round values on the axis."""
        return decades(self.low, self.high, most)


def covering(values: Sequence[float], start: float, stop: float, room: float = 1.25) -> LogAxis:
    """An axis over all values with some room at both ends, at least a factor of four wide."""
    low, high = min(values) / room, max(values) * room
    short = 4 * low / high
    if short > 1:
        low, high = low / math.sqrt(short), high * math.sqrt(short)
    return LogAxis(low, high, start, stop)


@final
@dataclass(frozen=True, slots=True)
class _Layout:
    """Where things stand: pixels a step in, where names end, and the axis of speed-ups."""

    step: float
    end: float
    axis: LogAxis
    width: float

    def x(self, row: Row) -> float:
        return 10 + self.step * row.depth

    def y(self, at: int) -> float:
        return HEAD + ROW * at + ROW / 2


def tree_picture(rows: Sequence[Row], path: Sequence[int], noise: float | None, width: int) -> Markup:
    """Every row links to the panel of its kernel, ``#node-NUMBER``; shape tells right from failed.

    The best's way is thick. On the right the speed-up with its interval, on a logarithmic scale.
    """
    layout = _layout(rows, width)
    best = path[-1] if path else None
    height = HEAD + ROW * len(rows) + 8
    links = [_row(row, at, layout, path, best) for at, row in enumerate(rows)]
    return svg(
        width, height, "Search tree, a row for each kernel",
        *_scale(layout, noise, height), *_branches(rows, layout, path), *links, role="group",
    )  # fmt: skip


def _layout(rows: Sequence[Row], width: int) -> _Layout:
    deepest = max(row.depth for row in rows)
    end = width * (0.56 if width < 500 else 0.58)
    step = min(18.0, (end - 130) / max(deepest, 1))
    values = [1.0]
    for row in rows:
        if row.node is not None and row.node.evaluated.ok:
            told = row.node.evaluated
            values += [v for v in (told.speedup, told.low, told.high) if v is not None and v > 0]
    return _Layout(step, end, covering(values, end + 22, width - 50, 1.15), width)


def _scale(layout: _Layout, noise: float | None, height: float) -> list[Markup]:
    axis, parts = layout.axis, []
    if noise is not None:
        left, right = axis(1 / noise), axis(noise)
        parts.append(
            tag(
                "rect", x=left, y=HEAD - 4, width=max(right - left, 1.0), height=height - HEAD, class_="noise"
            )
        )
    for value in axis.ticks(3 if layout.width < 500 else 6):
        parts.append(line(axis(value), HEAD - 4, axis(value), height - 4, "zero" if value == 1 else "grid"))
        parts.append(label(axis(value), HEAD - 12, times(value), class_="mid"))
    return parts


def _branches(rows: Sequence[Row], layout: _Layout, path: Sequence[int]) -> list[Markup]:
    """The lines from parents to children: one path for all, one for the best's way on top."""
    plain: list[str] = []
    thick: list[str] = []
    for at, row in enumerate(rows):
        if row.parent < 0:
            continue
        x, y = layout.x(rows[row.parent]), layout.y(row.parent)
        d = f"M{num(x)} {num(y)}V{num(layout.y(at))}H{num(layout.x(row))}"
        (thick if row.node is not None and row.node.number in path else plain).append(d)
    found = [tag("path", d="".join(plain), class_="branch")] if plain else []
    return [*found, *([tag("path", d="".join(thick), class_="way")] if thick else [])]


def _row(row: Row, at: int, layout: _Layout, path: Sequence[int], best: int | None) -> Markup:
    x, y = layout.x(row), layout.y(at)
    room = int((layout.end - x - 14) / _LETTER)
    if row.node is None:
        told = f"{row.folded:,} more below, {row.right:,} right"
        return label(x + 4, y + 4, one_line(told, max(room, 12)), class_="folded")
    node = row.node
    name = name_of(node)
    parts = [
        tag("rect", x=0, y=y - ROW / 2, width=layout.width, height=ROW, rx=4, class_="hit"),
        _mark(node, x, y, node.number in path, node.number == best),
        label(
            x + 11,
            y + 4,
            one_line(name, max(room, 6)),
            class_="name on-way" if node.number in path else "name",
        ),
        *_value(node, y, layout),
    ]
    return tag(
        "a", *parts, href=f"#node-{node.number}", aria_label=f"Node {node.number}: {name}, {told_of(node)}"
    )


def name_of(node: Node) -> str:
    """The move that made a kernel, in one line."""
    return one_line(node.move, 120) or ("original" if node.parent is None else f"node {node.number}")


def told_of(node: Node) -> str:
    """How a kernel did, in a few words."""
    told = node.evaluated
    if not told.ok:
        return FAILED[told.stage]
    return "right, not timed" if told.speedup is None else f"right, {times(told.speedup)}"


#: What a failed stage is called.
FAILED = {
    "build": "does not build",
    "run": "stops with an error",
    "check": "wrong result",
    "cheat": "refused as a cheat",
    "done": "failed",
}


def _mark(node: Node, x: float, y: float, on_way: bool, best: bool) -> Markup:
    if not node.evaluated.ok:
        d = f"M{num(x - 3.5)} {num(y - 3.5)}l7 7m0 -7l-7 7"
        return tag("path", d=d, class_="cross")
    return tag(
        "circle", cx=x, cy=y, r=6 if best else 4.5, class_="best" if best else "step" if on_way else "right"
    )


def _value(node: Node, y: float, layout: _Layout) -> list[Markup]:
    told, axis = node.evaluated, layout.axis
    if not told.ok:
        return [label(layout.width - 2, y + 4, FAILED[told.stage], class_="end failed")]
    if told.speedup is None:
        return [label(layout.width - 2, y + 4, "not timed", class_="end")]
    parts = []
    if told.low is not None and told.high is not None and told.low > 0:
        parts.append(line(axis(told.low), y, axis(told.high), y, "whisker"))
    parts.append(tag("circle", cx=axis(told.speedup), cy=y, r=3.5, class_="value"))
    parts.append(label(layout.width - 2, y + 4, times(told.speedup), class_="end figure"))
    return parts
