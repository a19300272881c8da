"""Charts: a figure is a picture, a sentence that says what it shows, and its numbers as a table.

Drawn by Altair and turned into SVG by vl-convert: no browser, no script, no network. The colours of a picture
are the light ones of the palette, so that it stands alone; a page's style sheet maps each of them to its own,
which is how the dark mode reaches into a chart (``palette.ROLES``).
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Final, Literal, TypeAlias, final

from markupsafe import Markup, escape

from refork.errors import MissingExtra
from refork.report import palette, words
from refork.types import Json
from refork.visible import visible

WIDE, NARROW = 760, 352
#: How numbers of an axis are written: a share as a percentage, a difference of shares in points, a plain
#: number, a large count as 12k, a ratio as 3×, seconds with their prefix.
Unit: TypeAlias = Literal["rate", "points", "number", "count", "times", "seconds"]
#: Given the whole width in pixels, an Altair chart.
Draw: TypeAlias = Callable[[int], Any]

_INK, _SOFT, _RULE, _FAINT = (palette.ROLES[name] for name in ("ink", "soft", "rule", "faint"))
ACCENT, WARM = palette.ROLES["accent"], palette.ROLES["warm"]
_LABELS: Final[dict[str, str]] = {
    "rate": "format(datum.value * 100, '.3~g') + '\u00a0%'",
    "points": "abs(datum.value) < 1e-9 ? '0' : format(datum.value * 100, '+.3~g')",
    "number": "abs(datum.value) < 1e5 ? format(datum.value, ',.4~g') : format(datum.value, '.3~s')",
    "count": "format(datum.value, '.3~s')",
    "times": "format(datum.value, '.3~g') + '×'",
    "seconds": "format(datum.value, '.3~s') + 's'",
}
THEME: Final[Json] = {
    "background": None,
    # Wide letters: what fits in them fits in the letters of every page.
    "font": "DejaVu Sans, Verdana, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": _SOFT, "titleColor": _SOFT, "titleFontWeight": "normal", "labelFontSize": 12,
        "titleFontSize": 12, "gridColor": _FAINT, "domain": False, "ticks": False, "labelPadding": 7,
        "titlePadding": 9, "labelLimit": 220,
    },
    "axisX": {"grid": False, "domain": True, "domainColor": _RULE},
    "axisY": {"titleAngle": 0, "titleAlign": "left", "titleAnchor": "end", "titleY": -10},
    "legend": {
        "orient": "bottom", "title": None, "labelColor": _SOFT, "labelFontSize": 12, "symbolStrokeWidth": 2.5,
        "symbolOpacity": 1, "offset": 6, "rowPadding": 4, "columnPadding": 18,
    },
    "title": {"anchor": "start", "fontSize": 15, "fontWeight": 600, "color": _INK, "offset": 14,
        "subtitleColor": _SOFT, "subtitleFontSize": 12, "subtitlePadding": 6},
    "text": {"fontSize": 12, "color": _INK},
    "range": {"category": list(palette.SERIES)},
}  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class Figure:
    """What is shown: ``name`` is read aloud in the picture's place, ``rows`` hold the numbers as words.

    ``note`` is a sentence below the title; ``more`` are figures below this one, each with its own table.
    """

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    draw: Draw
    note: str = ""
    more: tuple[Figure, ...] = ()

    def svg(self, width: int = WIDE, title: str | None = None) -> str:
        """A document that stands alone: on white, with its title.

        Raises: MissingExtra without the extra ``report``.
        """
        drawn = [render(self.draw(width), width, self.name if title is None else title, note=self.note)]
        drawn += [render(one.draw(width), width, one.name, note=one.note) for one in self.more]
        top, parts = 0.0, []
        for text in drawn:
            parts.append(text.replace("<svg", f'<svg y="{top:g}" overflow="visible"', 1))
            top += _height(text)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top:g}" width="{width}" '
            f'height="{top:g}" role="img" aria-label="{escape(visible(self.name))}">'
            f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
        )

    def html(self, summary: str = "The figures as a table") -> Markup:
        """The picture for a page, wide and narrow, and its table below.

        Raises: MissingExtra without the extra ``report``.
        """
        both = []
        for kind, width in (("wide", WIDE), ("narrow", NARROW)):
            drawn = Markup(render(self.draw(width), width, name=self.name))
            both.append(Markup('<div class="{}">{}</div>').format(kind, drawn))
        note = Markup("<figcaption>{}</figcaption>").format(visible(self.note)) if self.note else ""
        own = Markup("<figure>{}{}</figure>{}").format(Markup("").join(both), note, self.table(summary))
        return own + Markup("").join(one.html(summary) for one in self.more)

    def table(self, summary: str = "The figures as a table") -> Markup:
        """The numbers alone, folded away."""
        head = Markup("").join(
            Markup('<th scope="col">{}</th>').format(visible(name)) for name in self.columns
        )
        body = Markup("").join(
            Markup('<tr><th scope="row">{}</th>{}</tr>').format(
                visible(first), Markup("").join(Markup("<td>{}</td>").format(visible(cell)) for cell in rest)
            )
            for first, *rest in self.rows
        )
        return Markup(
            '<details><summary>{}</summary><div class="scroll" tabindex="0"><table><thead><tr>{}</tr></thead>'
            "<tbody>{}</tbody></table></div></details>"
        ).format(summary, head, body)


def altair() -> ModuleType:
    """Altair, once it is needed.

    Raises: MissingExtra where it is not installed.
    """
    try:
        import altair
    except ImportError as error:
        raise MissingExtra("altair", "report") from error
    return altair


def render(chart: Any, width: int, title: str = "", name: str = "", note: str = "") -> str:
    """A chart as an ``svg`` element of this width, axes and names inside it; equal charts give equal bytes.

    Raises: MissingExtra where the converter is not installed.
    """
    try:
        import vl_convert
    except ImportError as error:
        raise MissingExtra("vl-convert-python", "report") from error
    spec = chart.to_dict()
    spec["config"] = THEME | {"legend": THEME["legend"] | {"labelLimit": width - 60}}
    spec.setdefault("padding", {"left": 8, "right": 12, "top": 6, "bottom": 6})
    spec["width"] = width
    spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    if title:
        spec["title"] = {"text": visible(title), "limit": width - 10}
        if note:
            spec["title"]["subtitle"] = textwrap.wrap(visible(note), max(30, int(width / 6.2)))
    return _tidy(vl_convert.vegalite_to_svg(spec), name)


def _tidy(text: str, name: str) -> str:
    """The converter's SVG for a page: one name for the whole, a hover text for each mark that has words.

    Clip paths are numbered by a counter of the process there, so they get names from what is drawn.
    """
    size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', text)
    assert size is not None  # the converter always writes one
    wide, high = size.groups()
    inner = text[text.index(">") + 1 : text.rindex("</svg>")]
    inner = re.sub(
        r'<(path|text) aria-label="([^"]*)" role="graphics-symbol" aria-roledescription="[^"]*"([^>]*?)'
        r"(?:/>|>([^<]*)</\1>)",
        lambda m: f"<{m[1]}{m[3]}><title>{m[2]}</title>{m[4] or ''}</{m[1]}>",
        inner,
    )
    # Inside tags alone: what a text or a hover says stays as it is.
    inner = re.sub(r"<\w[^>]*>", lambda m: _short(m[0]), inner)
    inner = re.sub(r'<path[^>]* d=""[^>]*/>|<path d="M0,0h0v0h0Z"/>', "", inner)
    names: dict[str, str] = {}
    for old in re.findall(r'id="(clip\d+)"', inner):
        names.setdefault(old, f"c{hashlib.sha256(f'{name}{wide}{len(names)}'.encode()).hexdigest()[:8]}")
    for old, new in names.items():
        inner = inner.replace(f'"{old}"', f'"{new}"').replace(f"#{old})", f"#{new})")
    told = f' role="img" aria-label="{escape(visible(name))}"' if name else ""
    return (
        f'<svg class="chart" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}"{told}>{inner}</svg>'
    )


def _short(tag: str) -> str:
    """A tag without what only scripts and the one name of the picture replace, its numbers rounded."""
    bare = re.sub(r' (?:aria-\w+|role|class|pointer-events)="[^"]*"| opacity="1"', "", tag)
    # One decimal is right for places; an opacity of 0.16 would become 0.2.
    return re.sub(r"(?<!opacity=\")-?\d+\.\d{2,}", lambda m: f"{float(m[0]):.1f}".removesuffix(".0"), bare)


def _height(text: str) -> float:
    found = re.search(r' height="([\d.]+)"', text)
    return float(found[1]) if found else 0.0


def write(value: float | None, unit: Unit) -> str:
    """A number of an axis as words; a dash for None."""
    if value is None or not math.isfinite(value):
        return words.DASH if value is None or math.isnan(value) else "∞" if value > 0 else f"{words.MINUS}∞"
    if unit == "count":
        return words.count(round(value))
    if unit == "seconds":
        return words.short_time(value)
    if unit == "times":
        return words.times(value)
    return {"rate": words.rate, "points": words.points}.get(unit, words.mean)(value)


def ends(low: float | None, high: float | None, unit: Unit) -> str:
    """An interval as words; a dash where an end is None."""
    if low is None or high is None:
        return words.DASH
    if unit in ("rate", "points"):
        return words.span(low, high, sign=unit == "points")
    return f"{write(low, unit)} to {write(high, unit)}"


def axis(unit: Unit, width: int, title: str | None = None, **more: Any) -> Any:
    """An axis whose numbers are written in a unit, with fewer of them on a narrow picture."""
    alt = altair()
    settings: Json = {
        "title": None if title is None else visible(title),
        "labelExpr": _LABELS[unit],
        "tickCount": max(3, width // 110),
    }
    return alt.Axis(**settings | more)


def data(rows: Sequence[Json]) -> Any:
    """Rows inside the chart: control characters made visible, what is not finite left out as None is."""
    return altair().InlineData([{key: _plain(value) for key, value in row.items()} for row in rows])


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def legend_columns(names: Sequence[str], width: int) -> int:
    """How many names of a legend stand side by side."""
    longest = max((len(name) for name in names), default=1)
    return max(1, min(len(names), int((width - 40) / (7 * longest + 44))))


# Curves: values over x, with bands or whiskers.


@final
@dataclass(frozen=True, slots=True)
class Dot:
    """A value at x with its interval; ``tooltip`` is in the table and on hover. ``marked``: has a dot."""

    x: float
    y: float | None
    low: float | None = None
    high: float | None = None
    tooltip: str = ""
    marked: bool = True


@final
@dataclass(frozen=True, slots=True)
class Line:
    """Dots of one name, joined where neighbours have values.

    ``band`` draws intervals as an area, ``whiskers`` as lines; ``step`` keeps a value until the next one.
    ``faint`` lines are runs behind a mean: thin, without a name in the legend and not in the table.
    """

    name: str
    dots: Sequence[Dot]
    colour: str | None = None
    dashed: bool = False
    marks: bool = True
    band: bool = True
    whiskers: bool = False
    step: bool = False
    joined: bool = True
    faint: bool = False


@final
@dataclass(frozen=True, slots=True)
class Level:
    """A line across: a value, and what it is."""

    value: float
    name: str
    colour: str = _SOFT


@final
@dataclass(frozen=True, slots=True)
class Plane:
    """What the two axes are: their names, units and scales.

    ``bottom`` and ``top`` are values of y that the axis ends at; between the two of ``zone`` the ground is
    tinted. ``names`` are written at x = 0, 1, 2, ... instead of numbers.
    """

    x: str
    y: str
    x_unit: Unit = "number"
    unit: Unit = "rate"
    log_x: bool = False
    log: bool = False
    bottom: float | None = None
    top: float | None = None
    zone: tuple[float, float] | None = None
    levels: Sequence[Level] = ()
    names: Sequence[str] = ()
    height: int = 230

    def x_words(self, x: float) -> str:
        """A value of x as words."""
        if self.names:
            return self.names[round(x)]
        return f"{x:,.6g}" if self.x_unit in ("number", "count") else write(x, self.x_unit)

    def rendered(self, x: float, y: float | None) -> float | None:
        """The y of a place that both axes can hold; None of any other."""
        return None if _rendered(x, self.log_x) is None else _rendered(y, self.log)

    def axes(self, rows: Sequence[Json], width: int) -> tuple[Json, Json]:
        """Axis and scale of x and of y, for rows with ``x``, ``y``, ``low`` and ``high``."""
        alt = altair()
        known = [row[key] for row in rows for key in ("y", "low", "high")]
        known += [*(level.value for level in self.levels), self.bottom, self.top]
        inside = [end for value in known if (end := _rendered(value, self.log)) is not None]
        low, high = (min(inside), max(inside)) if inside else (1.0, 10.0) if self.log else (0.0, 1.0)
        marks: Json = {"tickCount": 5}
        if self.log:
            domain = [low / 1.15, high * 1.15]
            marks = {"values": decades(domain[0], domain[1])}
        else:
            room = 0.04 * (high - low or 1.0)
            domain = [low if low == self.bottom else low - room, high if high == self.top else high + room]
            if self.unit == "rate":  # no share lies outside 0 to 1, though rounding would go there
                domain = [max(domain[0], min(0.0, low)), min(domain[1], max(1.0, high))]
        nice = not self.log and self.top is None
        scale = alt.Scale(type="log" if self.log else "linear", domain=domain, nice=nice, zero=False)
        across = alt.Scale(type="log" if self.log_x else "linear", nice=False, zero=False, padding=10)
        whole = not self.log_x and all(float(row["x"]).is_integer() for row in rows)
        steps: Json = {"tickMinStep": 1} if whole else {}
        if self.names:
            told = json.dumps([visible(name) for name in self.names])
            steps = {
                "values": list(range(len(self.names))),
                "labelExpr": f"{told}[datum.value]",
                "labelOverlap": True,
            }
        elif self.log_x:
            shown = [row["x"] for row in rows if _rendered(row["x"], log=True)] or [1.0, 10.0]
            steps = {"values": decades(min(shown), max(shown), max(3, width // 100))}
        below = axis(self.x_unit, width, self.x, **steps)
        beside = axis(self.unit, width, self.y, **marks)
        return {"axis": below, "scale": across}, {"axis": beside, "scale": scale}


def curves(lines: Sequence[Line], *, name: str, plane: Plane, last: bool = False) -> Figure:
    """Values over x, a line for each name. With ``last`` the first line's last value stands beside it."""
    named = [line for line in lines if not line.faint]
    several = len(named) > 1
    notes = any(dot.tooltip for line in named for dot in line.dots)
    ranged = any(dot.low is not None for line in named for dot in line.dots)
    columns = [
        *(["Line"] if several else []), plane.x, plane.y, *(["Interval"] if ranged else []),
        *(["Note"] if notes else []),
    ]  # fmt: skip
    rows = [
        (
            *([line.name] if several else []), plane.x_words(dot.x), write(dot.y, plane.unit),
            *([ends(dot.low, dot.high, plane.unit)] if ranged else []), *([dot.tooltip] if notes else []),
        )
        for line in named for dot in line.dots
    ]  # fmt: skip
    rows += [
        (
            level.name, *([words.DASH] if several else []), write(level.value, plane.unit),
            *[""] * (ranged + notes),
        )
        for level in plane.levels
    ]  # fmt: skip
    return Figure(name, tuple(columns), tuple(rows), lambda width: _curves(lines, plane, last, width))


