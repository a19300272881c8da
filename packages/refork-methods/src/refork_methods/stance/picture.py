"""Pictures of stance runs: V over cuts, the plane of the two rates, the four cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from refork.report import palette
from refork.report.charts import Cell, Dot, Figure, Level, Line, Plane, Spot, Trail, curves, heat, scatter
from refork.report.words import one_line, rate

_MODES: Final = {"force_close": "closed by force", "free": "thinking on", None: "complete rollouts"}
_VERDICTS: Final = {
    "base": palette.ROLES["ink"], "slide": palette.LIGHT[5], "win": palette.SERIES[2],
    "worse": palette.SERIES[1],
}  # fmt: skip


def variance_figure(report: Mapping[str, Any]) -> Figure:
    """V over the share of the thinking that is kept, in each mode with its interval, and the coin's line."""
    rows = [row for row in report["cuts"] if row["v"] is not None]
    lines = [
        Line(name, [_dot(row) for row in rows if row["mode"] == mode], band=False, whiskers=True)
        for mode, name in _MODES.items()
        if any(row["mode"] == mode for row in rows)
    ]
    plane = Plane(
        "share of the thinking that is kept (above 100 %: thinking on by force)", "V = 4 q (1 - q)", "rate",
        "number", bottom=0.0, levels=[Level(1.0, "a fair coin")],
    )  # fmt: skip
    return curves(lines, name="How open the outcome still is after a cut", plane=plane)


def _dot(row: Mapping[str, Any]) -> Dot:
    v = row["v"]
    return Dot(row["cut"], v["estimate"], v["low"], v["high"], f"{row['groups']} groups")


def plane_figure(report: Mapping[str, Any]) -> Figure:
    """Attack success against over-refusal with intervals, and the curve of a constant shift of the base.

    What stands below and left of the curve is better than any shift.
    """
    spots = [_spot(report["base"], "base"), *(_spot(row, row["verdict"]) for row in report["defences"])]
    plane = Plane(
        "attack success (harmful requests complied with)", "over-refusal (benign requests refused)", "rate",
        bottom=0.0, top=1.0, height=380,
    )  # fmt: skip
    trail = Trail([(x, y) for x, y in report["curve"]])
    name = "Does a defence leave the curve of a constant shift?"
    figure = scatter(spots, name=name, plane=plane, colours=_VERDICTS, trails=[trail])
    return replace(figure, note="Below the line: better than any constant shift of the base.")


def _spot(row: Mapping[str, Any], verdict: str) -> Spot:
    asr, orr = row["asr"], row["orr"]
    return Spot(
        asr["estimate"], orr["estimate"], verdict, one_line(row["name"], 22), orr["low"], orr["high"],
        f"attack success {rate(asr['estimate'])} ({rate(asr['low'])} to {rate(asr['high'])})",
        x_low=asr["low"], x_high=asr["high"],
    )  # fmt: skip


def cells_figure(report: Mapping[str, Any]) -> Figure:
    """The four cells: was the outcome fixed before the turn, and did the turn move it?"""
    counts = report["cells"]
    total = sum(counts.values())
    cells = [
        Cell(
            moves, side_words, f"{counts[f'{side} {kind}']}", _tint(counts[f"{side} {kind}"], total, kind),
            f"{side}, {kind}: {counts[f'{side} {kind}']} of {total}", "#223344",
        )
        for side, side_words in (("locked", "outcome was fixed"), ("wavering", "outcome was open"))
        for kind, moves in (("performative", "the outcome stays"), ("meaningful", "the outcome moves"))
    ]  # fmt: skip
    figure = heat(cells, name=f"{total} turns of stance: does the outcome move?", x="", y="", rise=90)
    found = report["performative"]
    if not total or found is None:
        return replace(figure, note="No turn of stance was found.")
    note = f"performative: {rate(found['estimate'])} ({rate(found['low'])} to {rate(found['high'])})"
    agrees = report["agreement"]
    if agrees is not None:
        note += f"; moved ones follow their text: {rate(agrees['estimate'])}"
    return replace(figure, note=note)


def _tint(count: int, total: int, kind: str) -> str:
    """Stronger for more turns; blue where the outcome moves."""
    tints = ("#f2f0ec", "#e0ddd6", "#cbc7be", "#b5b0a5")
    if kind == "meaningful":
        tints = ("#eef4f8", "#d3e5ef", "#aecfe2", "#86b6d3")
    return tints[min(3, int(4 * count / total))] if total else tints[0]
