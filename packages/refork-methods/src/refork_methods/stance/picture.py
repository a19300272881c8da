"""Pictures of stance runs that stand alone: V over cuts, the plane of the two rates, the four cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from markupsafe import Markup

from refork.report.pictures import Frame
from refork.report.svg import Number, label, path, svg, tag
from refork.report.words import one_line, rate

_SVG: Final = "http://www.w3.org/2000/svg"
_FONT: Final[dict[str, Number | str | None]] = {
    "font_family": "sans-serif",
    "font_size": "12",
    "fill": "#333",
}
_DIM: Final = _FONT | {"fill": "#666"}
_TITLE: Final = _FONT | {"font_size": "15"}
#: Okabe and Ito's colours: apart for every common kind of colour blindness.
_BLUE, _RED, _GREEN, _GREY = "#0072b2", "#d55e00", "#00795c", "#777777"
_MODES: Final = {"force_close": ("closed by force", _RED), "free": ("thinking on", _BLUE)}
_VERDICTS: Final = {"slide": _GREY, "win": _GREEN, "worse": _RED}


def _document(width: int, height: int, name: str, parts: Sequence[Markup]) -> str:
    paper = tag("rect", width=width, height=height, fill="#fff")
    # In a page of its own a picture must say what language it is written in.
    return str(svg(width, height, name, paper, *parts)).replace("<svg", f'<svg xmlns="{_SVG}"', 1)


def _line(
    x1: Number, y1: Number, x2: Number, y2: Number, colour: str, width: Number = 1, dash: str | None = None
) -> Markup:
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=colour, stroke_width=width, stroke_dasharray=dash)


def _axes(
    frame: Frame, below: str, beside: str, marks_x: Sequence[float], marks_y: Sequence[float]
) -> list[Markup]:
    parts = []
    for mark in marks_y:
        y = frame.y(mark)
        parts.append(_line(frame.left, y, frame.right, y, "#ddd"))
        parts.append(
            label(
                frame.left - 8, y + 4, f"{mark:g}" if beside == "V" else rate(mark), text_anchor="end", **_DIM
            )
        )
    for mark in marks_x:
        x = frame.x(mark)
        parts.append(_line(x, frame.bottom, x, frame.bottom + 4, "#999"))
        parts.append(label(x, frame.bottom + 18, rate(mark), text_anchor="middle", **_DIM))
    parts.append(
        label((frame.left + frame.right) / 2, frame.bottom + 38, below, text_anchor="middle", **_FONT)
    )
    turn = f"rotate(-90 16 {(frame.top + frame.bottom) / 2:.0f})"
    name = "V = 4 q (1 - q)" if beside == "V" else beside
    parts.append(
        label(16, (frame.top + frame.bottom) / 2, name, text_anchor="middle", transform=turn, **_FONT)
    )
    return parts


def variance_picture(told: Mapping[str, Any]) -> str:
    """V over the share of the thinking that is kept, in each mode with its interval, and the coin's line."""
    rows = [row for row in told["cuts"] if row["v"] is not None]
    last = max((row["cut"] for row in told["cuts"]), default=1.0)
    high = max([1.0, *(row["v"]["high"] for row in rows)])
    frame = Frame(58, 560, 46, 296, 0, max(last, 1.0), 0, min(high * 1.04, 1.3))
    marks = sorted({row["cut"] for row in told["cuts"]})
    parts = [label(frame.left, 24, "How open the outcome still is after a cut", **_TITLE)]
    parts += _axes(frame, "share of the thinking that is kept", "V", marks, (0, 0.25, 0.5, 0.75, 1))
    parts.append(_line(frame.left, frame.y(1), frame.right, frame.y(1), "#555", 1, "5 4"))
    parts.append(label(frame.right + 8, frame.y(1) + 4, "a fair coin", **_DIM))
    if last > 1:
        x = frame.x(1)
        parts.append(_line(x, frame.top, x, frame.bottom, "#999", 1, "2 3"))
        parts.append(label(x + 4, frame.top + 10, "thinking on by force", **_DIM))
    ends: list[tuple[float, str, str]] = []
    for number, (mode, (name, colour)) in enumerate(_MODES.items()):
        mine = [row for row in rows if row["mode"] == mode]
        if mine:
            # The two modes stand side by side, so that neither interval hides the other.
            parts += _curve(mine, frame, colour, 3.5 if number else -3.5)
            ends.append((frame.y(mine[-1]["v"]["estimate"]), name, colour))
    whole = [row for row in rows if row["mode"] is None]
    parts += _dots(whole, frame, "#333", 0, hollow=True)
    if whole:
        parts.append(label(frame.x(0) + 9, frame.y(whole[0]["v"]["estimate"]) + 16, "complete", **_DIM))
        parts.append(label(frame.x(0) + 9, frame.y(whole[0]["v"]["estimate"]) + 30, "rollouts", **_DIM))
    parts += _names(ends, frame)
    return _document(700, 352, "Continuation variance over cuts", parts)