def _curve_rows(lines: Sequence[Line], plane: Plane) -> list[Json]:
    """A row for each dot; a stretch without gaps is a run of its own, since a line is broken at None."""
    rows: list[Json] = []
    for number, line in enumerate(lines):
        for piece, stretch in enumerate(runs([plane.rendered(dot.x, dot.y) for dot in line.dots])):
            for i in stretch:
                dot = line.dots[i]
                low, high = (_rendered(end, plane.log) for end in (dot.low, dot.high))
                known = low is not None and high is not None
                told = f"{line.name}, {plane.x_words(dot.x)}: {write(dot.y, plane.unit)}"
                told += f" ({ends(dot.low, dot.high, plane.unit)})" if known else ""
                told += f", {dot.tooltip}" if dot.tooltip else ""
                rows.append({
                    "name": line.name, "run": f"{number}.{piece}", "x": dot.x, "y": dot.y,
                    "low": low, "high": high, "told": told,
                    "dot": line.marks and not line.faint and dot.marked,
                    "band": line.band and known, "whisker": line.whiskers and known,
                    "style": f"{line.step:d}{line.faint:d}{line.dashed:d}" if line.joined else None,
                })  # fmt: skip
    return rows


def _curves(lines: Sequence[Line], plane: Plane, last: bool, width: int) -> Any:
    alt = altair()
    named = [line for line in lines if not line.faint]
    names = [line.name for line in named]
    colours = [line.colour or palette.SERIES[i % len(palette.SERIES)] for i, line in enumerate(named)]
    rows = _curve_rows(lines, plane)
    along, up = plane.axes(rows, width)
    x = alt.X("x:Q", **along)
    y = alt.Y("y:Q", **up)
    legend = alt.Legend(columns=legend_columns(names, width), symbolType="stroke") if len(names) > 1 else None
    hue = alt.Color("name:N", sort=names, legend=legend, scale=alt.Scale(domain=names, range=colours))
    base = alt.Chart(data(rows))
    span = {"x": x, "y": alt.Y("low:Q", **up), "y2": "high:Q", "color": hue}
    layers = _ground(plane, up)
    area = base.transform_filter("datum.band").mark_area(opacity=0.16, aria=False)
    layers.append(area.encode(detail="run:N", **span))
    whisker = base.transform_filter("datum.whisker").mark_rule(strokeWidth=1.5, aria=False)
    layers.append(whisker.encode(**span))
    # The faint ones first, so that they lie behind their mean.
    for style in sorted({row["style"] for row in rows if row["style"]}, key=lambda text: text[1] == "0"):
        step, faint, dashed = (mark == "1" for mark in style)
        line = base.transform_filter(f"datum.style == '{style}'").mark_line(
            strokeWidth=1 if faint else 2.25, opacity=0.3 if faint else 1, aria=False,
            strokeDash=[5, 4] if dashed else [1, 0], interpolate="step-after" if step else "linear",
        )  # fmt: skip
        layers.append(line.encode(x=x, y=y, color=hue, detail="run:N"))
    dots = base.transform_filter("datum.dot").mark_point(filled=True, size=52, opacity=1)
    layers.append(dots.encode(x=x, y=y, color=hue, description="told:N"))
    shown = [dot for dot in lines[0].dots if plane.rendered(dot.x, dot.y) is not None] if lines else []
    if last and shown:
        end = alt.Chart(data([{"x": shown[-1].x, "y": shown[-1].y, "t": write(shown[-1].y, plane.unit)}]))
        text = end.mark_text(align="left", dx=10, fontSize=15, fontWeight=600, aria=False)
        layers.append(text.encode(x=x, y=y, text="t:N"))
    return alt.layer(*layers).properties(height=plane.height if width >= WIDE else min(plane.height, 200))


def _ground(plane: Plane, up: Json) -> list[Any]:
    """The tinted zone and the lines across, which lie behind all else."""
    alt = altair()
    layers = []
    if plane.zone is not None:
        zone = alt.Chart(data([{"low": plane.zone[0], "high": plane.zone[1]}]))
        tint = zone.mark_rect(color=palette.SERIES[2], opacity=0.13, aria=False)
        layers.append(tint.encode(y=alt.Y("low:Q", **up), y2="high:Q"))
    # Names of neighbours stand at different ends, so that near levels do not write over each other.
    ends_of = [("right", "width"), ("left", 0), ("center", None)]
    for number, level in enumerate(
        one for one in plane.levels if _rendered(one.value, plane.log) is not None
    ):
        align, place = ends_of[number % 3]
        one = alt.Chart(data([{"v": level.value, "t": level.name}]))
        at = alt.Y("v:Q", **up)
        layers.append(one.mark_rule(strokeDash=[5, 4], color=level.colour, aria=False).encode(y=at))
        text = one.mark_text(align=align, dy=-9, color=level.colour, aria=False)
        across = {} if place is None else {"x": alt.value(place)}
        layers.append(text.encode(y=at, text="t:N", **across))
    return layers


def decades(low: float, high: float, most: int = 7) -> list[float]:
    """Round values of a logarithmic axis: 1, 2, 5 of each power of ten, or fewer where they are too many."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for steps in ((1, 2, 5), (1, 3), (1,)):
        found = [s * 10.0**p for p in range(first, last + 1) for s in steps]
        kept = [value for value in found if low * 0.999 <= value <= high * 1.001]
        if len(kept) <= most:
            return kept
    return kept[:: math.ceil(len(kept) / most)]


def _rendered(value: float | None, log: bool) -> float | None:
    """A value that the axis can hold."""
    return None if value is None or not math.isfinite(value) or (log and value <= 0) else value


def runs(values: Sequence[float | None]) -> list[range]:
    """Stretches of indices without None."""
    found: list[range] = []
    start: int | None = None
    for i, value in enumerate([*values, None]):
        if value is not None and start is None:
            start = i
        elif value is None and start is not None:
            found.append(range(start, i))
            start = None
    return found


# Intervals: a value a row on one axis, as in a forest plot.


@final
@dataclass(frozen=True, slots=True)
class Row:
    """A line of an interval chart; ``text`` stands at its end.

    ``ring`` is a second value on the same axis: what was predicted, or could be reached at most.
    """

    name: str
    value: float | None
    low: float | None
    high: float | None
    text: str
    colour: str = _INK
    ring: float | None = None
    tooltip: str = ""


@final
@dataclass(frozen=True, slots=True)
class Across:
    """The axis of an interval chart.

    ``bounds`` is what it covers, None: all that is shown. ``zero`` marks no difference, with these words;
    ``mark`` another place with its name. ``ring`` says what the rings are, and ``name`` stands below. ``key``
    names colours; ``step`` is the height of a row in pixels.
    """

    unit: Unit = "rate"
    bounds: tuple[float, float] | None = None
    zero: str | None = None
    mark: tuple[float, str] | None = None
    ring: str | None = None
    name: str | None = None
    key: Sequence[tuple[str, str]] = ()
    step: int = 38

    def scale(self, rows: Sequence[Row]) -> Any:
        """The scale that holds all rows."""
        known = [v for row in rows for v in (row.value, row.low, row.high, row.ring) if v is not None]
        known += ([0.0] if self.zero is not None else []) + ([self.mark[0]] if self.mark else [])
        low, high = self.bounds or (min(known, default=0.0), max(known, default=1.0))
        if low == high:
            low, high = low - 0.1, high + 0.1
        return altair().Scale(domain=[low, high], nice=self.bounds != (0, 1), zero=False)


def intervals(rows: Sequence[Row], *, name: str, across: Across, value: str = "Value") -> Figure:
    """Values as dots on their intervals over one axis, a row each; ``value`` heads them in the table."""
    ring, unit = across.ring, across.unit
    columns = ("", value, "Interval", *([ring.capitalize()] if ring else []), "As shown")
    told = tuple(
        (
            row.name, write(row.value, unit), ends(row.low, row.high, unit),
            *([write(row.ring, unit)] if ring else []),
            row.text + (f"; {row.tooltip}" if row.tooltip else ""),
        )
        for row in rows
    )  # fmt: skip
    return Figure(name, columns, told, lambda width: _intervals(rows, across, width))


def _intervals(rows: Sequence[Row], across: Across, width: int) -> Any:
    alt = altair()
    table = [
        {
            "row": number, "name": row.name, "value": row.value, "low": row.low, "high": row.high,
            "text": row.text, "colour": row.colour, "ring": row.ring,
            "told": f"{row.name}: {row.text}" + (f"; {row.tooltip}" if row.tooltip else ""),
        }
        for number, row in enumerate(rows)
    ]  # fmt: skip
    name_wide = 6.9 * max((len(row.name) for row in rows), default=0)
    text_wide = 6.4 * max((len(row.text) for row in rows), default=0)
    # A wide row has its name on the left and its words on the right; a narrow one has both above.
    beside = width >= WIDE and name_wide + text_wide < 0.6 * width
    scale = across.scale(rows)
    below = "; ".join(filter(None, (across.name, across.ring and f"ring: {across.ring}"))) or None
    grid = axis(across.unit, int(width * (0.5 if beside else 0.9)), below, grid=True, domain=False)
    down = alt.Y("row:O", axis=None, scale=alt.Scale(paddingInner=0, paddingOuter=0))
    shade = alt.Color("colour:N", scale=None)
    base = alt.Chart(data(table))
    lift: Json = {} if beside else {"yOffset": 12}

    def at(field: str) -> Any:
        return alt.X(f"{field}:Q", scale=scale, axis=grid)

    layers = []
    for place, text in ((0.0, across.zero), across.mark or (0.0, None)):
        if text is not None:
            one = alt.Chart(data([{"v": place, "t": text}]))
            layers.append(one.mark_rule(strokeDash=[4, 3], color=_INK, aria=False).encode(x=at("v")))
            top = one.mark_text(dy=-9, color=_SOFT, aria=False)
            layers.append(top.encode(x=at("v"), y=alt.value(0), text="t:N"))
    spans = base.transform_filter("isValid(datum.low) && isValid(datum.high)")
    bar = spans.mark_rule(strokeWidth=3, strokeCap="round", aria=False, **lift)
    layers.append(bar.encode(x=at("low"), x2="high:Q", y=down, color=shade))
    for end in ("low", "high"):
        cap = spans.mark_tick(thickness=2, size=13, opacity=1, aria=False, **lift)
        layers.append(cap.encode(x=at(end), y=down, color=shade))
    if across.ring is not None:
        rings = base.transform_filter("isValid(datum.ring)")
        ring = rings.mark_point(size=130, strokeWidth=1.6, filled=False, color=_INK, aria=False, **lift)
        layers.append(ring.encode(x=at("ring"), y=down))
    dots = base.transform_filter("isValid(datum.value)").mark_point(filled=True, size=120, opacity=1, **lift)
    layers.append(dots.encode(x=at("value"), y=down, color=shade, description="told:N"))
    size: Json = (
        {"fontSize": 14, "aria": False} if beside else {"fontSize": 13, "yOffset": -10, "aria": False}
    )
    left = base.mark_text(align="left", dx=-name_wide - 22 if beside else 0, **size)
    layers.append(left.encode(x=alt.value(0), y=down, text="name:N"))
    right = base.mark_text(align="left" if beside else "right", dx=18 if beside else 0, **size)
    layers.append(right.encode(x=alt.value("width"), y=down, text="text:N"))
    chart = _keyed(alt.layer(*layers), across.key, width)
    return chart.properties(height=(across.step if beside else max(across.step, 36) + 16) * len(rows))


def _keyed(chart: Any, key: Sequence[tuple[str, str]], width: int) -> Any:
    """A chart whose marks carry their colours, with a legend that names some of them."""
    alt = altair()
    if not key:
        return chart
    names = [name for _, name in key]
    legend = alt.Legend(
        columns=legend_columns(names, width), symbolType="circle", symbolSize=110, symbolStrokeWidth=0
    )
    scale = alt.Scale(domain=names, range=[colour for colour, _ in key])
    keys = alt.Chart(data([{"key": name} for name in names])).mark_point(size=0, aria=False)
    return alt.layer(chart, keys.encode(fill=alt.Fill("key:N", sort=names, scale=scale, legend=legend)))


# Scatters: places with names.


@final
@dataclass(frozen=True, slots=True)
class Spot:
    """A place of a group with its intervals; ``label`` stands beside it, ``ringed`` puts a ring round it."""

    x: float
    y: float
    group: str
    label: str = ""
    low: float | None = None
    high: float | None = None
    tooltip: str = ""
    ringed: bool = False
    x_low: float | None = None
    x_high: float | None = None


@final
@dataclass(frozen=True, slots=True)
class Trail:
    """A line through a scatter."""

    points: Sequence[tuple[float, float]]
    colour: str = _SOFT
    dashed: bool = False


def scatter(
    spots: Sequence[Spot], *, name: str, plane: Plane, colours: dict[str, str], trails: Sequence[Trail] = ()
) -> Figure:
    """Places in a plane, coloured by group; names that would lie on one another are moved up or down."""
    known = any(spot.low is not None for spot in spots)
    columns = ("", "Group", plane.x, plane.y, *(["Interval"] if known else []), "Note")
    rows = tuple(
        (
            spot.label, spot.group, plane.x_words(spot.x), write(spot.y, plane.unit),
            *([ends(spot.low, spot.high, plane.unit)] if known else []), spot.tooltip,
        )
        for spot in spots
    )  # fmt: skip
    return Figure(name, columns, rows, lambda width: _scatter(spots, plane, colours, trails, width))


def _scatter(
    spots: Sequence[Spot], plane: Plane, colours: dict[str, str], trails: Sequence[Trail], width: int
) -> Any:
    alt = altair()
    spots = [s for s in spots if plane.rendered(s.x, s.y) is not None]
    trails = [replace(t, points=[p for p in t.points if plane.rendered(*p) is not None]) for t in trails]
    rows: list[Json] = [
        {
            "x": s.x, "y": s.y, "group": s.group, "ringed": s.ringed,
            "low": _rendered(s.low, plane.log), "high": _rendered(s.high, plane.log),
            "left": _rendered(s.x_low, plane.log_x), "right": _rendered(s.x_high, plane.log_x),
            "told": ", ".join(filter(None, (s.label, s.group, s.tooltip))),
        }
        for s in spots
    ]  # fmt: skip
    # A trail belongs to the plane too, so that the axes hold it.
    held = rows + [{"x": x, "y": y, "low": None, "high": None} for t in trails for x, y in t.points]
    along, up = plane.axes(held, width)
    across = alt.X("x:Q", **along)
    y = alt.Y("y:Q", **up)
    groups = [group for group in colours if any(s.group == group for s in spots)]
    legend = alt.Legend(columns=legend_columns(groups, width)) if len(groups) > 1 else None
    scale = alt.Scale(domain=groups, range=[colours[group] for group in groups])
    hue = alt.Color("group:N", sort=groups, legend=legend, scale=scale)
    base = alt.Chart(data(rows))
    layers = _ground(plane, up)
    for trail in trails:
        points = [{"x": a, "y": b, "at": i} for i, (a, b) in enumerate(trail.points)]
        line = alt.Chart(data(points)).mark_line(
            color=trail.colour, strokeDash=[5, 4] if trail.dashed else [1, 0], strokeWidth=1.6, aria=False
        )  # fmt: skip
        layers.append(line.encode(x=across, y=y, order="at:Q"))
    bars = base.transform_filter("isValid(datum.low) && isValid(datum.high)")
    span = bars.mark_rule(strokeWidth=1.5, aria=False)
    layers.append(span.encode(x=across, y=alt.Y("low:Q", **up), y2="high:Q", color=hue))
    flat = base.transform_filter("isValid(datum.left) && isValid(datum.right)").mark_rule(
        strokeWidth=1.5, aria=False
    )
    layers.append(flat.encode(x=alt.X("left:Q", **along), x2="right:Q", y=y, color=hue))
    rings = base.transform_filter("datum.ringed").mark_point(
        filled=False, size=150, strokeWidth=1.5, color=_INK, opacity=1, aria=False
    )
    layers.append(rings.encode(x=across, y=y))
    size = 60 if len(spots) < 60 else 30
    layers.append(
        base.mark_point(filled=True, size=size, opacity=1 if len(spots) < 60 else 0.75).encode(
            x=across, y=y, color=hue, description="told:N"
        )
    )
    height = plane.height if width >= WIDE else min(plane.height, 260)
    for (dx, dy, align), named in _labels(spots, held, plane, width, height).items():
        text = alt.Chart(data([{"x": s.x, "y": s.y, "t": s.label} for s in named])).mark_text(
            align=align, dx=dx, dy=dy, aria=False
        )
        layers.append(text.encode(x=across, y=y, text="t:N"))
    return alt.layer(*layers).properties(height=height)


def _labels(
    spots: Sequence[Spot], held: Sequence[Json], plane: Plane, width: int, height: int
) -> dict[tuple[int, int, str], list[Spot]]:
    """Spots by where their names stand: no name on another one or on a place, as far as there is room."""
    xs = [math.log(row["x"]) if plane.log_x else row["x"] for row in held]
    ys = [math.log(row["y"]) if plane.log else row["y"] for row in held]
    left, wide = min(xs, default=0.0), (max(xs, default=1.0) - min(xs, default=0.0)) or 1.0
    low, tall = min(ys, default=0.0), (max(ys, default=1.0) - min(ys, default=0.0)) or 1.0
    room = width - 80
    at = {i: (room * (xs[i] - left) / wide, height * (1 - (ys[i] - low) / tall)) for i in range(len(spots))}
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in at.values()]
    found: dict[tuple[int, int, str], list[Spot]] = {}
    for i, spot in enumerate(spots):
        if not spot.label:
            continue
        x, y = at[i]
        long = 6.6 * len(spot.label)
        places = [(side, dy) for dy in (0, -14, 14, -28, 28, -42, 42) for side in ("left", "right")]
        best: tuple[str, int] | None = None
        for side, dy in places:
            start = x + 9 if side == "left" else x - 9 - long
            box = (start, y + dy - 7, start + long, y + dy + 7)
            inside = box[0] >= -20 and box[2] <= room + 20
            if inside and not any(_meet(box, other) for other in taken):
                taken.append(box)
                best = (side, dy)
                break
        side, dy = best or ("left" if x < room / 2 else "right", 0)
        found.setdefault((9 if side == "left" else -9, dy, side), []).append(spot)
    return found


def _meet(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


# Maps: a cell for each pair.


@final
@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a map: where, what is written in it, on which colour, and what it says when asked."""

    x: str
    y: str
    text: str
    colour: str
    tooltip: str = ""
    ink: str = _INK
    framed: bool = False