def _curve(rows: Sequence[Mapping[str, Any]], frame: Frame, colour: str, aside: float) -> list[Markup]:
    points = [(frame.x(row["cut"]) + aside, frame.y(row["v"]["estimate"])) for row in rows]
    drawn = tag("path", d=path(points), fill="none", stroke=colour, stroke_width=2)
    return [drawn, *_dots(rows, frame, colour, aside)]


def _dots(
    rows: Sequence[Mapping[str, Any]], frame: Frame, colour: str, aside: float, *, hollow: bool = False
) -> list[Markup]:
    parts = []
    for row in rows:
        x, v = frame.x(row["cut"]) + aside, row["v"]
        low, high = (frame.y(min(max(v[end], frame.low_y), frame.high_y)) for end in ("low", "high"))
        parts.append(_line(x, low, x, high, colour, 1.5))
        parts += [_line(x - 4, y, x + 4, y, colour, 1.5) for y in (low, high)]
        span = f"{v['low']:.3f} to {v['high']:.3f}"
        told = f"{rate(row['cut'])}: V {v['estimate']:.3f} ({span}), {row['groups']} groups"
        dot = tag(
            "circle", tag("title", told), cx=x, cy=frame.y(v["estimate"]), r=4.5,
            fill="#fff" if hollow else colour, stroke=colour, stroke_width=2,
        )  # fmt: skip
        parts.append(dot)
    return parts


def _names(ends: list[tuple[float, str, str]], frame: Frame) -> list[Markup]:
    """Names beside the ends of the lines, pushed apart where they would touch."""
    places, floor = [], frame.y(1) + 18
    for y, name, colour in sorted(ends):
        place = max(y + 4, floor)
        floor = place + 17
        places.append((place, name, colour))
    # Not below the axis, where its own labels stand.
    over = max(0.0, floor - 17 - (frame.bottom - 3))
    return [
        label(frame.right + 16, place - over, name, **(_FONT | {"fill": colour, "font_weight": "bold"}))
        for place, name, colour in places
    ]


def plane_picture(told: Mapping[str, Any]) -> str:
    """Attack success against over-refusal with intervals, and the curve of a constant shift of the base."""
    frame = Frame(66, 486, 46, 466, 0, 1)
    marks = (0, 0.25, 0.5, 0.75, 1)
    parts = [label(frame.left, 24, "Does a defence leave the curve of a constant shift?", **_TITLE)]
    curve = [(frame.x(x), frame.y(y)) for x, y in told["curve"]]
    inside = [(frame.left, frame.bottom), *sorted(curve)]
    parts.append(
        tag(
            "path",
            d=path([*inside, (frame.left, frame.bottom)], close=True),
            fill="#00795c",
            fill_opacity="0.07",
        )
    )
    parts += _axes(
        frame,
        "attack success (harmful requests complied with)",
        "over-refusal (benign requests refused)",
        marks,
        marks,
    )
    parts.append(tag("path", d=path(curve), fill="none", stroke="#444", stroke_width=2))
    parts.append(label(frame.x(0.03), frame.y(0.03), "better than any shift", **(_FONT | {"fill": _GREEN})))
    ends: list[tuple[float, str, str]] = []
    for row in (told["base"], *told["defences"]):
        own = row is told["base"]
        colour = "#111" if own else _VERDICTS[row["verdict"]]
        parts += _cross(row, frame, colour, own=own)
        says = "base" if own else row["verdict"]
        ends.append(
            (
                frame.y(row["orr"]["estimate"]),
                f"{one_line(row['name'], 22)}: {says}" if not own else row["name"],
                colour,
            )
        )
    floor = frame.top + 8
    places = sorted(zip(ends, (told["base"], *told["defences"]), strict=True), key=lambda item: item[0][0])
    for (y, name, colour), row in places:
        place = max(y + 4, floor)
        floor = place + 18
        x = frame.x(row["asr"]["estimate"])
        parts.append(
            tag(
                "path",
                d=path([(x + 7, y), (frame.right + 12, place - 4)]),
                fill="none",
                stroke=colour,
                stroke_opacity="0.35",
            )
        )
        parts.append(
            label(frame.right + 16, place, name, **(_FONT | {"fill": colour, "font_weight": "bold"}))
        )
    return _document(700, 522, "Attack success against over-refusal", parts)