def heat(
    cells: Sequence[Cell], *, name: str, x: str, y: str, key: Sequence[tuple[str, str]] = (), rise: int = 28
) -> Figure:
    """A map of cells in the order given, first row on top; ``key`` names colours, ``rise`` is in pixels."""
    columns = (y, x, "Cell", *(["Note"] if any(cell.tooltip for cell in cells) else []))
    told = tuple((c.y, c.x, c.text, *([c.tooltip] if len(columns) > 3 else [])) for c in cells)
    return Figure(name, columns, told, lambda width: _heat(cells, x, y, key, rise, width))


def _heat(
    cells: Sequence[Cell], x: str, y: str, key: Sequence[tuple[str, str]], rise: int, width: int
) -> Any:
    alt = altair()
    xs, ys = (list(dict.fromkeys(getattr(cell, side) for cell in cells)) for side in ("x", "y"))
    rows = [
        {"x": c.x, "y": c.y, "text": c.text, "colour": c.colour, "ink": c.ink, "framed": c.framed,
         "told": f"{c.x}, {c.y}: " + "; ".join(filter(None, (c.text, c.tooltip)))}
        for c in cells
    ]  # fmt: skip
    base = alt.Chart(data(rows))
    along = alt.Axis(title=visible(x), domain=False, labelAngle=0, labelOverlap=True, labelLimit=120)
    across = alt.X("x:N", sort=xs, axis=along, scale=alt.Scale(paddingInner=0.03))
    beside = alt.Axis(title=visible(y), domain=False, labelLimit=150 if width >= WIDE else 90)
    down = alt.Y("y:N", sort=ys, axis=beside, scale=alt.Scale(paddingInner=0.05))
    fill = alt.Color("colour:N", scale=None)
    layers = [base.mark_rect().encode(x=across, y=down, color=fill, description="told:N")]
    framed = base.transform_filter("datum.framed").mark_rect(
        filled=False, stroke=WARM, strokeWidth=2.2, cornerRadius=3, aria=False
    )
    layers.append(framed.encode(x=across, y=down))
    slot = (width - 110) / max(1, len(xs))
    if slot >= 6.6 * max((len(cell.text) for cell in cells), default=0):
        text = base.mark_text(fontSize=11, aria=False)
        layers.append(text.encode(x=across, y=down, text="text:N", color=alt.Color("ink:N", scale=None)))
    chart = _keyed(alt.layer(*layers), key, width)
    return chart.properties(height=rise * len(ys))