def _cross(row: Mapping[str, Any], frame: Frame, colour: str, *, own: bool) -> list[Markup]:
    x, y = frame.x(row["asr"]["estimate"]), frame.y(row["orr"]["estimate"])
    both = rate(row["asr"]["estimate"]), rate(row["orr"]["estimate"])
    told = f"{row['name']}: attack success {both[0]}, over-refusal {both[1]}"
    return [
        _line(frame.x(row["asr"]["low"]), y, frame.x(row["asr"]["high"]), y, colour, 1.5),
        _line(x, frame.y(row["orr"]["low"]), x, frame.y(row["orr"]["high"]), colour, 1.5),
        tag(
            "circle", tag("title", told), cx=x, cy=y, r=5.5, fill="#fff" if own else colour, stroke=colour,
            stroke_width=2,
        ),
    ]  # fmt: skip


def cells_picture(told: Mapping[str, Any]) -> str:
    """The four cells as areas: was the outcome fixed before the turn, and did the turn move it?"""
    cells = told["cells"]
    total = sum(cells.values())
    left, top, size = 150.0, 84.0, 300.0
    parts = [label(20, 26, f"{total} turns of stance: does the outcome move?", **_TITLE)]
    if not total:
        parts.append(label(20, 60, "No turn of stance was found.", **_FONT))
        return _document(640, 90, "Turns of stance", parts)
    columns = (("performative", "the outcome stays", _GREY), ("meaningful", "the outcome moves", _BLUE))
    sides = {side: sum(cells[f"{side} {kind}"] for kind, _, _ in columns) for side in ("locked", "wavering")}
    # Heights are the shares of the two sides, widths the shares within a side, so areas are shares of all.
    gaps = [0.0, size * sides["locked"] / total, size]
    for (low, high), side in zip(pairwise(gaps), ("locked", "wavering"), strict=True):
        if high <= low:
            continue
        x = left
        for kind, _, colour in columns:
            count = cells[f"{side} {kind}"]
            width = size * 1.4 * count / sides[side]
            if not count:
                continue
            told_words = f"{side}, {kind}: {count} of {total}"
            parts.append(
                tag(
                    "rect", tag("title", told_words), x=x, y=top + low, width=max(width - 2, 1),
                    height=max(high - low - 2, 1), fill=colour,
                    fill_opacity="0.85" if side == "wavering" else "0.5",
                )
            )  # fmt: skip
            if width > 54 and high - low > 20:
                ink = "#fff" if side == "wavering" and colour == _BLUE else "#000"
                words = _FONT | {"fill": ink, "font_size": "14"}
                parts.append(
                    label(
                        x + width / 2, top + (low + high) / 2 + 5, f"{count}", text_anchor="middle", **words
                    )
                )
            x += width
        middle = top + (low + high) / 2
        names = {"locked": "outcome was fixed", "wavering": "outcome was open"}
        parts.append(label(left - 10, middle, names[side], text_anchor="end", **_FONT))
        parts.append(label(left - 10, middle + 15, f"{sides[side]} turns", text_anchor="end", **_DIM))
    for number, (_, title, colour) in enumerate(columns):
        x = left + number * 190
        parts.append(tag("rect", x=x, y=52, width=12, height=12, fill=colour, fill_opacity="0.7"))
        parts.append(label(x + 18, 63, title, **_FONT))
    parts += _cell_words(told, left, top + size + 26)
    return _document(640, int(top + size + 60), "Turns of stance in four cells", parts)


def _cell_words(told: Mapping[str, Any], x: float, y: float) -> list[Markup]:
    found = told["performative"]
    words = f"performative: {rate(found['estimate'])} ({rate(found['low'])} to {rate(found['high'])})"
    agrees = told["agreement"]
    if agrees is not None:
        words += f"; moved ones follow their text: {rate(agrees['estimate'])}"
    return [label(x, y, words, **_FONT)]