def bars(rows: Sequence[tuple[str, float]], *, name: str, say: Callable[[float], str] = words.mean) -> Figure:
    """A bar for each name with its value at the end, as ``say`` writes it; the longest is in the accent."""

    def draw(width: int) -> Any:
        alt = altair()
        most = max((value for _, value in rows), default=1.0)
        table = [
            {"row": visible(name), "value": value, "text": say(value), "most": value == most}
            for name, value in rows
        ]
        base = alt.Chart(data(table))
        along = alt.X("value:Q", axis=None, scale=alt.Scale(domainMin=0))
        beside = alt.Axis(title=None, labelLimit=300, labelColor=_INK, labelFontSize=13)
        down = alt.Y("row:N", sort=[row["row"] for row in table], axis=beside)
        tone = alt.condition("datum.most", alt.value(ACCENT), alt.value(palette.LIGHT[7]))
        bar = base.mark_bar(aria=False, height={"band": 0.7}).encode(x=along, y=down, color=tone)
        text = base.mark_text(align="left", dx=8, fontSize=13, aria=False).encode(
            x=along, y=down, text="text:N"
        )
        return alt.layer(bar, text).properties(height=30 * len(rows))

    return Figure(name, ("", "Value"), tuple((row, say(value)) for row, value in rows), draw)
